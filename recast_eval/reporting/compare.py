"""Two evaluations made at different times: are they comparable, and what changed?"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from recast_eval.errors import ConfigError
from recast_eval.judging.records import VerdictRecord
from recast_eval.plots.intervals import Row, intervals_info
from recast_eval.records import Manifest, ScoreRecord
from recast_eval.reporting.battles import Battle
from recast_eval.reporting.blocks import (
    Block,
    Cell,
    Maker,
    NoteBlock,
    Section,
    interval_cell,
    number_text,
    p_text,
    percent,
    words,
)
from recast_eval.reporting.distrust import Doubt
from recast_eval.reporting.facts import EvaluationFacts, evaluation_facts
from recast_eval.reporting.inputs import Evaluation, read_inputs
from recast_eval.reporting.render import render
from recast_eval.reporting.scores import Difference, score_table
from recast_eval.reporting.sections.provenance import manifest_facts
from recast_eval.reporting.summary import Answer, Summary

_GRAVE = re.compile(
    r"digests\.|seeds\.|facts\.sampler|facts\.images_per_prompt|facts\.models\..+\.sampler\."
)
_HARMLESS = ("command", "hardware.")
_ONE_SIDED = re.compile(
    r"(?:digests\.(?:scorer|judge)/|facts\.(?:roles|scorers|judges|models)\.)(?P<name>[^.]+)"
)


MOVED = (
    "Mean change on the same prompts with its 95 % interval: right of the line the score rose. "
    "Each scorer is divided by the standard deviation (SD) of its own prompt means. A hollow dot "
    "is not beyond chance once all comparisons are counted."
)


class Change(NamedTuple):
    """A fact that the two manifests give differently."""

    fact: str
    before: str
    after: str
    grave: bool
    """It can change numbers by itself: prompts, scorers, judges, seeds, sampler."""
    shared: bool = True
    """False for a scorer, judge or model that one side did not use: it compares nothing."""


class Shift(NamedTuple):
    """One model on one scorer, after minus before on the same prompts and samples."""

    model: str
    difference: Difference


def manifest_changes(before: Manifest | None, after: Manifest | None) -> tuple[Change, ...]:
    """Every fact on which two manifests differ, the grave first."""
    old = manifest_facts(before) if before else {}
    new = manifest_facts(after) if after else {}
    found, alone = list[Change](), dict[str, Change]()
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) == new.get(key) or key.startswith(_HARMLESS):
            continue
        measurer = _ONE_SIDED.match(key)
        if measurer and (key not in old or key not in new):
            name = measurer["name"]  # used on one side only: what is shared stands
            sides = ("used", "not used") if key in old else ("not used", "used")
            alone.setdefault(name, Change(name, *sides, grave=False, shared=False))
            continue
        grave = _GRAVE.match(key) is not None
        found.append(Change(key, old.get(key, "none"), new.get(key, "none"), grave))
    return (*sorted(found, key=lambda c: not c.grave), *alone.values())


def scorer_changes(before: Evaluation, after: Evaluation) -> tuple[str, ...]:
    """Scorers and judges that changed under the same name: their numbers are not comparable."""

    def digests(of: Evaluation) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for s in of.scores:
            found.setdefault(f"scorer {s.scorer}", set()).add(s.scorer_digest)
        for v in of.verdicts:
            found.setdefault(f"judge {v.judge}", set()).add(v.judge_digest)
        return found

    old, new = digests(before), digests(after)
    return tuple(sorted(name for name in old if name in new and old[name] != new[name]))


def prompt_changes(before: Evaluation, after: Evaluation) -> tuple[int, int]:
    """(prompts whose text changed under the same id, prompts in both)."""
    old, new = prompt_texts(before), prompt_texts(after)
    changed = sum(old[key] != new[key] for key in old if key in new)
    return changed, len(_prompt_ids(before) & _prompt_ids(after))


def _prompt_ids(evaluation: Evaluation) -> set[str]:
    """All that were drawn, scored or judged; scores alone do not hold the text."""
    return {*prompt_texts(evaluation), *(score.prompt_id for score in evaluation.scores)}


def prompt_texts(evaluation: Evaluation) -> dict[str, str]:
    """Prompt id -> text, as the images' records or the verdicts give it."""
    found = {i.prompt_id: i.prompt for images in evaluation.images.values() for i in images}
    for verdict in evaluation.verdicts:
        found.setdefault(verdict.prompt_id, verdict.prompt)
    return found


