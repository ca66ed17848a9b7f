"""The hot RPC bodies of the metadata log; see messages.pyx for the layouts.

Every ``decode_*`` reads ``buffer[position:]`` and raises CorruptRecordError, with the position in
the buffer, where the bytes end early or are malformed, and UnsupportedVersionError for a version
that it does not know. An ``encode_*`` raises OverflowError for a number that does not fit its field
and InvalidRequestError for a string over 32767 bytes.
"""

from typing_extensions import Buffer

from kraft._core.message_schema import Uuid

METADATA_TOPIC: str
METADATA_TOPIC_ID: Uuid

def decode_request_header(
    frame: Buffer, flexible_since: dict[int, int]
) -> tuple[int, int, int, str | None, int]:
    """(api key, version, correlation id, client id, where the body begins) of a request.

    ``flexible_since``: api key -> the first version with a tagged section in the header. Of an api
    key that it does not have, only the three numbers are read.
    """

def decode_fetch_request(
    body: Buffer, version: int, position: int = 0
) -> tuple[str | None, int, Uuid | None, int, int, int, int, int, int] | None:
    """(cluster id, replica id, directory id, epoch, offset, last fetched epoch, max wait ms, max
    bytes, high watermark); None where the request is not of the metadata log's one partition.

    Versions 13-18. What a version does not have is -1, None, or for the high watermark 2^63 - 1.
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
    """Versions 13-18; a field that the version does not have is left out, as in Kafka."""

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
    """(error, epoch, leader id, the leader's host and port, high watermark, log start offset,
    diverging epoch and its end offset, snapshot end offset and epoch, where the records begin, how
    many bytes they have).

    An error at the top takes the place of the partition's, and then the rest is unknown. Raises
    InvalidRequestError for a response that is not of the metadata log's one partition.
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
    """What stands before and behind ``records_size`` bytes of records; ``error`` is the
    partition's.
    """
