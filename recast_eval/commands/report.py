"""``recast-eval report``: one HTML file that says who is better, by how much, and how sure."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of runs (runs/NAME) and evaluations (evals/NAME)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Default: report.html in the first DIR.")] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Two evaluations made at different times: what changed."),
    ] = None,
) -> None:
    """Write one self-contained HTML file that needs no network."""
    from recast_eval.errors import ConfigError
    from recast_eval.records import write_atomic
    from recast_eval.reporting.page import build_report

    if compare is not None and folders:
        raise ConfigError(["--compare takes its own two folders: give no others with it"])
    if compare is not None:
        from recast_eval.reporting.compare import build_comparison

        page, first = build_comparison(*compare), compare[1]
    elif folders:
        page, first = build_report(folders), folders[0]
    else:
        raise ConfigError(["give at least one folder of a run or an evaluation"])
    target = out if out is not None else first / "report.html"
    if target.is_dir():
        raise ConfigError([f"{target} is a folder: give --out the name of a file"])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, page)
    except OSError as error:
        raise ConfigError([f"{target} cannot be written: {error.strerror}"]) from error
    typer.echo(f"{target}  ({len(page.encode()) / 1e6:.1f} MB)")
