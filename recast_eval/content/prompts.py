"""Prompt sets: a folder with a card and one file of prompts a split, or a file of your own.

Shipped sets lie in ``prompts/sets/NAME/{card.yaml, train.jsonl, validation.jsonl, test.jsonl}``.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pydantic import Field, ValidationError

from recast_eval.content import content
from recast_eval.content.lines import filled_lines
from recast_eval.content.yaml_text import parse_yaml
from recast_eval.errors import DataError, MissingError, shorten
from recast_eval.records import Record, digest

Split = Literal["train", "validation", "test"]
SPLITS: Final[tuple[Split, ...]] = get_args(Split)
_SHOWN: Final = 120  # characters of a broken line that an error shows
_COLUMNS: Final = ("prompt_id", "prompt", "category")


class Prompt(Record):
    """A line of a prompt file."""

    prompt_id: str = Field(min_length=1, max_length=200)
    """Unique in the set; images and scores are matched by it, never by position."""
    prompt: str = Field(min_length=1)
    category: str = "other"


class PromptCard(Record):
    """``card.yaml`` of a prompt set."""

    name: str
    version: int
    what: str
    source: str
    licence: str
    seed: int | None = None
    generator: str = ""
    """Command that makes the files again."""
    splits: dict[Split, int]
    """Prompts in each split; checked on reading."""


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts of one split, in file order."""

    name: str
    split: str
    prompts: tuple[Prompt, ...]
    card: PromptCard | None
    """None for a bare file."""

    def digest(self) -> str:
        """Name the prompts by their content."""
        return digest([p.model_dump() for p in self.prompts])


def prompt_sets() -> dict[str, PromptCard]:
    """Cards of the shipped sets, by name.

    Raises:
        DataError: A card does not fit.
    """
    folders = sorted(p.parent for p in (content("prompts") / "sets").glob("*/card.yaml"))
    return {folder.name: read_card(folder) for folder in folders}


def read_card(folder: Path) -> PromptCard:
    """Read a set's ``card.yaml``.

    Raises:
        DataError: Missing, not YAML, or a field is wrong.
    """
    path = folder / "card.yaml"
    try:
        return PromptCard.model_validate(parse_yaml(path.read_text("utf-8")))
    except FileNotFoundError as error:
        raise DataError("a prompt set needs a card.yaml", path=path) from error
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise DataError(problems, path=path) from error
    except ValueError as error:
        raise DataError(f"not YAML in UTF-8: {error}", path=path) from error


def load_prompt_set(name_or_path: str, split: Split = "test") -> PromptSet:
    """Load one split of a set.

    Args:
        name_or_path: Name of a shipped set; a folder laid out like one; a ``.jsonl`` file
            (``prompt_id``, ``prompt``, ``category``), a ``.txt`` file (a prompt a line), a
            ``.parquet`` file with a column ``prompt``; or ``hub:OWNER/NAME``, a data set of
            the Hugging Face hub with such a column.
        split: Which split; a bare file has one, whatever is asked.

    Raises:
        DataError: A file is missing or broken; names line, value and remedy.
        MissingError: No set is called so.
    """
    if name_or_path.startswith("hub:"):
        return _from_hub(name_or_path[4:], split)
    path = Path(name_or_path)
    if path.suffix in (".jsonl", ".txt", ".parquet"):
        return PromptSet(path.stem, "all", tuple(_read_file(path)), None)
    known = sorted(prompt_sets())
    folder = content("prompts") / "sets" / name_or_path if name_or_path in known else path
    try:
        there = folder.is_dir()
    except OSError:  # e.g. a name that is too long
        there = False
    if not there:
        near = get_close_matches(name_or_path, known) or known
        raise MissingError(
            f"no prompt set {shorten(name_or_path)!r}: not shipped, no folder, no .jsonl, .txt or "
            f".parquet file; did you mean {', '.join(near)}?"
        )
    card = read_card(folder)
    if split not in card.splits:
        raise DataError(f"no split {split!r}; it has {', '.join(card.splits)}", path=folder)
    path = folder / f"{split}.jsonl"
    prompts = tuple(_read_file(path))
    if len(prompts) != card.splits[split]:
        raise DataError(
            f"{len(prompts)} prompts, the card says {card.splits[split]}: restore one of them",
            path=path,
        )
    return PromptSet(card.name, split, prompts, card)


