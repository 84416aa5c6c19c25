"""Lines of a file that a person may have written."""

from collections.abc import Iterator
from pathlib import Path

from recast_eval.errors import DataError


def filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text) of the lines that hold something.

    People's editors leave the last line feed away, end lines with CR LF and begin the file with
    a mark of its encoding: none of it is part of a line, and no line is lost by it.

    Raises:
        DataError: The file cannot be read or is not UTF-8.
    """
    try:
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path=path) from error
    for number, raw in enumerate(data.split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise DataError(f"not UTF-8 ({error}): save it so", path=path, line=number) from error
        if line.strip():
            yield number, line
