"""AlterPartition: change the ISR of a partition, or end its recovery.

There are two forms. `EncodedAlterPartition` turns the bytes of a request into the bytes of its
records and of its response; the network uses it. `alter_partition` decides typed requests, one
partition at a time; tests compare the two. Both make the checks in Kafka's order
(``ReplicationControlManager.validateAlterPartitionData``, KIP-704, KIP-841, KIP-903).

Stricter than Kafka in one point: if a request names a partition twice, the second entry is
rejected. Kafka decides both against the same state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.alter_partition import AlterPartitionRequest
from kraft.controller.arguments import MAX_INT32, check_integer, check_uuid, find_row
from kraft.controller.brokers.broker_lifecycle import check_broker_epoch
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision, Records
from kraft.controller.state import DEFAULTS, ClusterMetadata, DecisionSettings, election_context
from kraft.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KraftError,
    NewLeaderElectedError,
    NotControllerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kraft.records import Uuid

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NO_EPOCH = -1


class IsrChange(NamedTuple):
    """The ISR that a leader proposes for one of its partitions.

    ``isr`` maps each member to the epoch of its broker, -1 if the leader does not know the epoch.
    """

    topic_id: Uuid
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
    is_recovering: bool = False


class PartitionAnswer(NamedTuple):
    """The state of a partition once the records are committed."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int


def alter_partition(
    cluster: ClusterMetadata,
    broker_id: int,
    broker_epoch: int,
    changes: Sequence[IsrChange],
    settings: DecisionSettings = DEFAULTS,
) -> Decision[dict[tuple[Uuid, int], PartitionAnswer | KraftError]]:
    """Decide a leader's ISR changes; the response maps each partition to its new state or its
    error.

    A change that completes a reassignment may move the leadership: it takes effect, and the
    response is NewLeaderElectedError. Raises StaleBrokerEpochError.
    """
    check_broker_epoch(cluster, broker_id, broker_epoch)
    context = election_context(cluster, settings)
    builder = BatchBuilder()
    response: dict[tuple[Uuid, int], PartitionAnswer | KraftError] = {}
    for change in changes:
        key = change.topic_id, change.partition
        if key in response:
            response[key] = InvalidRequestError(
                f"{_partition(change)} is named twice in the request"
            )
            continue
        try:
            row, state = _checked(cluster, broker_id, change)
        except KraftError as error:
            response[key] = error.as_result()
            continue
        after = context.alter_partition(builder, row, list(change.isr), int(change.is_recovering))
        if after is not None:
            answer = PartitionAnswer(*after)
        else:
            answer = PartitionAnswer(
                state["leader"],
                state["leader_epoch"],
                state["partition_epoch"],
                tuple(state["isr"]),
                state["leader_recovery_state"],
            )
        if answer.leader == broker_id:
            response[key] = answer
        else:
            response[key] = NewLeaderElectedError(
                f"the change moved the leadership of {_partition(change)} to broker {answer.leader}"
            )
    return Decision(Records.finished(builder), response)


class EncodedAlterPartition:
    """An AlterPartition request in bytes, decided about 10,000 partitions at a time.

    Raises CorruptRecordError and UnsupportedVersionError, see ``AlterPartitionRequest``.
    """

    def __init__(self, body: Buffer, version: int, position: int = 0) -> None:
        self._request = AlterPartitionRequest(body, version, position)

    @property
    def partition_count(self) -> int:
        """The number of partitions in the request."""
        return self._request.partition_count

    def encode_response(self) -> bytes:
        """Return the response's body for the partitions that were decided."""
        return self._request.encode_response()

    def decide(
        self, cluster: ClusterMetadata, settings: DecisionSettings = DEFAULTS
    ) -> Decision[bytes | None]:
        """Decide the next partitions; the response is the response's body.

        While partitions are left, the response is None and the decision is partial: call again
        after its records are applied. Raises StaleBrokerEpochError.
        """
        request = self._request
        check_broker_epoch(cluster, request.broker_id, request.broker_epoch)
        builder = BatchBuilder()
        request.decide(election_context(cluster, settings), builder, MAX_RECORDS_PER_BATCH)
        written = Records.finished(builder)
        if request.decided_count < request.partition_count:
            return Decision(written, None, is_partial=True)
        return Decision(written, self.encode_response())


