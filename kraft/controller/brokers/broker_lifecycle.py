"""Registration, fencing, unfencing and controlled shutdown of brokers.

Checks a registration, and decides which records each event writes, in which order.
``ElectionContext`` decides the changes of partitions; ``heartbeats`` decides when to fence or
unfence. Sources: Kafka's ``ReplicationControlManager`` (handleBroker...),
``ClusterControlManager.registerBroker`` (4.3.1), KIP-866 (controlled shutdown), KIP-858
(directories), KIP-966, KAFKA-18106 and KAFKA-18635 (unclean shutdown), KAFKA-16952 (an amended
registration).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft.controller.arguments import (
    MAX_INT32,
    MAX_INT64,
    check_integer,
    check_text,
    check_uuid,
)
from kraft.controller.brokers.listeners import feature_structs, listener_structs
from kraft.controller.brokers.sessions import BrokerSessions
from kraft.controller.decision import Decision, Records, append_records
from kraft.controller.state import (
    DEFAULTS,
    ELR_FEATURE,
    ClusterMetadata,
    DecisionSettings,
    election_context,
    registered,
)
from kraft.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from kraft.image import BrokerRegistration, ClusterState, NodeEndpoint, VersionRange
from kraft.image.features import KRAFT_VERSION
from kraft.image.nodes import is_reserved_directory
from kraft.records import Record, Uuid
from kraft.records.versions import METADATA_VERSION, MetadataVersion


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """The registration of a broker (BrokerRegistrationRequest).

    ``previous_broker_epoch`` is the epoch of the broker's last clean shutdown, -1 without one or
    for requests older than version 3. ``features`` are the levels that the broker supports;
    ``cluster_id`` is the cluster that it wants to join.
    """

    broker_id: int
    incarnation_id: Uuid
    endpoints: Sequence[NodeEndpoint] = ()
    features: Mapping[str, VersionRange] = field(default_factory=dict)
    rack: str | None = None
    log_dirs: Sequence[Uuid] = ()
    previous_broker_epoch: int = -1
    cluster_id: str = ""
    is_migrating_zk_broker: bool = False


def fence_broker(
    cluster: ClusterMetadata, broker_id: int, settings: DecisionSettings = DEFAULTS
) -> Decision[None]:
    """Fence a broker after its session expired: it leaves every ISR and leadership first.

    Raises BrokerIdNotRegisteredError.
    """
    builder = BatchBuilder()
    append_fencing(builder, cluster, registered(cluster, broker_id), settings)
    return Decision(Records.finished(builder), None)


def fence_stale_broker(
    cluster: ClusterMetadata,
    sessions: BrokerSessions,
    now_ms: float,
    settings: DecisionSettings = DEFAULTS,
) -> Decision[bool]:
    """Fence the broker of one expired session; the response is True if there was one.

    Call it every `BrokerSessions.check_interval_ms`, and again at once after True: one broker at a
    time, so that each decision sees the effect of the one before. The session is removed at once,
    also if its broker is unregistered or has registered again. A broker that is already fenced is
    fenced again (ReplicationControlManager.maybeFenceOneStaleBroker).
    """
    builder = BatchBuilder()
    expired = sessions.take_expired(now_ms)
    if expired is not None:
        registration = cluster.state.brokers.get(expired.broker_id)
        if registration is not None and registration.epoch == expired.broker_epoch:
            append_fencing(builder, cluster, registration, settings)
            sessions.fence(expired.broker_id)
    return Decision(Records.finished(builder), expired is not None)


def unfence_broker(
    cluster: ClusterMetadata, broker_id: int, settings: DecisionSettings = DEFAULTS
) -> Decision[None]:
    """Unfence a broker that has caught up, then elect leaders of leaderless partitions.

    Raises BrokerIdNotRegisteredError.
    """
    builder = BatchBuilder()
    append_unfencing(builder, cluster, registered(cluster, broker_id), settings)
    return Decision(Records.finished(builder), None)


def begin_controlled_shutdown(
    cluster: ClusterMetadata, broker_id: int, settings: DecisionSettings = DEFAULTS
) -> Decision[None]:
    """Begin the controlled shutdown of a broker: mark it once, and remove it from every ISR.

    Raises BrokerIdNotRegisteredError.
    """
    builder = BatchBuilder()
    append_controlled_shutdown(builder, cluster, registered(cluster, broker_id), settings)
    return Decision(Records.finished(builder), None)


def shut_down_broker(
    cluster: ClusterMetadata,
    broker_id: int,
    *,
    is_clean: bool,
    settings: DecisionSettings = DEFAULTS,
) -> Decision[None]:
    """Decide the partition changes with which a stopped broker registers again.

    After an unclean shutdown with ELR on, the broker also leaves every ELR. The broker need not be
    registered.
    """
    builder = BatchBuilder()
    _clean_up(builder, cluster, broker_id, is_clean, settings)
    return Decision(Records.finished(builder), None)


def unregister_broker(
    cluster: ClusterMetadata, broker_id: int, settings: DecisionSettings = DEFAULTS
) -> Decision[None]:
    """Unregister a broker. Raises BrokerIdNotRegisteredError."""
    registration = registered(cluster, broker_id)
    builder = BatchBuilder()
    election_context(cluster, settings).remove_from_isr(builder, [broker_id], and_elr=True)
    record = records.UnregisterBroker(broker_id=broker_id, broker_epoch=registration.epoch)
    append_records(builder, [record], _level(cluster))
    return Decision(Records.finished(builder), None)


def register_broker(
    cluster: ClusterMetadata,
    request: RegistrationRequest,
    *,
    next_offset: int,
    has_live_session: bool = False,
    cluster_id: str | None = None,
    settings: DecisionSettings = DEFAULTS,
) -> Decision[int]:
    """Register a broker, or amend its registration; the response is its epoch.

    ``next_offset`` is the offset of the decision's first record, which is the new epoch. The same
    incarnation keeps its epoch and its fencing. ``has_live_session``: the session of the broker
    that is registered with this id is alive (`BrokerSessions.is_alive`). ``cluster_id`` is the id
    of the cluster, None to skip the check. The records need not go into one batch, because the
    registration is the last.

    Raises in this order InvalidRegistrationError for a negative id, which Kafka accepts, or for a
    value that no record can hold; InconsistentClusterIdError; DuplicateBrokerRegistrationError if
    another incarnation is alive; BrokerIdNotRegisteredError for a broker of ZooKeeper;
    InvalidRegistrationError for invalid directories or listeners, or for a broker that does not
    name its metadata.versions; UnsupportedVersionError if the broker does not support a finalized
    level.
    """
    state = cluster.state
    _check_values(request)
    if cluster_id is not None and request.cluster_id != cluster_id:
        raise InconsistentClusterIdError(
            f"broker {request.broker_id} belongs to cluster {request.cluster_id!r}, and this is "
            f"cluster {cluster_id!r}"
        )
    known = state.brokers.get(request.broker_id)
    amended = (
        known if known is not None and known.incarnation_id == request.incarnation_id else None
    )
    if known is not None and has_live_session and amended is None:
        raise DuplicateBrokerRegistrationError(
            f"another broker is registered with id {request.broker_id} and alive; a restarted "
            f"broker may register after the session of its earlier incarnation expired"
        )
    if request.is_migrating_zk_broker:
        raise BrokerIdNotRegisteredError(
            f"broker {request.broker_id} is in a migration from ZooKeeper, which is not supported"
        )
    level = MetadataVersion.from_level(state.metadata_version)
    if level.is_directory_assignment_supported:
        _check_directories(state, request)
    listeners = listener_structs(request.endpoints)
    features = feature_structs(request.features)
    _check_features(state, request)
    builder = BatchBuilder()
    if amended is None:
        is_clean = known is not None and request.previous_broker_epoch == known.epoch
        _clean_up(builder, cluster, request.broker_id, is_clean, settings)
    record = records.RegisterBroker(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=next_offset if amended is None else amended.epoch,
        end_points=listeners,
        features=features,
        rack=request.rack,
        fenced=amended is None or amended.fenced,
        in_controlled_shutdown=amended is not None and amended.in_controlled_shutdown,
        # The broker reports its cordoned directories with heartbeats.
        log_dirs=list(request.log_dirs) if level.is_directory_assignment_supported else [],
    )
    append_records(builder, [record], level)
    return Decision(Records.finished(builder), record.broker_epoch)


def append_fencing(
    builder: BatchBuilder,
    cluster: ClusterMetadata,
    registration: BrokerRegistration,
    settings: DecisionSettings,
) -> None:
    """Append the records that fence a broker: it leaves every ISR, then it is fenced."""
    election_context(cluster, settings).remove_from_isr(builder, [registration.id])
    append_records(builder, [_fencing(cluster.state, registration, True)], _level(cluster))


def append_unfencing(
    builder: BatchBuilder,
    cluster: ClusterMetadata,
    registration: BrokerRegistration,
    settings: DecisionSettings,
    rows: NDArray[np.int32] | None = None,
) -> None:
    """Append the records that unfence a broker: its registration, then elections of leaderless
    partitions, or of those among ``rows``.
    """
    append_records(builder, [_fencing(cluster.state, registration, False)], _level(cluster))
    context = election_context(cluster, settings)
    context.elect_leaderless(builder, registration.id, rows)


def append_controlled_shutdown(
    builder: BatchBuilder,
    cluster: ClusterMetadata,
    registration: BrokerRegistration,
    settings: DecisionSettings,
) -> None:
    """Append the records that begin a controlled shutdown; the registration changes once."""
    if not registration.in_controlled_shutdown:
        change = records.BrokerRegistrationChange(
            broker_id=registration.id, broker_epoch=registration.epoch, in_controlled_shutdown=1
        )
        append_records(builder, [change], _level(cluster))
    election_context(cluster, settings).remove_from_isr(builder, [registration.id])


def check_broker_epoch(cluster: ClusterMetadata, broker_id: int, epoch: int) -> BrokerRegistration:
    """Return the registration. Raises StaleBrokerEpochError unless the broker has this epoch."""
    check_integer("a broker id", broker_id, -MAX_INT32 - 1, MAX_INT32)
    registration = cluster.state.brokers.get(broker_id)
    if registration is None or registration.epoch != epoch:
        raise StaleBrokerEpochError(f"broker {broker_id} is not registered with epoch {epoch}")
    return registration


def _level(cluster: ClusterMetadata) -> int:
    return cluster.state.metadata_version


def _clean_up(
    builder: BatchBuilder,
    cluster: ClusterMetadata,
    broker_id: int,
    is_clean: bool,
    settings: DecisionSettings,
) -> None:
    is_elr_enabled = cluster.state.features.get(ELR_FEATURE, 0) >= 1
    election_context(cluster, settings).remove_from_isr(
        builder, [broker_id], unclean_shutdown=is_elr_enabled and not is_clean
    )


def _fencing(state: ClusterState, registration: BrokerRegistration, fence: bool) -> Record:
    if state.metadata_version >= MetadataVersion.IBP_3_3_IV2:
        return records.BrokerRegistrationChange(
            broker_id=registration.id, broker_epoch=registration.epoch, fenced=1 if fence else -1
        )
    if fence:
        return records.FenceBroker(id=registration.id, epoch=registration.epoch)
    return records.UnfenceBroker(id=registration.id, epoch=registration.epoch)


def _check_values(request: RegistrationRequest) -> None:
    refused = InvalidRegistrationError
    check_integer("the id of a broker", request.broker_id, 0, MAX_INT32, refused)
    check_uuid("an incarnation id", request.incarnation_id, refused)
    if request.rack is not None:
        check_text("a rack", request.rack, refused)
    for directory in request.log_dirs:
        check_uuid("the id of a log directory", directory, refused)
    epoch = request.previous_broker_epoch
    check_integer("the previous epoch of a broker", epoch, -MAX_INT64 - 1, MAX_INT64, refused)


def _check_directories(state: ClusterState, request: RegistrationRequest) -> None:
    directories = list(request.log_dirs)
    if not directories:
        raise InvalidRegistrationError(
            f"broker {request.broker_id} registers without a log directory"
        )
    for directory in directories:
        if is_reserved_directory(directory):
            raise InvalidRegistrationError(
                f"broker {request.broker_id} has the reserved log directory id {directory!r}"
            )
    if len(set(directories)) < len(directories):
        raise InvalidRegistrationError(
            f"broker {request.broker_id} lists the same log directory id twice"
        )
    for directory in directories:
        for other in state.brokers.ids_with_directory(directory):
            if other != request.broker_id:
                raise InvalidRegistrationError(
                    f"broker {request.broker_id} has a log directory id of the registered broker "
                    f"{other}"
                )


def _check_features(state: ClusterState, request: RegistrationRequest) -> None:
    finalized = {name: state.features[name] for name in state.features}
    finalized[METADATA_VERSION] = state.metadata_version
    finalized[KRAFT_VERSION] = state.quorum.kraft_version
    for name, supported in request.features.items():
        _check_feature(request.broker_id, name, supported, finalized.get(name, 0))
    if METADATA_VERSION not in request.features:
        raise InvalidRegistrationError(
            f"broker {request.broker_id} does not say which metadata.versions it supports"
        )
    for name, level in finalized.items():
        if name not in request.features:
            _check_feature(request.broker_id, name, VersionRange(0, 0), level)


def _check_feature(broker_id: int, name: str, supported: VersionRange, level: int) -> None:
    if not supported.min <= level <= supported.max:
        raise UnsupportedVersionError(
            f"broker {broker_id} supports {name} {supported}, and the finalized level is {level}"
        )
