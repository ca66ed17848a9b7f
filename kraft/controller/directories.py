"""Log directories: those that fail, those that are cordoned, and which replicas lie in which.

Owns the records of KIP-858 (JBOD) and KIP-1066 (cordoned directories) and the checks of
AssignReplicasToDirs. ``heartbeats`` tells which directories are offline or cordoned. What becomes
of partitions is decided by ``ElectionContext`` and ``_core.directory_assignment``. Sources: Kafka's
``ReplicationControlManager`` (handleDirectoriesOffline, handleDirectoriesCordoned,
handleAssignReplicasToDirs), ``DirectoryId`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kraft import records
from kraft._core.batch import BatchBuilder
from kraft._core.directory_assignment import assign_directory, leave_isr
from kraft.controller.arguments import MAX_INT32, check_integer, check_uuid
from kraft.controller.brokers import check_broker_epoch
from kraft.controller.decision import Decision, Records
from kraft.controller.state import DEFAULTS, Cluster, Settings, election_context, registered
from kraft.errors import UnknownTopicIdError, UnsupportedVersionError
from kraft.image import BrokerRegistration
from kraft.records import Uuid, encode_value
from kraft.records.versions import MetadataVersion

#: Ids that stand for no directory: a replica that was there before directories had ids, and one
#: that has none yet. Both count as online, unlike the third, of a directory that is lost.
MIGRATING = Uuid(bytes(16))
UNASSIGNED = Uuid((1).to_bytes(16, "big"))
LOST = Uuid((2).to_bytes(16, "big"))


@dataclass(frozen=True, slots=True)
class DirectoryAssignment:
    """Replicas of one topic that a broker has put into one of its directories.

    ``partitions`` are ids; what holds many is best an array of int32.
    """

    directory: Uuid
    topic_id: Uuid
    partitions: Sequence[int] | NDArray[np.int32]


def assign_replicas_to_directories(
    cluster: Cluster,
    broker_id: int,
    broker_epoch: int,
    assignments: Sequence[DirectoryAssignment],
    settings: Settings = DEFAULTS,
) -> Decision[list[NDArray[np.int16]]]:
    """A broker tells where its replicas lie (AssignReplicasToDirs).

    The response holds for each assignment an int16 array, Kafka's error code for each partition: 0,
    100 where no topic has the id, 3 where the topic has no such partition, 6 where the broker has
    no replica of it. What is put into a directory that the registration does not name, as it has
    failed, is recorded as well; then the broker leaves those ISRs, in the order of the rows. Every
    change is decided against the partition as it is before the request, also where it is named
    twice.

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
    cluster: Cluster,
    broker_id: int,
    directories: Iterable[Uuid],
    settings: Settings = DEFAULTS,
) -> Decision[None]:
    """Log directories of a broker have failed: what lies in them leaves the ISRs.

    Those that were not online are passed over. Raises BrokerIdNotRegisteredError, and
    UnsupportedVersionError where the metadata.version knows no directories.
    """
    _check_supported(cluster)
    builder = BatchBuilder()
    append_offline(builder, cluster, registered(cluster, broker_id), list(directories), settings)
    return Decision(Records.finished(builder), None)


def is_online(registration: BrokerRegistration, directory: Uuid) -> bool:
    """Whether a broker has a directory online, as far as it tells them (DirectoryId.isOnline)."""
    if directory in (MIGRATING, UNASSIGNED):
        return True
    if directory == LOST:
        return False
    return not registration.log_dirs or directory in registration.log_dirs


def append_offline(
    builder: BatchBuilder,
    cluster: Cluster,
    registration: BrokerRegistration,
    offline: Collection[Uuid],
    settings: Settings,
) -> bool:
    """Adds what follows from these directories being offline; whether there is a change.

    Those that were not online are passed over.
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
    # Always in version 2, also where no directory is left, which the record cannot say.
    builder.append(encode_value(change, version=2))
    return True


def append_cordoned(
    builder: BatchBuilder, registration: BrokerRegistration, cordoned: Collection[Uuid]
) -> bool:
    """Adds which directories get no new replicas; whether that is a change.

    It is one as well where the broker has not said before, even if there are none.
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


def _check_supported(cluster: Cluster) -> None:
    level = MetadataVersion.from_level(cluster.state.metadata_version)
    if not level.is_directory_assignment_supported:
        raise UnsupportedVersionError(
            f"metadata.version {level.text} knows no log directories of replicas"
        )
