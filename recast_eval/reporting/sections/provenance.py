"""What made the numbers: manifests side by side."""

from typing import Any

from recast_eval.records import Manifest
from recast_eval.reporting.blocks import Block, Cell, Maker, NoteBlock, Section, words
from recast_eval.reporting.facts import Facts
from recast_eval.reporting.inputs import Evaluation, Run


def section(facts: Facts, maker: Maker) -> Section:
    """Commands, versions, hardware, seeds and digests of every folder read."""
    things: list[Run | Evaluation] = [*facts.runs, *(e.evaluation for e in facts.evaluations)]
    with_manifest = [(t.name, t.manifest) for t in things if t.manifest is not None]
    blocks: list[Block] = []
    bare = [t.name for t in things if t.manifest is None]
    if bare:
        blocks.append(NoteBlock(f"Without a manifest: {', '.join(bare)}."))
    if with_manifest:
        blocks.append(_table([n for n, _ in with_manifest], [m for _, m in with_manifest], maker))
    return Section(
        "provenance",
        "What made these numbers",
        "From the manifests: two results are comparable where these agree.",
        tuple(blocks),
    )


def manifest_facts(manifest: Manifest) -> dict[str, str]:
    """Every fact of a manifest as dotted name and text."""
    whole = manifest.model_dump(mode="json", exclude={"schema_version", "command"})
    return {"command": " ".join(manifest.command)} | {
        path: "" if value is None else str(value) for path, value in flatten(whole)
    }


def _table(names: list[str], manifests: list[Manifest], maker: Maker) -> Block:
    columns = [manifest_facts(m) for m in manifests]
    paths = list(dict.fromkeys(path for column in columns for path in column))
    rows = []
    for path in paths:
        values = [column.get(path, "") for column in columns]
        same = len(set(values)) == 1
        cells = [Cell(v or "none", v, "" if same else "open") for v in values]
        rows.append([words(path), *cells])
    return maker.table(
        "Manifests", "Coloured cells differ between columns.", ["fact", *names], rows
    )


def flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """(dotted path, leaf) of a JSON value, in order."""
    if isinstance(value, dict):
        pairs = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, list):
        pairs = [(str(i), v) for i, v in enumerate(value)]
    else:
        return [(path, value)]
    return [leaf for key, v in pairs for leaf in flatten(v, f"{path}.{key}" if path else key)]
