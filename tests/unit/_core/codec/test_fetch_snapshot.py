"""FetchSnapshot responses as exact bytes.

tests/property compares the codec with kio, tests/interop with Kafka.
"""

from __future__ import annotations

import pytest

from kraft._core.codec.fetch_snapshot import (
    decode_fetch_snapshot_response,
    encode_fetch_snapshot_response,
)
from kraft.errors import CorruptRecordError, InvalidRequestError, UnsupportedVersionError

ENDPOINT = ("somewhere", 9093)


def test_a_snapshot_response_is_encoded_around_its_bytes_without_copying_them() -> None:
    """The encoder returns the bytes around the snapshot's bytes, which it does not copy."""
    piece = b"snapshot"
    prefix, suffix = encode_fetch_snapshot_response(
        1, 0, 7, 1, ENDPOINT, (90, 5), 1000, 64, len(piece)
    )
    body = b"front" + prefix + piece + suffix
    *fields, at, size = decode_fetch_snapshot_response(body, 1, 5)
    assert fields == [0, 7, 1, ENDPOINT, (90, 5), 1000, 64]
    assert body[at : at + size] == piece


@pytest.mark.parametrize("version", [0, 1])
def test_every_byte_of_a_snapshot_response_is_needed(version: int) -> None:
    prefix, suffix = encode_fetch_snapshot_response(version, 0, 7, 1, ENDPOINT, (90, 5), 9, 0, 2)
    body = prefix + b"xx" + suffix
    # Version 1 added the endpoints.
    endpoint = ENDPOINT if version == 1 else None
    assert decode_fetch_snapshot_response(body, version)[3] == endpoint
    for size in range(len(body)):
        with pytest.raises(CorruptRecordError):
            decode_fetch_snapshot_response(body[:size], version)
    with pytest.raises(CorruptRecordError):
        decode_fetch_snapshot_response(body + b"\0", version)


@pytest.mark.parametrize("version", [-1, 2])
def test_versions_that_do_not_exist_are_rejected(version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_fetch_snapshot_response(b"", version)
    with pytest.raises(UnsupportedVersionError):
        encode_fetch_snapshot_response(version, 0, 7, 1, None, (90, 5), 10, 0, 0)


def test_a_snapshot_response_of_another_topic_is_rejected() -> None:
    prefix, suffix = encode_fetch_snapshot_response(1, 0, 7, 1, None, (90, 5), 10, 0, 0)
    with pytest.raises(InvalidRequestError):
        decode_fetch_snapshot_response((prefix + suffix).replace(b"__cluster", b"__kluster"), 1)


def test_a_leader_0_of_epoch_0_is_omitted_from_a_snapshot_response() -> None:
    """Both are the defaults in Kafka's schema, so the encoder omits the tagged field."""
    prefix, suffix = encode_fetch_snapshot_response(1, 98, 0, 0, None, None, 0, 0, 0)
    assert suffix == b"\0\0\0"
    assert decode_fetch_snapshot_response(prefix + suffix, 1)[:3] == (98, 0, 0)
