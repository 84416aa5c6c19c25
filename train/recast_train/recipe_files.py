"""Where recipes are found."""

from difflib import get_close_matches
from pathlib import Path

from recast_eval.content import content
from recast_eval.errors import ConfigError


def shipped_recipes() -> list[Path]:
    """All that ship, by name."""
    return sorted(content("train/recipes").glob("*.yaml"))


def shipped_sweeps() -> list[Path]:
    """All sweep files that ship, by name."""
    return sorted((content("train/recipes") / "sweeps").glob("*.yaml"))


def find_sweep(name: str) -> Path:
    """A file's path, or a shipped sweep's name, to a file.

    Raises:
        ConfigError: It is neither; says the nearest names.
    """
    return _find(name, "sweep", shipped_sweeps())


def find_recipe(name: str) -> Path:
    """A file's path, or a shipped recipe's name, to a file.

    Raises:
        ConfigError: It is neither; says the nearest names.
    """
    return _find(name, "recipe", shipped_recipes())


def _find(name: str, what: str, files: list[Path]) -> Path:
    own = Path(name)
    if own.suffix in (".yaml", ".yml") or own.is_file():
        if not own.is_file():
            raise ConfigError([f"{own}: no such file"])
        return own
    shipped = {path.stem: path for path in files}
    if name not in shipped:
        near = get_close_matches(name, shipped) or sorted(shipped)
        raise ConfigError([f"no {what} {name!r}; did you mean {', '.join(near)}?"])
    return shipped[name]


def head_line(path: Path) -> str:
    """First line of a recipe's head comment."""
    first = path.read_text("utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""
