"""``recast-train profile``: how much of each reward is decided at each noise level."""

from pathlib import Path
from typing import Annotated, Optional

import typer


def profile(
    recipe: Annotated[str, typer.Argument(help="a recipe file, or the name of a shipped one")],
    images: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads it at run time
        typer.Option(help="measure on this folder's images instead of own rollouts"),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="file to write [default: profiles/NAME.json]"),
    ] = None,
    prompts: Annotated[int, typer.Option(help="prompts drawn from the recipe's set")] = 24,
    images_per_prompt: Annotated[int, typer.Option(help="rollouts of each")] = 12,
    probes: Annotated[int, typer.Option(help="noise levels looked at")] = 8,
    set_: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", help="a.b=value, laid over the recipe; may be repeated"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, ... [default: cuda if there]")] = "",
) -> None:
    """Measure discriminability curves offline and write them; see ``recast-train weights``."""
    from recast_train.credit.show import profile_text
    from recast_train.profiling import ProfileSettings, run_profile

    path, found = run_profile(
        recipe,
        images=images,
        out=out,
        overrides=set_ or (),
        settings=ProfileSettings(prompts=prompts, per_prompt=images_per_prompt, probes=probes),
        device=device,
    )
    typer.echo(profile_text(found))
    for name, (_, total) in found.scored.items():
        if total < found.images:
            typer.echo(f"{name}: not applicable to {found.images - total} of {found.images} images")
    missing = [n for n, v in zip(found.rewards, found.variance, strict=True) if not v > 0]
    for name in missing:
        typer.echo(
            f"{name}: not measured, the zeros above say nothing: fewer than two prompts have two "
            "scored images that differ; a W from this profile gives it no step of its own"
        )
    typer.echo(f"written to {path}")
    if missing or any(scored < total for scored, total in found.scored.values()):
        raise typer.Exit(1)
