"""JSON lines on disk: one writer appends, a torn last line is dropped and said."""

import errno
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from recast_eval.errors import DataError
from recast_eval.records.base import Record

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Record)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text) of each whole line; split on the line feed only.

    A last line without a line feed was torn by a crash: it is dropped with a warning.

    Raises:
        DataError: The file cannot be read, or is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(_unreadable(error), path=path) from error
    *lines, tail = data.split(b"\n")
    if tail:
        log.warning("%s: dropped a torn last line of %d bytes", path, len(tail))
    for number, line in enumerate(lines, start=1):
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"not UTF-8 ({error})", path=path, line=number) from error


def read_records(path: Path, kind: type[R]) -> list[R]:
    """Read all records of a file, in order.

    Raises:
        DataError: A line does not fit the schema; names the file, the line and the field.
    """
    found = []
    for number, text in read_lines(path):
        try:
            found.append(kind.model_validate_json(text))
        except ValidationError as error:
            raise DataError(_say(error, "line: "), path=path, line=number) from error
    return found


def append_record(path: Path, record: Record) -> None:
    """Add one record in one write. A torn tail left by a crash is cut off first."""
    append_text(path, record.model_dump_json())


def append_text(path: Path, text: str) -> None:
    """Add one line of JSON text, which holds no line feed: all of it, or none.

    Raises:
        OSError: The disk is full; the file is as it was before.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        end = _whole_length(descriptor)
        os.ftruncate(descriptor, end)
        os.lseek(descriptor, end, os.SEEK_SET)
        try:
            _write_whole(descriptor, text.encode() + b"\n")
        except OSError as error:
            os.ftruncate(descriptor, end)
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def _write_whole(descriptor: int, data: bytes) -> None:
    """A nearly full disk takes the beginning and says so only in the returned count."""
    left = memoryview(data)
    while left:
        written = os.write(descriptor, left)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left = left[written:]


def _whole_length(descriptor: int) -> int:
    """Bytes up to and with the last line feed."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    while end:
        step = min(end, 65536)
        os.lseek(descriptor, end - step, os.SEEK_SET)
        found = os.read(descriptor, step).rfind(b"\n")
        if found >= 0:
            return end - step + found + 1
        end -= step
    return 0


def part_path(path: Path) -> Path:
    """Where to write what will replace ``path``: no other process or thread writes there."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")


def write_atomic(path: Path, text: str) -> None:
    """Replace a file's whole content, or leave the old one."""
    part = part_path(path)
    with part.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def write_json(path: Path, record: Record) -> None:
    """Write one record as a readable JSON file, atomically."""
    text = json.dumps(record.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text + "\n")


def read_json(path: Path, kind: type[R]) -> R:
    """Read one record from a JSON file.

    Raises:
        DataError: The file cannot be read or does not fit its schema.
    """
    try:
        return kind.model_validate_json(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(_unreadable(error), path=path) from error
    except ValidationError as error:
        raise DataError(_say(error), path=path) from error
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 ({error})", path=path) from error


def _unreadable(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return f"cannot be read ({error.strerror or error})"


def _say(error: ValidationError, whole: str = "") -> str:
    """The first thing that is wrong, with the place of it, and how many more there are."""
    first, *others = error.errors(include_url=False, include_input=False)
    where = "".join(f"{part}." for part in first["loc"])[:-1]
    more = f" (and {len(others)} more)" if others else ""
    message = first["msg"].removeprefix("Value error, ")
    return f"{f'{where}: ' if where else whole}{message}{more}"
