"""Metadata records and RPC bodies: bytes <-> typed Python objects."""

from collections.abc import Iterable
from typing import Any, Literal, Self, dataclass_transform

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.codec.message_schema import StructBase, StructSchema

def attribute(*, default: Any, kw_only: Literal[True]) -> Any:
    """For type checkers only: an attribute that is not part of the schema."""

class StructCodec(StructSchema):
    """The codec of one struct in all its versions; a class has it as ``schema``."""

    def decode(
        self,
        buffer: bytes | bytearray | memoryview,
        version: int,
        position: int = 0,
        end: int | None = None,
    ) -> Struct:
        """Decode ``buffer[position:end]``, which must be one whole struct.

        Raises CorruptRecordError with the position of malformed, missing or left-over bytes, and
        UnsupportedVersionError for a version that the schema does not have.
        """
    def encode(self, value: Struct, version: int) -> bytes:
        """Encode a struct; raise like `RecordCodec.encode`."""

class RecordCodec:
    """The codec of framed record values, for a set of record types."""

    def __init__(self, types: Iterable[type[Record]]) -> None: ...
    def decode(
        self,
        buffer: bytes | bytearray | memoryview,
        position: int = 0,
        end: int | None = None,
    ) -> Record:
        """Decode ``buffer[position:end]``, which must be one record value; keep its ``version``.

        Raises CorruptRecordError with the position of malformed, missing or left-over bytes, and
        UnsupportedVersionError for an unknown frame version, api key or record version.
        """
    def encode(self, record: Record, version: int) -> bytes:
        """Encode a record value in this version.

        Raises UnsupportedVersionError if the version does not exist or does not have a field that
        is not at its default, InvalidRecordError for a value of the wrong type or range.
        """

@dataclass_transform(eq_default=True, field_specifiers=(attribute,))
class StructType(type):
    """The metaclass that makes slots and a codec from a class body of `field(...)` lines."""

    schema: StructCodec

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int = -1,
        versions: tuple[int, int] = ...,
        flexible_since: int = 0,
    ) -> StructType: ...

class Struct(StructBase, metaclass=StructType):
    """A part of a record.

    ``unknown_tagged_fields`` has the fields of a newer writer: tag -> payload, or None.
    """

    unknown_tagged_fields: dict[int, bytes] | None = attribute(default=None, kw_only=True)

class Record(Struct):
    """A record; ``version`` is the version it was read in, -1 for a new record.

    The version is not part of equality.
    """

    version: int = attribute(default=-1, kw_only=True)

class Message(Struct):
    """The body of a request or response."""

    @classmethod
    def decode(cls, body: bytes | bytearray | memoryview, version: int, position: int = 0) -> Self:
        """Decode ``body[position:]``; raise like `StructCodec.decode`."""
    @classmethod
    def decode_prefix(cls, body: bytes | bytearray | memoryview, version: int) -> Self:
        """Decode a body, and ignore left-over bytes; else raise like `StructCodec.decode`."""
    def encode(self, version: int) -> bytes:
        """Encode the body; raise like `RecordCodec.encode`."""
    def encode_segments(self, version: int) -> tuple[list[bytes | memoryview | FileSlice], int]:
        """Return the body in parts, without a copy of its records, and the bytes of all parts.

        A part is encoded bytes, or the value of a field of records, which may be a `FileSlice`.
        Raises like `RecordCodec.encode`.
        """
