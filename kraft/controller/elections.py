"""Elections that somebody asks for, and those that the controller holds from time to time.

Owns which partitions need one and what is answered where none can be had. Sources: Kafka's
``ReplicationControlManager.electLeaders``, ``maybeBalancePartitionLeaders``,
``maybeElectUncleanLeaders``; KIP-460 (unclean elections by request).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from kraft._core.batch import BatchBuilder
from kraft._core.table import PartitionTable
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision, Records
from kraft.controller.state import DEFAULTS, Cluster, Settings, election_context
from kraft.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    KraftError,
    PolicyViolationError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)

#: How many elections the controller holds at a time of its own accord
#: (ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE).
MAX_ELECTIONS = 1_000

TopicPartition = tuple[str, int]


class ElectionType(Enum):
    """What ElectLeaders can ask for, with the number on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    cluster: Cluster,
    election: ElectionType,
    partitions: Mapping[str, Sequence[int]] | None = None,
    settings: Settings = DEFAULTS,
) -> Decision[dict[TopicPartition, KraftError | None]]:
    """Elects for the partitions named by topic, or for all; the response says why one failed.

    Where all are asked for, those that need no election are left out of the response. Raises
    PolicyViolationError where more than 10,000 leaders would be elected.
    """
    table = cluster.table
    response: dict[TopicPartition, KraftError | None] = {}
    if partitions is None:
        rows = _rows_in_need(table, election)
        names = [_name(table, int(row)) for row in rows]
    else:
        names = []
        chosen = []
        for topic, ids in partitions.items():
            number = table.topic_number(topic)
            for partition in ids:
                row = table.row_of(number, partition) if number >= 0 else -1
                response[topic, partition] = None
                if row < 0:
                    response[topic, partition] = UnknownTopicOrPartitionError(
                        f"there is no partition {topic}-{partition}"
                    )
                elif not _needs(table, row, election):
                    response[topic, partition] = ElectionNotNeededError(
                        f"{topic}-{partition} has the leader that was asked for"
                    )
                else:
                    names.append((topic, partition))
                    chosen.append(row)
        rows = np.array(chosen, np.int32)
    builder = BatchBuilder()
    context = election_context(cluster, settings)
    if election is ElectionType.PREFERRED:
        outcomes = context.elect_preferred(builder, rows)
    else:
        outcomes = context.elect_unclean(builder, rows)
    if builder.record_count > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"a request elects at most {MAX_RECORDS_PER_BATCH} leaders, not {builder.record_count}"
        )
    for name, is_elected in zip(names, outcomes, strict=True):
        response[name] = None if is_elected else _not_available(election, name)
    return Decision(Records.finished(builder), response)


def balance_leaders(
    cluster: Cluster, max_elections: int | None = MAX_ELECTIONS, settings: Settings = DEFAULTS
) -> Decision[bool]:
    """Preferred replicas lead again where they can; True: there may be more to be done.

    ``max_elections`` None is for no limit.
    """
    builder = BatchBuilder()
    context = election_context(cluster, settings)
    if max_elections is None:
        context.elect_preferred(builder)
        return Decision(Records.finished(builder), False)
    context.elect_preferred(builder, limit=max_elections)
    return Decision(Records.finished(builder), builder.record_count >= max_elections)


def elect_unclean_leaders(
    cluster: Cluster, max_elections: int | None = MAX_ELECTIONS, settings: Settings = DEFAULTS
) -> Decision[bool]:
    """Leaders for leaderless partitions of topics that allow unclean elections; as above."""
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


def _needs(table: PartitionTable, row: int, election: ElectionType) -> bool:
    leader = int(table.column("leader")[row])
    if election is ElectionType.PREFERRED:
        return leader != int(table.column("replicas")[row, 0])
    return leader == -1


def _name(table: PartitionTable, row: int) -> TopicPartition:
    topic = table.topic_name(int(table.column("topic")[row]))
    return topic, int(table.column("partition")[row])


def _not_available(election: ElectionType, name: TopicPartition) -> KraftError:
    text = f"no replica of {name[0]}-{name[1]} can be elected"
    if election is ElectionType.PREFERRED:
        return PreferredLeaderNotAvailableError(text)
    return EligibleLeadersNotAvailableError(text)
