"""How many tokens are masked at each stage, and which ones: counts and masks."""

from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import ArrayLike

Kind = Literal["cosine", "linear", "arccos"]


def mask_counts(tokens: int, steps: int, kind: Kind = "cosine") -> Int[np.ndarray, " steps_plus_1"]:
    """Masked tokens left before each step and after the last, by the MaskGIT rule.

    The rule of ``diffusers.AmusedScheduler`` (which rounds in float32, and so can stand one
    lower where the share is a whole number of tokens: N = 256, T = 12, step 8): at least one
    token is revealed a step while more than one is masked, at least one stays masked until
    the last step, which reveals all. With fewer tokens than steps late stages reveal none.

    Args:
        tokens: Length N of the sequence, at least 1.
        steps: Decoding steps T, at least 1.
        kind: Share that stays masked after a share r of the steps: ``cosine``
            cos(pi r / 2), ``linear`` 1 - r, ``arccos`` (2 / pi) arccos r.

    Returns:
        (T+1,) int64, from N down to 0.

    Raises:
        ValueError: A count is below 1, or the kind has no rule.

    References:
        Chang et al. 2022, MaskGIT, arXiv 2202.04200.
    """
    if tokens < 1 or steps < 1:
        raise ValueError(f"tokens and steps must be at least 1, got {tokens} and {steps}")
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
    share = np.arange(1, steps) / steps
    left = {
        "cosine": np.cos(np.pi * share / 2),
        "linear": 1 - share,
        "arccos": np.arccos(share) * 2 / np.pi,
    }[kind]
    counts = [tokens]
    for wanted in np.floor(tokens * left + 1e-9):  # 1 - r and arccos miss integers by an ulp
        counts.append(int(max(1, min(counts[-1] - 1, wanted))))
    return np.array([*counts, 0], dtype=np.int64)


def nested_masks(counts: ArrayLike) -> Bool[np.ndarray, "steps tokens"]:
    """Masks of tokens that are sorted by the step that decodes them, first decoded first.

    Args:
        counts: (T+1,) as ``mask_counts`` gives them: falls from N to 0.

    Returns:
        (T, N) bool; row i is the state before step i.

    Raises:
        ValueError: The counts do not fall to 0.
    """
    left = np.asarray(counts)
    if left.ndim != 1 or len(left) < 2 or left[-1] != 0 or (np.diff(left) > 0).any():
        raise ValueError(f"counts must fall from the number of tokens to 0, got {left.tolist()}")
    place: np.ndarray = np.arange(left[0])
    masked: np.ndarray = place[None, :] >= (left[0] - left[:-1])[:, None]
    return masked


def stage_masks(decode_step: ArrayLike, steps: int) -> Bool[np.ndarray, "*batch steps tokens"]:
    """Masked sets that a rollout went through: an exact replay.

    Args:
        decode_step: (..., N) integers in 0..T-1, the step that revealed each token.
        steps: T.

    Returns:
        (..., T, N) bool: token k is masked before step i iff ``i <= decode_step[k]``.

    Raises:
        ValueError: A decode step is not in 0..T-1.
    """
    when = np.asarray(decode_step)
    if when.dtype.kind not in "iu":
        raise ValueError(f"decode steps must be integers, got {when.dtype}")
    if when.size and (when.min() < 0 or when.max() >= steps):
        raise ValueError(f"decode steps must lie in 0..{steps - 1}, got {when.min()}..{when.max()}")
    masked: np.ndarray = when[..., None, :] >= np.arange(steps)[:, None]
    return masked
