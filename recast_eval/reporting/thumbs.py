"""Thumbnails under a budget: small copies inside the page, and a count of what was left out."""

import base64
from dataclasses import dataclass, field
from pathlib import Path

from recast_eval.errors import DataError
from recast_eval.images import encode_for_judge, find_file, load_image

SIDE = 192
"""Longer side of a thumbnail in pixels; smaller pictures are kept as they are."""
BUDGET = 9 * 2**20
"""Bytes of all thumbnails in a page, as base64 text."""


@dataclass(frozen=True, slots=True)
class Thumb:
    """A small picture as a ``data:`` address, or why there is none."""

    source: str
    width: int = 0
    height: int = 0
    missing: str = ""


@dataclass(slots=True)
class Thumbnails:
    """Makes thumbnails until the budget is spent; a picture shown twice is read once."""

    budget: int = BUDGET
    side: int = SIDE
    spent: int = 0
    left_out: int = 0
    damaged: int = 0
    _made: dict[Path, Thumb] = field(default_factory=dict)

    def get(self, folder: Path, name: str, *, side: int | None = None) -> Thumb:
        """Thumbnail of a file that a record names inside its folder.

        Args:
            folder: Nothing outside it is read.
            name: Of the file.
            side: Longer side in pixels, if not the usual one.
        """
        if self.spent >= self.budget:
            self.left_out += 1
            return Thumb("", missing="left out: the page's picture budget is spent")
        try:
            path = find_file(folder, name)
            thumb = self._made.get(path)
            if thumb is None:
                thumb = self._made[path] = _thumb(path, side or self.side)
        except DataError as error:
            self.damaged += 1
            return Thumb("", missing=str(error).rsplit(": ", 1)[-1])
        self.spent += len(thumb.source)
        return thumb


def _thumb(path: Path, side: int) -> Thumb:
    pixels = load_image(path).pixels
    small = max(pixels.shape[:2]) <= 96  # a starter's card: exact pixels cost little
    data = encode_for_judge(pixels, max_side=side, format="png" if small else "webp", quality=80)
    height, width = pixels.shape[:2]
    scale = min(1.0, side / max(height, width))
    mime = "png" if small else "webp"
    text = base64.b64encode(data).decode("ascii")
    return Thumb(
        f"data:image/{mime};base64,{text}",
        max(1, round(width * scale)),
        max(1, round(height * scale)),
    )
