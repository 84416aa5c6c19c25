"""What a plot is, and how its ink reaches a page, a notebook or a paper.

Colours are the caller's: drawing code takes them from matplotlib's settings, so that
``theme()`` gives one look everywhere and a notebook keeps its own.
"""

import io
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar
from xml.etree import ElementTree

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

I = TypeVar("I")  # noqa: E741 - the info of a plot
Cell = str | int | float | None

SERIES: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#b5548a",
    "#b07a00",
    "#4a90c8",
    "#6a3d9a",
    "#4f565e",
)
"""Okabe-Ito, darkened until each is 3:1 on white; told apart by marker and dash as well."""
MARKERS: Final = "osD^vPX*"
DASHES: Final = ("-", (0, (5, 1.6)), (0, (1.5, 1.2)), (0, (5, 1.4, 1.4, 1.4)))
INK, MUTED, GRID, NO_DATA = "#1b1f24", "#5c6671", "#d4d9df", "#9aa1a9"
PAPER: Final = "#fefefe"
"""Inside of a hollow marker: what the figure lies on."""
ON_SERIES: Final = "#101418"
"""Text on a series' colour, which is light enough for it in both themes."""
_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"


class Table(NamedTuple):
    """The numbers behind a figure: what is shown under it and what its CSV holds."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    """A cell without a value is None, never NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotSpec(Generic[I]):
    """What a file of ``recast_eval/plots/`` calls ``PLOT``."""

    name: str
    title: str
    read: str
    """One sentence: how to read it."""
    draw: Callable[[Axes, I], None]
    """Onto the caller's axes. Opens no window and saves no file."""
    table: Callable[[I], Table]
    alt: Callable[[I], str]
    """One sentence for who cannot see it."""
    size: Callable[[I], tuple[float, float]] = lambda _: (4.6, 3.0)
    """Width and height in inches."""


def series_color(index: int) -> str:
    """Colour of series ``index`` in the settings in force."""
    colors: list[str] = mpl.rcParams["axes.prop_cycle"].by_key().get("color", list(SERIES))
    return colors[index % len(colors)]


def series_style(index: int) -> dict[str, Any]:
    """Colour, marker and dash, so that no two of 32 series differ by colour alone."""
    return {
        "color": series_color(index),
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[index % len(DASHES)],
        "markersize": 4.5,
    }


def number(value: float | None) -> float | None:
    """None for what is no finite number: tables are strict JSON."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(value)


def fit(text: str, width: int = 24) -> str:
    """Make a name drawable: no control or bidi characters, cut to ``width`` columns.

    Tables keep the whole name; wide (East Asian) characters count as two columns.
    """
    kept, used = list[str](), 0
    for char in " ".join(text.split()):
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Cn", "Co"):
            continue
        used += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used > width:
            return "".join(kept[:-1]) + "\u2026"
        kept.append(char)
    return "".join(kept)


@contextmanager
def theme() -> Iterator[None]:
    """Settings of our figures. Text is text: ``$`` and ``%`` in a name mean themselves."""
    settings: dict[Any, Any] = {
        "text.parse_math": False,
        "svg.fonttype": "none",
        "font.size": 10,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 9.5,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.edgecolor": MUTED,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "hatch.color": "#6d747c",
        "hatch.linewidth": 0.7,
        "lines.linewidth": 1.7,
        "axes.prop_cycle": cycler(color=list(SERIES)),
    }
    with mpl.rc_context(settings):
        yield


def figure(spec: PlotSpec[I], info: I, *, title: str = "") -> Figure:
    """Draw onto a new figure in our theme; no pyplot, no window."""
    with theme():
        made = Figure(figsize=spec.size(info), layout="constrained")
        made.patch.set_alpha(0.0)
        axes = made.add_subplot()
        axes.patch.set_alpha(0.0)
        spec.draw(axes, info)
        if title:
            axes.set_title(title)
    return made


def save(spec: PlotSpec[I], info: I, path: Path, *, title: str = "") -> None:
    """Write PDF, SVG or PNG, by the ending of ``path``; the same bytes for the same info."""
    made = figure(spec, info, title=title)
    stamp: dict[str, Any] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with theme(), mpl.rc_context({"svg.hashsalt": spec.name}):
        made.savefig(path, dpi=200, metadata=stamp.get(path.suffix.lower()))


def svg(spec: PlotSpec[I], info: I, *, key: str) -> str:
    """Draw as SVG text for a page: no ids that clash, colours as CSS variables.

    Args:
        spec: The plot.
        info: Its numbers.
        key: Unique in the page; prefixes what the picture refers to inside itself.
    """
    out = io.StringIO()
    with theme(), mpl.rc_context({"svg.hashsalt": key}), warnings.catch_warnings():
        # text stays text: the reader's fonts draw it, ours only measure it
        warnings.filterwarnings("ignore", r"Glyph .* missing", UserWarning)
        made = figure(spec, info)
        made.savefig(out, format="svg", metadata={"Date": None})
    return _for_page(out.getvalue(), key)


def _for_page(text: str, key: str) -> str:
    root = ElementTree.fromstring(text)  # noqa: S314 - our own picture, written just now
    for junk in ("metadata", "title"):
        for found in root.findall(f"{{{_SVG}}}{junk}"):
            root.remove(found)
    for parent in root.findall(f".//{{{_SVG}}}style/.."):  # its rules would rule the whole page
        parent[:] = [child for child in parent if child.tag != f"{{{_SVG}}}style"]
    refers = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text))
    for node in root.iter():
        _rename(node, refers, key)
    _, _, width, height = root.attrib.pop("viewBox").split()
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("viewBox", f"0 0 {width} {height}")
    root.set("style", f"max-width:{1.65 * float(width):.0f}px")
    root.set("aria-hidden", "true")
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _rename(node: ElementTree.Element, refers: set[str], key: str) -> None:
    """Keep ids that are referred to, made unique; turn our colours into variables."""
    name = node.attrib.pop("id", None)
    if name in refers:
        node.set("id", f"{key}-{name}")
    for attribute, value in list(node.attrib.items()):
        if attribute == _LINK:
            del node.attrib[attribute]
            node.set("href", f"#{key}-{value[1:]}" if value.startswith("#") else value)
        elif "url(#" in value:
            node.set(attribute, value.replace("url(#", f"url(#{key}-"))
        elif attribute in ("style", "fill", "stroke"):
            node.set(attribute, _themed(value))


_VARIABLES: Final = (
    {INK: "--ink", MUTED: "--muted", GRID: "--grid", NO_DATA: "--no-data"}
    | {PAPER: "--raised"}
    | {color: f"--s{index}" for index, color in enumerate(SERIES)}
)


def _themed(style: str) -> str:
    style = re.sub(r" ?font-family:[^;]*;?", "", style)
    return re.sub(
        r"#[0-9a-f]{6}",
        lambda m: f"var({_VARIABLES[m[0]]})" if m[0] in _VARIABLES else m[0],
        style,
    )


def place_legend(axes: Axes, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Put the key under the axes; a lone series needs none, and ``_name`` is a name too."""
    if len(labels) < 2:
        return
    shown = [fit(label, 40) for label in labels]
    columns = 1 if max(map(len, shown)) > 20 else 2
    height = axes.figure.get_size_inches()[1]  # type: ignore[union-attr]
    axes.legend(
        list(handles),
        # matplotlib hides labels that begin with an underscore
        [f" {label}" if label.startswith("_") else label for label in shown],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.46 / max(1.0, height - 0.9)),
        ncols=columns,
        handlelength=2.6,
    )
