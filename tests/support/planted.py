"""Write runs and evaluations whose truth is known, some of it hostile.

``python -m tests.support.planted OUT [--prompts 2000] [--hostile]`` writes one to look at.
"""

import argparse
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from recast_eval.judging.audit_records import (
    AuditRecord,
    JudgeAudit,
    Measured,
    NotMeasured,
    NullTest,
    Position,
    PropertyBias,
    ScorerAgreement,
)
from recast_eval.judging.records import AxisOutcome, Choice, OrderRecord, VerdictRecord
from recast_eval.records import (
    CreditRecord,
    Failed,
    ImageRecord,
    Manifest,
    MetricRecord,
    Record,
    Scored,
    ScoreRecord,
    write_json,
)
from recast_eval.scorers.world import BACKGROUNDS, COLORS, SHAPES, Item, Scene, Word, draw_card

HOSTILE = (
    "<script>window.planted = 1</script>",
    "</script><script>window.planted = 2</script>",
    '"><img src=x onerror="window.planted = 3">',
    "' onmouseover='window.planted = 4",
    "javascript:window.planted=5",
    "{{ 7 * 7 }} {% raw %} $x^2$ 100 % \\n",
    '=HYPERLINK("http://example.invalid/", "click")',
    "一只红色的猫坐在蓝色的桌子上,旁边有一个绿色的苹果",
    "قطة حمراء تجلس على طاولة زرقاء",
    "赤い\u202egnirts desrever\u202c 🐈‍⬛ \x00\x07 \u2028 line",
    "_starts with an underscore and goes on and on " + "verylongwordwithoutanybreak" * 12,
    "NaN",
)
HOSTILE_MODEL = "<img src=x onerror=window.planted=6> $m_1$ 100 %"
"""A legal folder name that is also a tag, a formula and a format."""
REWARDS = ("composition", "ocr", "alignment", "finish")
HELDOUT = ("ocr-second", "tower-second", "card-distance", "verifier-second")
CATEGORIES = ("single", "two", "counting", "colors", "position", "ocr")


@dataclass(frozen=True)
class Plant:
    """What to write."""

    prompts: int = 48
    samples: int = 2
    models: tuple[str, ...] = ("base", "static", "recast")
    effects: tuple[float, ...] = (0.0, 0.5, 0.9)
    """Mean of each model's scores, in within-model standard deviations."""
    hack: bool = False
    """The last model's held-out scores fall as its training scores rise."""
    hostile: bool = False
    verdicts: bool = True
    image_side: int = 64
    distinct_images: int = 40
    seed: int = 0


def plant_evaluation(out: Path, plant: Plant) -> Path:
    """Write one evaluation folder and return it."""
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(plant.seed)
    texts, categories = _prompts(plant, rng)
    folders = {m: (m if "/" not in m else f"model-{i}") for i, m in enumerate(plant.models)}
    for model in plant.models:
        _images(out / "images" / folders[model], model, texts, categories, plant, rng)
    _dump(out / "scores.jsonl", _scores(plant, rng))
    if plant.verdicts:
        _dump(out / "verdicts.jsonl", _verdicts(plant, texts, categories, rng))
        write_json(out / "audit.json", _planted_audit(plant))
    manifest = Manifest(
        command=["recast-eval", "score", *plant.models, "--out", "evals/planted"],
        versions={"python": "3.11", "recast-eval": "0.1.0"},
        hardware={"devices": "cpu"},
        seeds={"images": plant.seed},
        digests={"prompts": f"{plant.prompts:016x}"},
        facts={"models": list(plant.models)},
    )
    write_json(out / "manifest.json", manifest)
    return out


