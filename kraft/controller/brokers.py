"""Brokers come and go: registration, fencing, unfencing, controlled shutdown, offline directories.

Owns which records each of these writes and in what order. What becomes of partitions is decided by
``ElectionContext``. Sources: Kafka's ``ReplicationControlManager`` (handleBroker...),
``ClusterControlManager.registerBroker``, KIP-866 (controlled shutdown), KIP-858 (directories),
KIP-966 and KAFKA-18106 (unclean shutdown).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kraft import records
from kraft._core.batch import BatchBuilder
from kraft.controller.decision import Decision, Records, append_records
from kraft.controller.state import (
    DEFAULTS,
    ELR_FEATURE,
    Cluster,
    Settings,
    election_context,
    registered,
)
from kraft.errors import (
    DuplicateBrokerRegistrationError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from kraft.image import BrokerRegistration, ClusterState, Endpoint, VersionRange
from kraft.records import Record, Uuid, encode_value
from kraft.records.versions import METADATA_VERSION, MetadataVersion

_RESERVED_DIRECTORIES = frozenset(Uuid(number.to_bytes(16, "big")) for number in range(100))
_KRAFT_VERSION = "kraft.version"


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """What a broker says of itself when it registers (BrokerRegistrationRequest).

    ``previous_broker_epoch`` is the epoch that it had when it last shut down cleanly, -1 where it
    did not. ``features`` holds the levels that it supports.
    """

    broker_id: int
    incarnation_id: Uuid
    endpoints: Sequence[Endpoint] = ()
    features: Mapping[str, VersionRange] = field(default_factory=dict)
    rack: str | None = None
    log_dirs: Sequence[Uuid] = ()
    previous_broker_epoch: int = -1


def fence_broker(cluster: Cluster, broker_id: int, settings: Settings = DEFAULTS) -> Decision[None]:
    """The broker's session has ended: others lead, and it leaves every ISR; then it is fenced.

    Raises BrokerIdNotRegisteredError.
    """
    registration = registered(cluster, broker_id)
    builder = BatchBuilder()
    election_context(cluster, settings).remove_from_isr(builder, [broker_id])
    append_records(builder, [_fencing(cluster.state, registration, True)], _level(cluster))
    return Decision(Records.finished(builder), None)


def unfence_broker(
    cluster: Cluster, broker_id: int, settings: Settings = DEFAULTS
) -> Decision[None]:
    """The broker has caught up: it is unfenced, then leaderless partitions get an election.

    Raises BrokerIdNotRegisteredError.
    """
    registration = registered(cluster, broker_id)
    builder = BatchBuilder()
    append_records(builder, [_fencing(cluster.state, registration, False)], _level(cluster))
    election_context(cluster, settings).elect_leaderless(builder, broker_id)
    return Decision(Records.finished(builder), None)


def begin_controlled_shutdown(
    cluster: Cluster, broker_id: int, settings: Settings = DEFAULTS
) -> Decision[None]:
    """The broker wants to stop: it is marked, unless it is already, and leaves every ISR.

    Raises BrokerIdNotRegisteredError.
    """
    registration = registered(cluster, broker_id)
    builder = BatchBuilder()
    if not registration.in_controlled_shutdown:
        change = records.BrokerRegistrationChange(
            broker_id=broker_id, broker_epoch=registration.epoch, in_controlled_shutdown=1
        )
        append_records(builder, [change], _level(cluster))
    election_context(cluster, settings).remove_from_isr(builder, [broker_id])
    return Decision(Records.finished(builder), None)


def shut_down_broker(
    cluster: Cluster, broker_id: int, *, is_clean: bool, settings: Settings = DEFAULTS
) -> Decision[None]:
    """A broker has stopped: what a new registration of it begins with.

    After an unclean shutdown, and while ELR is on, it also leaves every ELR. It need not be
    registered.
    """
    builder = BatchBuilder()
    _clean_up(builder, cluster, broker_id, is_clean, settings)
    return Decision(Records.finished(builder), None)


def unregister_broker(
    cluster: Cluster, broker_id: int, settings: Settings = DEFAULTS
) -> Decision[None]:
    """The broker is removed for good. Raises BrokerIdNotRegisteredError."""
    registration = registered(cluster, broker_id)
    builder = BatchBuilder()
    election_context(cluster, settings).remove_from_isr(builder, [broker_id], and_elr=True)
    record = records.UnregisterBroker(broker_id=broker_id, broker_epoch=registration.epoch)
    append_records(builder, [record], _level(cluster))
    return Decision(Records.finished(builder), None)


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
    registration = registered(cluster, broker_id)
    failed = set(directories)
    gone = [directory for directory in registration.log_dirs if directory in failed]
    builder = BatchBuilder()
    if gone:
        context = election_context(cluster, settings)
        for directory in gone:
            context.remove_directory(builder, broker_id, directory)
        change = records.BrokerRegistrationChange(
            broker_id=broker_id,
            broker_epoch=registration.epoch,
            log_dirs=[directory for directory in registration.log_dirs if directory not in failed],
        )
        # Always in version 2, also where no directory is left, which the record cannot say.
        builder.append(encode_value(change, version=2))
    return Decision(Records.finished(builder), None)


def register_broker(
    cluster: Cluster,
    request: RegistrationRequest,
    *,
    next_offset: int,
    has_live_session: bool = False,
    settings: Settings = DEFAULTS,
) -> Decision[int]:
    """A broker joins, or says again who it is; the response is its epoch.

    ``next_offset`` is the offset that the first record of the decision will get: the new epoch is
    the one of the first record that is written. ``has_live_session``: a broker of this id is alive.
    Raises DuplicateBrokerRegistrationError where that is another incarnation,
    InvalidRegistrationError for directories that cannot be, UnsupportedVersionError where the
    broker does not support a finalized feature.
    """
    state = cluster.state
    known = state.brokers.get(request.broker_id)
    is_same = known is not None and known.incarnation_id == request.incarnation_id
    if known is not None and has_live_session and not is_same:
        raise DuplicateBrokerRegistrationError(
            f"another broker is registered with id {request.broker_id} and alive"
        )
    level = MetadataVersion.from_level(state.metadata_version)
    if level.is_directory_assignment_supported:
        _check_directories(state, request)
    _check_features(state, request)
    builder = BatchBuilder()
    epoch = next_offset
    if known is not None and is_same:
        epoch = known.epoch
    else:
        is_clean = known is not None and request.previous_broker_epoch == known.epoch
        _clean_up(builder, cluster, request.broker_id, is_clean, settings)
    record = records.RegisterBroker(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            records.Endpoint(
                name=point.name,
                host=point.host,
                port=point.port,
                security_protocol=point.security_protocol,
            )
            for point in request.endpoints
        ],
        features=[
            records.Feature(
                name=name, min_supported_version=levels.min, max_supported_version=levels.max
            )
            for name, levels in request.features.items()
        ],
        rack=request.rack,
        fenced=known.fenced if known is not None and is_same else True,
        in_controlled_shutdown=(
            known.in_controlled_shutdown if known is not None and is_same else False
        ),
        log_dirs=list(request.log_dirs) if level.is_directory_assignment_supported else [],
    )
    append_records(builder, [record], level)
    return Decision(Records.finished(builder), epoch)


def check_broker_epoch(cluster: Cluster, broker_id: int, epoch: int) -> BrokerRegistration:
    """Raises StaleBrokerEpochError where the broker is not registered with this epoch."""
    registration = cluster.state.brokers.get(broker_id)
    if registration is None or registration.epoch != epoch:
        raise StaleBrokerEpochError(f"broker {broker_id} is not registered with epoch {epoch}")
    return registration


def _level(cluster: Cluster) -> int:
    return cluster.state.metadata_version


def _clean_up(
    builder: BatchBuilder, cluster: Cluster, broker_id: int, is_clean: bool, settings: Settings
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


def _check_directories(state: ClusterState, request: RegistrationRequest) -> None:
    directories = list(request.log_dirs)
    if not directories:
        raise InvalidRegistrationError("a broker registers with at least one log directory")
    if len(set(directories)) < len(directories):
        raise InvalidRegistrationError("a log directory is named twice")
    for directory in directories:
        if directory in _RESERVED_DIRECTORIES:
            raise InvalidRegistrationError(f"the directory id {directory!r} is reserved")
    for other in state.brokers.values():
        if other.id != request.broker_id and set(other.log_dirs) & set(directories):
            raise InvalidRegistrationError(
                f"broker {other.id} is registered with one of the log directories"
            )


def _check_features(state: ClusterState, request: RegistrationRequest) -> None:
    finalized = {name: state.features[name] for name in state.features}
    finalized[_KRAFT_VERSION] = state.quorum.kraft_version
    if METADATA_VERSION not in request.features:
        raise InvalidRegistrationError("a broker registers with the metadata.versions it supports")
    for name, level in finalized.items():
        supported = request.features.get(name, VersionRange(0, 0))
        if not supported.min <= level <= supported.max:
            raise UnsupportedVersionError(
                f"broker {request.broker_id} supports {name} {supported}, finalized is {level}"
            )
