"""``FileSlice``: records in a file, as a part of a message that is sent without reading them.

A message holds it in place of the bytes; who sends the message copies from the file, or reads it
first if the bytes are encrypted.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ReadableFile(Protocol):
    """A file that can be read at any position, as ``kraft._core.log.disk.File``."""

    def read_at(self, position: int, size: int, /) -> bytes:
        """Return ``size`` bytes, or fewer if the file ends before."""


class FileSlice(NamedTuple):
    """``size`` bytes of a file from ``position`` on; nothing may change them while it exists."""

    file: ReadableFile
    position: int
    size: int

    def read(self) -> bytes:
        """Return the bytes."""
        return self.file.read_at(self.position, self.size)
