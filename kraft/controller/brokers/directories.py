"""Log directories: failures, cordoned directories, and the assignment of replicas.

Decides the records of KIP-858 (JBOD) and KIP-1066 (cordoned directories), and the checks of
AssignReplicasToDirs. ``heartbeats`` reports which directories are offline or cordoned.
``ElectionContext`` and ``_core.decide.directory_assignment`` decide the changes of partitions.
Sources: Kafka's ``ReplicationControlManager`` (handleDirectoriesOffline, handleDirectoriesCordoned,
handleAssignReplicasToDirs), ``DirectoryId`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.directory_assignment import assign_directory, leave_isr
from kraft.controller.arguments import MAX_INT32, check_integer, check_uuid
from kraft.controller.brokers.broker_lifecycle import check_broker_epoch
from kraft.controller.decision import Decision, Records
from kraft.controller.state import (
    DEFAULTS,
    ClusterMetadata,
    DecisionSettings,
    election_context,
    registered,
)
from kraft.errors import UnknownTopicIdError, UnsupportedVersionError
from kraft.image import BrokerRegistration
from kraft.records import Uuid, encode_value
from kraft.records.versions import MetadataVersion

#: Reserved directory ids: of a replica from before directories had ids, and of one without a
#: directory yet. Both count as online; the third, of a lost directory, does not.
MIGRATING = Uuid(bytes(16))
UNASSIGNED = Uuid((1).to_bytes(16, "big"))
LOST = Uuid((2).to_bytes(16, "big"))


class DirectoryAssignment(NamedTuple):
    """Replicas of one topic that a broker has placed in one of its directories.

    ``partitions`` are ids, for many of them an int32 array.
    """

    directory: Uuid
    topic_id: Uuid
    partitions: Sequence[int] | NDArray[np.int32]


def assign_replicas_to_dirs(
    cluster: ClusterMetadata,
    broker_id: int,
    broker_epoch: int,
    assignments: Sequence[DirectoryAssignment],
    settings: DecisionSettings = DEFAULTS,
) -> Decision[list[NDArray[np.int16]]]:
    """Assign replicas to the log directories of a broker (AssignReplicasToDirs).

    The response has one int16 array per assignment with Kafka's error code of each partition: 0,
    100 if no topic has the id, 3 if the topic has no such partition, 6 if the broker has no replica
    of it. Assignments to a directory that the registration does not name, because it has failed,
    are recorded too; then the broker leaves those ISRs, in the order of the rows. Every change is
    decided against the partition before the request, even if it is named twice.

    Raises UnsupportedVersionError below metadata.version 3.7-IV2, StaleBrokerEpochError.
    """
    _check_supported(cluster)
    registration = check_broker_epoch(cluster, broker_id, broker_epoch)
    context = election_context(cluster, settings)
    builder = BatchBuilder()
    response: list[NDArray[np.int16]] = []
    failed: list[NDArray[np.int32]] = []
    for assignment in assignments:
        _check_assignment(assignment)
        topic = cluster.table.topic_number_by_id(assignment.topic_id)
        if topic < 0:
            unknown = UnknownTopicIdError.kafka_code
            response.append(np.full(len(assignment.partitions), unknown, np.int16))
            continue
        codes, rows = assign_directory(
            context, builder, broker_id, assignment.directory, topic, assignment.partitions
        )
        response.append(codes)
        if not is_online(registration, assignment.directory):
            failed.append(rows[rows >= 0])
    if failed:
        leave_isr(context, builder, broker_id, np.unique(np.concatenate(failed)))
    return Decision(Records.finished(builder), response)


def _check_assignment(assignment: DirectoryAssignment) -> None:
    """Raise InvalidRequestError for an id that a request cannot hold."""
    check_uuid("the id of a directory", assignment.directory)
    check_uuid("the id of a topic", assignment.topic_id)
    partitions = assignment.partitions
    if not isinstance(partitions, np.ndarray) or partitions.dtype != np.int32:
        for partition in partitions:
            check_integer("a partition", partition, -MAX_INT32 - 1, MAX_INT32)


def take_directories_offline(
    cluster: ClusterMetadata,
    broker_id: int,
    directories: Iterable[Uuid],
    settings: DecisionSettings = DEFAULTS,
) -> Decision[None]:
    """Take failed log directories of a broker offline: their replicas leave the ISRs.

    Directories that are not online are skipped. Raises BrokerIdNotRegisteredError, and
    UnsupportedVersionError if the metadata.version has no directories.
    """
    _check_supported(cluster)
    builder = BatchBuilder()
    append_offline(builder, cluster, registered(cluster, broker_id), list(directories), settings)
    return Decision(Records.finished(builder), None)


def is_online(registration: BrokerRegistration, directory: Uuid) -> bool:
    """Return whether a broker reports a directory as online (DirectoryId.isOnline)."""
    if directory in (MIGRATING, UNASSIGNED):
        return True
    if directory == LOST:
        return False
    return not registration.log_dirs or directory in registration.log_dirs


def append_offline(
    builder: BatchBuilder,
    cluster: ClusterMetadata,
    registration: BrokerRegistration,
    offline: Collection[Uuid],
    settings: DecisionSettings,
) -> bool:
    """Append the records that take directories offline; return whether there is a change.

    Directories that are not online are skipped.
    """
    gone = [directory for directory in registration.log_dirs if directory in offline]
    if not gone:
        return False
    context = election_context(cluster, settings)
    for directory in gone:
        context.remove_directory(builder, registration.id, directory)
    change = records.BrokerRegistrationChange(
        broker_id=registration.id,
        broker_epoch=registration.epoch,
        log_dirs=[directory for directory in registration.log_dirs if directory not in gone],
    )
    # Always version 2, even without a remaining directory, which the record cannot express.
    builder.append(encode_value(change, version=2))
    return True


def append_cordoned(
    builder: BatchBuilder, registration: BrokerRegistration, cordoned: Collection[Uuid]
) -> bool:
    """Append the record of cordoned directories, which get no new replicas; return whether it
    changes.

    The first report of a broker counts as a change, even if it is empty.
    """
    before = registration.cordoned_log_dirs
    if before is not None and set(before) == set(cordoned):
        return False
    change = records.BrokerRegistrationChange(
        broker_id=registration.id,
        broker_epoch=registration.epoch,
        cordoned_log_dirs=list(cordoned),
    )
    builder.append(encode_value(change, version=3))
    return True


def _check_supported(cluster: ClusterMetadata) -> None:
    level = MetadataVersion.from_level(cluster.state.metadata_version)
    if not level.is_directory_assignment_supported:
        raise UnsupportedVersionError(
            f"metadata.version {level.text} cannot assign replicas to log directories: finalize "
            f"{MetadataVersion.IBP_3_7_IV2.text} or later"
        )
