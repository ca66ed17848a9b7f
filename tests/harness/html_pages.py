"""Parse a generated HTML page: its elements, their texts, and the data of its plots."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

Attributes = Sequence[tuple[str, str | None]]


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


class Page(HTMLParser):
    """The elements of a page in order; a text belongs to all elements that contain it."""

    VOID = ("meta", "input", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open[-1].tag}"

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in self.VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag, f"line {self.getpos()[0]}: </{tag}> closes another"

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.texts.append(data)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        return [
            each
            for each in self.elements
            if each.tag == tag and attributes.items() <= each.attributes.items()
        ]

    def packed(self, name: str) -> str:
        """Return a compressed text of the page: ``data`` or ``plotly``."""
        (element,) = self.all("script", id=f"packed-{name}")
        return gzip.decompress(base64.b64decode(element.text, validate=True)).decode()

    @property
    def first_data(self) -> dict[str, dict[str, object]]:
        """Return the data of the first plot by its name."""
        (element,) = self.all("script", id="first-data")
        found: dict[str, dict[str, object]] = json.loads(element.text)
        return found

    @property
    def plots(self) -> dict[str, dict[str, object]]:
        """Return the data of all plots by their names."""
        return {**self.first_data, **json.loads(self.packed("data"))}

    def data(self, name: str) -> dict[str, object]:
        return self.plots[name]
