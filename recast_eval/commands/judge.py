"""``recast-eval judge``: ask judges about every pair, in both orders, and lose nothing."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from recast_eval.commands import _judge_options as flags
from recast_eval.commands._judge_words import say_estimate, say_judged

if TYPE_CHECKING:
    from recast_eval.commands._models import Wanted
    from recast_eval.judging.cards import JudgeCard
    from recast_eval.judging.executor import Options
    from recast_eval.judging.workflow import Bench, Endpoint, Judged


def judge(
    models: flags.Models,
    pairwise: flags.Pairwise = True,
    judges: flags.Judges = None,
    base_url: flags.BaseUrl = None,
    model: flags.Model = None,
    max_cost: flags.MaxCost = None,
    price: flags.PriceText = None,
    dry_run: flags.DryRun = False,
    batch: flags.Batch = None,
    repeats: flags.Repeats = None,
    concurrency: flags.Concurrency = 16,
    prompts: flags.Prompts = None,
    split: flags.Split = "test",
    limit: flags.Limit = None,
    images_per_prompt: flags.ImagesPerPrompt = 2,
    seed: flags.Seed = 0,
    scorers: flags.Scorers = None,
    device: flags.Device = None,
    out: flags.Out = None,
) -> None:
    """Judge models against each other; run it again to finish what was interrupted."""
    from recast_eval.commands._models import Wanted
    from recast_eval.judging.executor import Options
    from recast_eval.judging.money import read_price
    from recast_eval.judging.workflow import choose_cards, find_endpoint

    del pairwise
    cards = choose_cards(judges or [], has_endpoint=bool(base_url or model), repeats=repeats)
    endpoint = find_endpoint(cards, base_url, model)
    options = Options(concurrency=concurrency, max_cost=max_cost, price=read_price(price))
    jurors = tuple(name.strip() for name in (scorers or "").split(",") if name.strip())
    wanted = Wanted(models, out, prompts, split, limit, images_per_prompt, seed, device, jurors)
    bench, folder = _seat(cards, endpoint, wanted, options, look_only=dry_run)
    if dry_run:
        say_estimate(bench, folder, options.price)
    elif batch is not None:
        _batch(batch, bench, folder, options)
    else:
        _judge(bench, folder, options)


def _seat(
    cards: "list[JudgeCard]",
    endpoint: "Endpoint | None",
    wanted: "Wanted",
    options: "Options",
    *,
    look_only: bool,
) -> "tuple[Bench, Path]":
    """Bring the models' images and check that everything can be judged."""
    from recast_eval.commands._models import bring_models
    from recast_eval.judging.workflow import Bench, check_bench

    offline = any(card.offline for card in cards)
    folder, sets = bring_models(wanted, scores=offline, look_only=look_only)
    bench = Bench(tuple(cards), endpoint, tuple(sets))
    check_bench(bench, options.max_cost, options.price)
    return bench, folder


def _judge(bench: "Bench", out: Path, options: "Options") -> None:
    done = _run(bench, out, options)
    say_judged(bench, done, out)
    scored, total = done.tally.of(bench.names())
    if scored < total:
        raise typer.Exit(1)


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
