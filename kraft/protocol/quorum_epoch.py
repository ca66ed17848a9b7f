"""The parts that BeginQuorumEpoch and EndQuorumEpoch share: the response, and version 0.

Version 0 is older than flexible encoding: strings have int16 lengths, arrays int32 counts, -1 is
null, and there are no tagged sections. Kafka 3.8 and older use it. Sources: the schemas of Kafka
4.3, KIP-595.

    BeginQuorumEpoch   nullable string cluster id
    request 0          | [string topic | [int32 partition | int32 leader | int32 epoch]]
    EndQuorumEpoch     nullable string cluster id
    request 0          | [string topic | [int32 partition | int32 leader | int32 epoch
                       | [int32 successor]]]
    both responses 0   int16 error
                       | [string topic | [int32 partition | int16 error | int32 leader
                       | int32 epoch]]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

from kraft._core.bytes.wire import Reader, Writer
from kraft._core.codec.fetch import METADATA_TOPIC
from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Struct
from kraft.errors import INVALID_REQUEST, InvalidRequestError
from kraft.protocol.common import (
    Endpoints,
    NodeEndpoint,
    Rejected,
    Resolve,
    leader_endpoints,
    metadata_partition,
    to_node_endpoints,
)
from kraft.protocol.headers import Body
from kraft.raft.rpc import (
    TOP_LEVEL_ERRORS,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
)


class EpochPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")


class EpochTopic(Struct):
    topic_name: str = field("string")
    partitions: list[EpochPartition] = field("[]struct", of=EpochPartition)


class QuorumEpochResponseData(Struct, versions=(1, 1)):
    """BeginQuorumEpochResponse and EndQuorumEpochResponse, which have the same layout."""

    error_code: int = field("int16")
    topics: list[EpochTopic] = field("[]struct", of=EpochTopic)
    node_endpoints: list[NodeEndpoint] = field("[]struct", tag=0, of=NodeEndpoint)


def encode_response(
    response: BeginQuorumEpochResponse | EndQuorumEpochResponse,
    version: int,
    listener: str,
    _: Resolve,
) -> bytes:
    is_top = response.error in TOP_LEVEL_ERRORS
    if version == 0:
        return encode_classic_response(
            ClassicResponse(
                response.error if is_top else 0,
                not is_top,
                response.error,
                response.leader_id,
                response.epoch,
            )
        )
    data = QuorumEpochResponseData(error_code=response.error if is_top else 0)
    if not is_top:
        partition = EpochPartition(0, response.error, response.leader_id, response.epoch)
        data.topics = [EpochTopic(METADATA_TOPIC, [partition])]
        data.node_endpoints = to_node_endpoints(
            response.leader_id, response.leader_endpoints, listener
        )
    return QuorumEpochResponseData.schema.encode(data, version)


def decode_response(
    version: int, body: Body, position: int, listener: str
) -> tuple[int, int, int, Endpoints]:
    """Return error, epoch, leader id and the leader's endpoints."""
    if version == 0:
        classic = decode_classic_response(body, position)
        if classic.top_error != 0:
            return classic.top_error, -1, -1, ()
        if not classic.is_ours:
            raise InvalidRequestError("a quorum epoch response is not of the metadata log")
        return classic.error, classic.epoch, classic.leader_id, ()
    schema = QuorumEpochResponseData.schema
    data = cast(QuorumEpochResponseData, schema.decode(body, version, position))
    if data.error_code != 0:
        return data.error_code, -1, -1, ()
    at: EpochPartition = metadata_partition(data.topics, "quorum epoch")
    endpoints = leader_endpoints(at.leader_id, data.node_endpoints, listener)
    return at.error_code, at.leader_epoch, at.leader_id, endpoints


def reject(version: int) -> Rejected:
    """Return the rejection of a request that is not about the metadata log."""
    if version == 0:
        rejection = ClassicResponse(INVALID_REQUEST, False, 0, -1, -1)
        return Rejected(encode_classic_response(rejection))
    data = QuorumEpochResponseData(error_code=INVALID_REQUEST)
    return Rejected(QuorumEpochResponseData.schema.encode(data, version))


# -- version 0


class ClassicRequest(NamedTuple):
    """A BeginQuorumEpoch or EndQuorumEpoch request of version 0."""

    cluster_id: str | None
    leader_id: int
    epoch: int
    successors: tuple[int, ...]


class ClassicResponse(NamedTuple):
    """A BeginQuorumEpoch or EndQuorumEpoch response of version 0.

    ``is_ours``: it is about the metadata log's one partition.
    """

    top_error: int
    is_ours: bool
    error: int
    leader_id: int
    epoch: int


def encode_classic_request(
    cluster_id: str | None, leader_id: int, epoch: int, successors: Iterable[int] | None
) -> bytes:
    """Encode a request of version 0; ``successors`` is None for BeginQuorumEpoch."""
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


def decode_classic_request(body: Body, position: int, *, is_end: bool) -> ClassicRequest | None:
    """Decode a request of version 0; return None where it is not about the metadata log only.

    Raises CorruptRecordError.
    """
    reader = Reader(body, position)
    cluster_id = reader.read_nullable_string()
    topics = reader.read_array_count(6)
    is_ours = topics == 1
    found = ClassicRequest(cluster_id, -1, -1, ())
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
            found = ClassicRequest(cluster_id, leader_id, epoch, successors)
    return found if is_ours else None


def encode_classic_response(response: ClassicResponse) -> bytes:
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


def decode_classic_response(body: Body, position: int) -> ClassicResponse:
    """Decode a response of version 0. Raises CorruptRecordError."""
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
    return ClassicResponse(top_error, is_ours, error, leader_id, epoch)


def _write_topic(writer: Writer) -> None:
    """Write one topic, the metadata log, with one partition; its fields must follow."""
    writer.write_array_count(1)
    writer.write_string(METADATA_TOPIC)
    writer.write_array_count(1)
