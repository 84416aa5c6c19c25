"""``recast-train sweep``: methods x budgets x seeds, each run resumable."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer


class EngineName(StrEnum):
    """Where runs run."""

    local = "local"
    ray = "ray"


def sweep(
    file: Annotated[str, typer.Argument(help="A sweep file, or the name of a shipped one.")],
    out: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads it at run time
        typer.Option(help="Folder of all runs [default: runs/NAME]"),
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="Where runs run.")] = EngineName.local,
    workers: Annotated[int, typer.Option(min=1, help="Local runs at a time.")] = 1,
    processes: Annotated[int, typer.Option(min=1, help="Of each run, a GPU each.")] = 1,
    resume: Annotated[bool, typer.Option(help="Go on with a sweep that is there.")] = False,
    dry_run: Annotated[bool, typer.Option(help="List the runs and stop.")] = False,
) -> None:
    """Train every variant with every budget and seed; `recast-eval report OUT` compares them."""
    from recast_eval.errors import ConfigError
    from recast_train.recipe_files import find_sweep
    from recast_train.sweep import plan_runs, read_sweep, run_sweep

    plan, recipe = read_sweep(find_sweep(file))
    runs = plan_runs(plan)
    folder = out or Path("runs") / plan.name
    if dry_run:
        for run in runs:
            typer.echo(f"{run.name}: {' '.join(run.overrides)}")
        return
    if folder.exists() and any(folder.iterdir()) and not resume:
        raise ConfigError(
            [f"{folder} is there already: --resume goes on with it, --out names another"]
        )
    folder.mkdir(parents=True, exist_ok=True)
    statuses = run_sweep(
        runs, recipe, folder, engine=engine.value, workers=workers, processes=processes
    )
    if 130 in statuses.values():
        raise typer.Exit(130)
    failed = [name for name, status in statuses.items() if status]
    typer.echo(f"{len(runs) - len(failed)} of {len(runs)} runs done in {folder}")
    if failed:
        typer.echo(f"failed, or not all scored: {', '.join(failed)}", err=True)
        raise typer.Exit(1)
