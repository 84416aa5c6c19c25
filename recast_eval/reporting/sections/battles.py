"""Judged pairs: win rates by axis and category, and how verdicts ended."""

from collections.abc import Sequence

from recast_eval.plots.intervals import Row, intervals_info
from recast_eval.plots.shares import shares_info
from recast_eval.reporting.battles import Battle
from recast_eval.reporting.blocks import (
    Block,
    Cell,
    Look,
    Maker,
    Section,
    num,
    p_text,
    percent,
    words,
)
from recast_eval.reporting.facts import EvaluationFacts

NAN = float("nan")
STATES = ("first wins", "tie", "flip", "second wins", "unscored")
LOOKS: dict[str, Look] = {"better": "good", "worse": "bad", "open": "open"}
SAYS = {"better": "first is better", "worse": "second is better", "open": "cannot be told apart"}


def section(facts: EvaluationFacts, maker: Maker) -> Section | None:
    """Win rates of every pair, axis and judge; by category for the focus pair."""
    table = facts.battles
    if not table.whole:
        return None
    blocks: list[Block] = []
    for judge in table.judges:
        mine = [b for b in table.whole if b.judge == judge]
        several = len(table.judges) > 1
        title = f"Win rates by {judge}" if several else "Win rates"
        info = _info([(f"{b.pair[0]} / {b.pair[1]}: {b.axis}", b) for b in mine])
        blocks.append(maker.figure("win-rates", info, title=title, source=facts.source))
        main = [b for b in mine if b.axis == ("overall" if "overall" in table.axes else b.axis)]
        rows = {f"{b.pair[0]} / {b.pair[1]}": {s: float(b.states[s]) for s in STATES} for b in main}
        shares = shares_info(rows, STATES, unit="pairs")
        blocks.append(maker.figure("verdict-states", shares, source=facts.source))
    blocks.append(_table("Every win rate", table.whole, facts, maker))
    if table.by_category and facts.focus is not None:
        rows_of = [(b.category or "", b) for b in table.by_category]
        title = f"{facts.focus[0]} against {facts.focus[1]}, by category"
        blocks.append(
            maker.figure("category-wins", _info(rows_of), title=title, source=facts.source)
        )
        blocks.append(_table(title, table.by_category, facts, maker))
    return Section(
        "battles",
        "Judged pairs",
        "Two pictures of one prompt, shown in both orders. Both orders are one observation: a "
        "verdict that changes with the order is a flip and counts half, like a tie.",
        tuple(blocks),
    )


def _info(rows: Sequence[tuple[str, Battle]]) -> object:
    made = [
        Row(
            name,
            b.rate.estimate if b.rate else NAN,
            b.rate.low if b.rate else NAN,
            b.rate.high if b.rate else NAN,
            b.axis,
            b.n_scored,
            b.n_total,
            b.p_adjusted,
        )
        for name, b in rows
    ]
    return intervals_info(made, x_label="win rate of the first", reference=0.5, limits=(0, 1))


def _table(title: str, battles: Sequence[Battle], facts: EvaluationFacts, maker: Maker) -> Block:
    rows = []
    for b in battles:
        rate = b.rate
        rows.append(
            [
                words(b.pair[0]),
                words(b.pair[1]),
                words(b.judge),
                words(b.category if b.category is not None else b.axis),
                Cell(percent(rate.estimate), rate.estimate)
                if rate
                else Cell("no data", None, "none"),
                words(f"{percent(rate.low)} to {percent(rate.high)}" if rate else "no data"),
                Cell(percent(b.decisive.estimate), b.decisive.estimate)
                if b.decisive
                else Cell("no data", None, "none"),
                words(
                    f"{b.states['first wins']} / {b.states['tie']} / {b.states['flip']} / "
                    f"{b.states['second wins']}"
                ),
                Cell(f"{b.n_scored} / {b.n_total}", None, "bad" if b.n_scored < b.n_total else ""),
                words(f"{percent(b.worst.low)} to {percent(b.worst.high)}" if b.n_total else "any"),
                num(float(rate.n_prompts), 6) if rate else Cell("0", 0),
                Cell(p_text(b.p_adjusted), b.p_adjusted),
                words(SAYS[b.verdict], LOOKS[b.verdict]),
            ]
        )
    return maker.table(
        title,
        "Ties and flips count half; the interval is Wilson's with the effective number of pairs, "
        "clustered by prompt; p is the exact sign test over prompts, adjusted by Holm over this "
        "table. 'If unscored went one way' bounds the rate.",
        [
            "first",
            "second",
            "judge",
            "axis or category",
            "win rate of first",
            "95 % interval",
            "decided pairs only",
            "win / tie / flip / loss",
            "n scored / n total",
            "if unscored went one way",
            "prompts",
            "adjusted p",
            "says",
        ],
        rows,
        source=facts.source,
    )
