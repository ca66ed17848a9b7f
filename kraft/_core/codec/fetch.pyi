"""Fetch requests and responses of the metadata log, and request headers.

fetch.pyx has the layouts.

Every ``decode_*`` reads ``buffer[position:]``. It raises CorruptRecordError with the position in
the buffer for malformed or missing bytes, and UnsupportedVersionError for an unknown version. An
``encode_*`` raises OverflowError for a number that does not fit its field and InvalidRequestError
for a string over 32767 bytes.
"""

from typing_extensions import Buffer

from kraft._core.codec.message_schema import Uuid

METADATA_TOPIC: str
METADATA_TOPIC_ID: Uuid

def decode_request_header(
    frame: Buffer, flexible_since: dict[int, int]
) -> tuple[int, int, int, str | None, int]:
    """Return (api key, version, correlation id, client id, position of the body) of a request.

    ``flexible_since``: api key -> the first version with a tagged section in the header. For an
    api key without an entry, only the three numbers are read. Bytes of the client id that are not
    UTF-8 become U+FFFD.
    """

def decode_fetch_request(
    body: Buffer, version: int, position: int = 0
) -> tuple[str | None, int, Uuid | None, int, int, int, int, int, int] | None:
    """Return the fields of a Fetch request, versions 13-18; None if it is not for the metadata log.

    They are (cluster id, replica id, directory id, epoch, offset, last fetched epoch, max wait ms,
    max bytes, high watermark). A field that the version does not have is -1 or None, the high
    watermark 2^63 - 1.
    """

def encode_fetch_request(
    version: int,
    cluster_id: str | None,
    replica_id: int,
    directory_id: bytes | None,
    epoch: int,
    offset: int,
    last_fetched_epoch: int,
    max_wait_ms: int,
    max_bytes: int,
    high_watermark: int,
) -> bytes:
    """Encode versions 13-18; a field that the version does not have is left out, like in Kafka."""

def decode_fetch_response(
    body: Buffer, version: int, position: int = 0
) -> tuple[
    int,
    int,
    int,
    tuple[str, int] | None,
    int,
    int,
    tuple[int, int] | None,
    tuple[int, int] | None,
    int,
    int,
]:
    """Return the fields of a Fetch response.

    They are (error, epoch, leader id, the leader's host and port, high watermark, log start offset,
    diverging epoch and its end offset, snapshot end offset and epoch, position of the records,
    their size in bytes). A top-level error replaces the partition's, and the other fields are then
    unknown. Raises InvalidRequestError for a response that is not only for the metadata log.
    """

def encode_fetch_response(
    version: int,
    error: int,
    epoch: int,
    leader_id: int,
    leader_endpoint: tuple[str, int] | None,
    high_watermark: int,
    log_start_offset: int,
    diverging_epoch: tuple[int, int] | None,
    snapshot_id: tuple[int, int] | None,
    records_size: int,
) -> tuple[bytes, bytes]:
    """Return the bytes before and after ``records_size`` bytes of records.

    ``error`` is the partition's.
    """
