"""The subject of an X.509 certificate as Java writes it: RFC 2253, as ``X500Principal.getName``.

The rules of ``ssl.principal.mapping.rules``, ACLs and super users contain this text, so it must
be Java's to the letter::

    CN=kafka\\, 1,OU=Ops,O=Example,C=DE

The most specific part comes first. A type that RFC 2253 does not name is written as its object
identifier with the value's DER in hexadecimal. Input is DER from a peer: every length is checked.

Sources: ``sun.security.x509.AVA.toRFC2253String``, RFC 2253, RFC 5280. Called by
``kraft.network``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from kraft.errors import SaslAuthenticationError

_INTEGER, _OBJECT_ID, _SEQUENCE, _SET, _VERSION = 0x02, 0x06, 0x30, 0x31, 0xA0
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# DER's types of text, and their encodings: UTF8, Printable, T61, IA5, General, BMP.
_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1E: "utf-16-be",
}
_ESCAPED: Final = ',=+<>#;"\\'


class _Value(NamedTuple):
    """One value of DER: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    encoded: bytes


# Brokers connect with the same certificates again, after a failure all at once.
@lru_cache(maxsize=4096)
def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, in the form of RFC 2253.

    Raises SaslAuthenticationError for malformed DER.
    """
    outer = next(_values(certificate), None)
    signed = next(_values(_content(outer, _SEQUENCE)), None)
    fields = list(_values(_content(signed, _SEQUENCE)))
    # version (optional), serial number, algorithm, issuer, validity, subject
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 5 or fields[0].tag != _INTEGER:
        raise _malformed()
    names = [_relative_name(each) for each in _values(_content(fields[4], _SEQUENCE))]
    return ",".join(reversed(names))


def _relative_name(value: _Value) -> str:
    return "+".join(map(_attribute, _values(_content(value, _SET))))


def _attribute(value: _Value) -> str:
    parts = list(_values(_content(value, _SEQUENCE)))
    if len(parts) != 2:
        raise _malformed()
    identifier = _object_identifier(_content(parts[0], _OBJECT_ID))
    keyword, encoding = _KEYWORDS.get(identifier), _ENCODINGS.get(parts[1].tag)
    if keyword is None or encoding is None:
        return f"{keyword or identifier}=#{parts[1].encoded.hex()}"
    return f"{keyword}={_escaped(parts[1].content.decode(encoding, errors='replace'))}"


def _escaped(text: str) -> str:
    """Escape the special characters, and blanks at both ends."""
    inner = text.strip(" \r")
    start = text[: len(text) - len(text.lstrip(" \r"))]
    end = text[len(start) + len(inner) :]
    body = "".join(
        "\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in inner
    )
    return "".join(f"\\{each}" for each in start) + body + "".join(f"\\{each}" for each in end)


def _object_identifier(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise _malformed()
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _content(value: _Value | None, tag: int) -> bytes:
    if value is None or value.tag != tag:
        raise _malformed()
    return value.content


def _values(der: bytes) -> Iterator[_Value]:
    """Yield the values that follow one another in ``der``."""
    position = 0
    while position < len(der):
        begin = position
        if len(der) < position + 2:
            raise _malformed()
        tag, size = der[position], der[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or len(der) < position + count:
                raise _malformed()
            size = int.from_bytes(der[position : position + count], "big")
            position += count
        if len(der) < position + size:
            raise _malformed()
        position += size
        yield _Value(tag, der[position - size : position], der[begin:position])


def _malformed() -> SaslAuthenticationError:
    return SaslAuthenticationError("the certificate of the peer is malformed")