def _read_file(path: Path) -> list[Prompt]:
    if path.suffix == ".parquet":
        return _from_rows(_parquet_rows(path), path)
    found: list[Prompt] = []
    broken: list[tuple[int, str]] = []
    for number, line in filled_lines(path):
        if path.suffix == ".txt":
            found.append(Prompt(prompt_id=f"{number:05d}", prompt=line))
            continue
        try:
            found.append(Prompt.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "line"
            shown = line if len(line) <= _SHOWN else line[:_SHOWN] + "..."
            broken.append((number, f"{where}: {first['msg']}, in {shown!r}"))
    if broken:
        more = [str(n) for n, _ in broken[1:]]
        also = f" (also broken: line {', '.join(more[:10])})" if more else ""
        raise DataError(
            f'{broken[0][1]}; a line must read {{"prompt_id": ..., "prompt": ..., '
            f'"category": ...}}{also}',
            path=path,
            line=broken[0][0],
        )
    return _checked(found, path)


def _checked(prompts: list[Prompt], path: Path) -> list[Prompt]:
    if not prompts:
        raise DataError("no prompts in it: write one a line", path=path)
    first: dict[str, int] = {}
    for number, prompt in enumerate(prompts, start=1):
        if not prompt.prompt.strip():
            raise DataError(f"prompt {prompt.prompt_id!r} is blank: remove it", path=path)
        earlier = first.setdefault(prompt.prompt_id, number)
        if earlier != number:
            raise DataError(
                f"prompt_id {prompt.prompt_id!r} is used by prompts {earlier} and {number}: "
                "give each its own",
                path=path,
            )
    return prompts


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    import datasets  # seconds to import; only for this kind of file

    try:
        return list(datasets.Dataset.from_parquet(str(path), keep_in_memory=True))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"not a parquet file that can be read ({error})", path=path) from error


def _from_hub(name: str, split: Split) -> PromptSet:
    import datasets  # seconds to import; only for data sets of the hub

    try:
        rows = list(datasets.load_dataset(name, split=split))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise MissingError(f"hub data set {name!r}, split {split!r}: {error}") from error
    return PromptSet(name, split, tuple(_from_rows(rows, Path(name))), None)


def _is_empty(value: Any) -> bool:
    return value is None or value == ""


def _cell(row: dict[str, Any], key: str, number: int, path: Path) -> str:
    """A cell as text; an id may be a whole number. Nothing else is guessed at."""
    value = row[key]
    if isinstance(value, str):
        return value
    if key == "prompt_id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    shown = f"{value!r:.{_SHOWN}}"
    wanted = "text or a whole number" if key == "prompt_id" else "text"
    raise DataError(
        f"row {number}: {key} is {shown} ({type(value).__name__}), must be {wanted}: mend the "
        "column",
        path=path,
    )


def _from_rows(rows: list[dict[str, Any]], path: Path) -> list[Prompt]:
    found = []
    for number, row in enumerate(rows, start=1):
        kept = {
            key: _cell(row, key, number, path) for key in _COLUMNS if not _is_empty(row.get(key))
        }
        try:
            found.append(Prompt.model_validate({"prompt_id": f"{number:05d}", **kept}))
        except ValidationError as error:
            first = error.errors()[0]
            raise DataError(
                f"{first['loc'][0]}: {first['msg']}; columns are {sorted(row)}, "
                "one must be called prompt",
                path=path,
                line=number,
            ) from error
    return _checked(found, path)