def image_changes(before: Evaluation, after: Evaluation) -> dict[str, tuple[int, int]]:
    """Model -> (images with other bytes, images in both), from the scores' digests."""

    def bytes_of(records: tuple[ScoreRecord, ...]) -> dict[tuple[str, str, int], str]:
        return {(r.model, r.prompt_id, r.sample): r.image for r in records}

    old, new = bytes_of(before.scores), bytes_of(after.scores)
    found: dict[str, tuple[int, int]] = {}
    for key in old.keys() & new.keys():
        changed, shared = found.get(key[0], (0, 0))
        found[key[0]] = changed + (old[key] != new[key]), shared + 1
    return dict(sorted(found.items()))


def shifts(before: Evaluation, after: Evaluation) -> tuple[Shift, ...]:
    """After minus before, per model and scorer, on shared prompts and samples.

    Holm's adjustment runs over all models and scorers together.
    """
    models = [m for m in after.models if m in before.models]
    names = {m: (f"{m}\0after", f"{m}\0before") for m in models}
    records = [
        r.model_copy(update={"model": names[r.model][side]})
        for side, of in enumerate((after, before))
        for r in of.scores
        if r.model in names
    ]
    columns = [name for pair in names.values() for name in pair]
    table = score_table(records, columns, [names[m] for m in models])
    known = {pair: model for model, pair in names.items()}
    return tuple(
        Shift(known[d.pair], replace(d, pair=("after", "before"))) for d in table.differences
    )


def build_comparison(before: Path, after: Path) -> str:
    """Make one HTML page on what changed between two evaluations.

    Raises:
        ConfigError: A folder does not hold exactly one evaluation.
        DataError: A file does not fit its schema.
    """
    old, new = _one(before), _one(after)
    if old.name == new.name:
        old, new = (
            replace(old, name=f"{old.name} (before)"),
            replace(new, name=f"{new.name} (after)"),
        )
    maker = Maker(shlex.join(["recast-eval", "report", "--compare", str(before), str(after)]))
    changes = manifest_changes(old.manifest, new.manifest)
    moved = shifts(old, new)
    facts = evaluation_facts(old), evaluation_facts(new)
    sections = [
        _comparable(old, new, changes, maker),
        _scores(moved, maker),
        _judged(*facts, maker),
    ]
    summary = _summary(old, new, changes, moved)
    title = f"What changed from {old.name} to {new.name}"
    return render(title, summary, [s for s in sections if s is not None])


def _one(folder: Path) -> Evaluation:
    found = read_inputs([folder]).evaluations
    if len(found) != 1:
        raise ConfigError([f"{folder}: holds {len(found)} evaluations; name exactly one folder"])
    return found[0]


