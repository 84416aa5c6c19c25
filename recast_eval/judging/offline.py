"""The jury that needs no endpoint: held-out scorers vote with their scores."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from recast_eval.errors import PluginError
from recast_eval.judging.cards import JudgeCard
from recast_eval.judging.decide import compare_grades, jury_verdict, unscored
from recast_eval.judging.pairs import Pair, Picture
from recast_eval.judging.records import AxisOutcome, FailureKind, VerdictRecord, Vote
from recast_eval.records import Failed, Outcome, Scored, ScoreRecord, file_sha256, read_records
from recast_eval.scorers import SCORERS

log = logging.getLogger(__name__)

Scores = Mapping[tuple[str, str, int], Mapping[str, ScoreRecord]]
"""(model, prompt id, sample) -> scorer -> its record."""


_OTHER: Final = Failed(reason="other_image", detail="the score is of another file")


def heldout_scores(
    records: Iterable[ScoreRecord],
) -> dict[tuple[str, str, int], dict[str, ScoreRecord]]:
    """The held-out scores of a file, by image. A later line of an image and scorer wins."""
    found: dict[tuple[str, str, int], dict[str, ScoreRecord]] = {}
    for r in records:
        if r.role == "heldout":
            found.setdefault((r.model, r.prompt_id, r.sample), {})[r.scorer] = r
    return found


def read_heldout_scores(path: Path) -> dict[tuple[str, str, int], dict[str, ScoreRecord]]:
    """The same from ``scores.jsonl``; empty if there is none."""
    return heldout_scores(read_records(path, ScoreRecord)) if path.is_file() else {}


def family_of(scorer: str) -> str:
    """The family on a scorer's card; its own name if the card is not installed here."""
    try:
        return SCORERS.load(scorer).card.family
    except PluginError:
        return scorer


def offline_records(
    card: JudgeCard, pairs: Iterable[Pair], scores: Scores
) -> Iterator[VerdictRecord]:
    """A record a pair. Scorers have no order, so there is no flip and no first slot.

    A score is of the bytes that were scored: of a picture that has changed since, there is none.

    Args:
        card: An offline jury.
        pairs: As for a judge that is asked.
        scores: Of held-out scorers only.
    """
    axes = _spoken_for(card, scores)
    families: dict[str, str] = {}
    changed = 0
    for pair in pairs:
        problem = _problem(pair)
        shown = _sha(pair.a), _sha(pair.b)
        of_a, of_b = (
            _outcomes(scores, pair, side, sha)
            for side, sha in zip((pair.a, pair.b), shown, strict=True)
        )
        changed += any(o == _OTHER for o in (*of_a.values(), *of_b.values()))
        votes = [] if problem else list(_votes(card, pair, of_a, of_b, families))
        if problem:
            outcome = unscored(axes, problem)
        elif not votes:
            outcome = unscored(axes, "no_score")
        else:
            outcome = jury_verdict(axes, votes, pair.a.model, pair.b.model, card.quorum)
        yield VerdictRecord(
            judge=card.name,
            judge_digest=card.digest,
            judge_kind="jury",
            prompt_id=pair.prompt_id,
            prompt=pair.prompt,
            category=pair.category,
            sample=pair.sample,
            model_a=pair.a.model,
            model_b=pair.b.model,
            image_a=shown[0],
            image_b=shown[1],
            axes=outcome,
            order_free=True,
            votes=votes,
            grades=_grades({pair.a.model: of_a, pair.b.model: of_b}, votes),
        )
    if changed:
        said = "%s: pictures of %d pairs are not the ones that were scored; run recast-eval score"
        log.warning(said, card.name, changed)


def _outcomes(scores: Scores, pair: Pair, side: Picture, sha: str | None) -> dict[str, Outcome]:
    """Scorer -> what it said about this very file."""
    found = scores.get((side.model, pair.prompt_id, pair.sample), {})
    return {
        scorer: record.outcome if record.image in ("", sha) or sha is None else _OTHER
        for scorer, record in found.items()
    }


def _spoken_for(card: JudgeCard, scores: Scores) -> tuple[str, ...]:
    """The card's axes on which some scorer that is here votes; all of them if none does."""
    here = {scorer for row in scores.values() for scorer in row}
    found = {axis for scorer in here for axis in _axes_of(card, scorer)}
    return tuple(axis for axis in card.axes if axis in found) or tuple(card.axes)


def _problem(pair: Pair) -> FailureKind | None:
    return "missing_image" if pair.a.path is None or pair.b.path is None else None


def _sha(side: Picture) -> str | None:
    if side.path is None:
        return None
    return side.sha256 or file_sha256(side.path)


def _votes(
    card: JudgeCard,
    pair: Pair,
    of_a: Mapping[str, Outcome],
    of_b: Mapping[str, Outcome],
    families: dict[str, str],
) -> Iterator[Vote]:
    for scorer in sorted(set(of_a) | set(of_b)):
        margins = _axes_of(card, scorer)
        if not margins:
            continue
        family = families.setdefault(scorer, family_of(scorer))
        both = of_a.get(scorer), of_b.get(scorer)
        found: dict[str, AxisOutcome] = {}
        detail = ""
        if isinstance(both[0], Scored) and isinstance(both[1], Scored):
            values = {pair.a.model: both[0].value, pair.b.model: both[1].value}
            for axis, margin in margins.items():
                grades = {model: {axis: value} for model, value in values.items()}
                found |= compare_grades((axis,), grades, pair.a.model, pair.b.model, margin)
        else:
            found = unscored(tuple(margins), "no_score")
            detail = next((o.reason for o in both if isinstance(o, Failed)), "not scored")
        yield Vote(judge=scorer, family=family, axes=found, detail=detail)


def _axes_of(card: JudgeCard, scorer: str) -> dict[str, float]:
    """Axis -> margin for the patterns that fit; the widest margin if several do."""
    found: dict[str, float] = {}
    for juror in card.jury:
        if juror.scorer is not None and fnmatchcase(scorer, juror.scorer):
            for axis in juror.axes:
                found[axis] = max(found.get(axis, 0.0), juror.margin)
    return found


def _grades(
    said: Mapping[str, Mapping[str, Outcome]], votes: list[Vote]
) -> dict[str, dict[str, float]]:
    """Model -> scorer -> value, so that a vote can be checked by eye."""
    found: dict[str, dict[str, float]] = {}
    for model, outcomes in said.items():
        values = {v.judge: outcomes.get(v.judge) for v in votes}
        kept = {name: o.value for name, o in values.items() if isinstance(o, Scored)}
        if kept:
            found[model] = kept
    return found
