"""``recast-eval judge``: ask judges about every pair, in both orders, and lose nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from recast_eval.judging.cards import Price
    from recast_eval.judging.executor import Options
    from recast_eval.judging.workflow import Bench, Judged


def judge(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Two or more: image folders, checkpoints, or models of the evaluation in --out."
        ),
    ],
    pairwise: Annotated[
        bool, typer.Option("--pairwise", help="Compare every two of MODELS (the only way so far).")
    ] = True,
    judges: Annotated[
        list[str] | None,
        typer.Option("--judge", help="A judge card, by name or path; again for more."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="OpenAI-compatible endpoint, up to /v1.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model id at the endpoint.")] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Hard cap in US dollars; needs a price.", min=0)
    ] = None,
    price: Annotated[
        str | None, typer.Option(help="IN,OUT: dollars for a million input and output tokens.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Count and estimate; ask nothing.")] = False,
    batch: Annotated[
        str | None,
        typer.Option(help="OpenAI Batch API instead of calls: write, submit or collect."),
    ] = None,
    repeats: Annotated[int | None, typer.Option(help="Ask each question so often.", min=1)] = None,
    concurrency: Annotated[int, typer.Option(help="Most calls at once.", min=1)] = 16,
    prompts: Annotated[
        str | None, typer.Option(help="Prompt sets, to draw from checkpoints; see score.")
    ] = None,
    split: Annotated[str, typer.Option(help="Of the prompt sets.")] = "test",
    limit: Annotated[int | None, typer.Option(help="Use so many prompts of each set.")] = None,
    images_per_prompt: Annotated[int, typer.Option(help="To draw.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Of images that are drawn.")] = 0,
    scorers: Annotated[
        str | None, typer.Option(help="Scorers of the offline jury, separated by commas.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...: for drawing.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the evaluation.")] = None,
) -> None:
    """Judge models against each other; run it again to finish what was interrupted."""
    from recast_eval.commands._models import Wanted, bring_models
    from recast_eval.judging.executor import Options
    from recast_eval.judging.workflow import (
        Bench,
        check_bench,
        choose_cards,
        find_endpoint,
    )

    del pairwise
    cards = choose_cards(judges or [], has_endpoint=bool(base_url or model), repeats=repeats)
    endpoint = find_endpoint(cards, base_url, model)
    rate = _price(price)
    wanted = Wanted(
        models,
        out,
        prompts,
        split,
        limit,
        images_per_prompt,
        seed,
        device,
        tuple(name.strip() for name in (scorers or "").split(",") if name.strip()),
    )
    offline = any(card.offline for card in cards)
    folder, sets = bring_models(wanted, scores=offline, look_only=dry_run)
    bench = Bench(tuple(cards), endpoint, tuple(sets))
    check_bench(bench, max_cost, rate)
    if dry_run:
        _estimate(bench, folder, rate)
        return
    options = Options(concurrency=concurrency, max_cost=max_cost, price=rate)
    if batch is not None:
        _batch(batch, bench, folder, options)
        return
    done = _run(bench, folder, options)
    _say(bench, done, folder)
    scored, total = done.tally.of(bench.names())
    if scored < total:
        raise typer.Exit(1)


def _price(text: str | None) -> "Price | None":
    from recast_eval.errors import ConfigError
    from recast_eval.judging.cards import Price

    if text is None:
        return None
    try:
        sent, made = (float(part) for part in text.split(","))
        return Price(input=sent, output=made)
    except ValueError:
        raise ConfigError([f"--price {text!r}: must be two numbers, like 2.5,10"]) from None


def _estimate(bench: "Bench", out: Path, rate: "Price | None") -> None:
    from recast_eval.judging.workflow import estimate

    rows = estimate(bench, out, rate)
    if not rows:
        typer.echo("the offline jury asks nobody and costs nothing")
    for spec, plan, (sent, made), cost in rows:
        typer.echo(
            f"{spec.judge}: {plan.pairs} pairs, {plan.questions} questions, {plan.settled} of them "
            f"in the store; to ask {len(plan.pending)}"
        )
        priced = rate or spec.card.prices.get(spec.model)
        money = f"{cost:.4f} USD" if priced else "unknown cost (no price)"
        typer.echo(f"  at most about {sent:,} input and {made:,} output tokens: {money}")
        _problems(plan.problems)
    typer.echo("dry run: nothing was asked")


def _run(bench: "Bench", out: Path, options: "Options") -> "Judged":
    from dataclasses import replace

    from recast_eval.console import progress
    from recast_eval.judging.offline import read_heldout_scores
    from recast_eval.judging.workflow import judge as judge_all

    scores = None
    if any(card.offline for card in bench.cards):
        scores = read_heldout_scores(out / "scores.jsonl")
    with progress() as bar:
        task = bar.add_task("checking pictures", total=None)
        watched = replace(
            options,
            on_planned=lambda plan: bar.update(
                task, description="asking", total=len(plan.pending), completed=0
            ),
            on_answer=lambda answer: bar.advance(task),
        )
        return judge_all(
            bench, out, watched, scores=scores, on_judge=lambda n: bar.update(task, description=n)
        )


def _problems(problems: list[str]) -> None:
    for line in problems[:5]:
        typer.echo(f"  cannot be shown: {line}", err=True)
    if len(problems) > 5:
        typer.echo(f"  ... and {len(problems) - 5} more", err=True)


def _say(bench: "Bench", done: "Judged", out: Path) -> None:
    """What happened, in a few lines."""
    for name, report in done.reports.items():
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
    _say_states(done, bench.names())
    scored, total = done.tally.of(bench.names())
    typer.echo(f"{scored} of {total} scored -> {out / 'verdicts.jsonl'}")
    if all(card.offline for card in bench.cards):
        if not scored:
            typer.echo(
                "no held-out scores here: recast-eval score MODELS --judges A,B first", err=True
            )
        typer.echo(
            "judged by the offline jury of held-out scorers. For a vision-language model: "
            "--base-url http://HOST:PORT/v1 --model NAME (key in OPENAI_API_KEY)"
        )


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
    ledger = done.ledger
    if ledger.calls:
        cost = ledger.sums.get("cost_usd")
        unknown = ledger.untold.get("cost_usd", 0)
        money = "cost unknown" if cost is None else f"{cost:.4f} USD"
        note = f" (and {unknown} replies of unknown cost)" if cost is not None and unknown else ""
        typer.echo(
            f"  {ledger.calls} calls so far, {ledger.replies} replies, "
            f"{ledger.retried} brought nothing; {money}{note}"
        )


def _batch(action: str, bench: "Bench", out: Path, options: "Options") -> None:
    from recast_eval.judging.workflow import batch

    lines, tally = batch(action, bench, out, options)
    for line in lines:
        typer.echo(line)
    if tally is not None:
        scored, total = tally.of(bench.names())
        typer.echo(f"{scored} of {total} scored -> {out / 'verdicts.jsonl'}")
        if scored < total:
            raise typer.Exit(1)
