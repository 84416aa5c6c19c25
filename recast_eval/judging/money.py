"""What it may cost, what it did cost. Unknown is not zero."""

from collections.abc import Sequence

from pydantic import Field

from recast_eval.judging.cards import JudgeCard, Price
from recast_eval.judging.records import Usage
from recast_eval.judging.store import PAID, ReplyStore
from recast_eval.records import Record

CHARACTERS_PER_TOKEN = 3.0
"""Cautious for English; far too many characters for Chinese, which is why it is an estimate."""


class Ledger(Record):
    """Sums over calls. Each sum stands beside the number of replies that did not tell."""

    schema_version: int = 1
    calls: int = 0
    replies: int = 0
    retried: int = 0
    """Calls that brought nothing and were made again, or given up."""
    verdicts: int = 0
    sums: dict[str, float] = Field(default_factory=dict)
    """input_tokens, output_tokens, reasoning_tokens, image_tokens, cached_tokens, cost_usd."""
    untold: dict[str, int] = Field(default_factory=dict)
    """Name of a sum -> replies that it does not cover."""


def ledger_of(store: ReplyStore, runs: Sequence[str] | None = None) -> Ledger:
    """Add up the calls of some runs, or of all."""
    import json

    counts = {"calls": 0, "replies": 0, "retried": 0, "verdicts": 0}
    sums: dict[str, float] = {}
    untold: dict[str, int] = {}
    for text, _, state, _, count in store.spent_rows(runs):
        counts["calls"] += count
        if state != "ok" and state not in PAID:
            counts["retried"] += count
            continue
        counts["replies"] += count
        counts["verdicts"] += count if state == "ok" else 0
        usage = json.loads(text)
        for name in Usage.model_fields:
            if name in usage:
                sums[name] = sums.get(name, 0.0) + usage[name] * count
            else:
                untold[name] = untold.get(name, 0) + count
    return Ledger(**counts, sums=sums, untold=untold)


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """US dollars of one reply, or None if tokens or price are unknown."""
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    return (usage.input_tokens * price.input + usage.output_tokens * price.output) / 1e6


def most_tokens(card: JudgeCard, text: str) -> tuple[int, int]:
    """(input, output) tokens that one call may take at most, by estimate."""
    images = 0 if card.images.layout == "none" else 1 if card.kind == "pointwise" else 2
    sent = round(len(text) / CHARACTERS_PER_TOKEN) + images * card.images.tokens_per_image + 50
    return sent, card.decoding.max_tokens


def most_cost(tokens: tuple[int, int], price: Price | None) -> float:
    """US dollars for these tokens; 0 without a price (a cap then is refused beforehand)."""
    if price is None:
        return 0.0
    return (tokens[0] * price.input + tokens[1] * price.output) / 1e6
