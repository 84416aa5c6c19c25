"""All pairs at a glance: one line a pair, right under the answers."""

from recast_eval.reporting.blocks import (
    Cell,
    Look,
    Maker,
    Section,
    p_text,
    percent,
    percents,
    words,
)
from recast_eval.reporting.facts import EvaluationFacts
from recast_eval.reporting.scores import Pair

LOOKS: dict[str, Look] = {"better": "good", "worse": "bad", "open": "open"}


def section(facts: EvaluationFacts, maker: Maker) -> Section | None:
    """Judged win rate and counts of scorers that went up or down, for every pair shown."""
    if len(facts.pairs) < 2:
        return None
    rows = [_row(facts, pair) for pair in facts.pairs]
    table = maker.table(
        "Every pair in one line",
        "Win rate of the first on the judge's main axis with its 95 % interval, ties and flips as "
        "half. For scorers: on how many the first is clearly higher (up), clearly lower (down), or "
        "cannot be told apart (open), with the number of comparisons counted.",
        [
            "first",
            "second",
            "judged: wins of first",
            "adjusted p",
            "held-out judges: up / down / open",
            "training rewards: up / down / open",
        ],
        rows,
        source=facts.source,
    )
    left = (
        ""
        if len(facts.pairs) >= len(facts.models) * (len(facts.models) - 1) / 2
        else (f" With {len(facts.models)} models, only pairs with {facts.reference} are shown.")
    )
    return Section("glance", "At a glance", f"Which model stands where.{left}", (table,))


def _row(facts: EvaluationFacts, pair: Pair) -> list[Cell]:
    battle = facts.battles.main(pair)
    judged, p = Cell("not judged", None, "none"), Cell("", None)
    if battle is not None and battle.rate is not None:
        rate = battle.rate
        text = f"{percent(rate.estimate)} [{percents(rate.low, rate.high)}]"
        judged = Cell(text, rate.estimate, LOOKS[battle.verdict], (rate.low, rate.high))
        p = Cell(p_text(battle.p_adjusted), battle.p_adjusted)
    return [
        words(pair[0]),
        words(pair[1]),
        judged,
        p,
        _counts(facts, pair, "heldout"),
        _counts(facts, pair, "train"),
    ]


def _counts(facts: EvaluationFacts, pair: Pair, role: str) -> Cell:
    found = [d.verdict for d in facts.scores.of_pair(pair, role)]
    if not found:
        return Cell("not scored", None, "none")
    up, down = found.count("better"), found.count("worse")
    look: Look = "good" if up and not down else "bad" if down and not up else "open"
    return Cell(f"{up} / {down} / {found.count('open')}", None, look)
