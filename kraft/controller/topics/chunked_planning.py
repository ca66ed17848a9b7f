"""Plan and write a request that adds partitions, a large one in chunks of a few milliseconds.

The request is checked and planned in full before its first record is written, so that every error
comes before the first record. Between two chunks of a large request other events run. Called by
`topic_creation` and `partition_creation`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.creation import encode_new_partitions
from kraft._core.decide.placement import PlacementSpec, ReplicaPlacer
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, NO_RECORDS, Records
from kraft.controller.state import (
    ClusterMetadata,
    DecisionSettings,
    PlacementOrder,
    election_context,
    fixed_election_context,
    usable_brokers,
)
from kraft.errors import PolicyViolationError

Replicas = NDArray[np.int32]

#: Entries of a large request that are read in one chunk.
ENTRIES_PER_CHUNK = 5_000
#: Topics of a large request that are authorized, or whose records are encoded, in one chunk.
TOPICS_PER_CHUNK = 1_000
#: Cost of planning per chunk, in partitions, and the cost of one topic.
_COST_PER_CHUNK = 10_000
_COST_OF_TOPIC = 40


class NamedTopic(Protocol):
    """One entry of a request."""

    @property
    def name(self) -> str: ...


class TopicPlan(Protocol):
    """The plan of one topic; ``replicas`` are all of its new partitions, or the first 10,000."""

    @property
    def replicas(self) -> Replicas: ...


Topic = TypeVar("Topic", bound=NamedTopic)
Plan = TypeVar("Plan", bound=TopicPlan)


class PartitionWriter(ABC, Generic[Topic, Plan]):
    """A request that adds partitions: its entries, the brokers it is decided against, its records.

    A large request is decided against the brokers at its beginning, in chunks.
    """

    def __init__(
        self,
        cluster: ClusterMetadata,
        placer: ReplicaPlacer,
        settings: DecisionSettings,
        order: PlacementOrder | None,
        is_large: bool,
    ) -> None:
        self.cluster = cluster
        self.placer = placer
        self.usable = usable_brokers(cluster, order)
        self.context = (
            fixed_election_context(cluster) if is_large else election_context(cluster, settings)
        )
        self.is_large = is_large
        #: The topics that the request names, and those that it names more than once.
        self._named: set[str] = set()
        self.repeated: set[str] = set()

    @abstractmethod
    def admitted(self, topic: Topic) -> Topic | None:
        """Return a topic that may be planned; otherwise put its error into the response, and return
        None.
        """

    def check_admitted(self, topics: Sequence[Topic]) -> None:
        """Check all topics that may be planned, before the first is planned. Raises KraftError."""

    @abstractmethod
    def plan(self, topic: Topic) -> Plan | None:
        """Check a topic and put its result into the response; return its plan, or None."""

    def plans(self, topics: Sequence[Topic]) -> Iterator[Plan]:
        """Return the plans of the accepted topics of a small request; each is made when it is asked
        for.
        """
        self._count(topics)
        admitted = [topic for topic in map(self.admitted, topics) if topic is not None]
        self.check_admitted(admitted)
        return filter(None, map(self.plan, admitted))

    def is_planned_first(self, topics: Sequence[Topic]) -> bool:
        """Return whether planning takes more than one chunk: `plans_in_chunks` is for that."""
        return self.is_large or len(topics) * _COST_OF_TOPIC > _COST_PER_CHUNK

    def plans_in_chunks(
        self, topics: Sequence[Topic], *, is_kept: bool
    ) -> Generator[Records, None, Iterator[Plan]]:
        """Plan all topics; yield empty records meanwhile, and return the plans.

        Without ``is_kept`` the topics are only checked, and no plan is returned.
        """
        for start in range(0, len(topics), ENTRIES_PER_CHUNK):
            if start:
                yield NO_RECORDS
            self._count(topics[start : start + ENTRIES_PER_CHUNK])
        admitted: deque[Topic] = deque()
        for start in range(0, len(topics), TOPICS_PER_CHUNK):
            if start:
                yield NO_RECORDS
            accepted = map(self.admitted, topics[start : start + TOPICS_PER_CHUNK])
            admitted.extend(topic for topic in accepted if topic is not None)
        self.check_admitted(admitted)
        plans: deque[Plan] = deque()
        cost = 0
        while admitted:
            plan = self.plan(admitted.popleft())
            cost += _COST_OF_TOPIC
            if plan is not None:
                cost += len(plan.replicas)
                if is_kept:
                    plans.append(plan)
            if cost > _COST_PER_CHUNK:
                yield NO_RECORDS
                cost = 0
        return _popped(plans)

    def _count(self, topics: Sequence[Topic]) -> None:
        names = [topic.name for topic in topics]
        distinct = set(names)
        if len(distinct) < len(names) or not distinct.isdisjoint(self._named):
            self.repeated |= {
                n for n, times in Counter(names).items() if times > 1 or n in self._named
            }
        self._named |= distinct

    def encode_in_chunks(
        self, builder: BatchBuilder, topic_id: bytes, replicas: Replicas, start: int, end: int
    ) -> Generator[Records, None, BatchBuilder]:
        """Encode partitions ``start`` to before ``end`` of a topic, 10,000 at a time; yield each
        batch that is full, and return the open one.

        The first partitions have ``replicas``, the others are placed here.
        """
        for first in range(start, end, MAX_RECORDS_PER_BATCH):
            if first < start + len(replicas):
                chunk = replicas[first - start : first - start + MAX_RECORDS_PER_BATCH]
            else:
                count = min(MAX_RECORDS_PER_BATCH, end - first)
                spec = PlacementSpec(first, count, replicas.shape[1])
                chunk = self.placer.place(spec, self.usable)
            if len(chunk) > MAX_RECORDS_PER_BATCH - builder.record_count:
                yield Records.finished(builder)
                builder = BatchBuilder()
            encode_new_partitions(self.context, builder, topic_id, chunk, first)
        return builder


def check_new_partitions(count: int, most: int) -> None:
    """Raise PolicyViolationError for a request with more than ``most`` new partitions."""
    if count > most:
        # Kafka's text, which its tools print; its limit is 10,000.
        raise PolicyViolationError("Excessively large number of partitions per request.")


def _popped(plans: deque[Plan]) -> Iterator[Plan]:
    """Yield each plan and drop it: freeing all of them at the end would take long."""
    while plans:
        yield plans.popleft()
