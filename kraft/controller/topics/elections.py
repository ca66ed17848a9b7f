"""Leader elections: ElectLeaders requests, and the controller's periodic elections.

Finds the partitions that need an election, and responds with an error where no replica can be
elected. Sources: Kafka's ``ReplicationControlManager.electLeaders``,
``maybeBalancePartitionLeaders``, ``maybeElectUncleanLeaders``; KIP-460 (unclean elections by
request).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.table.table import PartitionTable
from kraft.controller.arguments import MAX_INT32, check_integer, find_row, find_topic
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, NO_RECORDS, Decision, Records
from kraft.controller.state import DEFAULTS, ClusterMetadata, DecisionSettings, election_context
from kraft.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidRequestError,
    KraftError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)

#: The most elections of one periodic decision
#: (ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE).
MAX_ELECTIONS = 1_000

#: If more partitions than this are asked for, a decision of its own looks them up.
MAX_INLINE_LOOKUP = 100_000

#: Partitions of a request that one decision looks up.
_LOOKUPS_AT_ONCE = 5_000

TopicPartition = tuple[str, int]


class ElectionType(Enum):
    """The types of ElectLeaders, with their numbers on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResults:
    """The results of a request's partitions, as columns of one length.

    ``topics`` (indices into ``names``), ``partitions`` and ``errors`` (Kafka's codes, 0 for
    elected). Iterating yields (name, partition, code).
    """

    __slots__ = ("_table", "errors", "names", "partitions", "topics")

    def __init__(
        self,
        table: PartitionTable,
        names: list[str] | None,
        topics: NDArray[np.int32],
        partitions: NDArray[np.int32],
        errors: NDArray[np.int16],
    ) -> None:
        self._table = table
        #: None: ``topics`` are topic numbers of the table.
        self.names = names
        self.topics = topics
        self.partitions = partitions
        self.errors = errors

    def __len__(self) -> int:
        return len(self.errors)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        columns: list[Any] = [
            column.tolist() for column in (self.topics, self.partitions, self.errors)
        ]
        for topic, partition, error in zip(*columns, strict=True):
            yield self.topic_name(topic), partition, error

    def topic_name(self, topic: int) -> str:
        """Return the name of an entry of ``topics``."""
        return self._table.topic_name(topic) if self.names is None else self.names[topic]

    def error(self, topic: str, partition: int, code: int) -> KraftError:
        """Return the error of a partition with the code ``code``.

        The messages of missing topics and leaders start with Kafka's, which its tests compare.
        """
        name = f"{topic}-{partition}"
        if code == UnknownTopicOrPartitionError.kafka_code:
            if find_topic(self._table, topic) < 0:
                return UnknownTopicOrPartitionError(f"No such topic as {topic}")
            return UnknownTopicOrPartitionError(f"No such partition as {name}")
        if code == ElectionNotNeededError.kafka_code:
            return ElectionNotNeededError(f"{name} already has the requested leader")
        if code == PreferredLeaderNotAvailableError.kafka_code:
            return PreferredLeaderNotAvailableError(
                "The preferred leader was not available. "
                f"The first replica of {name} must be alive and in sync"
            )
        return EligibleLeadersNotAvailableError(
            f"Eligible topic partition leaders are not available. No replica of {name} is alive"
        )


