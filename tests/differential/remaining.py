"""The known differences, each with its reason: a run counts them and does not report them.

``docs/differential.md`` has the same list with the evidence. After a known difference the two sides
have different states, so the sequence ends there.
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

#: Kafka's message if its index contains a deleted topic.
_IS_GONE = re.compile(r"Topic ID (\S+) existed in isrMembers, but not in the topics map")
#: Kafka's message if it elects a broker that has no replica of the partition.
_NO_REPLICA = re.compile(r"Replica (-?\d+) is not assigned to this partition")


@dataclass(frozen=True)
class DifferingOperation:
    """The operation at which the sides differ. Records are values; earlier ones are left out."""

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
        """The broker of the operation; -1 without one."""
        asked = self.arguments.get("request", self.arguments)
        return int(asked.get("brokerId", asked.get("broker", -1)))

    @property
    def directories(self) -> list[str]:
        """The directories that fail."""
        asked = self.arguments.get("request", {})
        return list(self.arguments.get("directories", asked.get("offlineLogDirs", ())))


def _is_stale_elr_index(differing: DifferingOperation) -> bool:
    """Kafka does not update its index of ELR members for ClearElr.

    ``ReplicationControlManager.removeTopicElrs`` changes the partitions but not ``brokersToElrs``.
    Later Kafka reads partitions whose ELR no longer has the broker, and writes a record if such a
    partition needs an election.
    """
    if differing.kafkas_error or differing.our_error:
        return False
    more = Counter(normalised(differing.kafkas_records)) - Counter(
        normalised(differing.our_records)
    )
    less = Counter(normalised(differing.our_records)) - Counter(
        normalised(differing.kafkas_records)
    )
    return bool(more) and not less and all(_is_of_cleared_elr(differing, value) for value in more)


def _is_of_cleared_elr(differing: DifferingOperation, value: bytes) -> bool:
    record = decode_value(value)
    if not isinstance(record, PartitionChange):
        return False
    return (
        (record.topic_id, record.partition_id),
        differing.broker,
    ) in differing.history.cleared_elrs


def _has_deleted_topic_in_elrs(differing: DifferingOperation) -> bool:
    """The same stale index with a deleted topic: Kafka fails on the stale entry.

    The response to the exception is UNKNOWN_SERVER_ERROR, so that the broker can neither be
    unregistered nor register.
    """
    found = _IS_GONE.search(differing.kafkas_message)
    return found is not None and any(
        key[0] == id_of(found[1]) and broker == differing.broker
        for key, broker in differing.history.cleared_elrs
    )


def _has_deleted_topic_in_directories(differing: DifferingOperation) -> bool:
    """Kafka's index of directories keeps a deleted topic if a partition of it had an empty ISR.

    ``ReplicationControlManager.replay(RemoveTopicRecord)`` removes the directories of a partition
    once for every member of its ISR. When such a directory fails, so does the heartbeat.
    """
    found = _IS_GONE.search(differing.kafkas_message)
    return found is not None and any(
        (id_of(found[1]), id_of(directory)) in differing.history.left_directories
        for directory in differing.directories
    )


def _would_elect_no_replica(differing: DifferingOperation) -> bool:
    """An ISR or ELR can contain a broker that is no replica; Kafka fails when it would elect that
    broker.

    A reassignment that completes puts removed replicas into the ELR if the ISR is below
    min.insync.replicas. AssignReplicasToDirs decides twice on the same old state, and can write an
    ISR with a replica that has left. ``PartitionRegistration.directory`` then throws. If only one
    partition of a request fails, its response is UNKNOWN_SERVER_ERROR.
    """
    history = differing.history
    if differing.our_error:
        return False
    if differing.kafkas_error:
        found = _NO_REPLICA.search(differing.kafkas_message)
        if found is None:
            return False
        broker = int(found[1])
        return any(history.names_no_replica(key, broker) for key in history.partitions)
    if differing.name != "alter_reassignments" or differing.kafkas_response is None:
        return False
    failed = [
        (history.topic_ids[topic["name"]], one["partitionIndex"])
        for topic in differing.kafkas_response["responses"]
        for one in topic["partitions"]
        if one["errorCode"] == _UNKNOWN_SERVER_ERROR
    ]
    return bool(failed) and all(history.names_no_replica(key) for key in failed)


def _registers_negative_id(differing: DifferingOperation) -> bool:
    """A broker or controller with a negative id registers: Kafka accepts it.

    Kafka may then place replicas on broker -1, which means "no leader" in the records of a
    partition. Here the registration is rejected.
    """
    if differing.kafkas_error or differing.our_error != InvalidRegistrationError.kafka_code:
        return False
    if not differing.kafkas_records:
        return False
    last = decode_value(differing.kafkas_records[-1])
    if differing.name == "register_broker":
        return isinstance(last, RegisterBroker) and last.broker_id < 0
    return isinstance(last, RegisterController) and last.controller_id < 0


#: By name: the check of each known difference.
REMAINING: dict[str, Callable[[DifferingOperation], bool]] = {
    "ClearElr leaves Kafka's index of ELR members behind": _is_stale_elr_index,
    "a deleted topic in Kafka's index of ELR members": _has_deleted_topic_in_elrs,
    "a deleted topic in Kafka's index of directories": _has_deleted_topic_in_directories,
    "an ISR or ELR that contains a broker that is not a replica": _would_elect_no_replica,
    "a broker or controller with a negative id registers": _registers_negative_id,
}


def reason(differing: DifferingOperation) -> str | None:
    """Return the name of the known difference; None for a new one."""
    for known, is_it in REMAINING.items():
        if is_it(differing):
            return known
    return None
