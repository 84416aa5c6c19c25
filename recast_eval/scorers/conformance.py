"""What every scorer must hold to, ours or a plug-in's.

    from recast_eval.scorers.conformance import CHECKS, cases

    @pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
    def test_my_scorer(check):
        check(MySpec.build(), cases(["a prompt it can read", "another"]))

A check raises ``AssertionError`` that says which law broke, with the values.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import Scorer

TOLERANCE: Final = 1e-4
"""Of values, relative to the largest or 1: sums in another order, not another answer."""


class Cases(NamedTuple):
    """Images and prompts of different sizes and content, all scorable in principle."""

    images: list[np.ndarray]
    prompts: list[str]


def cases(prompts: Sequence[str], *, seed: int = 0) -> Cases:
    """Six pictures (noise, flat, gradient; square, wide, tall) with the prompts in turn."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 255, 80).astype(np.uint8)
    images = [
        rng.integers(0, 256, (64, 64, 3), dtype=np.uint8),
        np.full((64, 64, 3), 200, np.uint8),
        np.repeat(np.tile(ramp, (40, 1))[..., None], 3, 2),
        rng.integers(0, 256, (96, 48, 3), dtype=np.uint8),
        np.zeros((64, 64, 3), np.uint8),
        np.kron(rng.integers(0, 256, (8, 8, 3)), np.ones((8, 8, 1))).astype(np.uint8),
    ]
    return Cases(images, [prompts[i % len(prompts)] for i in range(len(images))])


def _same(one: Scored | Failed, two: Scored | Failed) -> bool:
    if isinstance(one, Scored) and isinstance(two, Scored):
        return math.isclose(one.value, two.value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(one) is type(two)


def batch_equals_single(scorer: Scorer, given: Cases) -> None:
    """A batch gives what single calls give."""
    batch = scorer(given.images, given.prompts)
    assert len(batch) == len(given.images), f"{len(given.images)} asked, {len(batch)} answered"
    for i, (image, prompt, got) in enumerate(zip(given.images, given.prompts, batch, strict=True)):
        alone = scorer([image], [prompt])[0]
        assert _same(alone, got), f"item {i}: alone {alone}, in a batch {got}"


def order_is_kept(scorer: Scorer, given: Cases) -> None:
    """Turned inputs give turned outputs."""
    forward = scorer(given.images, given.prompts)
    backward = scorer(given.images[::-1], given.prompts[::-1])[::-1]
    for i, (a, b) in enumerate(zip(forward, backward, strict=True)):
        assert _same(a, b), f"item {i}: {a} in order, {b} in reverse"


def calls_repeat(scorer: Scorer, given: Cases) -> None:
    """Asked twice, it answers the same, to the last bit."""
    first, second = (scorer(given.images, given.prompts) for _ in range(2))
    assert first == second, "two calls differ: randomness must be seeded by the input"


def values_are_in_range(scorer: Scorer, given: Cases) -> None:
    """Values are finite and inside the card's range; what has no value says why."""
    low, high = scorer.card.low, scorer.card.high
    for i, got in enumerate(scorer(given.images, given.prompts)):
        if isinstance(got, Failed):
            assert got.reason, f"item {i} failed without a reason"
            continue
        assert math.isfinite(got.value), f"item {i}: {got.value}"
        assert low is None or got.value >= low - TOLERANCE, f"item {i}: {got.value} below {low}"
        assert high is None or got.value <= high + TOLERANCE, f"item {i}: {got.value} above {high}"


def inputs_are_left_alone(scorer: Scorer, given: Cases) -> None:
    """The caller's arrays are not written to."""
    before = [i.copy() for i in given.images]
    scorer(given.images, given.prompts)
    for i, (a, b) in enumerate(zip(before, given.images, strict=True)):
        assert np.array_equal(a, b), f"image {i} was changed"


def strange_images_do_not_break_it(scorer: Scorer, given: Cases) -> None:
    """One pixel, a thin strip: a value or a typed failure, and no effect on the neighbours."""
    strange = [np.zeros((1, 1, 3), np.uint8), np.full((3, 200, 3), 255, np.uint8)]
    got = scorer([*strange, given.images[0]], [given.prompts[0]] * 3)
    assert len(got) == 3, f"3 asked, {len(got)} answered"
    assert _same(got[2], scorer([given.images[0]], [given.prompts[0]])[0]), "a neighbour changed"


def bad_calls_are_refused(scorer: Scorer, given: Cases) -> None:
    """Lengths that differ and arrays that are no pictures raise ValueError."""
    floats = [given.images[0].astype(np.float32)]
    for images, prompts in ((given.images[:2], given.prompts[:1]), (floats, given.prompts[:1])):
        try:
            scorer(images, prompts)
        except ValueError:
            continue
        raise AssertionError("a malformed batch was scored")


def nothing_gives_nothing(scorer: Scorer, given: Cases) -> None:
    """An empty batch is no error."""
    assert scorer([], []) == []


def cut_prompts_are_flagged(scorer: Scorer, given: Cases) -> None:
    """A prompt beyond the text limit is scored as its beginning, and says so."""
    limit = scorer.card.text_limit
    if limit is None:
        return
    got = scorer([given.images[0]], ["word " * (3 * limit)])[0]
    assert isinstance(got, Failed) or got.truncated, f"a prompt of {3 * limit} words: {got}"


CHECKS: Final[tuple[Callable[[Scorer, Cases], None], ...]] = (
    batch_equals_single,
    order_is_kept,
    calls_repeat,
    values_are_in_range,
    inputs_are_left_alone,
    strange_images_do_not_break_it,
    bad_calls_are_refused,
    nothing_gives_nothing,
    cut_prompts_are_flagged,
)
