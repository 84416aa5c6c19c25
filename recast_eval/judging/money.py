"""What it may cost, what it did cost. Unknown is not zero."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from recast_eval.errors import ConfigError
from recast_eval.judging.cards import JudgeCard, Price
from recast_eval.judging.planning import Plan
from recast_eval.judging.records import Usage
from recast_eval.judging.store import PAID, ReplyStore, Spec
from recast_eval.records import Record


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


def call_tokens(card: JudgeCard, text: int) -> tuple[int, int]:
    """(input, output) tokens that one call may take at most, by estimate.

    Args:
        card: The judge.
        text: Tokens of the question without its pictures, as ``text_tokens`` counts them.
    """
    images = 0 if card.images.layout == "none" else 1 if card.kind == "pointwise" else 2
    sent = text + images * card.images.tokens_per_image + 50
    return sent, card.decoding.max_tokens


def question_tokens(card: JudgeCard, text: int) -> tuple[int, int]:
    """The same for a question: a reply that is cut short is asked for once more, longer."""
    sent, made = call_tokens(card, text)
    factor = card.decoding.raise_to
    return (2 * sent, made * (1 + factor)) if factor > 1 else (sent, made)


def most_cost(tokens: tuple[float, float], price: Price | None) -> float:
    """US dollars for these tokens; 0 without a price (a cap then is refused beforehand)."""
    if price is None:
        return 0.0
    return (tokens[0] * price.input + tokens[1] * price.output) / 1e6


class Bound:
    """What a question may cost at most: an estimate that each reply which took more raises.

    Args:
        card: The judge.
        price: US dollars for a million tokens.
    """

    def __init__(self, card: JudgeCard, price: Price | None) -> None:
        self._card, self._price = card, price
        self._sent = self._made = 1.0
        self.heard = False
        """Whether a reply came: until then, what a picture takes is a guess."""

    def call(self, text: int) -> float:
        """US dollars of one call at most, for a question of so many tokens of text."""
        return self._cost(call_tokens(self._card, text))

    def question(self, text: int) -> float:
        """US dollars of the whole question at most."""
        return self._cost(question_tokens(self._card, text))

    def _cost(self, tokens: tuple[int, int]) -> float:
        return most_cost((tokens[0] * self._sent, tokens[1] * self._made), self._price)

    def learn(self, usage: Usage, text: int) -> None:
        """See what a reply to such a question took."""
        self.heard = True
        sent, made = call_tokens(self._card, text)
        self._sent = max(self._sent, (usage.input_tokens or 0) / sent)
        longest = made * self._card.decoding.raise_to
        self._made = max(self._made, (usage.output_tokens or 0) / longest)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a judge would ask, and what that may cost."""

    spec: Spec
    plan: Plan
    sent: int
    """Input tokens at most."""
    made: int
    """Output tokens at most."""
    most: float
    """US dollars at most."""
    once: float
    """US dollars if no reply is cut short and asked for again; a batch never asks again."""


def cap_problem(cap: float | None) -> list[str]:
    """What is wrong with a cap in US dollars, as a list to add up; empty if nothing."""
    if cap is None or (cap >= 0 and math.isfinite(cap)):
        return []
    return [f"the cost cap must be a number of US dollars from 0, got {cap}"]


def read_price(text: str | None) -> Price | None:
    """Read ``IN,OUT``.

    Raises:
        ConfigError: It is not two numbers from 0.
    """
    if text is None:
        return None
    try:
        sent, made = (float(part) for part in text.split(","))
        return Price(input=sent, output=made)
    except ValueError:
        raise ConfigError([f"--price {text!r}: must be two numbers, like 2.5,10"]) from None
