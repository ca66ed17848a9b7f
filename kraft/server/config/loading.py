"""A node's configuration, read from Kafka's own ``.properties`` file.

Owns what follows from the settings: listeners, voters, directories, the raft layer's settings.
Nothing in a file is dropped in silence: what is not understood is kept by name in
``not_understood``, what Kafka knows and this node has no use for in ``no_effect``. Every refusal is
an InvalidConfigError that names file, line and setting, and what is allowed.

Fed by a file and by overrides from a command line, which win. Feeds ``raft``, the storage commands
and the node.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kraft.controller.config_schema import ConfigRules
from kraft.controller.settings import ControllerSettings
from kraft.controller.state import Settings as DecisionSettings
from kraft.errors import InvalidConfigError
from kraft.metadata.properties import read_properties
from kraft.raft.config import RaftConfig
from kraft.raft.voters import Endpoint, VoterSet
from kraft.records import Uuid
from kraft.server.config.checks import CheckedConfig, Given, UnknownSetting
from kraft.server.config.listeners import NON_ROUTABLE_HOST, Listener
from kraft.server.config.settings import NO_LIMIT, TOKEN_SECRET, Settings

if TYPE_CHECKING:
    from kraft.server.network.listener import Limits

# A configuration is a few kilobytes; what is larger is another file.
_MAX_FILE_SIZE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A configuration that holds; made by `load`."""

    path: Path
    settings: Settings
    #: The names of the controller's listeners, the quorum's own first.
    controller_listener_names: tuple[str, ...]
    #: All listeners that the node binds.
    listeners: tuple[Listener, ...]
    #: What the controller tells of itself, in the order of controller.listener.names; host "" is
    #: to be replaced by a name of this host.
    advertised_controller_listeners: tuple[Listener, ...]
    advertised_broker_listeners: tuple[Listener, ...]
    #: controller.quorum.voters.
    voters: VoterSet
    #: controller.quorum.bootstrap.servers.
    bootstrap_servers: tuple[Endpoint, ...]
    #: What is given, as it is written; it may hold secrets.
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    not_understood: tuple[UnknownSetting, ...] = ()
    no_effect: tuple[UnknownSetting, ...] = ()
    #: Settings that are allowed and probably not meant so.
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | PathLike[str], overrides: Mapping[str, str] | None = None) -> Self:
        """Reads the file; ``overrides`` stand in for what it says.

        Raises InvalidConfigError, and CorruptRecordError for a broken ``\\\\uXXXX``.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_FILE_SIZE + 1)
        except OSError as error:
            raise InvalidConfigError(f"cannot read {path}: {error.strerror}") from error
        if len(content) > _MAX_FILE_SIZE:
            raise InvalidConfigError(f"{path} is larger than a configuration can be")
        given = Given(path)
        # Java reads the bytes of a properties file as Latin-1.
        for key, value, line in read_properties(content.decode("latin-1"), path):
            given.add(key, value, f"{path}, line {line}")
        for key, value in (overrides or {}).items():
            given.add(key, value, "the command line")
        return cls(**CheckedConfig(given).fields())

    @property
    def node_id(self) -> int:
        return self.settings.node_id

    @property
    def is_controller(self) -> bool:
        return "controller" in self.settings.process_roles

    @property
    def is_broker(self) -> bool:
        return "broker" in self.settings.process_roles

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """Those of `listeners` that the controller serves."""
        return tuple(one for one in self.listeners if one.name in self.controller_listener_names)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """log.dirs, or else log.dir; as they are written in the file."""
        return self.settings.log_dirs or self.settings.log_dir

    @property
    def metadata_log_dir(self) -> str:
        """metadata.log.dir, or else the first of `log_dirs`."""
        stated = self.settings.metadata_log_dir
        return self.log_dirs[0] if stated is None else stated

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory that carries a ``meta.properties``, each once, sorted."""
        return tuple(sorted({*self.log_dirs, self.metadata_log_dir}))

    def limits(self) -> Limits:
        """What a listener bears: the listener's own bounds where Kafka's have no end."""
        # Imported here: formatting needs no network.
        from kraft.server.network.listener import Limits

        settings, own = self.settings, Limits()
        return Limits(
            max_request_size=settings.socket_request_max_bytes,
            max_connections=own.max_connections
            if settings.max_connections == NO_LIMIT
            else settings.max_connections,
            max_connections_per_ip=own.max_connections_per_ip
            if settings.max_connections_per_ip == NO_LIMIT
            else settings.max_connections_per_ip,
            max_idle_ms=idle_ms if (idle_ms := settings.connections_max_idle_ms) >= 0 else NO_LIMIT,
        )

    def controller(self, max_transaction_ms: int | None = None) -> ControllerSettings:
        """What the controller goes by. Raises InvalidConfigError where ``max_transaction_ms`` is
        not below the session timeout of brokers (a third of it by default), and for a default of
        topics or groups that cannot be.
        """
        settings = self.settings
        session_timeout_ms = settings.broker_session_timeout_ms
        if max_transaction_ms is None:
            max_transaction_ms = max(session_timeout_ms // 3, 1)
        try:
            return ControllerSettings(
                DecisionSettings(
                    min_insync_replicas=settings.min_insync_replicas,
                    unclean_leader_election_enable=settings.unclean_leader_election_enable,
                    num_partitions=settings.num_partitions,
                    default_replication_factor=settings.default_replication_factor,
                    node_id=self.node_id,
                    delete_topic_enable=settings.delete_topic_enable,
                    config_rules=ConfigRules(self.given),
                ),
                session_timeout_ms=session_timeout_ms,
                max_idle_interval_ms=settings.metadata_max_idle_interval_ms or None,
                leader_imbalance_check_interval_ms=1000
                * settings.leader_imbalance_check_interval_seconds
                if settings.auto_leader_rebalance_enable
                else None,
                unclean_leader_election_interval_ms=settings.unclean_leader_election_interval_ms,
                delegation_token_expiry_check_interval_ms=(
                    settings.delegation_token_expiry_check_interval_ms
                    if self.given.get(TOKEN_SECRET)
                    else None
                ),
                max_transaction_ms=max_transaction_ms,
            )
        except ValueError as error:
            raise InvalidConfigError(f"{self.path}: {error}") from None

    def raft(
        self,
        directory_id: Uuid,
        cluster_id: str,
        *,
        bound_ports: Mapping[str, int] | None = None,
    ) -> RaftConfig:
        """The raft layer's settings; the identity comes from ``meta.properties``.

        ``bound_ports`` are the ports, by listener, that stand for port 0. Raises InvalidConfigError
        where a voter or bootstrap server has an address that cannot be reached.
        """
        for endpoint in (*self.bootstrap_servers, *(e for v in self.voters for e in v.endpoints)):
            if endpoint.host == NON_ROUTABLE_HOST:
                raise InvalidConfigError(
                    f"{self.path}: {NON_ROUTABLE_HOST} is no address that a node can connect to, "
                    "in controller.quorum.voters or controller.quorum.bootstrap.servers"
                )
        settings, ports = self.settings, bound_ports or {}
        return RaftConfig(
            node_id=self.node_id,
            directory_id=directory_id,
            cluster_id=cluster_id,
            listener=self.controller_listener_names[0].upper(),
            endpoints=tuple(
                Endpoint(name, host or socket.getfqdn(), port or ports.get(name, 0))
                for name, host, port, _ in self.advertised_controller_listeners
            ),
            static_voters=self.voters,
            bootstrap_servers=self.bootstrap_servers,
            can_vote=self.is_controller,
            auto_join=settings.controller_quorum_auto_join_enable,
            election_timeout_ms=settings.controller_quorum_election_timeout_ms,
            fetch_timeout_ms=settings.controller_quorum_fetch_timeout_ms,
            election_backoff_max_ms=settings.controller_quorum_election_backoff_max_ms,
            append_linger_ms=settings.controller_quorum_append_linger_ms,
            request_timeout_ms=settings.controller_quorum_request_timeout_ms,
            retry_backoff_ms=settings.controller_quorum_retry_backoff_ms,
            fetch_max_bytes=settings.controller_quorum_fetch_max_bytes,
            fetch_snapshot_max_bytes=settings.controller_quorum_fetch_snapshot_max_bytes,
            max_batch_size=settings.internal_metadata_max_batch_size_in_bytes,
        )