def _planted_audit(plant: Plant) -> AuditRecord:
    share = Measured(estimate=0.55, low=0.48, high=0.62, n=100, n_prompts=50)
    none = NotMeasured(reason=HOSTILE[0] if plant.hostile else "nothing was repeated")
    judge = JudgeAudit(
        judge="planted-judge",
        judge_digest="planted",
        axis="overall",
        level="trust it with care",
        verdict="trust it with care: 12 % flips",
        reasons=["12 % flips"],
        n_scored=95,
        n_total=100,
        position=Position(first_slot=share, same_winner=share, flips=share, ties=share),
        repeats=none,
        nulls=[
            NullTest(
                what="same image",
                asked=20,
                scored=20,
                first_slot=share,
                tie=share,
                original_wins=none,
            )
        ],
        properties=[
            PropertyBias(name="brightness", higher_wins=share, slope=share, p_holm=0.01),
            PropertyBias(name="sharpness", higher_wins=none, slope=none, p_holm=1.0),
        ],
        raw_win_rate=share,
        adjusted_win_rate=none,
        pair=list(plant.models[-2:]),
        scorers=[
            ScorerAgreement(
                scorer="ocr-second",
                role="heldout",
                same_side=share,
                kappa=none,
                contradictions=[HOSTILE[2] if plant.hostile else "p00001: recast wins, ocr falls"],
            )
        ],
        judges=[],
    )
    return AuditRecord(judges=[judge], skipped=["visible text: no detector"])


