r"""Java's ``.properties`` text, read into a dictionary.

Owns the line format in which Kafka keeps ``meta.properties`` (``java.util.Properties``, as
``PropertiesUtils`` loads it): comments begin with ``#`` or ``!``; the key ends at the first
unescaped ``=``, ``:`` or blank; a line that ends in a backslash goes on in the next; ``\t \n \r
\f \uXXXX`` are escapes and any other escaped character stands for itself. A later line of the
same key wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike

from kraft.errors import CorruptRecordError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str, path: str | PathLike[str] | None = None) -> dict[str, str]:
    """The keys and values of ``text``; raises :class:`CorruptRecordError` on a broken
    ``\\uXXXX``.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _key_end(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        properties[_unescape(line[:end], path)] = _unescape(rest, path)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without leading blanks, comments left out, continued lines joined."""
    joined = ""
    continued = False
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = line.lstrip(_BLANKS)
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        joined += line[:-1] if continued else line
        if not continued:
            yield joined
            joined = ""
    if joined:
        yield joined


def _key_end(line: str) -> int:
    escaped = False
    for position, character in enumerate(line):
        if not escaped and (character in "=:" or character in _BLANKS):
            return position
        escaped = character == "\\" and not escaped
    return len(line)


def _unescape(text: str, path: str | PathLike[str] | None) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        escape = text[position]
        position += 1
        if escape == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise CorruptRecordError(
                    f"\\u{digits} is not an escape of four hex digits", path=path
                )
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escape, escape))
    return "".join(out)
