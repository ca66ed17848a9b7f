"""Gather the facts for ``kraft preflight`` from a running quorum; change nothing.

The leader describes the quorum and, as to an observer, the metadata with all registrations. Each
controller is then asked on a connection of its own for its features and settings, all at the same
time and for at most `PROBE_MS`. A dry run of UpdateFeatures asks the active controller itself.
Called by the command.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kraft.admin.client import BlockingAdmin
from kraft.admin.configs import ConfigSource
from kraft.admin.settings import AdminSettings
from kraft.controller.features import FeatureUpdate
from kraft.errors import InvalidArgumentError, KraftError
from kraft.image.configs import BROKER
from kraft.image.nodes import ControllerRegistration, VersionRange
from kraft.metadata.directory import MetadataDirectory
from kraft.metadata.facade import Metadata
from kraft.metadata.health import Health
from kraft.network.controller_connection import Address
from kraft.preflight.changes import FeatureLevelChange
from kraft.preflight.facts import (
    KRAFT_VERSION,
    BrokerFacts,
    ClusterFacts,
    ControllerFacts,
    DirectoryFacts,
    NodeFeatures,
    ReplicaFacts,
)
from kraft.preflight.voter_rules import AUTO_JOIN, BOOTSTRAP_SERVERS, LISTENER_NAMES, STATIC_VOTERS
from kraft.protocol.describe_cluster import ClusterDescription
from kraft.raft.rpc import DescribedReplica, DescribeQuorumResponse
from kraft.raft.voters import ReplicaKey

#: The longest time to wait for one controller, in ms.
PROBE_MS = 3_000
#: After an election, and after a change of the voters, a second look shows the usual state.
_SECOND_LOOK_S = 1.0
_SETTINGS = (AUTO_JOIN, BOOTSTRAP_SERVERS, LISTENER_NAMES, STATIC_VOTERS)

OnProgress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class _Probe:
    """What one controller answered itself; ``silence`` is why it did not."""

    running: NodeFeatures | None = None
    settings: Mapping[str, str] | None = None
    silence: str = ""
    settings_error: str = ""
    file_settings: Mapping[str, str | None] | None = None


def gather(
    settings: AdminSettings,
    levels: FeatureLevelChange | None = None,
    directories: Iterable[Path] = (),
    on_progress: OnProgress = lambda fraction: None,
) -> ClusterFacts:
    """Return the facts about a quorum.

    ``levels`` are checked by the active controller as well, in a dry run; ``directories`` are
    metadata directories of this machine. Raises QuorumUnreachableError, QuorumRefusedError,
    UnsupportedVersionError for controllers before Kafka 3.7, InvalidArgumentError for a directory
    of another cluster, StorageError for one without metadata.
    """
    with BlockingAdmin(settings) as admin:
        cluster = admin.describe_cluster()
        given = [_directory_facts(path, cluster.cluster_id) for path in directories]
        metadata, quorum = _states(admin, on_progress)
        # kraft.version is not in the metadata, but in the control records of the log.
        finalized = {**metadata.features, **admin.describe_features().finalized}
        if metadata.quorum.kraft_version:
            finalized[KRAFT_VERSION] = metadata.quorum.kraft_version
        rejections = {} if levels is None else _dry_run(admin, levels)
    addresses = _addresses(cluster, quorum, metadata.controllers)
    probes = _probe_all(settings, addresses)
    replicas = _replicas(quorum, quorum.voters)
    observers = _replicas(quorum, quorum.observers)
    ids = {each.key.id for each in quorum.voters} | metadata.controllers.keys()
    controllers = {
        id: _controller_facts(
            id,
            addresses.get(id),
            metadata.controllers.get(id),
            next((each for each in replicas if each.key.id == id), None),
            next((each for each in observers if each.key.id == id), None),
            probes.get(id, _Probe(silence="its address is not known")),
        )
        for id in sorted(ids)
    }
    errors = dict.fromkeys(each.settings_error for each in probes.values() if each.settings_error)
    health = Health(metadata)
    return ClusterFacts(
        cluster.cluster_id,
        quorum.leader_id,
        finalized,
        controllers,
        _brokers(metadata, [*replicas, *observers]),
        tuple(observers),
        tuple(ReplicaKey(each.id, each.directory_id) for each in metadata.quorum.voters),
        int(health.without_leader.sum()),
        int(health.under_min_isr.sum()),
        tuple(given),
        rejections,
        "; ".join(errors),
    )


def _states(
    admin: BlockingAdmin, on_progress: OnProgress
) -> tuple[Metadata, DescribeQuorumResponse]:
    """Return the committed metadata, and the quorum as its leader describes it just after."""
    metadata = admin.read_metadata(on_progress)
    quorum = admin.describe_metadata_quorum()
    committed = {ReplicaKey(each.id, each.directory_id) for each in metadata.quorum.voters}
    described = {each.key for each in quorum.voters}
    if committed and committed != described:
        time.sleep(_SECOND_LOOK_S)
        metadata, quorum = admin.read_metadata(), admin.describe_metadata_quorum()
    if not all(each.is_current for each in _replicas(quorum, quorum.voters)):
        time.sleep(_SECOND_LOOK_S)
        quorum = admin.describe_metadata_quorum()
    return metadata, quorum


def _replicas(
    quorum: DescribeQuorumResponse, states: Iterable[DescribedReplica]
) -> list[ReplicaFacts]:
    """Return how the leader sees these replicas; times are by the leader's clock."""
    every = [*quorum.voters, *quorum.observers]
    leader = next((each for each in every if each.key.id == quorum.leader_id), None)
    now_ms = max((each.last_fetch_timestamp_ms for each in every), default=-1)
    if leader is not None:
        now_ms = max(now_ms, leader.last_caught_up_timestamp_ms)
    end = max((each.log_end_offset for each in every), default=0)
    return [
        ReplicaFacts(
            each.key,
            max(end - each.log_end_offset, 0),
            _since(each.last_fetch_timestamp_ms, now_ms),
            _since(each.last_caught_up_timestamp_ms, now_ms),
        )
        for each in states
    ]


