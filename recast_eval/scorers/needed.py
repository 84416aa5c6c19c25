"""What must lie in a scorer's folder of weights, so that ``doctor`` can look before anything loads.

Only headers are read, nothing is downloaded.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

MODEL: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
"""Names the files of a model that is split."""
PICTURES: Final = ("preprocessor_config.json|processor_config.json",)
CLIP_TOKENIZER: Final = ("tokenizer.json|vocab.json",)
CLIP_NAMES: Final = "tokenizer.json tokenizer_config.json vocab.json merges.txt"
BERT_TOKENIZER: Final = ("tokenizer.json|vocab.txt",)
BERT_NAMES: Final = "tokenizer.json tokenizer_config.json vocab.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """One part of a scorer's weights."""

    files: tuple[str, ...]
    """Names; of several with ``|`` between them one is enough."""
    get: str
    """What to type to have them, ``{folder}`` standing for where they belong."""
    folder: str = ""
    """Below the scorer's own."""
    tensors: tuple[str, ...] = ()
    """Some that the safetensors file must hold: by them another checkpoint is noticed."""
    hub: str = ""
    """Id in whose cache they may lie instead; empty is nowhere but the folder."""


class Trouble(NamedTuple):
    """What is wrong with a part, and what mends it."""

    kind: Literal["missing", "broken"]
    what: str
    remedy: str


def pretrained(
    hub: str,
    *,
    tokenizer: Sequence[str] = (),
    pictures: Sequence[str] = PICTURES,
    folder: str = "",
) -> Needed:
    """A model in the hub's own layout, with its image processor and, if named, a tokenizer."""
    files = ("config.json", f"{MODEL}|{INDEX}", *pictures, *tokenizer)
    return Needed(
        files=files, get=f"hf download {hub} --local-dir {{folder}}", folder=folder, hub=hub
    )


def borrowed(source: str, files: tuple[str, ...], names: str, *, hub: str = "") -> Needed:
    """Small files (a tokenizer, say) that come from another model's repository.

    Args:
        source: That repository.
        files: As in ``Needed``.
        names: What to download of it.
        hub: As in ``Needed``.
    """
    get = f"hf download {source} {names} --local-dir {{folder}}"
    return Needed(files=files, get=get, hub=hub)


def converted(file: str, fetch: str, published: str, tensors: tuple[str, ...]) -> Needed:
    """A published pickled checkpoint, turned into safetensors by the user."""
    script = f"python convert.py {shlex.quote(published)} {{folder}}/{file}"
    return Needed(
        files=(file,),
        get=f"{fetch} && {script} (convert.py is in docs/scorers.md)",
        tensors=tensors,
    )


def troubles(parts: Sequence[Needed], folder: Path, *, local: bool) -> list[Trouble]:
    """What is wrong with a scorer's weights; empty if it can be expected to load.

    Args:
        parts: All that it needs.
        folder: The scorer's own; where files belong if there is none.
        local: Whether that folder is what the scorer would load; else the hub's cache is.
    """
    cached = not local and all(p.hub for p in parts)

    def finder(part: Needed) -> Callable[[str], Path | None]:
        if cached:
            return lambda name: _cached(part.hub, name)
        return lambda name: _file(folder / part.folder / name)

    return [trouble for part in parts for trouble in _look(part, folder, finder(part))]


def _look(part: Needed, folder: Path, find: Callable[[str], Path | None]) -> Iterator[Trouble]:
    target = folder / part.folder
    remedy = part.get.format(folder=shlex.quote(str(target)) if target.is_absolute() else target)
    for names in part.files:
        path = next((p for p in map(find, names.split("|")) if p is not None), None)
        if path is None:
            shown = " or ".join(str(target / n) for n in names.split("|"))
            yield Trouble("missing", f"{shown} is missing", remedy)
        elif path.name == INDEX:
            yield from _split(path, find, remedy)
        elif path.suffix == ".safetensors":
            wrong = _header(path, part.tensors)
            if wrong:
                yield Trouble("broken", wrong, remedy)


def _split(index: Path, find: Callable[[str], Path | None], remedy: str) -> Iterator[Trouble]:
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        yield Trouble("broken", f"{index} lists no files", remedy)
        return
    for name in names:
        path = find(str(name))
        wrong = _header(path, ()) if path else ""
        if path is None:
            yield Trouble("missing", f"{index.parent / str(name)} is missing", remedy)
        elif wrong:
            yield Trouble("broken", wrong, remedy)


def _header(path: Path, tensors: Sequence[str]) -> str:
    """What is wrong with a safetensors file by its header; empty if nothing."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            held = {name.removeprefix("module.") for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        return f"{path} cannot be read ({error})"
    lacking = [name for name in tensors if name not in held]
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return f"{path} is another checkpoint: it has no {lacking[0]}{more}" if lacking else ""


def _file(path: Path) -> Path | None:
    return path if path.is_file() else None


def _cached(hub: str, name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(hub, name)
    return Path(found) if isinstance(found, str) else None
