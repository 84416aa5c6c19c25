"""Every error that RECAST raises on purpose.

RecastError
├── ConfigError (also ValueError)   a file, flag or recipe is wrong: mend it, run again
├── DataError                       a file, or a line of one, is wrong
├── PluginError                     a name is unknown, taken, or fails to load
├── MissingError                    a package, weights file or device is not here
└── JudgeError                      one judgement failed; the run goes on

Pure maths raises plain ``ValueError``. The command line prints a RecastError
without a traceback and leaves with status 2.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar


class RecastError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(RecastError, ValueError):
    """A configuration is wrong; carries every problem found, not the first."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"- {p}" for p in self.problems))


class DataError(RecastError):
    """A file, or a line of it (counted from 1; 0 is the whole file), does not fit."""

    def __init__(self, message: str, *, path: Path, line: int = 0) -> None:
        self.path, self.line = path, line
        place = f"{path}:{line}" if line else str(path)
        super().__init__(f"{place}: {message}")


class PluginError(RecastError):
    """A plug-in name is unknown, taken twice, or does not load."""


class MissingError(RecastError):
    """Something that this command needs is not here; the message says how to get it."""


class JudgeError(RecastError):
    """One judgement failed. Recorded in the results, never averaged in."""

    retryable: ClassVar[bool] = False


def shorten(text: str, limit: int = 80) -> str:
    """A value for a message: a name of thousands of characters would bury it."""
    return text if len(text) <= limit else text[:limit] + "..."


def reason(error: BaseException) -> str:
    """Why the system refused, without the path that the message names already."""
    return (error.strerror if isinstance(error, OSError) else None) or shorten(str(error))
