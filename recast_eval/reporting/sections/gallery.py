"""Pictures of the same prompt side by side, and those most worth a look."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from recast_eval.judging.records import VerdictRecord
from recast_eval.records import ImageRecord
from recast_eval.reporting.battles import score_of
from recast_eval.reporting.blocks import (
    Block,
    Card,
    GalleryBlock,
    Maker,
    Picture,
    Section,
    number_text,
)
from recast_eval.reporting.facts import EvaluationFacts, Facts
from recast_eval.reporting.scores import prompt_effects
from recast_eval.reporting.thumbs import Thumbnails

SIDE_BY_SIDE = 24
PICKS = 12
MOST_MODELS = 8
SHEET_SIDE = 384


@dataclass(slots=True)
class _Shelf:
    """Finds the pictures, scores and verdicts of a prompt."""

    facts: EvaluationFacts
    thumbs: Thumbnails
    samples: dict[str, int]
    images: dict[tuple[str, str], ImageRecord]
    scores: dict[tuple[str, str], list[str]]
    verdicts: dict[str, list[VerdictRecord]]

    @classmethod
    def of(cls, facts: EvaluationFacts, thumbs: Thumbnails) -> "_Shelf":
        samples = shown_samples(facts)
        images: dict[tuple[str, str], ImageRecord] = {}
        for model, records in facts.evaluation.images.items():
            for record in records:
                if record.sample == samples[record.prompt_id]:
                    images.setdefault((model, record.prompt_id), record)
        verdicts: dict[str, list[VerdictRecord]] = {}
        for v in facts.evaluation.verdicts:
            if facts.focus is None or {v.model_a, v.model_b} != set(facts.focus) or v.repeat:
                continue
            if v.sample == samples.get(v.prompt_id):
                verdicts.setdefault(v.prompt_id, []).append(v)
        return cls(facts, thumbs, samples, images, {}, verdicts)

    def load_scores(self, prompts: Iterable[str]) -> None:
        """Words for the captions of these prompts only."""
        frame = self.facts.scores.frame
        mine = frame[frame["prompt_id"].isin(set(prompts))]
        first = mine[mine["sample"] == mine["prompt_id"].map(self.samples)]
        for row in first.to_dict("records"):
            value = float(row["value"])
            text = f"failed: {row['reason']}" if value != value else number_text(value)
            key = str(row["model"]), str(row["prompt_id"])
            self.scores.setdefault(key, []).append(f"{row['scorer']} {text}")

    def card(self, prompt_id: str, models: Sequence[str]) -> Card:
        prompt = self.facts.prompts[prompt_id]
        return Card(
            prompt.text,
            prompt_id,
            prompt.category or "",
            tuple(self._picture(model, prompt_id) for model in models),
            tuple(_said(v) for v in self.verdicts.get(prompt_id, [])[:2]),
        )

    def _picture(self, model: str, prompt_id: str) -> Picture:
        facts = tuple(self.scores.get((model, prompt_id), []))
        record = self.images.get((model, prompt_id))
        if record is None:
            return Picture(model, "", 0, 0, facts, "no image of this prompt")
        folder = self.facts.evaluation.path / "images" / model
        thumb = self.thumbs.get(folder, record.file_name)
        return Picture(model, thumb.source, thumb.width, thumb.height, facts, thumb.missing)


def shown_samples(facts: EvaluationFacts) -> dict[str, int]:
    """Which sample of a prompt is shown: the first that all models with this prompt have."""
    found: dict[str, list[set[int]]] = {}
    for records in facts.evaluation.images.values():
        mine: dict[str, set[int]] = {}
        for record in records:
            mine.setdefault(record.prompt_id, set()).add(record.sample)
        for prompt_id, samples in mine.items():
            found.setdefault(prompt_id, []).append(samples)
    return {p: min(set.intersection(*sets) or set.union(*sets)) for p, sets in found.items()}


def _said(verdict: VerdictRecord) -> str:
    outcome = verdict.axes.get("overall") or next(iter(verdict.axes.values()), None)
    if outcome is None:
        return f"{verdict.judge}: nothing"
    pair = f"{verdict.model_a} against {verdict.model_b}"
    text = {
        "win": f"{outcome.winner} wins",
        "tie": "a tie",
        "flip": "a flip: the verdict changed with the order",
        "unscored": f"no verdict ({outcome.reason})",
    }[outcome.state]
    reasons = [o.explanation for o in verdict.orders if o.explanation]
    return f"{pair}, says {verdict.judge}: {text}." + (
        f" \u201c{reasons[0]}\u201d" if reasons else ""
    )


def section(facts: EvaluationFacts, maker: Maker, thumbs: Thumbnails) -> Section | None:
    """Side by side, biggest wins and losses, judge against reward, flips."""
    if not facts.evaluation.images:
        return None
    shelf = _Shelf.of(facts, thumbs)
    models = [m for m in facts.models if m in facts.evaluation.images][:MOST_MODELS]
    picks = list(_picks(facts))
    shelf.load_scores({p for _, _, ids, _ in picks for p in ids})
    blocks: list[Block] = []
    for title, read, ids, total in picks:
        shown = (
            models if title == picks[0][0] or facts.focus is None else _pair_first(facts, models)
        )
        cards = [shelf.card(prompt_id, shown) for prompt_id in ids]
        left = f"{len(ids)} of {total} prompts shown." if total > len(ids) else ""
        blocks.append(maker.gallery(title, read, cards, left))
    return Section(
        "gallery",
        "Pictures",
        "One picture of each model for the same prompt, and what the judge said of these very "
        "pictures. Look at them before you believe a number.",
        tuple(blocks),
    )


def _pair_first(facts: EvaluationFacts, models: Sequence[str]) -> list[str]:
    focus = [m for m in (facts.focus or ()) if m in models]
    return focus or list(models)


def _picks(facts: EvaluationFacts) -> Iterator[tuple[str, str, list[str], int]]:
    with_images = {r.prompt_id for rs in facts.evaluation.images.values() for r in rs}
    ids = [p for p in facts.prompts if p in with_images]
    spread = _spread(ids, facts, SIDE_BY_SIDE)
    read = "Chosen evenly over the categories, not by result."
    yield "Same prompt, side by side", read, spread, len(ids)
    if facts.focus is None:
        return
    first, second = facts.focus
    role = "heldout" if "heldout" in facts.scores.roles.values() else "train"
    gap = prompt_effects(facts.scores, facts.focus, role)
    gap = gap[gap.index.isin(with_images)].sort_values(kind="stable")
    what = "held-out judges" if role == "heldout" else "training rewards"
    if len(gap):
        wins = [str(p) for p in gap[gap > 0].index[::-1]]
        losses = [str(p) for p in gap[gap < 0].index]
        read = f"By the mean of the {what} in standard deviations. Chosen by result: not typical."
        if wins:
            yield f"Biggest wins of {first} over {second}", read, wins[:PICKS], len(wins)
        if losses:
            yield f"Biggest losses of {first} to {second}", read, losses[:PICKS], len(losses)
    yield from _against(facts, shown_samples(facts))


def _against(
    facts: EvaluationFacts, samples: Mapping[str, int]
) -> Iterator[tuple[str, str, list[str], int]]:
    assert facts.focus is not None  # noqa: S101 - the caller checked
    axis = "overall" if "overall" in facts.battles.axes else next(iter(facts.battles.axes), "")
    train = prompt_effects(facts.scores, facts.focus, "train").to_dict()
    clash, flips = [], []
    for v in facts.evaluation.verdicts:
        if {v.model_a, v.model_b} != set(facts.focus) or v.repeat:
            continue
        if v.sample != samples.get(v.prompt_id):
            continue  # another picture than the one that is shown
        score, effect = score_of(v, axis, facts.focus[0]), train.get(v.prompt_id, 0.0)
        if score in (0.0, 1.0) and (score - 0.5) * effect < 0:
            clash.append((abs(effect), v.prompt_id))
        if axis in v.axes and v.axes[axis].state == "flip":
            flips.append(v.prompt_id)
    ranked = list(dict.fromkeys(p for _, p in sorted(clash, key=lambda c: -c[0])))
    if ranked:
        read = (
            "The judge chose one model, the training rewards of this prompt the other; the widest "
            "gaps first."
        )
        yield "Judge against reward", read, ranked[:PICKS], len(ranked)
    flips = list(dict.fromkeys(flips))
    if flips:
        read = (
            "The verdict changed when the pictures were swapped: too close, or too hard, to call."
        )
        yield "Flips", read, _spread(flips, facts, PICKS), len(flips)


def _spread(ids: Sequence[str], facts: EvaluationFacts, most: int) -> list[str]:
    """Take turns over the categories, in order of appearance."""
    groups: dict[str, list[str]] = {}
    for prompt_id in ids:
        groups.setdefault(facts.prompts[prompt_id].category or "", []).append(prompt_id)
    chosen: list[str] = []
    depth = 0
    while len(chosen) < min(most, len(ids)):
        chosen += [g[depth] for g in groups.values() if depth < len(g)]
        depth += 1
    return chosen[:most]


def samples(facts: Facts, maker: Maker, thumbs: Thumbnails) -> Section | None:
    """The first and the last pictures that each run saved while it trained."""
    blocks: list[GalleryBlock] = []
    for run in facts.runs[:MOST_MODELS]:
        if not run.samples:
            continue
        shown = list(dict.fromkeys([*run.samples[:2], *run.samples[-2:]]))
        pictures = []
        for path in shown:
            thumb = thumbs.get(path.parent, path.name, side=SHEET_SIDE)
            pictures.append(
                Picture(path.stem, thumb.source, thumb.width, thumb.height, (), thumb.missing)
            )
        card = Card("", "", "", tuple(pictures))
        left = f"{len(shown)} of {len(run.samples)} saved pictures." if run.samples[4:] else ""
        read = "By file name: the first saved pictures, then the last."
        blocks.append(maker.gallery(f"Samples of {run.name}", read, [card], left))
    if not blocks:
        return None
    return Section(
        "samples",
        "Samples from training",
        "Pictures that were drawn while training.",
        tuple(blocks),
    )
