"""What the APIs of data share: the parts of a broker that they need, topics by name and id, hints
about leaders, and pauses for the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kraft._core.table.images import TableImage
from kraft.broker.log.log_manager import LogManager
from kraft.broker.replica_driver import ReplicaDriver
from kraft.broker.replication.messages import PartitionId
from kraft.broker.topic_settings import EffectiveTopicSettings
from kraft.image.publishing import Image
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.common import BrokerEndpoint, LeaderIdAndEpoch
from kraft.server.apis.api import CallContext

#: How long an API works on a request before the loop serves others.
TURN_S = 0.002


class DataServices(Protocol):
    """The parts of a broker that the APIs of data need; ``BrokerServices`` has them."""

    @property
    def replicas(self) -> ReplicaDriver: ...

    @property
    def logs(self) -> LogManager: ...

    @property
    def topics(self) -> EffectiveTopicSettings: ...

    @property
    def image(self) -> Callable[[], Image]:
        """Returns the published metadata."""


class KnownTopic(NamedTuple):
    """A topic of an image."""

    number: int
    name: str
    id: bytes


class ImageTopics:
    """The topics of one image, by name and by id."""

    def __init__(self, table: TableImage) -> None:
        self._table = table

    def by_name(self, name: str) -> KnownTopic | None:
        number = self._table.topic_number(name)
        return None if number < 0 else KnownTopic(number, name, self._table.topic_id_of(number))

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        number = self._table.topic_number_by_id(topic_id)
        return None if number < 0 else KnownTopic(number, self._table.topic_name(number), topic_id)

    def has_partition(self, topic: KnownTopic, partition: int) -> bool:
        return self._table.row_of(topic.number, partition) >= 0


class TopicAccess:
    """Whether a client may do an operation on topics; each topic is checked once a request."""

    def __init__(self, context: CallContext, operation: AclOperation) -> None:
        self._context = context
        self._operation = operation
        self._known: dict[str, bool] = {}

    def is_allowed(self, topic: str) -> bool:
        """Return whether it is allowed. Raises AuthorizerNotReadyError."""
        allowed = self._known.get(topic)
        if allowed is None:
            allowed = self._context.allows(self._operation, ResourceType.TOPIC, topic)
            self._known[topic] = allowed
        return allowed


class LeaderHints:
    """The leaders that a response names to a client at the wrong broker (KIP-951).

    Their addresses are those of the listener that received the request; source:
    ``KafkaApis.getCurrentLeader``.
    """

    def __init__(self, image: Image, listener: str) -> None:
        self._image = image
        self._listener = listener
        self._nodes: dict[int, BrokerEndpoint] = {}

    def leader_of(self, id: PartitionId) -> LeaderIdAndEpoch:
        """Return the present leader of a partition, -1 for unknown."""
        table = self._image.table
        number = table.topic_number_by_id(id.topic_id)
        row = -1 if number < 0 else table.row_of(number, id.partition)
        if row < 0:
            return LeaderIdAndEpoch()
        state = table.state_of(row)
        leader = state["leader"]
        broker = self._image.state.brokers.get(leader)
        if broker is not None and not broker.fenced:
            endpoint = broker.endpoints.get(self._listener)
            if endpoint is not None:
                self._nodes[leader] = BrokerEndpoint(
                    leader, endpoint.host, endpoint.port, broker.rack
                )
        return LeaderIdAndEpoch(leader, state["leader_epoch"])

    def endpoints(self) -> list[BrokerEndpoint]:
        """Return the addresses of the leaders that `leader_of` returned."""
        return list(self._nodes.values())


class Pace:
    """Pauses of a long request: ``await rest()`` after each part of the work.

    Where the parts are short, ask `is_over` first: it costs less than a coroutine.
    """

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = time.perf_counter() + TURN_S

    @property
    def is_over(self) -> bool:
        """Whether this request has had its turn."""
        return time.perf_counter() >= self._end

    async def rest(self) -> None:
        """Let the loop run if this request has had its turn."""
        if self.is_over:
            await asyncio.sleep(0)
            self._end = time.perf_counter() + TURN_S
