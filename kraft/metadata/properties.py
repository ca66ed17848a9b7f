r"""Read and write Java's ``.properties`` text.

This is the format of ``meta.properties`` and of Kafka's configuration files
(``java.util.Properties``, as ``PropertiesUtils`` and ``Utils.loadProps`` load it): comments begin
with ``#`` or ``!``; the key ends at the first unescaped ``=``, ``:`` or blank; a line that ends in
a backslash continues on the next; ``\t \n \r \f \uXXXX`` are escapes, and any other escaped
character stands for itself. The last line of a key wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import NamedTuple

from kraft.errors import CorruptRecordError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN_ESCAPES = {character: f"\\{letter}" for letter, character in _ESCAPES.items()}


class Property(NamedTuple):
    """One entry of a file; ``line`` is the number of its first line, from 1."""

    key: str
    value: str
    line: int


def read_properties(text: str, path: str | PathLike[str] | None = None) -> Iterator[Property]:
    """Yield the entries of ``text`` in order, repeated keys included.

    Raises :class:`CorruptRecordError` for a malformed ``\\uXXXX``.
    """
    for number, line in _logical_lines(text):
        end = _key_end(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        yield Property(_unescape(line[:end], path), _unescape(rest, path), number)


def parse_properties(text: str, path: str | PathLike[str] | None = None) -> dict[str, str]:
    """Return the keys and values of ``text``; raises as :func:`read_properties` does."""
    return {key: value for key, value, _ in read_properties(text, path)}


def property_line(key: str, value: str) -> str:
    """Return the line of an entry, in ASCII so that the reader's encoding does not matter."""
    return f"{_escape(key, blanks=True)}={_escape(value, blanks=False)}\n"


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, text) without comments and leading blanks, continued lines
    joined.
    """
    joined = ""
    continued = False
    start = 0
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        line = line.lstrip(_BLANKS)
        if not continued:
            start = number
        # As in Java, a line with only a backslash does not begin an entry.
        if not joined and (not line or line[0] in "#!"):
            continued = False
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        joined += line[:-1] if continued else line
        if not continued:
            yield start, joined
            joined = ""
    if joined:
        yield start, joined


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
    # Two escapes may be a surrogate pair: Java's chars are UTF-16 units.
    units = "".join(out).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass")


def _escape(text: str, *, blanks: bool) -> str:
    """Escape every blank with ``blanks`` (a key), else only a leading one (a value)."""
    out: list[str] = []
    for position, character in enumerate(text):
        if character in _WRITTEN_ESCAPES:
            out.append(_WRITTEN_ESCAPES[character])
        elif character in "\\=:#!" or (character == " " and (blanks or position == 0)):
            out.append(f"\\{character}")
        elif " " <= character <= "~":
            out.append(character)
        else:
            units = character.encode("utf-16-be")
            out.extend(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    return "".join(out)
