"""The events of the controllers: in 2018 of one queue, in 0.8 calls of listeners.

Rules: the ``ControllerEvent`` classes in ``KafkaController.scala`` of Kafka 1.1.1; the listeners in
``kafka.controller`` of 0.8.2.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraft.errors import KraftError
from kraft.zookeeper.broker_requests import BrokerRequest, BrokerResponse
from kraft.zookeeper.states import PartitionKey


@dataclass(frozen=True, slots=True)
class Startup:
    """The node has started: watch ``/controller``, and elect."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerAndReelect:
    """There is a new session: elect. (A broker of Kafka also registers again.)"""


@dataclass(frozen=True, slots=True)
class Reelect:
    """``/controller`` was deleted: elect."""


@dataclass(frozen=True, slots=True)
class ControllerChange:
    """``/controller`` was created or changed: find out who is active."""


@dataclass(frozen=True, slots=True)
class Expire:
    """The session has expired: resign, then open a new one. Replaces all waiting events."""


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """Brokers have come or gone."""


@dataclass(frozen=True, slots=True)
class BrokerModifications:
    """A broker has written its registration again."""

    broker: int


@dataclass(frozen=True, slots=True)
class TopicsChange:
    """Topics have come or gone."""


@dataclass(frozen=True, slots=True)
class PartitionModifications:
    """The assignment of a topic was written."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """There is a request to delete topics."""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """There is a request to reassign partitions."""


@dataclass(frozen=True, slots=True)
class PartitionReassignmentIsrChange:
    """The state of a partition in reassignment was written."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class PreferredReplicaLeaderElection:
    """There is a request for preferred elections."""


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection:
    """It is time to look for brokers that lead too few partitions.

    Only for the controller of this epoch: one that was elected again has a timer of its own.
    """

    controller_epoch: int


@dataclass(frozen=True, slots=True)
class IsrChangeNotification:
    """Leaders have changed ISRs."""


@dataclass(frozen=True, slots=True)
class LogDirEventNotification:
    """Log directories have failed."""


@dataclass(frozen=True, slots=True)
class BrokerResponseReceived:
    """A broker has answered a LeaderAndIsr or StopReplica request."""

    broker: int
    request: BrokerRequest
    response: BrokerResponse


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker wants to stop: move its leaders.

    ``on_done`` gets the partitions that it still leads, or the error.
    """

    broker: int
    on_done: Callable[[list[PartitionKey] | KraftError], None]


ControllerEvent = (
    Startup
    | RegisterBrokerAndReelect
    | Reelect
    | ControllerChange
    | Expire
    | BrokerChange
    | BrokerModifications
    | TopicsChange
    | PartitionModifications
    | TopicDeletion
    | PartitionReassignment
    | PartitionReassignmentIsrChange
    | PreferredReplicaLeaderElection
    | AutoPreferredReplicaLeaderElection
    | IsrChangeNotification
    | LogDirEventNotification
    | BrokerResponseReceived
    | ControlledShutdown
)


@dataclass(frozen=True, slots=True)
class NewSession:
    """0.8: the session has expired: resign, open a new one, elect. Waiting events stay."""


@dataclass(frozen=True, slots=True)
class TopicDeletionResumed:
    """0.8: the thread that deletes topics has something to do."""


ListenerEvent = ControllerEvent | NewSession | TopicDeletionResumed
