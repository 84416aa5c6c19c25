"""``recast-train estimate``: memory and time of a run, before anything is loaded."""

from typing import Annotated, Optional

import typer


def estimate(
    recipe: Annotated[str, typer.Argument(help="a recipe file, or the name of a shipped one")],
    set_: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it at run time
        typer.Option("--set", help="a.b=value, laid over the recipe; may be repeated"),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="How many share an epoch.")] = 1,
    shard: Annotated[bool, typer.Option(help="The frozen model split over them.")] = False,
    tflops: Annotated[float, typer.Option(help="Assumed of each, 1e12 a second.")] = 300.0,
) -> None:
    """Estimate memory and time from shapes; nothing is measured on this machine."""
    from recast_eval.errors import ConfigError
    from recast_train.config import load_plan
    from recast_train.memory import describe
    from recast_train.memory import estimate as find
    from recast_train.recipe_files import find_recipe

    plan = load_plan(find_recipe(recipe), set_ or ())
    found = find(plan, processes=processes, sharded=shard)
    if found is None:
        raise ConfigError(
            ["model.base: estimates need a folder with transformer/config.json, or SD3.5-Medium"]
        )
    for line in describe(found, processes=processes, epochs=plan.recipe.epochs, tflops=tflops):
        typer.echo(line)
