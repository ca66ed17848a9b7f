"""``MetadataCache``: a broker's answers about brokers, topics and partitions, from its last image.

Answers Metadata, DescribeTopicPartitions and DescribeCluster. Only the topics' partitions are
encoded by the core (``kraft._core.table.topic_bodies``), with no object a partition; everything
else is a typed message. The cache keeps the image and what many requests need of it: the brokers by
listener, and the topics sorted by name.

Invariants: an answer is that of one image; a request changes nothing, and a topic that it would
create is reported to the caller. Called by the listener of a broker, and as a publisher in the
first phase, ``METADATA_CACHE``. Sources: Kafka's ``KafkaApis.handleTopicMetadataRequest``,
``KRaftMetadataCache``, ``DescribeTopicPartitionsRequestHandler``, ``AuthHelper``,
``DefaultAutoTopicCreationManager`` (4.3.1).
"""

from __future__ import annotations

import random
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kraft._core.bytes.wire import Writer
from kraft._core.table.topic_bodies import (
    ListenerBrokers,
    described_topic,
    metadata_body,
)
from kraft.broker.requested_topics import (
    Numbers,
    RequestedTopics,
    absence_error,
    check_metadata_request,
)
from kraft.errors import (
    TOPIC_AUTHORIZATION_FAILED,
    InvalidRequestError,
    KraftError,
)
from kraft.image.publishing import Image, ImageDelta
from kraft.image.replay import MetadataState
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.describe_cluster import (
    BROKERS,
    DescribeClusterRequestData,
    DescribeClusterResponseData,
    DescribedNode,
    endpoint_mismatch,
)
from kraft.protocol.describe_topic_partitions import (
    DescribedTopic,
    DescribeTopicPartitionsRequestData,
    DescribeTopicPartitionsResponseData,
    TopicPartitionsCursor,
)
from kraft.protocol.metadata import (
    INTERNAL_TOPICS,
    OPERATIONS_NOT_REQUESTED,
    MetadataRequestData,
    MetadataResponseBroker,
    MetadataResponseData,
    MetadataResponseTopic,
)
from kraft.security.controller_apis import CLUSTER_NAME
from kraft.security.operations import OperationCheck, authorized_operations

_INT32 = struct.Struct(">i")

# Versions of Metadata.
_FIRST_WITH_CONTROLLER = 1
_FIRST_WITH_THROTTLE = 3
_FIRST_WITH_OPERATIONS = 8
_LAST_WITH_CLUSTER_OPERATIONS = 10
_FIRST_FLEXIBLE = 9
_FIRST_WITH_ERROR = 13


class MetadataCacheSettings(NamedTuple):
    """``auto.create.topics.enable`` and ``max.request.partition.size.limit``."""

    auto_create_topics_enable: bool = True
    max_request_partition_size_limit: int = 2000


class MetadataAnswer(NamedTuple):
    """The body of a Metadata response, and the topics that the caller should create."""

    body: bytes
    topics_to_create: tuple[str, ...] = ()


class _Listener(NamedTuple):
    """The brokers that have a listener; ``sections`` by version of Metadata, `_brokers_section`."""

    brokers: ListenerBrokers
    sections: dict[int, bytes]


class _Topics(NamedTuple):
    """The topics of an image in the order of their names in Java, and the internal ones."""

    names: Sequence[str]
    numbers: Numbers
    internal: Numbers


