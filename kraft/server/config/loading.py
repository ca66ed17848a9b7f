"""Load a node's configuration from Kafka's ``.properties`` file.

Responsible for everything derived from the settings: listeners, voters, directories, the settings
of the raft layer and of the controller. No given setting is ignored silently: ``not_understood``
names those that Kafka does not know, ``no_effect`` those that only Kafka uses. Every error is an
InvalidConfigError with file, line, setting and the allowed values.

Overrides from a command line replace the file's values. Used by the storage commands and the node.

A starting node opens its store as soon as the configuration is checked. So the modules that only
the derived settings need are imported when those are asked for, while the store is being opened.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kraft.errors import InvalidConfigError
from kraft.metadata.properties import read_properties
from kraft.raft.voters import Endpoint, VoterSet
from kraft.records import Uuid
from kraft.security.principals import parse_super_users
from kraft.server.config.checks import CheckedConfig, GivenSettings, UnknownSetting
from kraft.server.config.connections import connection_limits, host_address, no_host_name
from kraft.server.config.listeners import NON_ROUTABLE_HOST, ListenerConfig
from kraft.server.config.security import SecuritySettings
from kraft.server.config.settings import (
    ALLOW_WITHOUT_ACLS,
    NO_LIMIT,
    SUPER_USERS,
    TOKEN_SECRET,
    NodeSettings,
)

if TYPE_CHECKING:
    from kraft.controller.quotas.limits import QuotaWindows
    from kraft.controller.runtime.settings import ControllerSettings
    from kraft.controller.security.delegation_tokens import TokenSettings
    from kraft.network.listener import Limits
    from kraft.raft.config import RaftSettings
    from kraft.security.authorizer import AuthorizerSettings

# A configuration has a few kilobytes; a larger file is not one.
_MAX_FILE_SIZE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A checked configuration; `load` creates it."""

    path: Path
    settings: NodeSettings
    #: The names of the controller's listeners; the quorum uses the first.
    controller_listener_names: tuple[str, ...]
    #: All listeners that the node binds.
    listeners: tuple[ListenerConfig, ...]
    #: The controller's advertised addresses, in the order of controller.listener.names; host ""
    #: stands for the name of this host.
    advertised_controller_listeners: tuple[ListenerConfig, ...]
    advertised_broker_listeners: tuple[ListenerConfig, ...]
    #: The name of the listener by which brokers connect to each other.
    inter_broker_listener: str
    #: controller.quorum.voters.
    voters: VoterSet
    #: controller.quorum.bootstrap.servers.
    bootstrap_servers: tuple[Endpoint, ...]
    #: Host and port of the metrics and health checks; None: no HTTP server.
    http_listener: tuple[str, int] | None = None
    #: How the listeners authenticate, by listener, and how this node connects to the quorum's.
    security: Mapping[str, SecuritySettings] = field(default_factory=dict)
    #: The controller's listeners that open when the authorizer has loaded its ACLs.
    waiting_listeners: frozenset[str] = frozenset()
    #: Why a node with these listeners cannot start.
    security_problem: InvalidConfigError | None = None
    #: The settings of the command line, which replace those of the file.
    overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The given settings as text; they may contain secrets.
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    not_understood: tuple[UnknownSetting, ...] = ()
    no_effect: tuple[UnknownSetting, ...] = ()
    #: Messages about settings that are allowed but probably a mistake.
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | PathLike[str], overrides: Mapping[str, str] | None = None) -> Self:
        """Read and check the file; ``overrides`` replace its values.

        Raises InvalidConfigError, and CorruptRecordError for a broken ``\\\\uXXXX``.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_FILE_SIZE + 1)
        except OSError as error:
            raise InvalidConfigError(f"cannot read {path}: {error.strerror}") from error
        if len(content) > _MAX_FILE_SIZE:
            raise InvalidConfigError(
                f"{path} is larger than {_MAX_FILE_SIZE:,} bytes: not a properties file"
            )
        given = GivenSettings(path)
        # Java reads the bytes of a properties file as Latin-1.
        for key, value, line in read_properties(content.decode("latin-1"), path):
            given.add(key, value, f"{path}, line {line}")
        for key, value in (overrides or {}).items():
            given.add(key, value, "the command line")
        return cls(**CheckedConfig(given).fields(), overrides=dict(overrides or {}))

    @classmethod
    def of_settings(cls, settings: Mapping[str, str], source: str) -> Self:
        """Check settings that are in no file here, such as those of a running controller.

        Messages name ``source`` in place of file and line. Raises InvalidConfigError.
        """
        given = GivenSettings(Path(source))
        for name, value in settings.items():
            given.add(name, value, source)
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
    def controller_listeners(self) -> tuple[ListenerConfig, ...]:
        """The bound listeners that the controller serves."""
        return tuple(one for one in self.listeners if one.name in self.controller_listener_names)

    @property
    def broker_listeners(self) -> tuple[ListenerConfig, ...]:
        """The bound listeners that the broker serves."""
        names = self.controller_listener_names
        return tuple(one for one in self.listeners if one.name not in names)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """log.dirs, or else log.dir, as the file has them."""
        return self.settings.log_dirs or self.settings.log_dir

    @property
    def metadata_log_dir(self) -> str:
        """metadata.log.dir, or else the first of `log_dirs`."""
        stated = self.settings.metadata_log_dir
        return self.log_dirs[0] if stated is None else stated

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory that needs a ``meta.properties``, each once, sorted."""
        return tuple(sorted({*self.log_dirs, self.metadata_log_dir}))

    def limits(self, dynamic: Mapping[str, str] | None = None) -> Limits:
        """Return the limits of the listeners; their own defaults where Kafka's are unlimited.

        ``dynamic`` are the effective settings of a running node, by default those of the file.
        Raises InvalidConfigError for an invalid value.
        """
        # Imported here: formatting needs no network.
        from kraft.network.listener import Limits

        settings = self.settings
        return connection_limits(
            Limits(
                max_request_size=settings.socket_request_max_bytes,
                max_idle_ms=idle_ms
                if (idle_ms := settings.connections_max_idle_ms) >= 0
                else NO_LIMIT,
            ),
            self.given if dynamic is None else dynamic,
            [listener.name for listener in self.listeners],
            self.quotas(),
            host_address if dynamic is None else no_host_name,
        )

    def controller(self, max_transaction_ms: int | None = None) -> ControllerSettings:
        """Return the controller's settings.

        ``max_transaction_ms`` must be below the session timeout of brokers; a third of it by
        default. Raises InvalidConfigError where it is not, and for an invalid default of topics or
        groups.
        """
        from kraft.controller.config_schema import ConfigRules
        from kraft.controller.runtime.settings import ControllerSettings
        from kraft.controller.state import DecisionSettings

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

    def authorizer(self) -> AuthorizerSettings | None:
        """Return the settings of the authorizer, None without authorizer.class.name."""
        from kraft.security.authorizer import AuthorizerSettings

        if not self.settings.authorizer_class_name:
            return None
        return AuthorizerSettings(
            parse_super_users(self.given.get(SUPER_USERS, "")),
            is_allowed_without_acls=self.given.get(ALLOW_WITHOUT_ACLS, "").lower() == "true",
        )

    def quotas(self) -> QuotaWindows:
        """Return the windows in which quotas are measured."""
        from kraft.controller.quotas.limits import QuotaWindows

        settings = self.settings
        return QuotaWindows(
            settings.quota_window_num,
            settings.quota_window_size_seconds,
            settings.controller_quota_window_num,
            settings.controller_quota_window_size_seconds,
        )

    def tokens(self) -> TokenSettings:
        """Return the settings of delegation tokens."""
        from kraft.controller.security.delegation_tokens import TokenSettings

        secret = self.given.get(TOKEN_SECRET)
        return TokenSettings(
            secret.encode() if secret else None,
            max_lifetime_ms=self.settings.delegation_token_max_lifetime_ms,
            expiry_time_ms=self.settings.delegation_token_expiry_time_ms,
        )

    def raft(
        self,
        directory_id: Uuid,
        cluster_id: str,
        *,
        bound_ports: Mapping[str, int] | None = None,
    ) -> RaftSettings:
        """Return the raft layer's settings; the ids come from ``meta.properties``.

        ``bound_ports`` replace port 0, by listener. Raises InvalidConfigError for a voter or
        bootstrap server with the wildcard address.
        """
        from kraft.raft.config import RaftSettings

        for endpoint in (*self.bootstrap_servers, *(e for v in self.voters for e in v.endpoints)):
            if endpoint.host == NON_ROUTABLE_HOST:
                raise InvalidConfigError(
                    f"{self.path}: {NON_ROUTABLE_HOST} is not an address that a node can connect "
                    "to, in controller.quorum.voters or controller.quorum.bootstrap.servers"
                )
        settings, ports = self.settings, bound_ports or {}
        return RaftSettings(
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