def _summary(
    old: Evaluation, new: Evaluation, changes: tuple[Change, ...], moved: tuple[Shift, ...]
) -> Summary:
    shared = [m for m in new.models if m in old.models]
    reworded, both = prompt_changes(old, new)
    alone = [m for m in old.models if m not in new.models]
    fresh = [m for m in new.models if m not in old.models]
    points = [f"{len(shared)} models in both: {', '.join(shared[:6]) or 'none'}."]
    points.append(f"{both} prompts in both.")
    points += [f"Only before: {', '.join(alone[:6])}."] if alone else []
    points += [f"Only after: {', '.join(fresh[:6])}."] if fresh else []
    grave = [c.fact for c in changes if c.grave]
    scorers = scorer_changes(old, new)
    alone_used = [c.fact for c in changes if not c.shared]
    if both == 0:
        lead = "No: they share no prompt."
    elif grave or scorers or reworded:
        lead = "Only with care: what measures has changed, not only what is measured."
    elif old.manifest is None or new.manifest is None:
        lead = "Not known: a manifest is missing."
    else:
        lead = "Yes: same prompts, scorers, judges and seeds by their digests."
    comparable = Answer(
        "better",
        "Is it comparable?",
        lead,
        (
            *(f"{fact} differs." for fact in grave[:5]),
            *(f"{s} changed." for s in scorers),
            *([f"On one side only: {', '.join(alone_used[:8])}."] if alone_used else []),
        ),
    )
    up = [s for s in moved if s.difference.verdict == "better"]
    down = [s for s in moved if s.difference.verdict == "worse"]
    changed = Answer(
        "much",
        "What changed?",
        f"Of {len(moved)} scores on shared prompts: {len(up)} clearly rose, {len(down)} clearly "
        f"fell, {len(moved) - len(up) - len(down)} cannot be told apart.",
        tuple(f"{s.model} rose on {s.difference.scorer}." for s in up[:4])
        + tuple(f"{s.model} fell on {s.difference.scorer}." for s in down[:4]),
    )
    compared = Answer(
        "compared", "What was compared?", f"{new.name} with {old.name}", tuple(points)
    )
    return Summary(compared, (comparable, changed), tuple(_doubts(old, new, changes)))


def _doubts(old: Evaluation, new: Evaluation, changes: tuple[Change, ...]) -> Iterator[Doubt]:
    for name in scorer_changes(old, new):
        yield Doubt(f"{name} is another one under the same name.", grave=True)
    reworded, both = prompt_changes(old, new)
    if reworded:
        yield Doubt(f"{reworded} of {both} shared prompts have another text now.", grave=True)
    for change in changes:
        if change.grave:
            yield Doubt(f"{change.fact}: {change.before} before, {change.after} after.", grave=True)
    for model, (changed, shared) in image_changes(old, new).items():
        if changed:
            yield Doubt(f"{model}: {changed} of {shared} pictures have other bytes than before.")
    for side, of in (("before", old), ("after", new)):
        if of.manifest is None:
            yield Doubt(f"{of.name} ({side}) has no manifest.", grave=True)


def _comparable(
    old: Evaluation, new: Evaluation, changes: tuple[Change, ...], maker: Maker
) -> Section:
    rows = [
        [
            words(c.fact),
            words(c.before),
            words(c.after),
            _matters(c),
        ]
        for c in changes
    ]
    blocks: list[Block] = [NoteBlock("The manifests agree on everything that changes numbers.")]
    if rows:
        blocks = [
            maker.table(
                "Where the manifests differ",
                "Commands and hardware are left out.",
                ["fact", "before", "after", "matters"],
                rows,
            )
        ]
    images = image_changes(old, new)
    if images:
        table = [
            [words(m), Cell(f"{changed} / {shared}", None, "bad" if changed else "")]
            for m, (changed, shared) in images.items()
        ]
        blocks.append(
            maker.table(
                "Pictures with other bytes",
                "Same model, prompt and sample in both evaluations.",
                ["model", "changed / shared"],
                table,
            )
        )
    return Section(
        "comparable",
        "Is it comparable?",
        "What the two manifests and the checksums of prompts, scorers, judges and pictures say.",
        tuple(blocks),
    )


def _matters(change: Change) -> Cell:
    if not change.shared:
        return words("compares nothing", "open")
    return words("changes numbers", "bad") if change.grave else words("may change numbers")