def _since(time_ms: int, now_ms: int) -> int | None:
    return None if time_ms < 0 else max(now_ms - time_ms, 0)


def _addresses(
    cluster: ClusterDescription,
    quorum: DescribeQuorumResponse,
    registrations: Mapping[int, ControllerRegistration],
) -> dict[int, Address]:
    """Return an address of each controller: at the listener that this client uses, if known."""
    found: dict[int, Address] = {}
    for id, registration in registrations.items():
        for endpoint in list(registration.endpoints.values())[:1]:
            found[id] = (endpoint.host, endpoint.port)
    for id, endpoints in quorum.nodes.items():
        for at in endpoints[:1]:
            found[id] = (at.host, at.port)
    return {**found, **cluster.controllers}


def _controller_facts(
    id: int,
    address: Address | None,
    registration: ControllerRegistration | None,
    voter: ReplicaFacts | None,
    observer: ReplicaFacts | None,
    probe: _Probe,
) -> ControllerFacts:
    return ControllerFacts(
        id,
        None if address is None else address_text(address),
        voter is not None,
        voter or observer,
        None if registration is None else registration.features,
        probe.running,
        probe.silence,
        () if registration is None else tuple(registration.endpoints),
        probe.settings,
        probe.file_settings,
    )


def _probe_all(settings: AdminSettings, addresses: Mapping[int, Address]) -> dict[int, _Probe]:
    if not addresses:
        return {}
    with ThreadPoolExecutor(len(addresses), "kraft-preflight") as pool:
        probes = pool.map(
            lambda item: _probe(settings, *item), [(id, at) for id, at in addresses.items()]
        )
        return dict(zip(addresses, probes, strict=True))


def _probe(settings: AdminSettings, id: int, address: Address) -> _Probe:
    own = replace(
        settings,
        bootstrap_controllers=(address,),
        request_timeout_ms=PROBE_MS,
        default_api_timeout_ms=PROBE_MS,
        leader_wait_ms=PROBE_MS,
    )
    with BlockingAdmin(own) as admin:
        try:
            supported = admin.describe_features().supported
        except KraftError as error:
            return _Probe(silence=_reason(error, address))
        running = {name: VersionRange(*levels) for name, levels in supported.items()}
        resource = (BROKER, str(id))
        try:
            entries = admin.describe_configs([resource])[resource].get()
        except KraftError as error:
            return _Probe(running, settings_error=f"controller {id}: {error}")
    values = {name: entries[name].value or "" for name in _SETTINGS if name in entries}
    in_file = {
        name: None if entry.is_sensitive else entry.value or ""
        for name, entry in entries.items()
        if entry.source is ConfigSource.STATIC_BROKER_CONFIG
    }
    return _Probe(running, values, file_settings=in_file)


def _reason(error: KraftError, address: Address) -> str:
    """Return why a controller does not answer, without the words of the request."""
    at = f"{address[0]}:{address[1]}: "
    return str(error).rpartition(at)[2]


def _brokers(metadata: Metadata, replicas: list[ReplicaFacts]) -> dict[int, BrokerFacts]:
    if not metadata.brokers:
        return {}
    partitions = metadata.partitions
    matrix = partitions.replica_matrix()[partitions.live]
    held = _counts(matrix[matrix >= 0])
    alone = matrix[(matrix >= 0).sum(axis=1) == 1]
    sole = _counts(alone[alone >= 0])
    fetching = {each.key.id for each in replicas if each.is_fetching}
    return {
        id: BrokerFacts(
            id,
            broker.features,
            broker.fenced,
            id in fetching,
            next((address_text((at.host, at.port)) for at in broker.endpoints.values()), ""),
            held.get(id, 0),
            sole.get(id, 0),
        )
        for id, broker in sorted(metadata.brokers.items())
    }


def _counts(ids: NDArray[np.int32]) -> dict[int, int]:
    values, counts = np.unique(ids, return_counts=True)
    return {int(id): int(count) for id, count in zip(values, counts, strict=True)}


def _dry_run(admin: BlockingAdmin, change: FeatureLevelChange) -> dict[str, str]:
    updates = [
        FeatureUpdate(name, level, change.upgrade_type)
        for name, level in sorted(change.levels.items())
    ]
    results = admin.update_features(updates, validate_only=True)
    return {name: error.message or error.name for name, error in results.errors().items()}


def _directory_facts(path: Path, cluster_id: str) -> DirectoryFacts:
    found = MetadataDirectory.find(path)
    properties = found.meta_properties
    if properties is not None and properties.cluster_id != cluster_id:
        raise InvalidArgumentError(
            f"{path} belongs to cluster {properties.cluster_id}, the quorum is {cluster_id}: name "
            "a directory of this quorum, or its controllers"
        )
    newest = found.newest_snapshot()
    return DirectoryFacts(
        path,
        shutil.disk_usage(path).free,
        sum(each.size for each in found.segments) + sum(each.size for each in found.snapshots),
        0 if newest is None else newest.size,
        None if properties is None else properties.node_id,
        None if properties is None else properties.directory_id,
    )


def address_text(address: Address) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
