"""A message schema as a plan that the codecs execute, and Kafka's uuids."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

from kraft._core.codec.metadata_codec import Struct

class Uuid(bytes):
    """16 bytes whose text is Kafka's: URL-safe base64 without padding, 22 characters."""

    def __new__(cls, value: bytes | bytearray | memoryview | Iterable[int] = ...) -> Self:
        """Raise ValueError unless ``value`` has 16 bytes."""
    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the uuid that Kafka prints as ``text``; raise ValueError for any other text."""

ZERO_UUID: Uuid

class FieldSpec:
    """One line of a schema: the arguments of `field`."""

    kind: str
    is_array: bool
    default: Any
    since: int
    until: int
    tag: int
    nullable: bool
    nullable_since: int
    ignorable: bool
    of: type[Struct] | None

def field(
    kind: str,
    default: Any = ...,
    *,
    since: int = 0,
    until: int = ...,
    tag: int = -1,
    nullable: bool = False,
    nullable_since: int = 0,
    ignorable: bool = False,
    of: type[Struct] | None = None,
) -> Any:
    """Return one line of a schema: the field's type on the wire and the versions that have it.

    ``kind`` is bool, int8, int16, uint16, int32, int64, float64, uuid, string, bytes, records or
    struct; a ``[]`` before it makes an array. Records are bytes that are read as a view of the
    buffer, and that `Message.encode_segments` does not copy. A field has its ``default`` if it was
    not given or is not part of the version read; the default is 0, "", b"", the zero uuid, an empty
    array, or None for records unless given.
    A ``nullable`` field may be null from version ``nullable_since`` on. A version without an
    ``ignorable`` field is encoded without it; any other field must be at its default there.
    ``of`` is the class of a struct.
    """

class StructSchema:
    """The schema of one struct in all its versions, as a plan for the codecs."""

    name: str
    api_key: int
    lowest_version: int
    highest_version: int
    flexible_since: int
    specs: dict[str, FieldSpec]

    def __init__(
        self,
        type: type[Struct],
        specs: dict[str, FieldSpec],
        *,
        api_key: int = -1,
        versions: tuple[int, int] = ...,
        flexible_since: int = 0,
    ) -> None: ...
    def check_version(self, version: int) -> None:
        """Raise UnsupportedVersionError for a version that the schema does not have."""

class StructBase:
    """An object of slots with equality over all fields; its repr omits tagged defaults."""

    __match_args__: ClassVar[tuple[str, ...]]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with these fields changed."""
    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, nested structs as dicts, uuids unchanged."""
