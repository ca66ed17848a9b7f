"""What leaders ask for: another ISR, the end of a recovery.

Owns AlterPartition in two forms: `AlterPartitions` goes from the bytes of a request to those of its
records and of its response, and is what the network calls; `alter_partitions` is the same for typed
requests, one partition at a time, and what the compiled form is held against. The checks stand in
Kafka's order (``ReplicationControlManager.validateAlterPartitionData``, KIP-704, KIP-841, KIP-903).

Stricter than Kafka in one thing: a partition that is named twice in a request is refused the second
time, where Kafka decides about both against the same state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kraft._core.alter_partition import AlterPartitionRequest
from kraft._core.batch import BatchBuilder
from kraft.controller.arguments import MAX_INT32, check_integer, check_uuid, find_row
from kraft.controller.brokers import check_broker_epoch
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision, Records
from kraft.controller.state import DEFAULTS, Cluster, Settings, election_context
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

_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class IsrChange:
    """What a leader asks for one of its partitions.

    ``isr`` maps each member to the epoch of its broker, -1 where the leader does not know it.
    """

    topic_id: Uuid
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
    is_recovering: bool = False


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """A partition as it will be once the records are committed."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int


def alter_partitions(
    cluster: Cluster,
    broker_id: int,
    broker_epoch: int,
    changes: Sequence[IsrChange],
    settings: Settings = DEFAULTS,
) -> Decision[dict[tuple[Uuid, int], PartitionAnswer | KraftError]]:
    """A leader's ISRs; the response holds each partition's new state, or why it was refused.

    A change that ends a reassignment can take the leadership away: it takes effect, and the answer
    is NewLeaderElectedError. Raises StaleBrokerEpochError.
    """
    check_broker_epoch(cluster, broker_id, broker_epoch)
    context = election_context(cluster, settings)
    builder = BatchBuilder()
    response: dict[tuple[Uuid, int], PartitionAnswer | KraftError] = {}
    for change in changes:
        key = change.topic_id, change.partition
        if key in response:
            response[key] = InvalidRequestError("a partition is named twice in the request")
            continue
        try:
            row, state = _checked(cluster, broker_id, change)
        except KraftError as error:
            response[key] = error
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
                f"broker {answer.leader} leads the partition from now on"
            )
    return Decision(Records.finished(builder), response)


class AlterPartitions:
    """An AlterPartition request from its bytes, decided about 10,000 partitions at a time.

    Raises CorruptRecordError and UnsupportedVersionError, see ``AlterPartitionRequest``.
    """

    def __init__(self, body: Buffer, version: int, position: int = 0) -> None:
        self._request = AlterPartitionRequest(body, version, position)

    @property
    def partition_count(self) -> int:
        """How many partitions are asked about."""
        return self._request.partition_count

    def decide(self, cluster: Cluster, settings: Settings = DEFAULTS) -> Decision[bytes | None]:
        """The records of the next partitions; the response is the body that is to be sent.

        It is None, and the decision partial, as long as partitions are left: to be asked again once
        the records have taken effect. Raises StaleBrokerEpochError.
        """
        request = self._request
        check_broker_epoch(cluster, request.broker_id, request.broker_epoch)
        builder = BatchBuilder()
        request.decide(election_context(cluster, settings), builder, MAX_RECORDS_PER_BATCH)
        written = Records.finished(builder)
        if request.decided_count < request.partition_count:
            return Decision(written, None, is_partial=True)
        return Decision(written, request.encode_response())


def expand_isrs(
    cluster: Cluster, rows: NDArray[np.int32] | None = None, settings: Settings = DEFAULTS
) -> Decision[int]:
    """Every leader finds that all replicas that are alive have caught up, and says so.

    The bulk form of AlterPartition, for scenarios; the response is how many partitions changed.
    """
    builder = BatchBuilder()
    context = election_context(cluster, settings)
    if rows is None:
        context.expand_isrs(builder)
    else:
        context.expand_isrs(builder, rows)
    count = builder.record_count
    return Decision(Records.finished(builder), count)


def _checked(cluster: Cluster, broker_id: int, change: IsrChange) -> tuple[int, dict[str, Any]]:
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
        raise UnknownTopicIdError(f"no topic has the id {change.topic_id!r}")
    row = find_row(table, topic, change.partition)
    if row < 0:
        raise UnknownTopicOrPartitionError(f"the topic has no partition {change.partition}")
    state = table.state_of(row)
    if change.leader_epoch > state["leader_epoch"]:
        raise NotControllerError(f"leader epoch {change.leader_epoch} is not known here")
    if change.partition_epoch > state["partition_epoch"]:
        raise NotControllerError(f"partition epoch {change.partition_epoch} is not known here")
    if change.leader_epoch < state["leader_epoch"]:
        raise FencedLeaderEpochError(f"leader epoch {change.leader_epoch} has ended")
    if broker_id != state["leader"]:
        raise InvalidRequestError(f"broker {broker_id} does not lead the partition")
    if change.partition_epoch < state["partition_epoch"]:
        raise InvalidUpdateVersionError(f"partition epoch {change.partition_epoch} has ended")
    if not set(change.isr) <= set(state["replicas"]):
        raise InvalidRequestError("the ISR names a broker that is no replica")
    if broker_id not in change.isr:
        raise InvalidRequestError("the ISR does not name the leader")
    if change.is_recovering and len(change.isr) > 1:
        raise InvalidRequestError("while the leader recovers it is alone in the ISR")
    if change.is_recovering and state["leader_recovery_state"] == 0:
        raise InvalidRequestError("a leader that has recovered does not begin anew")
    for member, epoch in change.isr.items():
        registration = cluster.state.brokers.get(member)
        if (
            registration is None
            or registration.in_controlled_shutdown
            or registration.fenced
            or epoch not in (_NO_EPOCH, registration.epoch)
        ):
            raise IneligibleReplicaError(f"broker {member} cannot join an ISR")
    return row, state
