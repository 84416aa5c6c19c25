"""Findings about this machine, each with its remedy. Nothing is downloaded."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from recast_eval.content import content
from recast_eval.errors import MissingError, RecastError
from recast_eval.records import hardware, package_versions
from recast_eval.scorers import SCORERS, ScorerSpec


class Finding(NamedTuple):
    """One line of the examination; ``missing`` is optional, ``broken`` is not."""

    what: str
    state: Literal["ok", "missing", "broken"]
    facts: str


def examine(*, build: bool) -> list[Finding]:
    """Look at everything; with ``build``, load every scorer instead of looking for its weights."""
    return [*_machine(), *_starter(), *_scorers(build), _endpoint()]


def _machine() -> Iterator[Finding]:
    versions = ", ".join(f"{k} {v}" for k, v in package_versions().items())
    yield Finding("versions", "ok", versions)
    yield Finding("hardware", "ok", ", ".join(f"{k}: {v}" for k, v in hardware().items()))
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    yield Finding("disk here", "ok" if free > 2 else "broken", f"{free:.1f} GiB free")
    for module, extra in (
        ("rapidocr_onnxruntime", "ocr"),
        ("tesserocr", "ocr"),
        ("fastapi", "serve"),
    ):
        there = find_spec(module) is not None
        remedy = f"pip install 'recast-eval[{extra}]'"
        yield Finding(f"package {module}", "ok" if there else "missing", "" if there else remedy)


def _starter() -> Iterator[Finding]:
    try:
        folder = content("train/starter")
    except MissingError as error:
        yield Finding("starter model", "broken", str(error))
        return
    whole = (folder / "model_index.json").is_file()
    remedy = f"{folder} is incomplete: install again, or `recast-train starter build`"
    yield Finding("starter model", "ok" if whole else "broken", str(folder) if whole else remedy)


def _scorers(build: bool) -> Iterator[Finding]:
    for name in SCORERS:
        try:
            spec = SCORERS.load(name)
            yield _built(name, spec) if build else _looked_for(name, spec)
        except RecastError as error:
            yield Finding(f"scorer {name}", "missing", str(error))


def _built(name: str, spec: ScorerSpec) -> Finding:
    scorer = spec.build()
    return Finding(f"scorer {name}", "ok", f"family {scorer.card.family}, loaded")


def _looked_for(name: str, spec: ScorerSpec) -> Finding:
    card = spec.card
    if not card.needs:
        return Finding(f"scorer {name}", "ok", f"family {card.family}, needs nothing more")
    if spec.parts:
        return _weights(name, spec)
    if spec.served or card.weights.count("/") != 1:  # a server, packages, shipped files: cheap
        return _built(name, spec)
    from huggingface_hub import try_to_load_from_cache

    from recast_eval.scorers.weights import how_to_get, locate

    place = locate(card, None)
    cached = isinstance(try_to_load_from_cache(card.weights, "config.json"), str)
    if Path(place).is_dir() or cached:
        return Finding(f"scorer {name}", "ok", f"family {card.family}, weights at {place}")
    return Finding(f"scorer {name}", "missing", f"{'; '.join(card.needs)}: {how_to_get(card)}")


def _weights(name: str, spec: ScorerSpec) -> Finding:
    """Whether all that the loader wants is there and can be read; headers only."""
    from recast_eval.scorers.needed import troubles
    from recast_eval.scorers.weights import FOLDER_VARIABLE, locate, weights_folder

    place = Path(locate(spec.card, None))
    home = weights_folder() or Path(f"${FOLDER_VARIABLE}")
    found = troubles(spec.parts, home / spec.card.name, local=place.is_dir())
    if not found:
        return Finding(f"scorer {name}", "ok", f"family {spec.card.family}, weights at {place}")
    what = "; ".join(dict.fromkeys(t.what for t in found))
    remedy = "\n".join(dict.fromkeys(t.remedy for t in found))
    unset = "" if weights_folder() else f"export {FOLDER_VARIABLE}=FOLDER\n"
    broken = any(t.kind == "broken" for t in found)
    facts = f"{what}:\n{unset}{remedy}"
    return Finding(f"scorer {name}", "broken" if broken else "missing", facts)


def _endpoint() -> Finding:
    url = os.environ.get("OPENAI_BASE_URL")
    key = "set" if os.environ.get("OPENAI_API_KEY") else "not set"
    if url is None and key == "not set":
        return Finding(
            "judging endpoint",
            "missing",
            "set OPENAI_API_KEY (and OPENAI_BASE_URL for a server of your own), or pass --base-url "
            "and --model to `recast-eval judge`; the offline jury needs neither",
        )
    return Finding("judging endpoint", "ok", f"{url or 'the SDK default'}, key {key}")
