"""``recast-train run``: train what a recipe says."""

from pathlib import Path
from typing import Annotated, Optional

import typer


def run(
    recipe: Annotated[str, typer.Argument(help="a recipe file, or the name of a shipped one")],
    out: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads it at run time
        typer.Option(help="folder of the run [default: runs/NAME]"),
    ] = None,
    set_: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", help="a.b=value, laid over the recipe; may be repeated"),
    ] = None,
    resume: Annotated[bool, typer.Option(help="continue after the last checkpoint")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, ... [default: cuda if there]")] = "",
) -> None:
    """Train a policy on the rewards of a recipe; see also ``recast-train recipes``."""
    from recast_train.stopping import stop_flag

    with stop_flag():
        from recast_train.session import run_recipe  # here: torch takes seconds to import

        found = run_recipe(recipe, out=out, overrides=set_ or (), resume=resume, device=device)
    for line in found.unscored:
        typer.echo(line, err=True)
    if not found.finished:
        raise typer.Exit(130)
    if found.unscored:
        raise typer.Exit(1)
