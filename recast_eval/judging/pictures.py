"""Pictures as they are sent: checked once, one rule for both sides, kept within a bound."""

import asyncio
import base64
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from recast_eval.errors import DataError
from recast_eval.images import encode_for_judge, load_image
from recast_eval.judging.cards import ImageRule
from recast_eval.judging.store import ReplyStore
from recast_eval.records import digest, file_sha256

LEVELS: Final = 4
"""A picture over the byte limit is halved in side up to this often."""
_GAP: Final = 16


@dataclass(frozen=True, slots=True)
class Checked:
    """A file that can be sent."""

    path: Path
    sha256: str
    level: int
    """Halvings after which it fits."""
    size: tuple[int, int]
    """Width and height of the file."""


class Vault:
    """Encodes pictures and remembers the recent ones.

    Args:
        rule: The card's; the same for both sides of a pair.
        store: Remembers what a file becomes, so that a resumed run decodes nothing.
        cache_bytes: Bound of the encoded pictures that are kept.
    """

    def __init__(
        self, rule: ImageRule, store: ReplyStore, *, cache_bytes: int = 64 * 2**20
    ) -> None:
        self.rule, self._store, self._bound = rule, store, cache_bytes
        self.rule_digest = digest(
            rule.model_dump(include={"max_side", "min_side", "format", "quality", "max_bytes"})
        )
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self._held = 0
        self._sent: dict[tuple[str, int], str] = {}
        self._pending: dict[tuple[str, ...], asyncio.Future[str]] = {}

    def check(self, path: Path, sha256: str | None) -> Checked:
        """Read, decode and encode a file once, before anything is paid.

        Raises:
            DataError: It is not a whole image, is not the promised bytes, or fits at no size.
        """
        found = file_sha256(path)
        if sha256 is not None and sha256 != found:
            load_image(path, sha256=sha256)  # raises, and says what to do
        for level in range(LEVELS + 1):
            known = self._store.image(found, self.rule_digest, level)
            if known is None:
                known = self._encode_new(path, found, level)
            sent, fits, width, height = known
            self._sent[found, level] = sent
            if fits:
                return Checked(path, found, level, (width, height))
        raise DataError(f"over {self.rule.max_bytes:,} bytes even at a small size", path=path)

    def sent_digest(self, image: Checked, level: int) -> str:
        """Digest of the bytes sent for an image at a level that may be deeper than its own."""
        known = self._sent.get((image.sha256, level))
        if known is None:
            row = self._store.image(image.sha256, self.rule_digest, level)
            known = (row or self._encode_new(image.path, image.sha256, level))[0]
            self._sent[image.sha256, level] = known
        return known

    async def url(self, image: Checked, level: int) -> str:
        """The picture as a data URL."""
        return await self._get((image.sha256, str(level)), lambda: self._bytes(image, level))

    async def side_by_side(self, left: Checked, right: Checked, level: int) -> str:
        """Both pictures on one white card, as a data URL.

        Two tall pictures make a card with more pixels than either: it is halved until it fits.

        Raises:
            DataError: It fits at no size.
        """
        key = (left.sha256, right.sha256, str(level))
        return await self._get(key, lambda: self._both(left, right, level))

    async def _get(self, key: tuple[str, ...], make: Callable[[], bytes]) -> str:
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        if key in self._pending:
            return await asyncio.shield(self._pending[key])
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pending[key] = future
        try:
            data = await asyncio.to_thread(make)
            url = f"data:image/{self.rule.format};base64,{base64.b64encode(data).decode()}"
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # seen here: another waiter is not certain
            raise
        finally:
            del self._pending[key]
        future.set_result(url)
        self._keep(key, url)
        return url

    def _keep(self, key: tuple[str, ...], url: str) -> None:
        with self._lock:
            self._cache[key] = url
            self._held += len(url)
            while self._held > self._bound and len(self._cache) > 1:
                _, old = self._cache.popitem(last=False)
                self._held -= len(old)

    def _bytes(self, image: Checked, level: int) -> bytes:
        return self._encode(load_image(image.path, sha256=image.sha256).pixels, level)

    def _both(self, left: Checked, right: Checked, level: int) -> bytes:
        sides = [load_image(i.path, sha256=i.sha256).pixels for i in (left, right)]
        height = max(s.shape[0] for s in sides)
        width = sum(s.shape[1] for s in sides) + _GAP
        card = np.full((height, width, 3), 255, np.uint8)
        card[: sides[0].shape[0], : sides[0].shape[1]] = sides[0]
        card[: sides[1].shape[0], width - sides[1].shape[1] :] = sides[1]
        for deeper in range(level, LEVELS + 1):
            data = self._encode(card, deeper)
            if len(data) <= self.rule.max_bytes:
                return data
        said = f"side by side with {right.path} over {self.rule.max_bytes:,} bytes at any size"
        raise DataError(said, path=left.path)

    def _encode(self, pixels: np.ndarray, level: int) -> bytes:
        return encode_for_judge(
            pixels,
            max_side=max(16, self.rule.max_side >> level),
            min_side=self.rule.min_side,
            format=self.rule.format,
            quality=self.rule.quality,
        )

    def _encode_new(self, path: Path, sha256: str, level: int) -> tuple[str, bool, int, int]:
        pixels = load_image(path, sha256=sha256).pixels
        data = self._encode(pixels, level)
        sent = hashlib.sha256(data).hexdigest()
        height, width = pixels.shape[:2]
        row = (sent, len(data) <= self.rule.max_bytes, width, height)
        self._store.add_images([(sha256, self.rule_digest, level, *row)])
        url = f"data:image/{self.rule.format};base64,{base64.b64encode(data).decode()}"
        if self._held < self._bound // 2:
            self._keep((sha256, str(level)), url)
        return row
