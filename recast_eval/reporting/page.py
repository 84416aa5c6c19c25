"""Build a report: read, compute, gather sections, render."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from recast_eval.records import digest
from recast_eval.reporting.blocks import Maker, NoteBlock, Section
from recast_eval.reporting.facts import EvaluationFacts, gather
from recast_eval.reporting.inputs import read_inputs
from recast_eval.reporting.render import render
from recast_eval.reporting.sections import (
    audit,
    battles,
    credit,
    diagnostics,
    gallery,
    glance,
    provenance,
    scores,
    sweep,
    training,
)
from recast_eval.reporting.summary import summarise
from recast_eval.reporting.thumbs import Thumbnails


def build_report(folders: Sequence[Path], *, thumbs: Thumbnails | None = None) -> str:
    """Make one HTML page of runs and evaluations.

    Args:
        folders: Of runs, evaluations, or folders that hold some.
        thumbs: Holds the budget of pictures.

    Raises:
        ConfigError: A folder holds neither; all of them are named.
        DataError: A file does not fit its schema.
    """
    inputs = read_inputs(folders)
    facts, thumbs = gather(inputs), thumbs or Thumbnails()
    maker = Maker(shlex.join(["recast-eval", "report", *inputs.given]))
    found: list[Section | None] = []
    for one in facts.evaluations:
        own = _evaluation(one, maker, thumbs)
        found += _named(own, one) if len(facts.evaluations) > 1 else own
    found += [
        credit.section(facts, maker),
        sweep.section(facts, maker),
        training.section(facts, maker),
        diagnostics.section(facts, maker),
        gallery.samples(facts, maker, thumbs),
        provenance.section(facts, maker),
    ]
    sections = [section for section in found if section is not None]
    if thumbs.left_out or thumbs.damaged:
        sections[-1] = _with_note(sections[-1], thumbs)
    return render(_title(folders), summarise(facts), sections)


def _evaluation(facts: EvaluationFacts, maker: Maker, thumbs: Thumbnails) -> list[Section | None]:
    return [
        glance.section(facts, maker),
        scores.section(facts, maker),
        battles.section(facts, maker),
        audit.section(facts, maker),
        gallery.section(facts, maker, thumbs),
    ]


def _named(sections: Sequence[Section | None], facts: EvaluationFacts) -> list[Section | None]:
    """Tell the sections of several evaluations apart."""
    name = facts.evaluation.name
    return [
        replace(s, key=f"{s.key}-{digest(name, 6)}", title=f"{s.title}: {name}") if s else None
        for s in sections
    ]


def _with_note(section: Section, thumbs: Thumbnails) -> Section:
    text = (
        f"{thumbs.left_out} pictures were left out to keep this file small; "
        f"{thumbs.damaged} could not be read."
    )
    return replace(section, blocks=(*section.blocks, NoteBlock(text)))


def _title(folders: Sequence[Path]) -> str:
    names = [folder.resolve().name for folder in folders]
    return f"Report on {', '.join(names[:4])}{', …' if len(names) > 4 else ''}"
