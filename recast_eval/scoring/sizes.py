"""Sizes of the models' pictures: on record, and said where models differ.

A scorer or a judge reduces what is larger than it reads, each in its own way: a model drawn at
another size is compared with the others through that.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from recast_eval.errors import DataError
from recast_eval.images import find_file, image_size
from recast_eval.records import ImageRecord, Manifest, read_json, write_json
from recast_eval.scoring.folder import EvalFolder

log = logging.getLogger(__name__)


def note_sizes(folder: EvalFolder, images: Mapping[str, Sequence[ImageRecord]]) -> None:
    """Write ``models.NAME.sizes`` into the manifest: "WIDTHxHEIGHT" -> pictures.

    Args:
        folder: The evaluation, opened with these models.
        images: Model -> its images, which lie in the folder.
    """
    manifest = read_json(folder.manifest, Manifest)
    models: dict[str, Any] = dict(manifest.facts["models"])
    for name, records in images.items():
        models[name] = {**models[name], "sizes": _count(folder, name, records)}
    if models != manifest.facts["models"]:
        facts = {**manifest.facts, "models": models}
        write_json(folder.manifest, manifest.model_copy(update={"facts": facts}))
    sizes = {name: facts["sizes"] for name, facts in models.items() if facts.get("sizes")}
    if len({frozenset(found) for found in sizes.values()}) > 1:
        shown = "; ".join(f"{name} {', '.join(found)}" for name, found in sizes.items())
        log.warning(
            "the models' pictures differ in size (%s): scorers and judges reduce them to their "
            "own, so that a difference may be one of size; draw all at one size",
            shown,
        )


def _count(folder: EvalFolder, model: str, records: Sequence[ImageRecord]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for record in records:
        try:
            width, height = image_size(find_file(folder.images(model), record.file_name))
        except DataError:  # a picture lost since; it is counted where it is scored
            continue
        found[f"{width}x{height}"] += 1
    return dict(sorted(found.items()))
