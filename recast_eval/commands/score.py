"""``recast-eval score``: draw what is missing, score what has no score, say what is new."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from recast_eval.scoring import EvalResult


def score(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Checkpoint, run, `starter`, diffusers folder, hub id, or image folder with "
            "metadata.jsonl; NAME=PATH gives it a name."
        ),
    ],
    prompts: Annotated[
        str | None, typer.Option(help="Prompt sets or files, separated by commas.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    limit: Annotated[int | None, typer.Option(help="Use so many prompts of each set.")] = None,
    judges: Annotated[
        str | None, typer.Option(help="Scorers, separated by commas; default: all that fit.")
    ] = None,
    heldout: Annotated[
        str | None,
        typer.Option(help="Scorers that must be held out: refused if their family was trained on."),
    ] = None,
    images_per_prompt: Annotated[int, typer.Option(help="Images of each prompt.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the images.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder; default evals/NAMES.")] = None,
    batch: Annotated[int, typer.Option(help="Images drawn at once.")] = 32,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    steps: Annotated[int | None, typer.Option(help="Solver steps; default as trained.")] = None,
    guidance_scale: Annotated[
        float | None, typer.Option(help="Classifier-free guidance; default as trained.")
    ] = None,
    resolution: Annotated[int | None, typer.Option(help="Pixels a side.")] = None,
) -> None:
    """Score models on the same prompts with rewards and held-out judges."""
    from recast_eval.scoring import EvalPlan, run_evaluation

    plan = EvalPlan(
        models=models,
        prompts=prompts,
        split=split,
        limit=limit,
        judges=_names(judges),
        heldout=_names(heldout),
        samples=images_per_prompt,
        seed=seed,
        out=out,
        batch=batch,
        device=device,
        sampler={"steps": steps, "guidance_scale": guidance_scale, "resolution": resolution},
        command=["recast-eval", *sys.argv[1:]],
    )
    result = run_evaluation(plan)
    _show(result)
    if result.unscored:
        raise typer.Exit(1)


def _names(text: str | None) -> list[str]:
    return [n.strip() for n in (text or "").split(",") if n.strip()]


def _show(result: "EvalResult") -> None:
    for note in result.notes:
        typer.echo(note, err=True)
    tallies = result.scores.tallies()
    width = max((len(s) for _, s in tallies), default=0)
    models = list(dict.fromkeys(m for m, _ in tallies))
    roles = {
        r.scorer: "held out" if r.role == "heldout" else "trained" for r in result.scores.records
    }
    for scorer in dict.fromkeys(s for _, s in tallies):
        cells = []
        for model in models:
            tally = tallies[model, scorer]
            mean = f"{sum(tally.values) / len(tally.values):.3f}" if tally.values else "-"
            apart = f", {tally.not_applicable} not applicable" if tally.not_applicable else ""
            cells.append(f"{model} {mean} ({len(tally.values)}/{tally.total}{apart})")
        typer.echo(f"{scorer:{width}s}  {roles[scorer]:8s}  " + "   ".join(cells))
    images, scores = result.images, result.scores
    made = images.drawn + images.copied
    if made or scores.computed:
        typer.echo(
            f"images: {images.drawn} drawn, {images.copied} copied, {images.reused} there before; "
            f"scores: {scores.computed} new, {scores.reused} there before"
        )
    else:
        typer.echo(
            f"nothing to do: all {images.reused} images and {scores.reused} scores were there"
        )
    undrawn = sum(map(len, images.failed.values()))
    if result.unscored:
        total = sum(t.total for t in tallies.values()) + undrawn
        typer.echo(f"{result.unscored} of {total} could not be scored; see scores.jsonl", err=True)
    typer.echo(f"written to {result.folder.root}")
