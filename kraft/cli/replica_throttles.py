"""The replication throttles of reassignments: settings of topics and brokers.

A throttle of a reassignment has two parts. The topics name the replicas whose traffic counts:
``leader.replication.throttled.replicas`` those that send, ``follower.…`` those that receive. The
brokers have the rate, in bytes per second. `clear_throttles` removes both. Source:
``ReassignPartitionsCommand`` (4.3.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraft.cli.partition_files import TopicPartition

if TYPE_CHECKING:
    from kraft.admin import BlockingAdmin, ConfigChange, Reassignment

_LEADER_REPLICAS = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
_LEADER_RATE = "leader.replication.throttled.rate"
_FOLLOWER_RATE = "follower.replication.throttled.rate"
_DIRECTORIES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
#: Resources of one request.
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """The brokers that a partition is copied from, and those that it is copied to."""

    sources: frozenset[int]
    destinations: frozenset[int]


def moves_of(
    ongoing: Mapping[TopicPartition, Reassignment],
    current: Mapping[TopicPartition, Sequence[int]],
    target: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, PartitionMove]:
    """Return the moves in progress and those of ``target``.

    A partition that is being reassigned is copied from the replicas that it had before.
    """
    moves = {}
    for partition, reassignment in ongoing.items():
        adding = frozenset(reassignment.adding_replicas)
        moves[partition] = PartitionMove(frozenset(reassignment.replicas) - adding, adding)
    for partition, replicas in target.items():
        before = moves.get(partition)
        sources = frozenset(current[partition]) if before is None else before.sources
        moves[partition] = PartitionMove(sources, frozenset(replicas) - sources)
    return moves


def set_throttles(
    admin: BlockingAdmin, moves: Mapping[TopicPartition, PartitionMove], rate: int
) -> None:
    """Throttle the moves to ``rate`` bytes per second on each broker. Raises QuorumRefusedError."""
    from kraft.admin import ConfigChange, ConfigResourceType

    leaders: dict[str, set[str]] = defaultdict(set)
    followers: dict[str, set[str]] = defaultdict(set)
    brokers: set[int] = set()
    for (topic, index), move in moves.items():
        leaders[topic] |= {f"{index}:{broker}" for broker in move.sources}
        followers[topic] |= {f"{index}:{broker}" for broker in move.destinations}
        brokers |= move.sources | move.destinations
    changes = {
        (int(ConfigResourceType.TOPIC), topic): [
            ConfigChange(_LEADER_REPLICAS, ",".join(sorted(leaders[topic]))),
            ConfigChange(_FOLLOWER_REPLICAS, ",".join(sorted(followers[topic]))),
        ]
        for topic in leaders
    }
    changes |= {
        (int(ConfigResourceType.BROKER), str(broker)): [
            ConfigChange(_LEADER_RATE, str(rate)),
            ConfigChange(_FOLLOWER_RATE, str(rate)),
        ]
        for broker in sorted(brokers)
    }
    _alter(admin, changes)


def clear_throttles(admin: BlockingAdmin, brokers: Iterable[int], topics: Iterable[str]) -> None:
    """Remove the throttles of these brokers and topics. Raises QuorumRefusedError."""
    from kraft.admin import ConfigChange, ConfigOperation, ConfigResourceType

    def removal(*names: str) -> list[ConfigChange]:
        return [ConfigChange(name, None, ConfigOperation.DELETE) for name in names]

    changes = {
        (int(ConfigResourceType.BROKER), str(broker)): removal(
            _LEADER_RATE, _FOLLOWER_RATE, _DIRECTORIES_RATE
        )
        for broker in brokers
    }
    changes |= {
        (int(ConfigResourceType.TOPIC), topic): removal(_LEADER_REPLICAS, _FOLLOWER_REPLICAS)
        for topic in topics
    }
    _alter(admin, changes)


def _alter(admin: BlockingAdmin, changes: Mapping[tuple[int, str], list[ConfigChange]]) -> None:
    items = list(changes.items())
    for start in range(0, len(items), _AT_ONCE):
        admin.incremental_alter_configs(dict(items[start : start + _AT_ONCE])).all()