class MetadataCache:
    """The metadata that a broker shows its clients.

    ``choose`` picks the broker that a response names as the controller: a client of a broker cannot
    reach the controllers. Without an image there are no brokers and no topics.
    """

    name = "MetadataCache"

    def __init__(
        self,
        cluster_id: str,
        settings: MetadataCacheSettings | None = None,
        choose: Callable[[Sequence[int]], int] = random.choice,
    ) -> None:
        self._cluster_id = cluster_id
        self._settings = settings or MetadataCacheSettings()
        self._choose = choose
        self._image = _empty_image()
        self._listeners: dict[str, _Listener] = {}
        self._alive: list[int] = []
        self._sorted_topics: _Topics | None = None

    # -- the image

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Answer from ``image`` from now on."""
        self._image = image
        if delta.is_full or "broker" in delta.changes:
            self._listeners.clear()
            self._alive = sorted(
                broker.id for broker in image.state.brokers.values() if not broker.fenced
            )
        if delta.is_full or delta.is_renumbered or delta.topics_added or delta.topics_removed:
            self._sorted_topics = None

    def _listener(self, name: str) -> _Listener:
        listener = self._listeners.get(name)
        if listener is None or not listener.brokers.is_current:
            brokers = ListenerBrokers(
                self._image.table,
                [
                    (broker.id, broker.fenced, name in broker.endpoints, broker.log_dirs)
                    for broker in self._image.state.brokers.values()
                ],
            )
            listener = self._listeners[name] = _Listener(brokers, {})
        return listener

    def _brokers_section(self, name: str, version: int) -> bytes:
        """Return what a Metadata response has between throttle time and controller id."""
        sections = self._listener(name).sections
        if version not in sections:
            response = MetadataResponseData(
                brokers=[
                    MetadataResponseBroker(node.broker_id, node.host, node.port, node.rack)
                    for node in self._nodes(name, with_fenced=False)
                ],
                cluster_id=self._cluster_id,
            )
            head, _ = _around_topics(response, version)
            first = 4 if version >= _FIRST_WITH_THROTTLE else 0
            end = len(head) - (4 if version >= _FIRST_WITH_CONTROLLER else 0)
            sections[version] = head[first:end]
        return sections[version]

    @property
    def _topics(self) -> _Topics:
        if self._sorted_topics is None:
            table = self._image.table
            entries = [(table.topic_name(number), number) for number in table.topic_numbers()]
            entries.sort(key=lambda entry: _java_order(entry[0]))
            internal = [number for name, number in entries if name in INTERNAL_TOPICS]
            self._sorted_topics = _Topics(
                [name for name, _ in entries],
                np.array([number for _, number in entries], np.int32),
                np.array(internal, np.int32),
            )
        return self._sorted_topics

    def _random_broker(self) -> int:
        """Return the id of a broker that is not fenced, -1 for none."""
        return self._choose(self._alive) if self._alive else -1

    def _nodes(self, listener: str, *, with_fenced: bool) -> list[DescribedNode]:
        """Return the brokers that have the listener, by id."""
        return [
            DescribedNode(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
            for broker in sorted(self._image.state.brokers.values(), key=lambda broker: broker.id)
            if (with_fenced or not broker.fenced)
            and (endpoint := broker.endpoints.get(listener)) is not None
        ]

    # -- Metadata

    def metadata(
        self,
        request: MetadataRequestData,
        version: int,
        listener: str,
        allows: OperationCheck | None = None,
        throttle_time_ms: int = 0,
    ) -> MetadataAnswer:
        """Return the response to a request at this listener.

        ``allows`` is None if there is no authorizer. Raises InvalidRequestError for ids or null
        names that the version does not have, UnknownServerError for a topic with neither;
        `failed_metadata` makes their response.
        """
        check_metadata_request(request, version)
        requested = RequestedTopics(
            self._image.table,
            request,
            version,
            allows,
            may_create=self._settings.auto_create_topics_enable,
        )
        topics = self._topics
        if requested.is_all:
            numbers = topics.numbers
            if allows is not None:
                is_shown = [
                    allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name, log_if_denied=False)
                    for name in topics.names
                ]
                numbers = numbers[np.array(is_shown, np.bool_)]
        else:
            numbers = requested.find()
        operations = np.full(len(numbers), OPERATIONS_NOT_REQUESTED, np.int32)
        if request.include_topic_authorized_operations:
            for place, number in enumerate(map(int, numbers)):
                operations[place] = authorized_operations(
                    allows, ResourceType.TOPIC, self._image.table.topic_name(number)
                )
        head = self._brokers_section(listener, version)
        if version >= _FIRST_WITH_THROTTLE:
            head = _INT32.pack(throttle_time_ms) + head
        if version >= _FIRST_WITH_CONTROLLER:
            head += _INT32.pack(self._random_broker())
        response = MetadataResponseData()
        if (
            request.include_cluster_authorized_operations
            and _FIRST_WITH_OPERATIONS <= version <= _LAST_WITH_CLUSTER_OPERATIONS
        ):
            response.cluster_authorized_operations = _cluster_operations(allows)
        _, tail = _around_topics(response, version)
        body = metadata_body(
            self._image.table,
            self._listener(listener).brokers,
            version,
            numbers,
            operations,
            topics.internal,
            head,
            _encoded_topics(requested.others, version),
            len(requested.others),
            tail,
        )
        return MetadataAnswer(body, tuple(requested.to_create))

    # -- DescribeTopicPartitions

    def describe_topic_partitions(
        self,
        request: DescribeTopicPartitionsRequestData,
        listener: str,
        allows: OperationCheck | None = None,
        throttle_time_ms: int = 0,
    ) -> bytes:
        """Return the body of the response to a request at this listener.

        Raises InvalidRequestError for a cursor with a negative partition, or with a topic that is
        not requested; `failed_description` makes its response. Unlike Kafka, a topic named "" does
        not make a request without a cursor fail, and no partition of a cursor is too large.
        """
        is_all = not request.topics
        requested, first = self._described_names(request)
        names: Iterable[str] = requested
        denied: list[str] = []
        if allows is not None and is_all:
            # Lazily: a page may end long before the last topic.
            names = (name for name in requested if _may_describe(allows, name))
        elif allows is not None:
            is_allowed = {name: _may_describe(allows, name) for name in requested}
            denied = [name for name in requested if not is_allowed[name]]
            names = [name for name in requested if is_allowed[name]]
        table, brokers = self._image.table, self._listener(listener).brokers
        left = max(
            1,
            min(self._settings.max_request_partition_size_limit, request.response_partition_limit),
        )
        described: list[bytes] = []
        next_cursor = None
        for name in names:
            if left == 0:
                next_cursor = TopicPartitionsCursor(name, 0)
                break
            number = table.topic_number(name)
            operations = authorized_operations(allows, ResourceType.TOPIC, name)
            if number < 0:
                described.append(_described_error(name, absence_error(name), operations))
                continue
            from_cursor = request.cursor is not None and name == request.cursor.topic_name
            topic, count, following = described_topic(
                table,
                brokers,
                number,
                name in INTERNAL_TOPICS,
                first if from_cursor else 0,
                left,
                operations,
            )
            described.append(topic)
            if following >= 0:
                next_cursor = TopicPartitionsCursor(name, following)
                break
            left -= count
        described += [_described_error(name, TOPIC_AUTHORIZATION_FAILED) for name in denied]
        frame = DescribeTopicPartitionsResponseData(
            throttle_time_ms=throttle_time_ms, next_cursor=next_cursor
        ).encode(0)
        counted = Writer()
        counted.write_compact_array_count(len(described))
        # The frame's own array is empty, one byte after the throttle time.
        return b"".join((frame[:4], counted.getvalue(), *described, frame[5:]))

    def _described_names(
        self, request: DescribeTopicPartitionsRequestData
    ) -> tuple[Sequence[str], int]:
        """Return the names from the cursor's topic on, sorted, and the cursor's partition."""
        cursor = request.cursor
        start = "" if cursor is None else cursor.topic_name
        if request.topics:
            names: Sequence[str] = sorted({topic.name for topic in request.topics}, key=_java_order)
        else:
            names = self._topics.names
        names = names[bisect_left(names, _java_order(start), key=_java_order) :]
        if cursor is None:
            return names, 0
        if request.topics and start not in names[:1]:
            raise InvalidRequestError(f"the cursor is at topic {start!r}, which is not requested")
        if cursor.partition_index < 0:
            raise InvalidRequestError(
                f"the cursor is at partition {cursor.partition_index} of topic {start!r}"
            )
        return names, cursor.partition_index

    # -- DescribeCluster

    def describe_cluster(
        self,
        request: DescribeClusterRequestData,
        version: int,
        listener: str,
        allows: OperationCheck | None = None,
    ) -> DescribeClusterResponseData:
        """Return the brokers that have this listener."""
        if request.endpoint_type != BROKERS:
            return endpoint_mismatch(BROKERS, request.endpoint_type, version)
        nodes = self._nodes(listener, with_fenced=request.include_fenced_brokers)
        controller_id = self._random_broker()
        response = DescribeClusterResponseData(
            endpoint_type=BROKERS,
            cluster_id=self._cluster_id,
            # A broker without the listener may be requested; a client could not connect to it.
            controller_id=(
                controller_id if any(node.broker_id == controller_id for node in nodes) else -1
            ),
            brokers=nodes,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = _cluster_operations(allows)
        return response


def failed_metadata(request: MetadataRequestData, error: KraftError) -> MetadataResponseData:
    """Return the response to a Metadata request that is rejected as a whole."""
    return MetadataResponseData(
        topics=[
            # Not every version may have a null name.
            MetadataResponseTopic(error.kafka_code, topic.name or "", topic.topic_id)
            for topic in request.topics or []
        ],
        error_code=error.kafka_code,
    )


def failed_description(
    request: DescribeTopicPartitionsRequestData, error: KraftError
) -> DescribeTopicPartitionsResponseData:
    """Return the response to a DescribeTopicPartitions request that is rejected as a whole."""
    return DescribeTopicPartitionsResponseData(
        topics=[DescribedTopic(error.kafka_code, topic.name) for topic in request.topics]
    )


def _empty_image() -> Image:
    empty = MetadataState(journaling=True)
    return Image(0, -1, -1, True, empty.table.image(0), empty.state.image(0))


def _java_order(name: str) -> bytes:
    """Return the key by which Java compares strings: their UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def _may_describe(allows: OperationCheck, name: str) -> bool:
    return allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _cluster_operations(allows: OperationCheck | None) -> int:
    """Return the operations on the cluster that the client may do, 0 if it may not describe it."""
    if allows is not None and not allows(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(allows, ResourceType.CLUSTER, CLUSTER_NAME)


def _around_topics(response: MetadataResponseData, version: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after the array of topics, which is empty."""
    encoded = response.encode(version)
    end = len(encoded) - _size_after_topics(version)
    return encoded[: end - _size_of_count(0, version)], encoded[end:]


def _encoded_topics(topics: Sequence[MetadataResponseTopic], version: int) -> bytes:
    """Return the bytes of topics, without their count."""
    if not topics:
        return b""
    head, tail = _around_topics(MetadataResponseData(), version)
    encoded = MetadataResponseData(topics=list(topics)).encode(version)
    return encoded[len(head) + _size_of_count(len(topics), version) : len(encoded) - len(tail)]


def _size_after_topics(version: int) -> int:
    size = 4 if _FIRST_WITH_OPERATIONS <= version <= _LAST_WITH_CLUSTER_OPERATIONS else 0
    size += 2 if version >= _FIRST_WITH_ERROR else 0
    return size + (1 if version >= _FIRST_FLEXIBLE else 0)


def _size_of_count(count: int, version: int) -> int:
    counted = Writer()
    if version >= _FIRST_FLEXIBLE:
        counted.write_compact_array_count(count)
    else:
        counted.write_array_count(count)
    return len(counted.getvalue())


def _described_error(name: str, error: int, operations: int = OPERATIONS_NOT_REQUESTED) -> bytes:
    """Return a topic of a DescribeTopicPartitions response without partitions."""
    is_internal = error != TOPIC_AUTHORIZATION_FAILED and name in INTERNAL_TOPICS
    topic = DescribedTopic(
        error, name, is_internal=is_internal, topic_authorized_operations=operations
    )
    # After throttle time and count; the cursor and the tags follow.
    return DescribeTopicPartitionsResponseData(topics=[topic]).encode(0)[5:-2]
