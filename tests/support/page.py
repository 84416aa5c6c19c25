"""Read a report as a browser would, with the standard library alone."""

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, NoReturn


@dataclass
class Page:
    """What tests ask of a page."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    """Bodies of ``application/json`` blocks."""
    text: str = ""

    def attributes(self, name: str) -> list[str]:
        """All values of an attribute, in order."""
        return [v for _, a in self.tags for k, v in a.items() if k == name and v is not None]

    def numbers(self) -> dict[str, Any]:
        """The data block, by a strict JSON parser."""

        def refuse(name: str) -> NoReturn:
            raise ValueError(f"{name} is no JSON")

        (text,) = self.data
        found: dict[str, Any] = json.loads(text, parse_constant=refuse)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.page.tags.append((tag, found))
        self._inside = ""
        if tag == "script":
            self._inside = "data" if found.get("type") == "application/json" else "script"
        elif tag == "style":
            self._inside = "style"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "data":
            self.page.data.append(data)
        elif self._inside == "script":
            self.page.scripts.append(data)
        elif not self._inside:
            self.page.text += data


def read_page(html: str) -> Page:
    """Parse a page."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.page