class LeaderElection:
    """An ElectLeaders request of any size, in decisions of at most ``at_a_time`` elections.

    ``partitions`` names the partitions of each topic, None all partitions; of all, the response
    leaves out those that need no election. The request is not atomic, as in Kafka. While a decision
    is partial, call `decide` again after its records are applied; it sees the changes that were
    made meanwhile. Raises InvalidRequestError if ``election`` is not an `ElectionType`.
    """

    def __init__(
        self,
        election: ElectionType,
        partitions: Mapping[str, Sequence[int]] | None = None,
        *,
        at_a_time: int = MAX_RECORDS_PER_BATCH,
    ) -> None:
        if not isinstance(election, ElectionType):
            kinds = ", ".join(map(str, ElectionType))
            raise InvalidRequestError(
                f"{election!r:.80} is not an election type: the types are {kinds}"
            )
        self._election = election
        self._at_a_time = at_a_time
        self._requested = partitions
        self._decided = 0
        self._is_looked_up_before = False
        self._rows: NDArray[np.int32] | None = None
        self._results: ElectionResults | None = None
        #: The partitions of the request that are not looked up yet; rows and ids of the others.
        self._unread: Iterator[tuple[str, int]] | None = None
        self._found, self._partitions = array("i"), array("i")
        #: Index of each row in the results.
        self._places: NDArray[np.int64] = np.empty(0, np.int64)

    def decide(
        self, cluster: ClusterMetadata, settings: DecisionSettings = DEFAULTS
    ) -> Decision[ElectionResults | None]:
        """Decide the next elections; the response is None while the decision is partial."""
        if self._rows is None:
            is_done = self._look_up(cluster)
            is_large = cluster.table.partition_count > MAX_INLINE_LOOKUP
            if not is_done or (is_large and self._requested is None):
                # A scan of a large table is a decision of its own.
                self._is_looked_up_before = True
                return Decision(NO_RECORDS, None, is_partial=True)
        assert self._rows is not None
        assert self._results is not None
        table = cluster.table
        end = min(len(self._rows), self._decided + self._at_a_time)
        rows = self._rows[self._decided : end]
        places = self._places[self._decided : end]
        if self._decided or self._is_looked_up_before:
            # Rows found earlier may have changed: topics may be deleted, leaders elected.
            is_needed = _need(table, rows, self._election)
            self._results.errors[places[~is_needed]] = ElectionNotNeededError.kafka_code
            rows, places = rows[is_needed], places[is_needed]
        builder = BatchBuilder()
        context = election_context(cluster, settings)
        if self._election is ElectionType.PREFERRED:
            outcomes = context.elect_preferred(builder, rows)
            refused = PreferredLeaderNotAvailableError.kafka_code
        else:
            outcomes = context.elect_unclean(builder, rows)
            refused = EligibleLeadersNotAvailableError.kafka_code
        self._results.errors[places[outcomes == 0]] = refused
        self._decided = end
        written = Records.finished(builder)
        if end < len(self._rows):
            return Decision(written, None, is_partial=True)
        return Decision(written, self._results)

    def _look_up(self, cluster: ClusterMetadata) -> bool:
        """Look up the partitions, of a request at most `_LOOKUPS_AT_ONCE`; return whether all of
        them are looked up.
        """
        table = cluster.table
        if self._requested is None:
            rows = _rows_in_need(table, self._election)
            self._rows = rows
            self._places = np.arange(len(rows))
            self._results = ElectionResults(
                table,
                None,
                table.column("topic")[rows],
                table.column("partition")[rows],
                np.zeros(len(rows), np.int16),
            )
            return True
        if self._unread is None:
            requested = self._requested.items()
            self._unread = ((topic, partition) for topic, ids in requested for partition in ids)
        before, name, number = len(self._found), None, -1
        for topic, partition in islice(self._unread, _LOOKUPS_AT_ONCE):
            check_integer(f"a partition of {topic!r:.80}", partition, -MAX_INT32 - 1, MAX_INT32)
            if topic != name:
                name, number = topic, find_topic(table, topic)
            self._found.append(find_row(table, number, partition))
            self._partitions.append(partition)
        if len(self._found) == before + _LOOKUPS_AT_ONCE:
            return False
        names = list(self._requested)
        counts = [len(ids) for ids in self._requested.values()]
        found = np.array(self._found, np.int32)
        partitions = np.array(self._partitions, np.int32)
        errors = np.zeros(len(found), np.int16)
        errors[found < 0] = UnknownTopicOrPartitionError.kafka_code
        is_needed = np.zeros(len(found), bool)
        is_needed[found >= 0] = _need(table, found[found >= 0], self._election)
        errors[(found >= 0) & ~is_needed] = ElectionNotNeededError.kafka_code
        self._places = np.flatnonzero(is_needed)
        self._rows = found[self._places]
        topics = np.repeat(np.arange(len(names), dtype=np.int32), counts)
        self._results = ElectionResults(table, names, topics, partitions, errors)
        return True


def balance_leaders(
    cluster: ClusterMetadata,
    max_elections: int | None = MAX_ELECTIONS,
    settings: DecisionSettings = DEFAULTS,
) -> Decision[bool]:
    """Give the leadership back to preferred replicas; the response is True if there may be more to
    do.

    ``max_elections`` None sets no limit.
    """
    builder = BatchBuilder()
    context = election_context(cluster, settings)
    if max_elections is None:
        context.elect_preferred(builder)
        return Decision(Records.finished(builder), False)
    context.elect_preferred(builder, limit=max_elections)
    return Decision(Records.finished(builder), builder.record_count >= max_elections)


def elect_unclean_leaders(
    cluster: ClusterMetadata,
    max_elections: int | None = MAX_ELECTIONS,
    settings: DecisionSettings = DEFAULTS,
) -> Decision[bool]:
    """Elect leaders of leaderless partitions whose topics allow unclean elections; as
    `balance_leaders`.
    """
    builder = BatchBuilder()
    context = election_context(cluster, settings)
    if max_elections is None:
        context.elect_unclean(builder)
        return Decision(Records.finished(builder), False)
    context.elect_unclean(builder, limit=max_elections)
    return Decision(Records.finished(builder), builder.record_count >= max_elections)


def _rows_in_need(table: PartitionTable, election: ElectionType) -> NDArray[np.int32]:
    is_alive = table.column("topic") >= 0
    if election is ElectionType.PREFERRED:
        is_needed = table.column("leader") != table.column("replicas")[:, 0]
    else:
        is_needed = table.column("leader") == -1
    return np.flatnonzero(is_alive & is_needed).astype(np.int32)


def _need(
    table: PartitionTable, rows: NDArray[np.int32], election: ElectionType
) -> NDArray[np.bool_]:
    leader = table.column("leader")[rows]
    wanted = leader == -1
    if election is ElectionType.PREFERRED:
        wanted = leader != table.column("replicas")[rows, 0]
    needed: NDArray[np.bool_] = wanted & (table.column("topic")[rows] >= 0)
    return needed
