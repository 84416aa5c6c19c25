"""``recast-train starter``: the small real models that ship with the package."""

from pathlib import Path
from typing import Annotated

import typer

starter = typer.Typer(no_args_is_help=True, help="The starter model.")


@starter.command()
def build(
    masked: Annotated[
        bool, typer.Option("--masked", help="The masked starter instead of the SD3 one.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the folder goes [default: starter, or starter-masked]."),
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="Resumable state [default: runs/OUT-work].")
    ] = None,
    vae_steps: Annotated[
        int | None, typer.Option(help="Autoencoder steps, SD3 only [default: 1200].", min=1)
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Transformer steps [default: 13000, or 9000 if masked].", min=1),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of data, weights and noise.")] = 0,
) -> None:
    """Rebuild a starter from nothing; the same command resumes after any stop."""
    from recast_eval.errors import ConfigError

    out = out or Path("starter-masked" if masked else "starter")
    work = work or Path("runs") / f"{out.name}-work"
    if not masked:
        from recast_train.starter.build import build_starter

        build_starter(work, out, vae_steps=vae_steps or 1200, steps=steps or 13_000, seed=seed)
        typer.echo(f"written to {out}")
        return
    if vae_steps is not None:
        raise ConfigError(["--vae-steps: the masked starter has no autoencoder; leave it out"])
    from recast_train.starter.masked import build_masked

    build_masked(work, out, steps=steps or 9000, seed=seed)
    typer.echo(f"written to {out}")


@starter.command()
def where() -> None:
    """Print the folder of the shipped starter, a plain diffusers pipeline."""
    from recast_eval.content import content

    typer.echo(content("train/starter"))


@starter.command()
def towers(
    out: Annotated[Path, typer.Option(help="Gets the safetensors files.")] = Path("scorers"),
    work: Annotated[Path, typer.Option(help="Resumable state.")] = Path("runs/starter-towers"),
    steps: Annotated[
        int | None, typer.Option(help="Batches of 64 cards for each; default as shipped.")
    ] = None,
) -> None:
    """Train the two image-text scorers again: the reward and the held-out judge."""
    from recast_train.starter.towers import build_towers

    for name, facts in build_towers(work, out, steps=steps).items():
        typer.echo(f"{name}: " + ", ".join(f"{k} {v:.3f}" for k, v in facts.items()))