def _scores(moved: tuple[Shift, ...], maker: Maker) -> Section | None:
    if not moved:
        return None
    blocks: list[Block] = []
    rows = []
    for model in dict.fromkeys(s.model for s in moved):
        mine = [s.difference for s in moved if s.model == model]
        info = intervals_info([_row(d) for d in mine], x_label="after minus before (SD)")
        title = f"{model}: after minus before"
        blocks.append(maker.figure("paired-differences", info, title=title, read=MOVED))
        for d in mine:
            says = {"better": "rose", "worse": "fell", "open": "cannot be told apart"}[d.verdict]
            shown = Cell(f"{number_text(d.estimate)} (no interval)", d.estimate)
            if d.interval is not None:
                shown = interval_cell(d.estimate, d.interval.low, d.interval.high)
            look = {"better": "good", "worse": "bad", "open": "open"}[d.verdict]
            rows.append(
                [
                    words(model),
                    words(d.scorer),
                    shown,
                    Cell(str(d.n_prompts), d.n_prompts),
                    Cell(p_text(d.p_adjusted), d.p_adjusted),
                    Cell(says, says, look),  # type: ignore[arg-type]
                ]
            )
    head = [
        "model",
        "scorer",
        "after minus before [95 % interval]",
        "prompts",
        "adjusted p",
        "says",
    ]
    read = "On shared prompts and samples, clustered by prompt; Holm over this table."
    blocks.append(maker.table("Every change", read, head, rows))
    return Section(
        "scores",
        "Scores, after minus before",
        "The same model on the same prompts, at two times.",
        tuple(blocks),
    )


def _row(d: Difference) -> Row:
    nan = float("nan")
    known = d.interval is not None and d.scale > 0
    low = min(d.interval.low / d.scale, d.effect) if known and d.interval else nan
    high = max(d.interval.high / d.scale, d.effect) if known and d.interval else nan
    return Row(d.scorer, d.effect if known else nan, low, high, d.role, p=d.p_adjusted)


def _judged(old: EvaluationFacts, new: EvaluationFacts, maker: Maker) -> Section | None:
    before = {(b.judge, b.axis, frozenset(b.pair)): b for b in old.battles.whole}
    rows = []
    for b in new.battles.whole:
        was = before.get((b.judge, b.axis, frozenset(b.pair)))
        if was is None:
            continue
        changed, shared = _changed(old.evaluation, new.evaluation, b)
        rows.append(
            [
                words(b.pair[0]),
                words(b.pair[1]),
                words(b.judge),
                words(b.axis),
                words(_rate(was, b.pair[0])),
                words(_rate(b, b.pair[0])),
                Cell(f"{changed} / {shared}", None, "open" if changed else ""),
            ]
        )
    if not rows:
        return None
    head = ["first", "second", "judge", "axis", "before", "after", "verdicts changed"]
    read = "Win rate of the first; the last column counts shared pairs with another verdict."
    table = maker.table("Win rates before and after", read, head, rows)
    return Section("judged", "Judged pairs", "The same pairs, judged twice.", (table,))


def _changed(old: Evaluation, new: Evaluation, battle: Battle) -> tuple[int, int]:
    def winners(of: Evaluation) -> dict[tuple[str, int, int], str | None]:
        return {
            (v.prompt_id, v.sample, v.repeat): _winner(v, battle.axis)
            for v in of.verdicts
            if v.judge == battle.judge and {v.model_a, v.model_b} == set(battle.pair)
        }

    before, after = winners(old), winners(new)
    shared = before.keys() & after.keys()
    return sum(before[k] != after[k] for k in shared), len(shared)


def _winner(verdict: VerdictRecord, axis: str) -> str | None:
    outcome = verdict.axes.get(axis)
    return None if outcome is None else outcome.winner or outcome.state


def _rate(battle: Battle, first: str) -> str:
    if battle.rate is None:
        return "no data"
    rate = battle.rate
    if battle.pair[0] == first:
        return f"{percent(rate.estimate)} [{percent(rate.low)}, {percent(rate.high)}]"
    return f"{percent(1 - rate.estimate)} [{percent(1 - rate.high)}, {percent(1 - rate.low)}]"
