"""The differences that remain, each with its reason: what a run counts and does not report.

``docs/differential.md`` has the same list with the evidence. A sequence is compared no further
behind one of them, as the two sides are no longer in the same state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kraft.errors import InvalidRegistrationError
from kraft.records import ClearElr, RegisterBroker, RegisterController, decode_value
from tests.differential.comparison import normalised
from tests.differential.operation import Outcome

_PARTITION_CHANGE = 5
_UNKNOWN_SERVER_ERROR = -1

#: Operations at which Kafka looks at the partitions that hold a broker in their ELR.
_ELR_OPERATIONS = ("unregister_broker", "register_broker", "shut_down_broker")

#: And those at which directories fail.
_DIRECTORY_OPERATIONS = ("directories_offline", "heartbeat")

#: What Kafka says when an index names a topic that is no more.
_IS_GONE = "existed in isrMembers, but not in the topics map"


def _is_stale_elr_index(
    name: str, before: list[Outcome], ours: Outcome, kafkas: dict[str, Any]
) -> bool:
    """Kafka's index of ELR members is not brought up to date by ClearElr.

    ``ReplicationControlManager.removeTopicElrs`` changes the partitions and not ``brokersToElrs``:
    later Kafka looks at partitions that do not have the broker in their ELR any more, and writes a
    record where such a partition happens to need an election.
    """
    if name not in _ELR_OPERATIONS or kafkas["error"] or ours.error:
        return False
    if not any(_clears_elr(value) for outcome in before for value in outcome.records):
        return False
    theirs = Counter(normalised(bytes.fromhex(value) for value in kafkas["records"]))
    mine = Counter(ours.records)
    return mine <= theirs and all(value[1] == _PARTITION_CHANGE for value in theirs - mine)


def _clears_elr(value: bytes) -> bool:
    return isinstance(decode_value(value), ClearElr)


def _has_deleted_topic_in_elrs(
    name: str, before: list[Outcome], ours: Outcome, kafkas: dict[str, Any]
) -> bool:
    """The same stale index, and the topic is gone: Kafka fails on what it still finds there.

    The exception is answered with UNKNOWN_SERVER_ERROR, so that the broker can neither be
    unregistered nor register.
    """
    return (
        name in _ELR_OPERATIONS
        and _IS_GONE in kafkas.get("message", "")
        and any(_clears_elr(value) for outcome in before for value in outcome.records)
    )


def _has_deleted_topic_in_directories(
    name: str, before: list[Outcome], ours: Outcome, kafkas: dict[str, Any]
) -> bool:
    """Kafka's index of directories keeps a deleted topic of which a partition had an empty ISR.

    In ``ReplicationControlManager.replay(RemoveTopicRecord)`` the directories of a partition are
    forgotten once for every member of its ISR. When such a directory fails, so does the heartbeat.
    """
    return name in _DIRECTORY_OPERATIONS and _IS_GONE in kafkas.get("message", "")


def _would_elect_no_replica(
    name: str, before: list[Outcome], ours: Outcome, kafkas: dict[str, Any]
) -> bool:
    """An ISR or ELR can name a broker that is no replica, and Kafka fails when it would elect it.

    A reassignment that completes puts those that leave into the ELR where the ISR is below
    min.insync.replicas; and AssignReplicasToDirs, deciding twice on the same old state, can write
    an ISR of a replica that has left. ``PartitionRegistration.directory`` then throws; where only
    one partition of a request fails, that one is answered by UNKNOWN_SERVER_ERROR.
    """
    if ours.error:
        return False
    if kafkas["error"]:
        return "is not assigned to this partition" in kafkas["message"]
    if name != "alter_reassignments":
        return False
    answered = [one for topic in kafkas["response"]["responses"] for one in topic["partitions"]]
    return any(one["errorCode"] == _UNKNOWN_SERVER_ERROR for one in answered)


def _registers_negative_id(
    name: str, before: list[Outcome], ours: Outcome, kafkas: dict[str, Any]
) -> bool:
    """A broker or controller whose id is negative registers: Kafka accepts it.

    Kafka may then place replicas on broker -1, which stands for "no leader" in the records of a
    partition. Here the registration is refused.
    """
    if kafkas["error"] or ours.error != InvalidRegistrationError.kafka_code:
        return False
    last = decode_value(bytes.fromhex(kafkas["records"][-1]))
    if name == "register_broker":
        return isinstance(last, RegisterBroker) and last.broker_id < 0
    return isinstance(last, RegisterController) and last.controller_id < 0


#: By name: what Kafka would have to be taught.
REMAINING: dict[str, Callable[[str, list[Outcome], Outcome, dict[str, Any]], bool]] = {
    "ClearElr leaves Kafka's index of ELR members behind": _is_stale_elr_index,
    "a deleted topic in Kafka's index of ELR members": _has_deleted_topic_in_elrs,
    "a deleted topic in Kafka's index of directories": _has_deleted_topic_in_directories,
    "an ISR or ELR that names a broker that is no replica": _would_elect_no_replica,
    "a broker or controller with a negative id registers": _registers_negative_id,
}


def reason(name: str, before: list[Outcome], ours: Outcome, kafkas: dict[str, Any]) -> str | None:
    """Which of the known differences this is; None where it is a new one."""
    for known, is_it in REMAINING.items():
        if is_it(name, before, ours, kafkas):
            return known
    return None
