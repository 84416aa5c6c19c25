"""Turn blocks into one HTML file that asks for nothing and runs nothing but its own script."""

import base64
import csv
import hashlib
import io
import json
import unicodedata
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from recast_eval.content import content
from recast_eval.plots import Table
from recast_eval.reporting.blocks import FigureBlock, Section, TableBlock, number_text
from recast_eval.reporting.summary import Summary

SHOWN_ROWS = 240
"""Rows of a figure's numbers shown in the page; its CSV holds all."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render(title: str, summary: Summary, sections: Sequence[Section]) -> str:
    """Render a page.

    Args:
        title: Plain text.
        summary: The first screen.
        sections: What follows, in order.

    Returns:
        HTML: no external request (a content policy forbids them), every string escaped.
    """
    folder = content("reports")
    env = Environment(
        loader=FileSystemLoader(folder / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"clean": clean, "csv": csv_link, "number": _shown}
    script = (folder / "static" / "report.js").read_text("utf-8").strip()
    style = (folder / "static" / "report.css").read_text("utf-8").strip()
    return env.get_template("report.html.j2").render(
        title=title,
        summary=summary,
        sections=list(sections),
        style=Markup(style),  # noqa: S704 - shipped with us
        script=Markup(script),  # noqa: S704 - shipped with us
        policy=_policy(script),
        data=Markup(data_block(title, summary, sections)),  # noqa: S704 - escaped for a script tag
        shown_rows=SHOWN_ROWS,
    )


def _policy(script: str) -> str:
    """Only our own script runs, named by its hash; styles and pictures come from the file."""
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{own}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def clean(text: object) -> str:
    """Drop what HTML cannot hold or a reader cannot see; line ends become spaces."""
    joined = " ".join(str(text).split())
    return "".join(c for c in joined if unicodedata.category(c) not in ("Cc", "Cs"))


def _shown(value: object) -> str:
    if value is None:
        return "no data"
    if isinstance(value, float):
        return number_text(value, 4)
    return clean(value)


def csv_link(table: Table) -> str:
    """A ``data:`` address of the table as CSV; no cell can start a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_safe(c) for c in table.columns])
    writer.writerows([_safe(c) for c in row] for row in table.rows)
    text = base64.b64encode(out.getvalue().encode("utf-8-sig")).decode("ascii")
    return f"data:text/csv;charset=utf-8;base64,{text}"


def _safe(cell: object) -> object:
    if isinstance(cell, str):
        cell = clean(cell)
        return f"'{cell}" if cell.startswith(_FORMULA) else cell
    return "" if cell is None else cell


def data_block(title: str, summary: Summary, sections: Sequence[Section]) -> str:
    """All tables as strict JSON that cannot close its script tag."""
    tables = {
        block.key: {
            "title": block.title,
            "columns": list(block.table.columns),
            "rows": [list(row) for row in block.table.rows],
        }
        for section in sections
        for block in section.blocks
        if isinstance(block, (FigureBlock, TableBlock))
    }
    value: dict[str, Any] = {
        "schema_version": 1,
        "title": title,
        "answers": {a.key: [a.lead, *a.points] for a in (summary.compared, *summary.answers)},
        "distrust": [d.text for d in summary.distrust],
        "tables": tables,
    }
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
