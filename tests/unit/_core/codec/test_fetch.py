"""Request headers, Fetch requests and Fetch responses as exact bytes.

tests/property compares the codec with kio, tests/interop with Kafka.
"""

from __future__ import annotations

import struct

import pytest

from kraft._core.codec.fetch import (
    METADATA_TOPIC_ID,
    decode_fetch_request,
    decode_fetch_response,
    decode_request_header,
    encode_fetch_request,
    encode_fetch_response,
)
from kraft.errors import CorruptRecordError, InvalidRequestError, UnsupportedVersionError
from kraft.records import Uuid

FLEXIBLE_SINCE = {52: 0, 53: 1}
DIRECTORY = Uuid(bytes(range(16)))
ASKED = ("cluster", 3, DIRECTORY, 7, 100, 6, 500, 8 << 20, 95)


def test_decoding_a_header_returns_the_position_of_the_body() -> None:
    flexible = struct.pack(">hhih", 52, 2, -5, 2) + b"me\0body"
    assert decode_request_header(flexible, FLEXIBLE_SINCE) == (52, 2, -5, "me", 13)
    classic = struct.pack(">hhih", 53, 0, 9, -1) + b"body"
    assert decode_request_header(classic, FLEXIBLE_SINCE) == (53, 0, 9, None, 10)


def test_tags_in_a_header_are_skipped() -> None:
    header = struct.pack(">hhih", 52, 2, 1, 0) + b"\2\0\1x\5\3abc"
    assert decode_request_header(header + b"body", FLEXIBLE_SINCE)[4] == len(header)


def test_only_the_numbers_are_read_for_an_unknown_api() -> None:
    assert decode_request_header(struct.pack(">hhi", 999, 3, 7), FLEXIBLE_SINCE) == (
        *(999, 3, 7, None),
        8,
    )


@pytest.mark.parametrize("size", range(11))
def test_a_header_that_ends_early_is_rejected(size: int) -> None:
    header = struct.pack(">hhih", 52, 2, 1, -1) + b"\0"
    with pytest.raises(CorruptRecordError):
        decode_request_header(header[:size], FLEXIBLE_SINCE)


def test_tags_out_of_order_are_rejected_with_their_position() -> None:
    header = struct.pack(">hhih", 52, 2, 1, -1) + b"\2\5\0\4\0"
    with pytest.raises(CorruptRecordError, match="byte 13"):
        decode_request_header(header, FLEXIBLE_SINCE)


def test_a_fetch_request_has_kafkas_bytes() -> None:
    body = encode_fetch_request(18, *ASKED)
    assert body == (
        struct.pack(">iiibii", 500, 0, 8 << 20, 0, 0, -1)
        + b"\2" + METADATA_TOPIC_ID
        + b"\2" + struct.pack(">iiqiqi", 0, 7, 100, 6, -1, 0)
        + b"\2\0\x10" + DIRECTORY + b"\1\x08" + struct.pack(">q", 95)
        + b"\0\1\1"
        + b"\2\0\x08\x08cluster\1\x0d" + struct.pack(">iq", 3, -1) + b"\0"
    )  # fmt: skip


@pytest.mark.parametrize("version", range(13, 19))
def test_every_byte_of_a_fetch_request_is_needed(version: int) -> None:
    body = encode_fetch_request(version, *ASKED)
    for size in range(len(body)):
        with pytest.raises(CorruptRecordError):
            decode_fetch_request(body[:size], version)
    with pytest.raises(CorruptRecordError):
        decode_fetch_request(body + b"\0", version)


def test_unknown_tags_are_skipped_and_misplaced_ones_rejected() -> None:
    body = encode_fetch_request(17, None, -1, None, 7, 100, 6, 500, 1000, 95)
    assert body.endswith(b"\0\0\1\1\0")
    with_unknown = body[:-5] + b"\1\x09\2xx" + b"\0\1\1" + b"\1\x09\0"
    assert decode_fetch_request(with_unknown, 17) == decode_fetch_request(body, 17)
    # Version 18 added the high watermark: version 17 must not have its tag.
    misplaced = body[:-5] + b"\1\1\x08" + bytes(8) + body[-4:]
    with pytest.raises(CorruptRecordError):
        decode_fetch_request(misplaced, 17)
    assert decode_fetch_request(misplaced, 18) is not None


@pytest.mark.parametrize("version", [12, 19])
def test_versions_that_the_raft_layer_cannot_use_are_rejected(version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_fetch_request(b"", version)
    with pytest.raises(UnsupportedVersionError):
        encode_fetch_request(version, *ASKED)
    with pytest.raises(UnsupportedVersionError):
        decode_fetch_response(b"", version)


def test_a_fetch_response_is_encoded_around_its_records_without_copying_them() -> None:
    """The encoder returns the bytes before and after the records, which it does not copy."""
    records = b"batches"
    prefix, suffix = encode_fetch_response(
        18, 0, 7, 1, ("somewhere", 9093), 95, 3, (6, 80), (90, 5), len(records)
    )
    body = b"front" + prefix + records + suffix
    *fields, at, size = decode_fetch_response(body, 18, 5)
    assert fields == [0, 7, 1, ("somewhere", 9093), 95, 3, (6, 80), (90, 5)]
    assert body[at : at + size] == records


def test_null_records_are_read_as_zero_bytes() -> None:
    prefix, suffix = encode_fetch_response(13, 0, 7, 1, None, 95, 3, None, None, 0)
    assert prefix[-1:] == b"\1"
    assert decode_fetch_response(prefix[:-1] + b"\0" + suffix, 13)[-1] == 0


def test_a_response_of_another_topic_is_rejected() -> None:
    prefix, suffix = encode_fetch_response(18, 0, 7, 1, None, 95, 3, None, None, 0)
    with pytest.raises(InvalidRequestError):
        decode_fetch_response((prefix + suffix).replace(METADATA_TOPIC_ID, DIRECTORY), 18)


def test_values_that_do_not_fit_are_rejected_before_they_are_written() -> None:
    with pytest.raises(InvalidRequestError):
        encode_fetch_response(18, 0, 7, 1, None, 95, 3, None, None, 2**31 - 1)
    with pytest.raises(InvalidRequestError):
        encode_fetch_response(18, 0, 7, 1, ("h" * 40_000, 1), 95, 3, None, None, 0)
    with pytest.raises(InvalidRequestError):
        encode_fetch_request(18, "c" * 40_000, *ASKED[1:])
    with pytest.raises(OverflowError):
        encode_fetch_request(18, "c", 2**31, *ASKED[2:])
    with pytest.raises(ValueError, match="16 bytes"):
        encode_fetch_request(18, "c", 3, b"short", *ASKED[3:])  # type: ignore[arg-type]
