"""The differences that remain, each with its reason: what a run counts and does not report.

``docs/differential.md`` has the same list with the evidence. A sequence is compared no further
behind one of them, as the two sides are no longer in the same state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kraft.errors import InvalidRegistrationError
from kraft.records import PartitionChange, RegisterBroker, RegisterController, decode_value
from tests.differential.comparison import normalised
from tests.differential.history import History
from tests.differential.world import id_of

_PARTITION_CHANGE = 5
_UNKNOWN_SERVER_ERROR = -1

#: Kafka's index names a topic that is no more.
_IS_GONE = re.compile(r"Topic ID (\S+) existed in isrMembers, but not in the topics map")
#: Kafka elects a broker that has no replica of the partition.
_NO_REPLICA = re.compile(r"Replica (-?\d+) is not assigned to this partition")


@dataclass(frozen=True)
class Parted:
    """An operation at which the two sides part. Records are values, without those before it."""

    name: str
    arguments: dict[str, Any]
    history: History
    our_error: int
    our_records: list[bytes]
    kafkas_error: int
    kafkas_message: str
    kafkas_records: list[bytes]
    kafkas_response: Any

    @property
    def broker(self) -> int:
        """The broker that the operation is about; -1 where it is about none."""
        asked = self.arguments.get("request", self.arguments)
        return int(asked.get("brokerId", asked.get("broker", -1)))

    @property
    def directories(self) -> list[str]:
        """The directories that fail."""
        asked = self.arguments.get("request", {})
        return list(self.arguments.get("directories", asked.get("offlineLogDirs", ())))


def _is_stale_elr_index(parted: Parted) -> bool:
    """Kafka's index of ELR members is not brought up to date by ClearElr.

    ``ReplicationControlManager.removeTopicElrs`` changes the partitions and not ``brokersToElrs``:
    later Kafka looks at partitions that do not have the broker in their ELR any more, and writes a
    record where such a partition happens to need an election.
    """
    if parted.kafkas_error or parted.our_error:
        return False
    more = Counter(normalised(parted.kafkas_records)) - Counter(normalised(parted.our_records))
    less = Counter(normalised(parted.our_records)) - Counter(normalised(parted.kafkas_records))
    return bool(more) and not less and all(_is_of_cleared_elr(parted, value) for value in more)


def _is_of_cleared_elr(parted: Parted, value: bytes) -> bool:
    record = decode_value(value)
    if not isinstance(record, PartitionChange):
        return False
    return ((record.topic_id, record.partition_id), parted.broker) in parted.history.cleared_elrs


def _has_deleted_topic_in_elrs(parted: Parted) -> bool:
    """The same stale index, and the topic is gone: Kafka fails on what it still finds there.

    The exception is answered with UNKNOWN_SERVER_ERROR, so that the broker can neither be
    unregistered nor register.
    """
    found = _IS_GONE.search(parted.kafkas_message)
    return found is not None and any(
        key[0] == id_of(found[1]) and broker == parted.broker
        for key, broker in parted.history.cleared_elrs
    )


def _has_deleted_topic_in_directories(parted: Parted) -> bool:
    """Kafka's index of directories keeps a deleted topic of which a partition had an empty ISR.

    In ``ReplicationControlManager.replay(RemoveTopicRecord)`` the directories of a partition are
    forgotten once for every member of its ISR. When such a directory fails, so does the heartbeat.
    """
    found = _IS_GONE.search(parted.kafkas_message)
    return found is not None and any(
        (id_of(found[1]), id_of(directory)) in parted.history.left_directories
        for directory in parted.directories
    )


def _would_elect_no_replica(parted: Parted) -> bool:
    """An ISR or ELR can name a broker that is no replica, and Kafka fails when it would elect it.

    A reassignment that completes puts those that leave into the ELR where the ISR is below
    min.insync.replicas; and AssignReplicasToDirs, deciding twice on the same old state, can write
    an ISR of a replica that has left. ``PartitionRegistration.directory`` then throws; where only
    one partition of a request fails, that one is answered by UNKNOWN_SERVER_ERROR.
    """
    history = parted.history
    if parted.our_error:
        return False
    if parted.kafkas_error:
        found = _NO_REPLICA.search(parted.kafkas_message)
        if found is None:
            return False
        broker = int(found[1])
        return any(history.names_no_replica(key, broker) for key in history.partitions)
    if parted.name != "alter_reassignments" or parted.kafkas_response is None:
        return False
    failed = [
        (history.topic_ids[topic["name"]], one["partitionIndex"])
        for topic in parted.kafkas_response["responses"]
        for one in topic["partitions"]
        if one["errorCode"] == _UNKNOWN_SERVER_ERROR
    ]
    return bool(failed) and all(history.names_no_replica(key) for key in failed)


def _registers_negative_id(parted: Parted) -> bool:
    """A broker or controller whose id is negative registers: Kafka accepts it.

    Kafka may then place replicas on broker -1, which stands for "no leader" in the records of a
    partition. Here the registration is refused.
    """
    if parted.kafkas_error or parted.our_error != InvalidRegistrationError.kafka_code:
        return False
    if not parted.kafkas_records:
        return False
    last = decode_value(parted.kafkas_records[-1])
    if parted.name == "register_broker":
        return isinstance(last, RegisterBroker) and last.broker_id < 0
    return isinstance(last, RegisterController) and last.controller_id < 0


#: By name: what Kafka would have to be taught.
REMAINING: dict[str, Callable[[Parted], bool]] = {
    "ClearElr leaves Kafka's index of ELR members behind": _is_stale_elr_index,
    "a deleted topic in Kafka's index of ELR members": _has_deleted_topic_in_elrs,
    "a deleted topic in Kafka's index of directories": _has_deleted_topic_in_directories,
    "an ISR or ELR that names a broker that is no replica": _would_elect_no_replica,
    "a broker or controller with a negative id registers": _registers_negative_id,
}


def reason(parted: Parted) -> str | None:
    """Which of the known differences this is; None where it is a new one."""
    for known, is_it in REMAINING.items():
        if is_it(parted):
            return known
    return None
