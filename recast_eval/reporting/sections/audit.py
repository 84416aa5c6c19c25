"""The judge audit: its line of verdict, then what stands behind it."""

from collections.abc import Iterator

from recast_eval.judging.audit_records import JudgeAudit, Measure, Measured
from recast_eval.plots.intervals import Row, intervals_info
from recast_eval.reporting.blocks import (
    Block,
    Cell,
    Look,
    Maker,
    NoteBlock,
    Section,
    coverage_look,
    interval_cell,
    p_text,
    words,
)
from recast_eval.reporting.facts import EvaluationFacts
from recast_eval.reporting.sections.scores import ROLES

LOOKS: dict[str, Look] = {"trust it": "good", "trust it with care": "open", "uninformative": "bad"}
NAN = float("nan")


def section(facts: EvaluationFacts, maker: Maker) -> Section | None:
    """Every judge that was audited."""
    audit = facts.evaluation.audit
    if audit is None:
        return None
    source = f"recast-eval audit {facts.evaluation.name}"
    blocks: list[Block] = []
    if audit.judges:
        blocks.append(_lines(audit.judges, maker, source))
        blocks.append(_measures(audit.judges, maker, source))
    for judge in audit.judges:
        blocks += _of_judge(judge, maker, source)
    blocks += _contradictions(audit.judges, maker, source)
    blocks += [NoteBlock(f"Not looked at: {text}") for text in audit.skipped]
    return Section(
        "audit",
        "Audit of the judge",
        "Whether the judge looks at the pictures: the same picture twice must tie, swapping must "
        "not change a verdict, brightness must not decide.",
        tuple(blocks),
    )


def _contradictions(judges: list[JudgeAudit], maker: Maker, source: str) -> list[Block]:
    rows = [
        [words(judge.judge), words(judge.axis), words(scorer.scorer), words(text)]
        for judge in judges
        for scorer in judge.scorers
        for text in scorer.contradictions[:2]
    ]
    if not rows:
        return []
    read = (
        "The pairs on which a clear verdict and a scorer contradict each other most, at most two "
        "a scorer: look at the pictures to see who is right."
    )
    title = "Widest contradictions"
    return [maker.table(title, read, ["judge", "axis", "scorer", "where"], rows, source=source)]


def _lines(judges: list[JudgeAudit], maker: Maker, source: str) -> Block:
    rows = [
        [
            words(j.judge),
            words(j.axis),
            words(j.level, LOOKS[j.level]),
            words("; ".join(j.reasons) or "nothing speaks against it"),
            Cell(f"{j.n_scored} / {j.n_total}", None, coverage_look(j.n_scored, j.n_total)),
        ]
        for j in judges
    ]
    head = ["judge", "axis", "verdict", "why", "n scored / n total"]
    read = "What the audit concludes about each judge."
    return maker.table("Judges in one line", read, head, rows, source=source)


def _measures(judges: list[JudgeAudit], maker: Maker, source: str) -> Block:
    rows = [
        [words(j.judge), words(j.axis), words(name), _cell(measure), _count(measure)]
        for j in judges
        for name, measure in measures(j)
    ]
    head = ["judge", "axis", "what", "value [95 % interval]", "n"]
    read = (
        "A fair judge names the first picture about half the time (0.5), flips seldom, and calls a "
        "tie where both pictures are the same (null tests). Alpha and kappa measure agreement: 1 "
        "is perfect, 0 no better than chance. The win rate with equal picture properties stands "
        "beside the raw one, not instead of it."
    )
    return maker.table("Everything measured", read, head, rows, source=source)


def measures(judge: JudgeAudit) -> Iterator[tuple[str, Measure]]:
    """Every measure of an audit with what it is, in words."""
    if judge.position is not None:
        yield "replies that name the first picture", judge.position.first_slot
        yield "both orders name the same model", judge.position.same_winner
        yield "flips among scored pairs", judge.position.flips
        yield "ties among scored pairs", judge.position.ties
    yield "agreement of repeated questions (alpha)", judge.repeats
    for null in judge.nulls:
        yield f"null test, {null.what}: replies that see no difference", null.tie
        yield f"null test, {null.what}: replies that name the first", null.first_slot
        yield f"null test, {null.what}: the original wins", null.original_wins
    pair = " against ".join(judge.pair)
    yield f"win rate, {pair}", judge.raw_win_rate
    yield f"win rate with equal picture properties, {pair}", judge.adjusted_win_rate
    for scorer in judge.scorers:
        yield f"same side as {scorer.scorer} ({ROLES[scorer.role]})", scorer.same_side
        yield f"kappa with {scorer.scorer} ({ROLES[scorer.role]})", scorer.kappa
    for other in judge.judges:
        yield f"raw agreement with {other.judge}", other.raw
        yield f"kappa with {other.judge}", other.kappa
    if judge.human is not None:
        people = f"{judge.human.voters} people, {judge.human.votes} votes"
        yield f"same winner as people ({people})", judge.human.accuracy
        yield "kappa with people", judge.human.kappa
        yield "alpha with people", judge.human.alpha
        yield "alpha among people", judge.human.among_people


def _cell(measure: Measure) -> Cell:
    if not isinstance(measure, Measured):
        return Cell(f"not measured: {measure.reason}", None, "none")
    return interval_cell(measure.estimate, measure.low, measure.high)


def _count(measure: Measure) -> Cell:
    if not isinstance(measure, Measured):
        return Cell("", None)
    return Cell(f"{measure.n} on {measure.n_prompts} prompts", None)


def _of_judge(judge: JudgeAudit, maker: Maker, source: str) -> Iterator[Block]:
    rows = []
    for bias in judge.properties:
        known = bias.slope if isinstance(bias.slope, Measured) else None
        estimate, low, high = (known.estimate, known.low, known.high) if known else (NAN, NAN, NAN)
        rows.append(Row(bias.name, estimate, low, high, p=bias.p_holm))
    if rows:
        info = intervals_info(rows, x_label="log-odds of winning per SD of the property")
        title = f"Picture properties and {judge.judge}"
        yield maker.figure("audit-bias", info, title=title, source=source)
    clear = [b for b in judge.properties if b.p_holm < 0.05]
    for bias in clear:
        yield NoteBlock(
            f"{judge.judge} is moved by {bias.name} (p {p_text(bias.p_holm)} after Holm).", "bad"
        )
