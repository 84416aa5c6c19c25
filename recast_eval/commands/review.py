"""``recast-eval review``: let people judge, blind, and bring their votes home."""

from pathlib import Path
from typing import Annotated

import typer


def review(
    folder: Annotated[Path, typer.Argument(help="Folder of an evaluation.")],
    ballots: Annotated[
        list[Path] | None,
        typer.Option("--import", help="A file of votes that the page saved; again for more."),
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--model", help="Compare only these; give two or more.")
    ] = None,
    pairs: Annotated[int, typer.Option(help="Pairs on the page.", min=1)] = 50,
    axis: Annotated[
        str, typer.Option(help="What is asked: overall, faithfulness or aesthetics.")
    ] = "overall",
    seed: Annotated[int, typer.Option(help="Draws pairs and sides.", min=0)] = 0,
) -> None:
    """Write a blind A/B page (review/PAGE.html), or import votes and see who agrees."""
    from recast_eval.console import progress
    from recast_eval.judging.review import import_votes, write_page

    if ballots:
        came = import_votes(folder, ballots)
        typer.echo(
            f"{came.new} new votes, {came.changed} changed, {came.total} in all -> "
            f"{folder / 'votes.jsonl'}"
        )
        typer.echo(f"how people and judges agree: recast-eval audit {folder}")
        return
    with progress() as bar:
        task = bar.add_task("pictures", total=pairs)
        page = write_page(
            folder,
            models=models or [],
            count=pairs,
            axis=axis,
            seed=seed,
            on_pair=lambda: bar.advance(task),
        )
    typer.echo(f"{page.pairs} pairs -> {page.path}")
    if page.left_out:
        typer.echo(f"{page.left_out} pairs were left out: page too large, or damaged", err=True)
    typer.echo(f"keep {page.key} here; send the page, and import what comes back:")
    typer.echo(f"  recast-eval review {folder} --import votes-{page.path.stem}.json")
