"""The bodies that are older than flexible encoding: BeginQuorumEpoch 0, EndQuorumEpoch 0,
ApiVersions 0-2, and the refusal of Fetch 4-12.

Owns these layouts. Strings have int16 lengths here and arrays int32 counts, and -1 is null; there
are no tagged sections. Peers of Kafka 3.8 and older speak them, and every client whose ApiVersions
was refused. Sources: the schemas of Kafka 4.3, KIP-595, KIP-35.

    BeginQuorumEpoch   nullable string cluster id
    request 0          | [string topic | [int32 partition | int32 leader | int32 epoch]]
    EndQuorumEpoch     nullable string cluster id
    request 0          | [string topic | [int32 partition | int32 leader | int32 epoch
                       | [int32 successor]]]
    both responses 0   int16 error
                       | [string topic | [int32 partition | int16 error | int32 leader
                       | int32 epoch]]
    ApiVersions        request empty; response int16 error | [int16 key | int16 min | int16 max]
                       | int32 throttle (1-2)
    Fetch response     int32 throttle | int16 error, int32 session id (7+) | [topics]
                       | tags (12)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from kraft._core.messages import METADATA_TOPIC
from kraft._core.wire import Reader, Writer


class EpochRequest(NamedTuple):
    """A BeginQuorumEpoch or EndQuorumEpoch request; None where it is not of the metadata log."""

    cluster_id: str | None
    leader_id: int
    epoch: int
    successors: tuple[int, ...]


class EpochResponse(NamedTuple):
    """A BeginQuorumEpoch or EndQuorumEpoch response.

    ``is_ours``: it is of the metadata log's one partition.
    """

    top_error: int
    is_ours: bool
    error: int
    leader_id: int
    epoch: int


def encode_epoch_request(
    cluster_id: str | None, leader_id: int, epoch: int, successors: Iterable[int] | None
) -> bytes:
    """``successors`` is None for BeginQuorumEpoch."""
    writer = Writer()
    writer.write_nullable_string(cluster_id)
    _write_topic(writer)
    for number in (0, leader_id, epoch):
        writer.write_int32(number)
    if successors is not None:
        listed = tuple(successors)
        writer.write_array_count(len(listed))
        for id in listed:
            writer.write_int32(id)
    return writer.getvalue()


def decode_epoch_request(
    body: bytes | memoryview, position: int, *, is_end: bool
) -> EpochRequest | None:
    """None where the request is not of the metadata log's one partition.

    Raises CorruptRecordError.
    """
    reader = Reader(body, position)
    cluster_id = reader.read_nullable_string()
    topics = reader.read_array_count(6)
    is_ours = topics == 1
    found = EpochRequest(cluster_id, -1, -1, ())
    for _ in range(topics):
        is_ours &= reader.read_string() == METADATA_TOPIC
        partitions = reader.read_array_count(12)
        is_ours &= partitions == 1
        for _ in range(partitions):
            is_ours &= reader.read_int32() == 0
            leader_id, epoch = reader.read_int32(), reader.read_int32()
            successors: tuple[int, ...] = ()
            if is_end:
                count = reader.read_array_count(4)
                successors = tuple(reader.read_int32() for _ in range(count))
            found = EpochRequest(cluster_id, leader_id, epoch, successors)
    return found if is_ours else None


def encode_epoch_response(response: EpochResponse) -> bytes:
    writer = Writer()
    writer.write_int16(response.top_error)
    if not response.is_ours:
        writer.write_array_count(0)
        return writer.getvalue()
    _write_topic(writer)
    writer.write_int32(0)
    writer.write_int16(response.error)
    writer.write_int32(response.leader_id)
    writer.write_int32(response.epoch)
    return writer.getvalue()


def decode_epoch_response(body: bytes | memoryview, position: int) -> EpochResponse:
    """Raises CorruptRecordError."""
    reader = Reader(body, position)
    top_error = reader.read_int16()
    topics = reader.read_array_count(6)
    is_ours = topics == 1
    error, leader_id, epoch = 0, -1, -1
    for _ in range(topics):
        is_ours &= reader.read_string() == METADATA_TOPIC
        partitions = reader.read_array_count(14)
        is_ours &= partitions == 1
        for _ in range(partitions):
            is_ours &= reader.read_int32() == 0
            error = reader.read_int16()
            leader_id, epoch = reader.read_int32(), reader.read_int32()
    return EpochResponse(top_error, is_ours, error, leader_id, epoch)


def _write_topic(writer: Writer) -> None:
    """One topic, the metadata log, with one partition, whose fields follow."""
    writer.write_array_count(1)
    writer.write_string(METADATA_TOPIC)
    writer.write_array_count(1)


def encode_api_versions(error: int, ranges: Iterable[tuple[int, int, int]], version: int) -> bytes:
    """An ApiVersions response; ``ranges`` are (api key, lowest version, highest version)."""
    listed = tuple(ranges)
    writer = Writer()
    writer.write_int16(error)
    writer.write_array_count(len(listed))
    for numbers in listed:
        for number in numbers:
            writer.write_int16(number)
    if version >= 1:
        writer.write_int32(0)
    return writer.getvalue()


def decode_api_versions(
    body: bytes | memoryview, position: int, version: int
) -> tuple[int, list[tuple[int, int, int]]]:
    """The error and the ranges; raises CorruptRecordError."""
    reader = Reader(body, position)
    error = reader.read_int16()
    count = reader.read_array_count(6)
    ranges = [(reader.read_int16(), reader.read_int16(), reader.read_int16()) for _ in range(count)]
    if version >= 1:
        reader.read_int32()
    return error, ranges


def refused_fetch(error: int, version: int) -> bytes:
    """A Fetch response of versions 4-12 that refuses the request.

    These versions name topics, and the raft layer knows its topic by id alone. Before version 7
    there is no place for an error at the top: Kafka answers with no topics, and so does this.
    """
    if version < 7:
        return struct.pack(">ii", 0, 0)
    if version < 12:
        return struct.pack(">ihii", 0, error, 0, 0)
    return struct.pack(">ihiBB", 0, error, 0, 1, 0)