def _prompts(plant: Plant, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    texts = [
        f"a {rng.choice(list(COLORS))} {rng.choice(list(SHAPES))} on a "
        f"{rng.choice(list(BACKGROUNDS))} card, number {i}"
        for i in range(plant.prompts)
    ]
    categories = [CATEGORIES[i % len(CATEGORIES)] for i in range(plant.prompts)]
    if plant.hostile:
        for i, text in enumerate(HOSTILE[: plant.prompts]):
            texts[i] = text
        categories[0] = HOSTILE[1]
    return texts, categories


def _card(side: int, rng: np.random.Generator) -> bytes:
    if rng.random() < 0.3:
        scene = Scene("ocr", word=Word("".join(rng.choice(list("AEOXKM"), 2)), None))
    else:
        scene = Scene("single", (Item(str(rng.choice(list(SHAPES))), None),))
    image = draw_card(scene, rng).resize((side, side), Image.Resampling.NEAREST)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _images(
    folder: Path,
    model: str,
    texts: Sequence[str],
    categories: Sequence[str],
    plant: Plant,
    rng: np.random.Generator,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pool = [_card(plant.image_side, rng) for _ in range(plant.distinct_images)]
    records = []
    for i, text in enumerate(texts):
        for sample in range(plant.samples):
            name = f"{i:05d}-{sample}.png"
            if plant.hostile and i == 0:
                name = f'"onerror="x{sample}.png'
            (folder / name).write_bytes(pool[(i * plant.samples + sample) % len(pool)])
            record = ImageRecord(
                file_name=name,
                prompt=text,
                prompt_id=f"p{i:05d}",
                sample=sample,
                category=categories[i] if i % 17 else None,
            )
            records.append(record)
    _dump(folder / "metadata.jsonl", records)


def _scores(plant: Plant, rng: np.random.Generator) -> list[ScoreRecord]:
    records = []
    ease = rng.normal(size=plant.prompts)
    for m, model in enumerate(plant.models):
        for scorer in (*REWARDS, *HELDOUT):
            held = scorer in HELDOUT
            effect = plant.effects[m % len(plant.effects)]
            if held:
                effect *= -0.6 if plant.hack and m == len(plant.models) - 1 else 0.5
            values = effect + ease[:, None] + rng.normal(size=(plant.prompts, plant.samples))
            failed = rng.random(values.shape) < (0.03 if scorer == "ocr" else 0)
            for i in range(plant.prompts):
                for sample in range(plant.samples):
                    outcome = (
                        Failed(reason="engine", detail=HOSTILE[0] if plant.hostile else "no text")
                        if failed[i, sample]
                        else Scored(value=float(0.5 + 0.1 * values[i, sample]))
                    )
                    records.append(
                        ScoreRecord(
                            model=model,
                            prompt_id=f"p{i:05d}",
                            sample=sample,
                            image="0" * 64,
                            scorer=scorer,
                            scorer_digest="planted",
                            role="heldout" if held else "train",
                            outcome=outcome,
                        )
                    )
    return records


def _verdicts(
    plant: Plant, texts: Sequence[str], categories: Sequence[str], rng: np.random.Generator
) -> list[VerdictRecord]:
    records = []
    pairs = [(a, b) for i, a in enumerate(plant.models) for b in plant.models[i + 1 :]]
    for a, b in pairs:
        gap = (
            plant.effects[plant.models.index(a) % len(plant.effects)]
            - plant.effects[plant.models.index(b) % len(plant.effects)]
        )
        win = 1 / (1 + np.exp(-1.2 * gap))
        for i, text in enumerate(texts):
            axes, orders = {}, {a: {}, b: {}}
            for axis in ("overall", "faithfulness", "aesthetics"):
                axes[axis], choices = _outcome(a, b, win, rng)
                for first, choice in zip((a, b), choices, strict=True):
                    if choice is not None:
                        orders[first][axis] = choice
            why = HOSTILE[i % len(HOSTILE)] if plant.hostile else "The first is closer to it."
            records.append(
                VerdictRecord(
                    judge="planted-judge",
                    judge_digest="planted",
                    prompt_id=f"p{i:05d}",
                    prompt=text,
                    category=categories[i] if i % 17 else None,
                    sample=0,
                    model_a=a,
                    model_b=b,
                    image_a="0" * 64,
                    image_b="0" * 64,
                    axes=axes,
                    orders=[
                        OrderRecord(first=a, second=b, verdict=orders[a], explanation=why),
                        OrderRecord(first=b, second=a, verdict=orders[b], explanation=why),
                    ],
                )
            )
    return records


def _outcome(
    a: str, b: str, win: float, rng: np.random.Generator
) -> tuple[AxisOutcome, tuple[Choice | None, Choice | None]]:
    draw = rng.random()
    if draw < 0.05:
        return AxisOutcome(state="unscored", reason="refused"), (None, None)
    if draw < 0.17:
        first = Choice(state="win", winner=a), Choice(state="win", winner=b)
        return AxisOutcome(state="flip", score_a=0.5), first
    if draw < 0.29:
        tie = Choice(state="tie")
        return AxisOutcome(state="tie", score_a=0.5), (tie, tie)
    winner = a if rng.random() < win else b
    choice = Choice(state="win", winner=winner)
    return AxisOutcome(state="win", winner=winner, score_a=float(winner == a)), (choice, choice)


def plant_run(
    out: Path,
    *,
    kind: str = "recast",
    budgets: Sequence[float] = (0.25, 0.25, 0.25, 0.25),
    rewards: Sequence[str] = REWARDS,
    seed: int = 0,
    epochs: int = 12,
    steps: int = 10,
    diagnostics: bool = True,
    gain: float = 0.3,
) -> Path:
    """Write one training run and return its folder."""
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, len(kind)])
    lam = np.asarray(budgets, float) / np.sum(budgets)
    sigmas = np.linspace(1, 0, steps + 1) ** 0.7
    centers = np.linspace(0.75, 0.15, len(rewards))
    metrics, credits = [], []
    for epoch in range(epochs):
        values = {
            f"reward/{r}": float(
                0.4 + gain * lam[k] * 4 * (1 - np.exp(-epoch / 4)) + rng.normal(0, 0.01)
            )
            for k, r in enumerate(rewards)
        }
        values |= {"loss": float(1 / (epoch + 1)), "kl": 0.001 * epoch, "grad_norm": 1.0}
        if diagnostics:
            values |= {f"aggregator/coefficient/{k}": float(v) for k, v in enumerate(lam)}
            values |= {"aggregator/worst_cosine": float(-0.2 + 0.05 * epoch)}
            for k in range(len(rewards)):
                values |= {
                    f"aggregator/cosine/{k}/{other}": 1.0
                    if k == other
                    else 0.1 * epoch - 0.1 * other
                    for other in range(k, len(rewards))
                }
            values |= {f"rebrl/token_weight_{g:02d}": 1.0 + 0.1 * g * epoch for g in range(4)}
            values |= {f"rebrl/stage_credit_{g:02d}": 0.1 * (g + 1) for g in range(4)}
        metrics.append(
            MetricRecord(
                step=epoch,
                epoch=epoch,
                seconds=7.5,
                values=values,
                scored={r: [96, 96] for r in rewards},
            )
        )
        if epoch % 3 == 0:
            drift = centers + rng.normal(0, 0.03, len(rewards))
            credits.append(_credit(kind, epoch, rewards, lam, sigmas, drift, rng))
    _dump(out / "metrics.jsonl", metrics)
    _dump(out / "credit.jsonl", credits)
    (out / "recipe.yaml").write_text(
        f"seed: {seed}\nmethod: {{kind: nft}}\naggregator: {{kind: zscore}}\n", encoding="utf-8"
    )
    samples = out / "samples"
    samples.mkdir(exist_ok=True)
    for epoch in (0, epochs - 1):
        for i in range(4):
            (samples / f"epoch-{epoch:04d}-{i}.png").write_bytes(_card(64, rng))
    write_json(
        out / "manifest.json",
        Manifest(
            command=["recast-train", "run", f"demo-{kind}"],
            versions={"python": "3.11"},
            hardware={"devices": "cpu"},
            seeds={"run": seed},
        ),
    )
    return out


