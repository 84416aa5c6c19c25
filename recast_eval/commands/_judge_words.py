"""What ``recast-eval judge`` tells: plans, runs, states, money."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from recast_eval.judging.cards import Price
    from recast_eval.judging.executor import RunReport
    from recast_eval.judging.money import Ledger
    from recast_eval.judging.workflow import Bench, Judged


def say_estimate(bench: "Bench", out: Path, rate: "Price | None") -> None:
    """What would be asked, and what it may cost at most."""
    from recast_eval.judging.workflow import estimate

    rows = estimate(bench, out, rate)
    if not rows:
        typer.echo("the offline jury asks nobody and costs nothing")
    for row in rows:
        spec, plan = row.spec, row.plan
        typer.echo(
            f"{spec.judge}: {plan.pairs} pairs, {plan.questions} questions, {plan.settled} of them "
            f"in the store; to ask {len(plan.pending)}"
        )
        priced = rate or spec.card.prices.get(spec.model)
        money = (
            f"{row.most:.4f} USD ({row.once:.4f} if no reply is cut short)"
            if priced
            else "unknown cost (no price)"
        )
        typer.echo(f"  at most about {row.sent:,} input and {row.made:,} output tokens: {money}")
        _problems(plan.problems)
    typer.echo("dry run: nothing was asked")


def say_judged(bench: "Bench", done: "Judged", out: Path) -> None:
    """What happened, in a few lines."""
    for name, report in done.reports.items():
        _say_run(name, report)
    _say_states(done, bench.names())
    _say_spent(done.ledger)
    scored, total = done.tally.of(bench.names())
    typer.echo(f"{scored} of {total} scored -> {out / 'verdicts.jsonl'}")
    if all(card.offline for card in bench.cards):
        _say_offline(scored)


def _say_run(name: str, report: "RunReport") -> None:
    plan = report.plan
    typer.echo(
        f"{name}: {plan.questions} questions, {plan.settled} were in the store, "
        f"{report.asked} asked, at most {report.peak} at once"
    )
    if report.lost:
        typer.echo(
            f"  at most {report.lost} calls were on their way when an earlier run died: they "
            "may have been paid for, and were asked again"
        )
    if report.stopped:
        typer.echo(f"  stopped: {report.stopped}", err=True)
    sizes = {model: sorted(s) for model, s in plan.sizes.items()}
    if len({tuple(s) for s in sizes.values()}) > 1:
        typer.echo(f"  image sizes differ between models: {_sizes(sizes)}", err=True)
    _problems(plan.problems)


def _problems(problems: list[str]) -> None:
    for line in problems[:5]:
        typer.echo(f"  cannot be shown: {line}", err=True)
    if len(problems) > 5:
        typer.echo(f"  ... and {len(problems) - 5} more", err=True)


def _sizes(sizes: dict[str, list[tuple[int, int]]]) -> str:
    return ", ".join(
        f"{model} {'/'.join(f'{w}x{h}' for w, h in found[:3])}{'...' if len(found) > 3 else ''}"
        for model, found in sizes.items()
    )


def _say_states(done: "Judged", names: list[str]) -> None:
    by_axis: dict[tuple[str, str], list[str]] = {}
    for (name, axis, state), count in sorted(done.tally.states.items()):
        if name in names:
            by_axis.setdefault((name, axis), []).append(f"{state} {count}")
    for (name, axis), counts in by_axis.items():
        typer.echo(f"  {name:28s} {axis:14s} {', '.join(counts)}")


def _say_spent(ledger: "Ledger") -> None:
    if ledger.calls:
        cost = ledger.sums.get("cost_usd")
        unknown = ledger.untold.get("cost_usd", 0)
        money = "cost unknown" if cost is None else f"{cost:.4f} USD"
        note = f" (and {unknown} replies of unknown cost)" if cost is not None and unknown else ""
        typer.echo(
            f"  {ledger.calls} calls so far, {ledger.replies} replies, "
            f"{ledger.retried} brought nothing; {money}{note}"
        )


def _say_offline(scored: int) -> None:
    if not scored:
        typer.echo("no held-out scores here: recast-eval score MODELS --judges A,B first", err=True)
    typer.echo(
        "judged by the offline jury of held-out scorers. For a vision-language model: "
        "--base-url http://HOST:PORT/v1 --model NAME (key in OPENAI_API_KEY)"
    )
