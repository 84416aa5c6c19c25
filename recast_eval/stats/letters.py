"""Who can be told from whom: rank ranges and groups, from pairwise decisions."""

import numpy as np
from jaxtyping import Bool, Float


def alike_groups(different: Bool[np.ndarray, "model model"]) -> list[list[int]]:
    """Find every largest group in which no two models can be told apart.

    A model may be in several groups (A like B, B like C, A unlike C); one that differs from
    all others is a group by itself.

    Args:
        different: Symmetric; True where the two models were told apart.

    Returns:
        Groups of indices, each ascending; every pair that is alike shares a group.

    References:
        Piepho 2004, An algorithm for a letter-based representation of all-pairwise comparisons
        (insert and absorb).
    """
    many = len(different)
    groups: list[frozenset[int]] = [frozenset(range(many))]
    for a in range(many):
        for b in range(a + 1, many):
            if not different[a, b]:
                continue
            split = [g for g in groups if not {a, b} <= g]
            split += [g - {x} for g in groups if {a, b} <= g for x in (a, b)]
            groups = [g for g in dict.fromkeys(split) if not any(g < other for other in split)]
    return sorted(sorted(g) for g in groups)


def rank_ranges(
    better: Bool[np.ndarray, "model model"], group: Float[np.ndarray, " model"] | None = None
) -> list[tuple[int, int]]:
    """Give each model the best and the worst rank that the decisions leave it.

    Args:
        better: ``better[a, b]`` is True where a was found better than b.
        group: Which group each model is rated in; ranks count within it. One if not given.

    Returns:
        (best, worst) a model, from 1.
    """
    kin = np.ones(better.shape, dtype=bool) if group is None else group[:, None] == group[None, :]
    beaten_by = (better & kin).sum(axis=0)
    beats = (better & kin).sum(axis=1)
    return [(int(1 + beaten_by[m]), int(kin[m].sum() - beats[m])) for m in range(len(better))]
