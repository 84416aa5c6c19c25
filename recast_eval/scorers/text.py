"""What OCR scorers share: which text a prompt asks for, where it is, how far off a reading is.

A rule for all engines, so that two engines differ in reading alone.
"""

import re

import numpy as np
from scipy import ndimage

_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”')
_FIRST_QUOTES = re.compile(r'["“]([^"“”]*)["”]')
_LETTERS = str.maketrans("01", "OI")


def asked_text(prompt: str) -> str | None:
    """The quoted text of a prompt, several joined by spaces; None if nothing is quoted."""
    found = [a or b for a, b in _QUOTED.findall(prompt)]
    return " ".join(found) or None


def plain(text: str) -> str:
    """Capitals and digits alone: case, spaces and punctuation are not judged."""
    return "".join(c for c in text.upper() if c.isalnum())


def edit_distance(first: str, second: str) -> int:
    """Levenshtein distance: insertions, deletions, substitutions, each 1. O(len x len)."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, start=1):
        left, row[0] = row[0], i
        for j, b in enumerate(second, start=1):
            left, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, left + (a != b))
    return row[-1]


def closeness(read: str, asked: str) -> float:
    """``1 - min(edit, len) / len`` of the plain texts, in [0, 1]; 1 is right.

    Where no digit is asked for, a 0 that is read counts as O and a 1 as I: alone on a
    card they cannot be told apart.

    Raises:
        ValueError: ``asked`` holds no letter or digit.
    """
    wanted = plain(asked)
    if not wanted:
        raise ValueError(f"the text asked for, {asked!r}, holds no letter or digit")
    seen = plain(read)
    if wanted.isalpha():
        seen = seen.translate(_LETTERS)
    return 1 - min(edit_distance(seen, wanted), len(wanted)) / len(wanted)


def first_quoted(prompt: str) -> str | None:
    """What stands in a prompt's first pair of double quotes; None if that holds no character."""
    found = _FIRST_QUOTES.search(prompt)
    return found[1] if found and squeezed(found[1]) else None


def squeezed(text: str) -> str:
    """Lower case without white space: punctuation counts, as in the published reward."""
    return "".join(text.lower().split())


def scene_closeness(read: str, asked: str) -> float:
    """``1 - min(edit, len) / len`` of the squeezed texts, in [0, 1]; 1 if ``asked`` is contained.

    The rule of the OCR reward of Flow-GRPO (Liu et al. 2025, arXiv 2505.05470) and DiffusionNFT.
    What else is written costs nothing once the text asked for is there.

    Raises:
        ValueError: ``asked`` is only white space.
    """
    wanted, seen = squeezed(asked), squeezed(read)
    if not wanted:
        raise ValueError(f"the text asked for, {asked!r}, holds no character")
    if wanted in seen:
        return 1.0
    return 1 - min(edit_distance(seen, wanted), len(wanted)) / len(wanted)


def crop_text(pixels: np.ndarray, *, margin: float = 0.06, contrast: int = 60) -> np.ndarray | None:
    """Cut a picture down to its ink; None if there is none.

    Args:
        pixels: uint8 RGB (H, W, 3), text on an even ground.
        margin: Ground kept around the ink, share of the shorter side.
        contrast: Difference of a channel from the border's median, 0-255, that is ink.
    """
    wide = pixels.astype(np.int16)
    edge = np.concatenate([wide[0], wide[-1], wide[:, 0], wide[:, -1]])
    ink = np.abs(wide - np.median(edge, axis=0)).max(axis=2) > contrast
    labels, count = ndimage.label(ink)
    if count == 0:
        return None
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    kept = (sizes >= max(4, ink.size // 500))[labels]
    rows, cols = np.nonzero(kept.any(1))[0], np.nonzero(kept.any(0))[0]
    if not rows.size:
        return None
    pad = max(1, round(margin * min(pixels.shape[:2])))
    top, left = max(rows[0] - pad, 0), max(cols[0] - pad, 0)
    return pixels[top : rows[-1] + 1 + pad, left : cols[-1] + 1 + pad]
