"""Judged pairs: win rates by axis and category, and how verdicts ended."""

from collections.abc import Sequence

from recast_eval.plots.intervals import Row, intervals_info
from recast_eval.plots.shares import shares_info
from recast_eval.reporting.battles import Battle, BattleTable
from recast_eval.reporting.blocks import (
    Block,
    Cell,
    Look,
    Maker,
    NoteBlock,
    Section,
    coverage_look,
    minus,
    p_text,
    pair_name,
    percent,
    percents,
    words,
)
from recast_eval.reporting.facts import EvaluationFacts
from recast_eval.reporting.ratings import rate
from recast_eval.stats import Davidson, WinRate

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
        for axis in table.axes:
            found = [(pair_name(b.pair), b) for b in mine if b.axis == axis]
            title = f"Win rates on {axis}, by {judge}"
            if found:
                blocks.append(
                    maker.figure("win-rates", _info(found), title=title, source=facts.source)
                )
        main = main_axis(table)
        rows = {
            pair_name(b.pair): {s: float(b.states[s]) for s in STATES}
            for b in mine
            if b.axis == main
        }
        shares = shares_info(rows, STATES, unit="pairs")
        title = f"How the verdicts of {judge} ended"
        blocks.append(maker.figure("verdict-states", shares, title=title, source=facts.source))
    blocks.append(_table("Every win rate", table.whole, facts, maker))
    blocks += _ratings(facts, maker)
    if table.by_category and facts.focus is not None:
        rows_of = [(b.category or "", b) for b in table.by_category]
        title = f"{facts.focus[0]} against {facts.focus[1]}, by category"
        blocks.append(
            maker.figure("category-wins", _info(rows_of), title=title, source=facts.source)
        )
        explored = "The categories are explorations: p is adjusted by Benjamini and Hochberg."
        blocks.append(
            _table(f"{title}: numbers", table.by_category, facts, maker, adjusted=explored)
        )
    return Section(
        "battles",
        "Judged pairs",
        "Two pictures of one prompt, shown in both orders. Both orders are one observation: a "
        "verdict that changes with the order is a flip and counts half, like a tie.",
        tuple(blocks),
    )


def main_axis(table: BattleTable) -> str:
    """``overall``, or the first axis there is."""
    return "overall" if "overall" in table.axes else next(iter(table.axes), "")


def _ratings(facts: EvaluationFacts, maker: Maker) -> list[Block]:
    axis = main_axis(facts.battles)
    found = rate(facts.evaluation.verdicts, facts.battles.judges[0], axis)
    if found is None or len(found.ratings) < 3:
        return []
    rows = []
    order = sorted(found.ratings, key=lambda m: (_group(found, m), -found.ratings[m].estimate))
    for model in order:
        best, worst = found.ranks[model]
        alike = [g for g in found.alike if model in g and len(g) > 1]
        rows.append(
            [
                words(str(model)),
                Cell(minus(found.ratings[model].text)),
                words(str(best) if best == worst else f"{best} to {worst}"),
                words("; ".join(", ".join(map(str, g)) for g in alike) or "none"),
                words(str(_group(found, model) + 1)),
            ]
        )
    blocks: list[Block] = [
        maker.table(
            f"Ratings on {axis}",
            "Davidson's model with ties and an order effect, clustered by prompt; log-odds scale, "
            "zero is the mean of a group. A model that never lost has a bound, not a number; "
            "one that met the others on a single prompt has neither. Models of different groups "
            "never met, directly or through others, and cannot be compared.",
            ["model", "rating", "rank", "cannot be told apart within", "group"],
            rows,
            source=facts.source,
        )
    ]
    if found.order.kind != "fixed":
        blocks.append(
            NoteBlock(
                f"Advantage of being shown first, in log-odds: {minus(found.order.text)} "
                "(0 is a judge that does not care)."
            )
        )
    return blocks


def _group(found: Davidson, model: object) -> int:
    return next(i for i, group in enumerate(found.groups) if model in group)


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


def _worst(b: Battle) -> str:
    if not b.states["unscored"]:
        return "all scored" if b.n_total else "nothing judged"
    return percents(b.worst.low, b.worst.high)


def _rate(won: WinRate | None) -> Cell:
    if won is None:
        return Cell("no data", None, "none")
    text = f"{percent(won.estimate)} [{percents(won.low, won.high)}]"
    return Cell(text, won.estimate, "", (won.low, won.high))


def _row(b: Battle, *, several: bool, unscored: bool) -> list[Cell]:
    return [
        words(b.pair[0]),
        words(b.pair[1]),
        *([words(b.judge)] if several else []),
        words(b.category if b.category is not None else b.axis),
        _rate(b.rate),
        Cell(percent(b.decisive.estimate), b.decisive.estimate)
        if b.decisive
        else Cell("no data", None, "none"),
        words(
            f"{b.states['first wins']} / {b.states['tie']} / {b.states['flip']} / "
            f"{b.states['second wins']}"
        ),
        Cell(f"{b.n_scored} / {b.n_total}", None, coverage_look(b.n_scored, b.n_total)),
        *([words(_worst(b))] if unscored else []),
        Cell(f"{b.rate.n_prompts:,}", b.rate.n_prompts) if b.rate else Cell("0", 0),
        Cell(p_text(b.p_adjusted), b.p_adjusted),
        words(SAYS[b.verdict], LOOKS[b.verdict]),
    ]


def _table(
    title: str,
    battles: Sequence[Battle],
    facts: EvaluationFacts,
    maker: Maker,
    *,
    adjusted: str = "It is adjusted by Holm over this table.",
) -> Block:
    several = len(facts.battles.judges) > 1
    unscored = any(b.n_total != b.n_scored or not b.n_total for b in battles)
    rows = [_row(b, several=several, unscored=unscored) for b in battles]
    bounds = " 'If unscored went one way' bounds the rate." if unscored else ""
    judge = "" if several else f" Judge: {facts.battles.judges[0]}."
    return maker.table(
        title,
        "Ties and flips count half; the interval is Wilson's with the effective number of pairs, "
        "clustered by prompt; p tests this rate: how often it would lie as far from one half if "
        f"each prompt favoured either model by as much. {adjusted}{bounds}{judge}",
        [
            "first",
            "second",
            *(["judge"] if several else []),
            "category" if battles[0].category is not None else "axis",
            "win rate of first [95 % interval]",
            "decided pairs only",
            "win / tie / flip / loss",
            "n scored / n total",
            *(["if unscored went one way"] if unscored else []),
            "prompts",
            "adjusted p",
            "says",
        ],
        rows,
        source=facts.source,
    )
