"""Training prompts: a shipped set, or a file of one's own."""

import json
from pathlib import Path
from typing import Any

from recast_eval.content import content
from recast_eval.errors import ConfigError, DataError
from recast_eval.records import read_lines
from recast_train.recipe_types import PromptsConfig


def load_prompts(config: PromptsConfig) -> list[str]:
    """Read the prompts of a set's split.

    ``set`` is a folder of ``prompts/sets`` with ``SPLIT.jsonl`` in it, or a path to a ``.jsonl``
    (an object with ``prompt`` a line) or ``.txt`` file (a prompt a line).

    Raises:
        ConfigError: There is no such set or split, or it is empty.
        DataError: A line is broken; names it.
    """
    path = _find(config)
    prompts = [_prompt(path, number, line) for number, line in read_lines(path) if line.strip()]
    if not prompts:
        raise ConfigError([f"prompts.set: {path} holds no prompt"])
    return list(dict.fromkeys(prompts))


def _find(config: PromptsConfig) -> Path:
    own = Path(config.set)
    if own.suffix in (".jsonl", ".txt"):
        if not own.is_file():
            raise ConfigError([f"prompts.set: {own} is no file"])
        return own
    folder = content("prompts") / "sets"
    path = folder / config.set / f"{config.split}.jsonl"
    if not path.is_file():
        sets = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
        splits = sorted(p.stem for p in (folder / config.set).glob("*.jsonl"))
        have = f"its splits are {', '.join(splits)}" if splits else f"sets are {', '.join(sets)}"
        raise ConfigError([f"prompts.set: no {config.set!r} with split {config.split!r}; {have}"])
    return path


def _prompt(path: Path, number: int, line: str) -> str:
    if path.suffix == ".txt":
        return line.strip()
    try:
        found: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"no JSON ({error.msg})", path=path, line=number) from error
    prompt = found.get("prompt") if isinstance(found, dict) else None
    if not isinstance(prompt, str) or not prompt:
        raise DataError("must be an object with a non-empty text 'prompt'", path=path, line=number)
    return prompt
