"""``recast-train recipes``: what ships, and each recipe's manual."""

from typing import Annotated, Optional

import typer


def recipes(
    name: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it at run time
        typer.Argument(help="print this one"),
    ] = None,
) -> None:
    """List the shipped recipes, or print one: its head comment is its manual."""
    from recast_train.recipe_files import find_recipe, head_line, shipped_recipes, shipped_sweeps

    if name is not None:
        typer.echo(find_recipe(name).read_text("utf-8"), nl=False)
        return
    for path in shipped_recipes():
        typer.echo(f"{path.stem:28} {head_line(path)}")
    typer.echo("\nsweeps:")
    for path in shipped_sweeps():
        typer.echo(f"{path.stem:28} {head_line(path)}")
