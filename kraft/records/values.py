"""Record values: encode and decode one metadata record of a batch.

Holds the registry of record types and chooses the version to write.
``kraft._core.codec.metadata_codec`` describes the frame. Source: MetadataRecordSerde of Kafka.
"""

from __future__ import annotations

from kraft._core.codec.metadata_codec import Record, RecordCodec
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
    """Encode one record value with its frame.

    The version is ``version``; else the one for ``metadata_version``; else the one with which
    ``record`` was read; else the one for the newest metadata.version. Raises
    UnsupportedVersionError if that version does not exist or cannot hold a field that is not at
    its default, InvalidRecordError for a field of the wrong type or out of range.
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
        # For example, the truth value of a numpy array is ambiguous.
        raise InvalidRecordError(
            f"a field of {type(record).__name__} cannot be written: {error}"
        ) from None
