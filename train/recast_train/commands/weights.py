"""``recast-train weights``: solve W from a profile and show it."""

from pathlib import Path
from typing import Annotated, Optional

import typer


def weights(
    profile: Annotated[Path, typer.Argument(help="a file that `recast-train profile` wrote")],
    budget: Annotated[
        list[str], typer.Option(help="NAME=V, once a reward; budgets are normalised to sum 1")
    ],
    temperature: Annotated[float, typer.Option(help="kernel exp(ghat / temperature)")] = 1.0,
    floor: Annotated[float, typer.Option(help="share of static W mixed in, 0 to 1")] = 0.1,
    gain: Annotated[str, typer.Option(help="r2, d2 or kl")] = "r2",
    estimator: Annotated[str, typer.Option(help="whose curve [default: the best there]")] = "",
    shrink: Annotated[bool, typer.Option(help="pull noisy gains to flat")] = True,
    json_: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads it at run time
        typer.Option("--json", help="write the credit record here"),
    ] = None,
    plot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="draw gains and W here (.png, .svg, .pdf)"),
    ] = None,
) -> None:
    """Solve W from measured gains and print it: a row per step, noise first."""
    from recast_train.credit.show import draw_weights, save_json, solve_profile, table_text

    record = solve_profile(
        profile,
        budget,
        temperature=temperature,
        floor=floor,
        gain=gain,
        estimator=estimator,
        shrink=shrink,
    )
    typer.echo(table_text(record))
    if json_ is not None:
        save_json(json_, record)
    if plot is not None:
        draw_weights(plot, record)
