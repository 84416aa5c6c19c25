"""The edge to the scorers: values, failures, and what does not apply."""

from collections.abc import Sequence

import numpy as np
import pytest

from recast_eval.records import Failed, Scored
from recast_eval.scorers import ScorerCard
from recast_eval.scorers.each import NOT_APPLICABLE
from recast_train.rewards import RewardTable, score, score_each, tell_apart

IMAGES = [np.zeros((2, 2, 3), np.uint8)] * 4
PROMPTS = ["a", "b", "c", "d"]
CARD = ScorerCard(name="said", version=1, family="said", what="what it is told", unit="share")


class Said:
    """Gives the outcomes that it was made with."""

    card = CARD

    def __init__(self, *outcomes: Scored | Failed) -> None:
        self.outcomes = list(outcomes)

    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        return self.outcomes


def test_failures_are_counted_and_what_does_not_apply_is_not() -> None:
    none, broken = Failed(reason=NOT_APPLICABLE), Failed(reason="engine")
    some = Said(Scored(value=0.25), none, broken, Scored(value=0.75))
    found = score_each({"some": some, "none": Said(none, none, none, none)}, IMAGES, PROMPTS)
    np.testing.assert_array_equal(found.values, [[0.25, np.nan, np.nan, 0.75], [np.nan] * 4])
    assert found.applicable.tolist() == [[True, False, True, True], [False] * 4]
    assert found.counts == [[2, 3], [0, 0]]
    np.testing.assert_array_equal(score({"some": some}, IMAGES, PROMPTS), found.values[:1])


def test_another_number_of_outcomes_is_refused() -> None:
    with pytest.raises(ValueError, match="said: 1 outcomes for 4 images"):
        score_each({"said": Said(Scored(value=1.0))}, IMAGES, PROMPTS)


@pytest.mark.parametrize(
    ("values", "wanted", "alone", "together"),
    [
        ([[1, 1, 2, 2], [1, 2, 3, 4]], [True, True], True, True),  # equal is comparable
        ([[1, np.nan, 2, np.nan], [np.nan] * 4], [True, True], False, False),
        ([[1, 2, np.nan, np.nan], [np.nan, np.nan, 1, 2]], [True, True], True, False),
        ([[np.nan] * 4, [1, 2, 3, 4]], [True, False], False, False),
        ([[np.nan] * 4, [1, 2, 3, 4]], [False, True], True, True),
    ],
)
def test_who_can_be_compared(
    values: list[list[float]], wanted: list[bool], alone: bool, together: bool
) -> None:
    table = RewardTable(("a", "b"), np.array(values), np.ones((2, 4), bool), ("", ""))
    groups = np.array([5, 5, 7, 7])
    assert tell_apart(table, groups, np.array(wanted), together=False) == alone
    assert tell_apart(table, groups, np.array(wanted), together=True) == together
