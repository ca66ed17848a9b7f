"""Message schemas interpreted in C: bytes <-> typed Python objects."""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self, dataclass_transform

class Uuid(bytes):
    """16 bytes whose text is Kafka's: URL-safe base64 without padding, 22 characters."""

    def __new__(cls, value: bytes | bytearray | memoryview | Iterable[int] = ...) -> Self:
        """Raise ValueError unless ``value`` has 16 bytes."""
    @classmethod
    def parse(cls, text: str) -> Self:
        """The uuid that Kafka prints as ``text``; raise ValueError for anything else."""

ZERO_UUID: Uuid

class FieldSpec:
    """One line of a schema, as `field` was told it."""

    kind: str
    is_array: bool
    default: Any
    since: int
    until: int
    tag: int
    nullable: bool
    of: type[Struct] | None

def field(
    kind: str,
    default: Any = ...,
    *,
    since: int = 0,
    until: int = ...,
    tag: int = -1,
    nullable: bool = False,
    of: type[Struct] | None = None,
) -> Any:
    """One line of a schema: the field's type on the wire and the versions that have it.

    ``kind`` is bool, int8, int16, uint16, int32, int64, float64, uuid, string, bytes or struct;
    ``[]`` before it makes an array. ``default`` stands in where the field was not given or is not
    part of the version read; without it 0, "", b"", the zero uuid or an empty array. ``of`` names
    the class of a struct.
    """

def attribute(*, default: Any, kw_only: Literal[True]) -> Any:
    """For type checkers only: an attribute that is not part of the schema."""

class StructCodec:
    """The schema of one struct in all its versions; a class has it as ``schema``."""

    name: str
    api_key: int
    lowest_version: int
    highest_version: int
    specs: dict[str, FieldSpec]

    def __init__(
        self,
        type: type[Struct],
        specs: dict[str, FieldSpec],
        *,
        api_key: int = -1,
        versions: tuple[int, int] = ...,
    ) -> None: ...
    def check_version(self, version: int) -> None:
        """Raise UnsupportedVersionError for a version that the schema does not have."""
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

@dataclass_transform(eq_default=True, field_specifiers=(attribute,))
class StructBase(metaclass=StructType):
    """Slots, equality over all fields, a repr that leaves out tagged fields at their default."""

    __match_args__: ClassVar[tuple[str, ...]]

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed."""
    def to_dict(self) -> dict[str, Any]:
        """Fields by name, nested structs as dicts, uuids as they are."""

class Struct(StructBase):
    """A part of a record.

    ``unknown_tagged_fields`` holds what a newer writer added: tag -> payload, None for nothing.
    """

    unknown_tagged_fields: dict[int, bytes] | None = attribute(default=None, kw_only=True)

class Record(Struct):
    """A record; ``version`` is the one that it was read with, -1 for one made here.

    The version is not part of equality.
    """

    version: int = attribute(default=-1, kw_only=True)
