"""Which event of the controller a triggered watch means.

Rules: the ``…Handler`` classes in ``KafkaController.scala`` of Kafka 1.1.1.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.zookeeper import znodes
from kraft.zookeeper.events import (
    BrokerChange,
    BrokerModifications,
    ControllerChange,
    ControllerEvent,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionModifications,
    PartitionReassignment,
    PartitionReassignmentIsrChange,
    PreferredReplicaLeaderElection,
    Reelect,
    TopicDeletion,
    TopicsChange,
)
from kraft.zookeeper.port import ZkChange, ZkEvent

#: The znodes whose children the active controller watches.
WATCHED_CHILDREN = (
    znodes.BROKER_IDS,
    znodes.TOPICS,
    znodes.DELETE_TOPICS,
    znodes.LOG_DIR_EVENTS,
    znodes.ISR_CHANGES,
)
_EVENTS: dict[str, Callable[[], ControllerEvent]] = {
    znodes.BROKER_IDS: BrokerChange,
    znodes.TOPICS: TopicsChange,
    znodes.DELETE_TOPICS: TopicDeletion,
    znodes.LOG_DIR_EVENTS: LogDirEventNotification,
    znodes.ISR_CHANGES: IsrChangeNotification,
    znodes.PREFERRED_ELECTION: PreferredReplicaLeaderElection,
    znodes.REASSIGN_PARTITIONS: PartitionReassignment,
}


def event_of(event: ZkEvent) -> ControllerEvent | None:
    """Return what the controller has to do; None for a change that another watch reports too."""
    path = event.path
    is_gone = event.change == ZkChange.DELETED
    if path == znodes.CONTROLLER:
        # A lost watch may hide a deletion.
        return Reelect() if is_gone or event.change == ZkChange.UNKNOWN else ControllerChange()
    if path in _EVENTS:
        return _EVENTS[path]()
    if path.startswith(f"{znodes.BROKER_IDS}/"):
        return None if is_gone else BrokerModifications(int(path.rpartition("/")[2]))
    if not path.startswith(f"{znodes.TOPICS}/"):
        return None
    topic, *rest = path[len(znodes.TOPICS) + 1 :].split("/")
    if rest:
        return PartitionReassignmentIsrChange((topic, int(rest[1])))
    return None if is_gone else PartitionModifications(topic)
