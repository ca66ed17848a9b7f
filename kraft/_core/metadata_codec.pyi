"""Metadata and control records: bytes <-> typed Python objects."""

from collections.abc import Iterable
from typing import Any, Literal, dataclass_transform

from kraft._core.message_schema import StructBase, StructSchema

def attribute(*, default: Any, kw_only: Literal[True]) -> Any:
    """For type checkers only: an attribute that is not part of the schema."""

class StructCodec(StructSchema):
    """One struct in all its versions, both ways; a class has it as ``schema``."""

    def decode(
        self,
        buffer: bytes | bytearray | memoryview,
        version: int,
        position: int = 0,
        end: int | None = None,
    ) -> Struct:
        """The struct that lies in ``buffer[position:end]``, all of it.

        Raises CorruptRecordError with the position of malformed, missing or left-over bytes, and
        UnsupportedVersionError for a version that the schema does not have.
        """
    def encode(self, value: Struct, version: int) -> bytes:
        """Raises as `RecordCodec.encode`."""

class RecordCodec:
    """The frame around a record value, for a set of record types."""

    def __init__(self, types: Iterable[type[Record]]) -> None: ...
    def decode(
        self,
        buffer: bytes | bytearray | memoryview,
        position: int = 0,
        end: int | None = None,
    ) -> Record:
        """The record whose value is ``buffer[position:end]``; its ``version`` is the one read.

        Raises CorruptRecordError with the position of malformed, missing or left-over bytes, and
        UnsupportedVersionError for a frame version, api key or record version that is not known.
        """
    def encode(self, record: Record, version: int) -> bytes:
        """The bytes of a record value, in this version.

        Raises UnsupportedVersionError where the version does not exist or cannot carry a field
        that is not at its default, InvalidRecordError for a value of the wrong type or range.
        """

@dataclass_transform(eq_default=True, field_specifiers=(attribute,))
class StructType(type):
    """Makes a class body of `field(...)` lines into slots and a codec."""

    schema: StructCodec

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int = -1,
        versions: tuple[int, int] = ...,
    ) -> StructType: ...

class Struct(StructBase, metaclass=StructType):
    """A part of a record.

    ``unknown_tagged_fields`` holds what a newer writer added: tag -> payload, None for nothing.
    """

    unknown_tagged_fields: dict[int, bytes] | None = attribute(default=None, kw_only=True)

class Record(Struct):
    """A record; ``version`` is the one that it was read with, -1 for one made here.

    The version is not part of equality.
    """

    version: int = attribute(default=-1, kw_only=True)
