"""Find what the contracts in a reply claim: JSON objects, labelled lines, bracketed tokens.

Nothing here decides. All claims are returned; ``parse`` demands that they agree, so that a
verdict planted in quoted content can at worst make a reply ambiguous.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

Claims = dict[str, list[Any]]

GENERIC: Final = (
    "verdict",
    "winner",
    "answer",
    "choice",
    "preference",
    "preferred",
    "better",
    "decision",
    "judgement",
    "judgment",
)
"""Labels that speak of the overall axis, or of the only one."""

_OBJECT: Final = re.compile(r'\{\s*["}]')
_BRACKET: Final = re.compile(  # spaces are counted: unbounded ones are tried n * n ways
    r"\[\[\s{0,20}([^\s\[\]](?:[^\[\]\n]{0,10}[^\s\[\]])?)\s{0,20}\]\][\s*_.]*$", re.MULTILINE
)
_FALSE_STARTS: Final = 20
"""Times the length of a text that objects which come to nothing may be read."""
_DRESS: Final = re.compile(r"^final | (?:image|response|option|candidate)$")
_ROW: Final = re.compile(r"[\r\n]")


@dataclass(frozen=True, slots=True)
class Contract:
    """What was asked for."""

    axes: tuple[str, ...]
    nests: tuple[str, ...]
    """Keys whose object holds the axes one level down."""

    @property
    def general(self) -> str | None:
        """The axis that a label without a name means."""
        if "overall" in self.axes:
            return "overall"
        return self.axes[0] if len(self.axes) == 1 else None

    def axis_of(self, label: str) -> str | None:
        """The axis that a label names, if any."""
        name = label.strip().casefold()
        for axis in self.axes:
            if axis.casefold() == name:
                return axis
        return self.general if _DRESS.sub("", name.replace("_", " ")) in GENERIC else None


class Twice:
    """The values of a key that one object holds more than once."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values


def claims_in(text: str, contract: Contract, ticket: str | None = None) -> Claims:
    """All values that the reply claims, by axis.

    Args:
        text: The reply without its reasoning block.
        contract: What was asked for.
        ticket: Secret of the question. An object with another ticket is ignored; if one
            carries this ticket, only such objects count.
    """
    objects = objects_in(text)[0]
    if ticket is not None:
        objects = [o for o in objects if _is_ticket(o.get("ticket", ticket), ticket)]
        sealed = [o for o in objects if "ticket" in o]
        if sealed:
            return _merge(_from_object(found, contract) for found in sealed)
    prose = _outside_objects(text)
    return _merge(
        [
            *(_from_object(found, contract) for found in objects),
            *_from_lines(prose, contract),
            *_from_brackets(prose, contract),
        ]
    )


def _is_ticket(value: Any, ticket: str) -> bool:
    return isinstance(value, str | int) and str(value) == ticket


def objects_in(text: str) -> tuple[list[dict[str, Any]], bool]:
    """The outermost JSON objects of a text, and whether the last one is cut short."""
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] == '"':
        try:
            inner = json.loads(bare)
        except json.JSONDecodeError:
            inner = None
        text = inner if isinstance(inner, str) else text
    found = [item for _, _, item in _scan(text)]
    return [item for item in found if item is not None], any(item is None for item in found)


def _merge(parts: Iterator[Claims] | list[Claims]) -> Claims:
    merged: Claims = {}
    for part in parts:
        for axis, values in part.items():
            merged.setdefault(axis, []).extend(values)
    return merged


def _from_object(found: dict[str, Any], contract: Contract) -> Claims:
    claims: Claims = {}
    for key, value in found.items():
        nested = _as_object(value)
        if nested is not None and key.strip().casefold() in contract.nests:
            claims = _merge([claims, _from_object(nested, contract)])
        elif axis := contract.axis_of(key):
            claims.setdefault(axis, []).extend(_values(value, nested))
    return claims


def _values(value: Any, nested: dict[str, Any] | None) -> list[Any]:
    """Claims of one key: a value, the winner inside an object; none for null or a blank form."""
    if isinstance(value, Twice):
        return value.values
    if nested is not None:
        keys = (*GENERIC, "grade", "score")
        return [v for k, v in nested.items() if k.strip().casefold() in keys]
    if value is None or (isinstance(value, str) and (not value.strip() or _is_form(value))):
        return []
    return [value]


def _is_form(value: str) -> bool:
    """The contract itself repeated, ``A|B|tie`` or ``<A or B>``: no claim."""
    return "|" in value or value.strip().startswith("<")


def _as_object(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        inner = objects_in(value)[0]
        return inner[0] if inner else None
    return None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            earlier = found[key]
            values = earlier.values if isinstance(earlier, Twice) else [earlier]
            value = Twice([*values, value])
        found[key] = value
    return found


def _whole_number(digits: str) -> float:
    """An integer if it is one that any contract could mean, else a float, which may be infinite.

    Python refuses to read an integer of thousands of digits, and to make a float of one of 400.
    """
    return int(digits) if len(digits) < 20 else float(digits)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_whole_number)


def _scan(text: str) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Yield (start, end, object) of each outermost object; None for one that never closes."""
    position, wasted, end_of_text = 0, 0, len(text.rstrip())
    while match := _OBJECT.search(text, position):
        start = match.start()
        try:
            found, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            wasted += error.pos - start + error.pos // 8  # read, and looked through for its line
            unfinished = error.pos >= end_of_text or error.msg.startswith("Unterminated")
            if unfinished or wasted > _FALSE_STARTS * len(text):
                yield start, len(text), None
                return
            position = start + 1
            continue
        except RecursionError:
            yield start, len(text), None
            return
        yield start, end, found
        position = end


def _outside_objects(text: str) -> str:
    """The text with its objects blanked: a reason inside one is not read as a line."""
    parts, last = [], 0
    for start, end, _ in _scan(text):
        parts.append(text[last:start])
        last = end
    return " ".join([*parts, text[last:]])


def _from_lines(text: str, contract: Contract) -> list[Claims]:
    generic = "|".join(GENERIC)
    labels = "|".join(re.escape(name) for name in (*contract.axes, *GENERIC))
    line = re.compile(
        rf"^[\s*_#-]*(?:final\s+)?(?P<label>{labels})(?:\s+(?:{generic}|image|response))?"
        r"[\s*_]*[:=][\s*_]*(?P<value>\S.*)$",
        re.IGNORECASE,
    )
    claims: list[Claims] = []
    for row in _ROW.split(text):
        match = line.match(row)
        if match is not None and not _is_form(match["value"]):
            axis = contract.axis_of(match["label"])
            if axis is not None:
                claims.append({axis: [match["value"].rstrip(" *_\t")]})
    return claims


def _from_brackets(text: str, contract: Contract) -> list[Claims]:
    """Tokens in double brackets that end a line; amid a sentence they are prose."""
    if contract.general is None:
        return []
    return [{contract.general: [token]} for token in _BRACKET.findall(text)]
