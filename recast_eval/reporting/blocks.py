"""What a page is made of: plain values that a template turns into HTML."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, Literal

from markupsafe import Markup

from recast_eval.plots import PLOTS, Table, svg
from recast_eval.plots.base import fit

Look = Literal["", "good", "bad", "open", "none", "id"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A table cell: shown text, the value behind it for the CSV, and how it looks."""

    text: str
    value: str | int | float | None = None
    look: Look = ""
    ends: tuple[float, float] | None = None
    """An interval around the value: two more columns of the CSV, one text in the page."""


@dataclass(frozen=True, slots=True)
class FigureBlock:
    """A picture with its numbers, how to read it, and what made it."""

    kind: ClassVar[str] = "figure"
    key: str
    title: str
    read: str
    picture: Markup
    """Our own SVG, whose texts the XML writer has escaped."""
    alt: str
    table: Table
    command: str


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Numbers that are the figure."""

    kind: ClassVar[str] = "table"
    key: str
    title: str
    read: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    command: str

    @property
    def table(self) -> Table:
        """Values for the CSV; an interval gets columns of its own."""
        wide = [any(c.ends for c in column) for column in zip(*self.rows, strict=True)]
        wide += [False] * (len(self.columns) - len(wide))
        columns: list[str] = []
        for name, has_ends in zip(self.columns, wide, strict=True):
            columns += [name, f"{name}: low", f"{name}: high"] if has_ends else [name]
        rows = []
        for row in self.rows:
            values: list[str | int | float | None] = []
            for cell, has_ends in zip(row, wide, strict=True):
                values.append(cell.text if cell.value is None else cell.value)
                values += (cell.ends or (None, None)) if has_ends else ()
            rows.append(tuple(values))
        return Table(tuple(columns), tuple(rows))

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers: their heads stand over them, on the right."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.columns)
        return tuple(any(isinstance(c.value, (int, float)) for c in column) for column in columns)


@dataclass(frozen=True, slots=True)
class Picture:
    """A thumbnail; without a source it says why."""

    model: str
    source: str
    """A ``data:`` address, or empty."""
    width: int
    height: int
    facts: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """A prompt and its pictures."""

    prompt: str
    prompt_id: str
    category: str
    pictures: tuple[Picture, ...]
    words: tuple[str, ...] = ()
    """What judges said, as text."""


@dataclass(frozen=True, slots=True)
class GalleryBlock:
    """Pictures side by side."""

    kind: ClassVar[str] = "gallery"
    key: str
    title: str
    read: str
    cards: tuple[Card, ...]
    left_out: str


@dataclass(frozen=True, slots=True)
class NoteBlock:
    """A sentence that needs no figure."""

    kind: ClassVar[str] = "note"
    text: str
    look: Look = ""


Block = FigureBlock | TableBlock | GalleryBlock | NoteBlock


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its blocks."""

    key: str
    title: str
    intro: str
    blocks: tuple[Block, ...]


@dataclass(slots=True)
class Maker:
    """Makes blocks with keys that are unique in the page."""

    command: str
    """What makes this report; shown with each figure after what made its data."""
    _numbers: Any = field(default_factory=lambda: count(1))

    def figure(
        self, plot: str, info: Any, *, title: str = "", source: str = "", read: str = ""
    ) -> FigureBlock:
        """Draw a registered plot.

        Args:
            plot: Its registered name.
            info: Its numbers.
            title: Instead of the plot's own.
            source: The command that made the data, if known.
            read: Instead of the plot's own sentence.
        """
        spec = PLOTS.load(plot)
        key = f"f{next(self._numbers)}"
        read = read or spec.read
        if band := getattr(info, "band", ""):
            read = f"{read} Shaded: {band}."
        return FigureBlock(
            key,
            title or spec.title,
            read,
            Markup(svg(spec, info, key=key)),  # noqa: S704 - written by an XML serialiser
            spec.alt(info),
            spec.table(info),
            self._made_by(source),
        )

    def table(
        self,
        title: str,
        read: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *,
        source: str = "",
    ) -> TableBlock:
        """Gather a table."""
        key = f"t{next(self._numbers)}"
        return TableBlock(
            key, title, read, tuple(columns), tuple(map(tuple, rows)), self._made_by(source)
        )

    def gallery(
        self, title: str, read: str, cards: Sequence[Card], left_out: str = ""
    ) -> GalleryBlock:
        """Gather a gallery."""
        return GalleryBlock(f"g{next(self._numbers)}", title, read, tuple(cards), left_out)

    def _made_by(self, source: str) -> str:
        return f"{source}\n{self.command}" if source else self.command


def number_text(value: float | None, digits: int = 3) -> str:
    """A number as people write it: ``digits`` significant figures, a real minus sign.

    Zeros at the end are kept, so that a column is equally exact throughout; whole numbers are
    whole.
    """
    if value is None or value != value:
        return "no data"
    if value in (float("inf"), float("-inf")):
        return "unbounded"
    if value == int(value) and abs(value) < 1e6:
        text = f"{value + 0.0:.0f}"
    else:
        text = f"{value:#.{digits}g}".removesuffix(".")
        if "e" in text and 1e-4 <= abs(value) < 1e6:
            text = f"{value:.0f}" if abs(value) >= 1 else f"{value:.6f}"
    return minus(text)


def minus(text: str) -> str:
    """A real minus sign, and none before a zero."""
    return re.sub(r"-(?=[\d.])", "\u2212", re.sub(r"-(?=0(?:\.0*)?(?![\d.]))", "", text))


def with_interval(estimate: float, low: float, high: float) -> str:
    """``0.488 [0.449, 0.526]``: as many decimals as the interval's width justifies."""
    width = high - low
    decimals = 2 if not 0 < width < math.inf else min(8, max(0, 1 - math.floor(math.log10(width))))
    shown = [minus(f"{v:.{decimals}f}") for v in (estimate, low, high)]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]"


def interval_cell(estimate: float, low: float, high: float, look: Look = "") -> Cell:
    """An estimate and its interval: one text in the page, three numbers in the CSV."""
    return Cell(with_interval(estimate, low, high), estimate, look, (low, high))


def percents(low: float, high: float) -> str:
    """A range of shares: ``36.3 to 63.7 %``."""
    return f"{100 * low:.1f} to {100 * high:.1f}\u00a0%"


def pair_name(pair: tuple[str, str], width: int = 13) -> str:
    """A pair as a short label that keeps both names apart."""
    return " / ".join(fit(name, width) for name in pair)


def coverage_look(scored: int, total: int) -> Look:
    """How ``n scored / n total`` looks: whole, a little short, or in need of a look."""
    if scored == total and total:
        return ""
    return "open" if total and scored >= 0.95 * total else "bad"


def percent(value: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * value:.{digits}f}\u00a0%"


def p_text(p: float) -> str:
    """A p-value as people write it."""
    return "< .001" if p < 0.001 else f"{p:.3f}".lstrip("0") if p < 1 else "1"


def num(value: float | None, digits: int = 3, look: Look = "") -> Cell:
    """A numeric cell."""
    if value is None or value != value:
        return Cell("no data", None, "none")
    return Cell(number_text(value, digits), float(value), look)


def words(text: str, look: Look = "") -> Cell:
    """A text cell."""
    return Cell(text, text, look)
