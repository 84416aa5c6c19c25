"""``recast-eval doctor``: what can run here, what is missing, and the line that mends it."""

from typing import Annotated

import typer


def doctor(
    build: Annotated[bool, typer.Option(help="Load each scorer (slow), not only look.")] = False,
) -> None:
    """Check packages, weights, devices, the starter and the judging endpoint."""
    from rich.console import Console
    from rich.table import Table

    from recast_eval.scoring.doctor import examine

    table = Table(title="recast-eval doctor", show_lines=False)
    for column in ("what", "state", "facts, or what to do"):
        table.add_column(column, overflow="fold")
    colors = {"ok": "green", "missing": "yellow", "broken": "red"}
    findings = examine(build=build)
    for finding in findings:
        state = f"[{colors[finding.state]}]{finding.state}[/]"
        table.add_row(finding.what, state, finding.facts)
    Console().print(table)
    if any(f.state == "broken" for f in findings):
        raise typer.Exit(1)
