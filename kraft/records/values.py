"""Record values: the bytes of one metadata record in a batch, to a typed record and back.

Owns the registry of record types and the choice of the version to write. The frame is drawn in
``kraft._core.metadata_codec``. Source: MetadataRecordSerde of Kafka.
"""

from __future__ import annotations

from kraft._core.metadata_codec import Record, RecordCodec
from kraft.errors import InvalidRecordError
from kraft.records import classes
from kraft.records.classes import BrokerRegistrationChange
from kraft.records.versions import LATEST_SUPPORTED, record_version

_TYPES: tuple[type[Record], ...] = tuple(
    made
    for made in vars(classes).values()
    if isinstance(made, type) and issubclass(made, Record) and made is not Record
)

#: Record types by Kafka's name without the suffix ``Record``.
RECORD_TYPES: dict[str, type[Record]] = {made.__name__: made for made in _TYPES}

#: Record types by api key; 6, 13 and 16 were never released.
RECORD_TYPES_BY_KEY: dict[int, type[Record]] = {made.schema.api_key: made for made in _TYPES}

_CODEC = RecordCodec(_TYPES)

decode_value = _CODEC.decode


def encode_value(
    record: Record, version: int | None = None, metadata_version: int | None = None
) -> bytes:
    """The bytes of one record value, frame included.

    The version written is ``version``; else the one that ``metadata_version`` asks for; else the
    one that ``record`` was read with; else that of the newest metadata.version for production.
    Raises UnsupportedVersionError where that version does not exist or cannot carry a field that
    is not at its default, InvalidRecordError for a field of the wrong type or out of its range.
    """
    try:
        if version is None:
            if metadata_version is None and record.version >= 0:
                version = record.version
            else:
                change = record if isinstance(record, BrokerRegistrationChange) else None
                level = LATEST_SUPPORTED if metadata_version is None else metadata_version
                version = record_version(type(record), level, change)
        return _CODEC.encode(record, version)
    except InvalidRecordError:
        raise
    except (TypeError, ValueError) as error:
        # A numpy array, for one, is neither true nor false.
        raise InvalidRecordError(
            f"a field of {type(record).__name__} cannot be written: {error}"
        ) from None