def expand_isrs(
    cluster: ClusterMetadata,
    rows: NDArray[np.int32] | None = None,
    settings: DecisionSettings = DEFAULTS,
) -> Decision[int]:
    """Let every leader add all live replicas to its ISR.

    The bulk form of AlterPartition, for scenarios; the response is the number of changed
    partitions.
    """
    builder = BatchBuilder()
    context = election_context(cluster, settings)
    if rows is None:
        context.expand_isrs(builder)
    else:
        context.expand_isrs(builder, rows)
    count = builder.record_count
    return Decision(Records.finished(builder), count)


def _checked(
    cluster: ClusterMetadata, broker_id: int, change: IsrChange
) -> tuple[int, dict[str, Any]]:
    table = cluster.table
    check_uuid("the id of a topic", change.topic_id)
    check_integer("a leader epoch", change.leader_epoch, -1, MAX_INT32)
    check_integer("a partition epoch", change.partition_epoch, -1, MAX_INT32)
    for member in change.isr:
        check_integer("a member of an ISR", member, -MAX_INT32 - 1, MAX_INT32)
    if not isinstance(change.is_recovering, bool):
        raise InvalidRequestError(f"is_recovering is {change.is_recovering!r:.80}, not a bool")
    topic = table.topic_number_by_id(change.topic_id)
    if topic < 0:
        raise UnknownTopicIdError(f"no topic has the id {change.topic_id!s}")
    row = find_row(table, topic, change.partition)
    if row < 0:
        raise UnknownTopicOrPartitionError(f"there is no {_partition(change)}")
    state = table.state_of(row)
    if change.leader_epoch > state["leader_epoch"]:
        raise NotControllerError(
            f"leader epoch {change.leader_epoch} of {_partition(change)} is newer than this "
            f"controller's, {state['leader_epoch']}: ask the active controller"
        )
    if change.partition_epoch > state["partition_epoch"]:
        raise NotControllerError(
            f"partition epoch {change.partition_epoch} of {_partition(change)} is newer than this "
            f"controller's, {state['partition_epoch']}: ask the active controller"
        )
    if change.leader_epoch < state["leader_epoch"]:
        raise FencedLeaderEpochError(
            f"leader epoch {change.leader_epoch} of {_partition(change)} is outdated: the current "
            f"one is {state['leader_epoch']}"
        )
    if broker_id != state["leader"]:
        raise InvalidRequestError(
            f"broker {broker_id} does not lead {_partition(change)}; {state['leader']} does"
        )
    if change.partition_epoch < state["partition_epoch"]:
        raise InvalidUpdateVersionError(
            f"partition epoch {change.partition_epoch} of {_partition(change)} is outdated: the "
            f"current one is {state['partition_epoch']}"
        )
    if not set(change.isr) <= set(state["replicas"]):
        raise InvalidRequestError(
            f"the ISR {list(change.isr)!r:.200} of {_partition(change)} has brokers that are not "
            f"among its replicas, {state['replicas']}"
        )
    if broker_id not in change.isr:
        raise InvalidRequestError(
            f"the ISR {list(change.isr)!r:.200} of {_partition(change)} lacks the leader, "
            f"{broker_id}"
        )
    if change.is_recovering and len(change.isr) > 1:
        raise InvalidRequestError(
            f"while the leader of {_partition(change)} recovers, its ISR must be the leader alone, "
            f"not {list(change.isr)!r:.200}"
        )
    if change.is_recovering and state["leader_recovery_state"] == 0:
        raise InvalidRequestError(
            f"the leader of {_partition(change)} has recovered, and cannot recover again"
        )
    for member, epoch in change.isr.items():
        registration = cluster.state.brokers.get(member)
        if (
            registration is None
            or registration.in_controlled_shutdown
            or registration.fenced
            or epoch not in (_NO_EPOCH, registration.epoch)
        ):
            raise IneligibleReplicaError(
                f"broker {member} cannot be in the ISR of {_partition(change)}: it is fenced, in "
                "controlled shutdown, or not registered with the given broker epoch"
            )
    return row, state


def _partition(change: IsrChange) -> str:
    """Return the partition's name for an error message."""
    return f"partition {change.partition} of topic id {change.topic_id!s}"