def _credit(
    kind: str,
    epoch: int,
    rewards: Sequence[str],
    budgets: np.ndarray,
    sigmas: np.ndarray,
    centers: np.ndarray,
    rng: np.random.Generator,
) -> CreditRecord:
    curves = 1 / (1 + np.exp((sigmas[None, :] - centers[:, None]) * 9))
    curves = (curves - curves[:, :1]) / (curves[:, -1:] - curves[:, :1])
    gains = np.maximum(np.diff(curves, axis=1), 0)
    steps = gains.shape[1]
    shape = gains / gains.mean(axis=1, keepdims=True)
    weights = np.exp(shape) if kind != "static" else np.ones_like(shape)
    for _ in range(300):
        weights *= (budgets / weights.sum(axis=1))[:, None]
        weights /= weights.sum(axis=0) * steps
    noisy = np.clip(curves + rng.normal(0, 0.04, curves.shape), 0, 1.05)
    low = np.clip(0.7 * curves + rng.normal(0, 0.02, curves.shape), 0, 1)
    return CreditRecord(
        epoch=epoch,
        kind=kind,
        rewards=list(rewards),
        budgets=budgets.tolist(),
        sigmas=sigmas.tolist(),
        weights=weights.tolist(),
        curves=curves.tolist(),
        curve_errors=np.full_like(curves, 0.03).tolist(),
        raw_curves={"forward-pair": noisy.tolist(), "cross-fit": low.tolist()},
        gains=gains.tolist(),
        reliability=[0.8] * len(rewards),
    )


def plant_sweep(out: Path, *, seeds: int = 2) -> Path:
    """Write a sweep: two credits, a budget each way, some seeds."""
    tables = [(0.4, 0.2, 0.2, 0.2), (0.25,) * 4, (0.2, 0.4, 0.2, 0.2), (0.1, 0.7, 0.1, 0.1)]
    for kind, gain in (("static", 0.25), ("recast", 0.32)):
        for number, budgets in enumerate(tables):
            for seed in range(seeds):
                plant_run(
                    out / f"{kind}-b{number}-s{seed}",
                    kind=kind,
                    budgets=budgets,
                    seed=seed,
                    epochs=6,
                    diagnostics=False,
                    gain=gain,
                )
    return out


def _dump(path: Path, records: Sequence[Record]) -> None:
    path.write_text("".join(r.model_dump_json() + "\n" for r in records), encoding="utf-8")


def main() -> None:
    """Write a planted run pair and an evaluation to look at."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--hostile", action="store_true")
    given = parser.parse_args()
    plant_run(given.out / "runs" / "static", kind="static", gain=0.25)
    plant_run(given.out / "runs" / "recast")
    models = ("base", "static", "recast")
    if given.hostile:
        models = (*models, HOSTILE_MODEL)
    elif given.prompts >= 1000:
        models = (*models, "rival")
    plant = Plant(prompts=given.prompts, models=models, hostile=given.hostile)
    plant_evaluation(given.out / "evals" / "planted", plant)


if __name__ == "__main__":
    main()
