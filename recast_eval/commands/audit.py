"""``recast-eval audit``: what the judges react to besides the pictures' merit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recast_eval.commands import _judge_options as flags

if TYPE_CHECKING:
    from recast_eval.judging.audit_pictures import TextArea
    from recast_eval.judging.audit_records import JudgeAudit
    from recast_eval.judging.executor import Options


def audit(
    folder: Annotated[Path, typer.Argument(help="Folder of an evaluation.")],
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask the null tests (costs calls), then audit.")
    ] = False,
    judges: Annotated[
        list[str] | None, typer.Option("--judge", help="Ask only this judge; again for more.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Ask here instead of where the verdicts came from.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Ask this model instead.")] = None,
    nulls: Annotated[int, typer.Option(help="Pictures per null test.", min=1)] = 20,
    max_cost: Annotated[
        float | None,
        typer.Option(help="Hard cap in US dollars for --ask; needs a price.", min=0),
    ] = None,
    price: flags.PriceText = None,
    text: Annotated[
        bool, typer.Option("--text", help="Measure visible text too (needs rapidocr-onnxruntime).")
    ] = False,
) -> None:
    """Audit each judge and say in one line whether to trust it; writes audit.json."""
    from recast_eval.console import progress
    from recast_eval.judging.audit import AUDIT, picture_paths
    from recast_eval.judging.audit import audit as run
    from recast_eval.judging.executor import Options
    from recast_eval.judging.money import read_price
    from recast_eval.records import write_json

    rate = read_price(price)
    reader = _text_area() if text else None
    if ask:
        _ask(folder, judges or [], base_url, model, nulls, Options(max_cost=max_cost, price=rate))
    with progress() as bar:
        task = bar.add_task("measuring pictures", total=len(picture_paths(folder)))
        found = run(folder, text=reader, on_picture=lambda: bar.advance(task))
    write_json(folder / AUDIT, found)
    for one in found.judges:
        _say(one)
    for line in found.skipped:
        typer.echo(f"not looked at: {line}", err=True)
    typer.echo(f"every number -> {folder / AUDIT}")
    if any(null.scored < null.asked for one in found.judges for null in one.nulls):
        raise typer.Exit(1)


def _say(one: "JudgeAudit") -> None:
    typer.echo(f"{one.judge}: {one.verdict}")
    for reason in one.reasons[3:]:
        typer.echo(f"  also: {reason}")
    for scorer in one.scorers:
        for contradiction in scorer.contradictions[:2]:
            typer.echo(f"  contradiction: {contradiction}")


def _ask(
    folder: Path,
    names: list[str],
    base_url: str | None,
    model: str | None,
    count: int,
    options: "Options",
) -> None:
    from recast_eval.errors import ConfigError, DataError
    from recast_eval.judging.audit import image_sets
    from recast_eval.judging.audit_null import ask_nulls, judges_to_ask
    from recast_eval.judging.records import VerdictRecord
    from recast_eval.records import read_records

    path = folder / "verdicts.jsonl"
    if not path.is_file():
        raise DataError("no verdicts here: run recast-eval judge first", path=path)
    asked = judges_to_ask(read_records(path, VerdictRecord), names, base_url, model)
    sets = image_sets(folder)
    if not asked:
        typer.echo("no judge here is asked about pairs of pictures: no null test", err=True)
        return
    if not sets:
        raise ConfigError([f"{folder}/images holds no images to ask about"])
    ask_nulls(folder, sets[0], asked, count, options)


def _text_area() -> "TextArea":
    from recast_eval.judging.audit_text import text_area

    return text_area()
