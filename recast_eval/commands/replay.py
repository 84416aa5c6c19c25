"""``recast-eval replay``: read the stored replies again with the parser of today."""

from pathlib import Path
from typing import Annotated

import typer


def replay(
    folder: Annotated[Path, typer.Argument(help="Folder of an evaluation.")],
    write: Annotated[bool, typer.Option(help="Renew verdicts.jsonl.")] = True,
) -> None:
    """Rebuild verdicts.jsonl from replies.sqlite, show what changed; nothing is asked."""
    from recast_eval.errors import DataError
    from recast_eval.judging.replaying import replay as again

    if not (folder / "replies.sqlite").is_file():
        raise DataError("no replies here: judge first", path=folder / "replies.sqlite")
    result = again(folder, write=write)
    for change in result.changes[:20]:
        typer.echo(change)
    if len(result.changes) > 20:
        typer.echo(f"... and {len(result.changes) - 20} more")
    typer.echo(
        f"{result.tally.total} records, {len(result.changes)} changed, "
        f"{result.tally.scored} of {result.tally.total} scored"
    )
    if result.tally.scored < result.tally.total:
        raise typer.Exit(1)
