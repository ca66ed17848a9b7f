"""Checks of settings that depend on each other (Kafka's ``KafkaConfig.validateValues``).

Responsible for the given settings with their file and line, the cross checks, and the error
messages. This module rejects some configurations that Kafka accepts and that cannot work: a voter
id given twice, a port above 65535. Checks that concern only the duties of a broker are left out.
Called by ``kraft.server.config.loading``.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from kraft.configdef import ConfigValueError
from kraft.controller.config_schema import USED_BROKER_SETTINGS
from kraft.errors import InvalidConfigError
from kraft.raft.voters import Endpoint, VoterSet
from kraft.security.principals import parse_super_users
from kraft.server.config.connections import host_address, read_ip_limits
from kraft.server.config.listeners import (
    NON_ROUTABLE_HOST,
    SECURITY_PROTOCOLS,
    ListenerConfig,
    read_address,
    read_listeners,
    read_voters,
)
from kraft.server.config.names import KAFKA_NAMES, is_known_to_kafka
from kraft.server.config.security import SecurityReader, SecuritySettings, uses_scram
from kraft.server.config.settings import (
    AUTHORIZERS,
    HTTP_LISTENER,
    OF_LISTENERS,
    READ_AS_TEXT,
    SETTINGS,
    SUPER_USERS,
    NodeSettings,
)
from kraft.server.config.values import read_csv_map, read_setting

_SASL_OR_SSL = SECURITY_PROTOCOLS[1:]
#: The host of an HTTP listener that names none.
LOOPBACK = "127.0.0.1"
# Comparing two names takes time proportional to the product of their lengths.
_LONGEST_NAME = 100


class UnknownSetting(NamedTuple):
    """A given setting without effect; ``where`` is its file and line, or the command line.

    ``similar`` is a known name that resembles it, or None.
    """

    name: str
    where: str
    similar: str | None = None


@dataclass(slots=True)
class GivenSettings:
    """The settings of file and command line: values by name, and the place of each."""

    path: Path
    values: dict[str, str] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: str, where: str) -> None:
        self.values[name] = value
        self.where[name] = where

    def fail(self, name: str, reason: str) -> NoReturn:
        """Raise InvalidConfigError with the place and name of the setting, and this reason."""
        raise InvalidConfigError(f"{self.where.get(name, self.path)}: {name} {reason}")


class CheckedConfig:
    """The checked settings; each check may rely on the checks before it."""

    def __init__(self, given: GivenSettings) -> None:
        self.given = given
        self.warnings: list[str] = []
        self.settings = self._settings()
        self.names = self.settings.controller_listener_names
        self.protocols = self._security_protocols()
        self.listeners = self._listeners("listeners", self.settings.listeners)
        advertised = self.settings.advertised_listeners
        self.advertised = (
            None if advertised is None else self._listeners("advertised.listeners", advertised)
        )
        self.advertised_controller = self._advertised_controller_listeners()
        self.advertised_broker = tuple(
            one
            for one in (self.listeners if self.advertised is None else self.advertised)
            if one.name not in self.names
        )
        self.inter_broker_listener = self._inter_broker_listener()
        self.voters = self._voters()
        self.bootstrap_servers = self._bootstrap_servers()
        self._security_reader = SecurityReader(given.values, given.where, str(given.path))
        self.security: dict[str, SecuritySettings] = {}
        self.security_problem: InvalidConfigError | None = None
        self.waiting_listeners: frozenset[str] = frozenset()
        self._check_quorum()
        if self.settings.process_roles == ("broker",):
            self._check_broker_alone()
        else:
            self._check_controller()
            self._check_authorizer()
        try:
            if self.settings.process_roles == ("broker",):
                self._check_authorizer()
            self.waiting_listeners = self._waiting_listeners()
            self._read_security()
        except InvalidConfigError as error:
            # Kafka's commands that format directories accept such a file, and its node does not
            # start.
            self.security_problem = error
        if "broker" in self.settings.process_roles:
            self._check_broker_listeners()
        self._check_routable()
        self.overrides = self._connections_of_ips()
        self._check_connections()
        self.http_listener = self._http_listener()

    def fields(self) -> dict[str, Any]:
        """Return the fields of the ServerConfig."""
        unheeded = [
            (name, where)
            for name, where in self.given.where.items()
            if name not in USED_BROKER_SETTINGS
            and name not in READ_AS_TEXT
            and not _is_of_listener(name)
            and name not in self._security_reader.used
            and (name not in SETTINGS or not SETTINGS[name].has_effect)
        ]
        return {
            "path": self.given.path,
            "settings": self.settings,
            "controller_listener_names": self.names,
            "listeners": self.listeners,
            "advertised_controller_listeners": self.advertised_controller,
            "advertised_broker_listeners": self.advertised_broker,
            "inter_broker_listener": self.inter_broker_listener,
            "voters": self.voters,
            "bootstrap_servers": self.bootstrap_servers,
            "http_listener": self.http_listener,
            "security": self.security,
            "waiting_listeners": self.waiting_listeners,
            "security_problem": self.security_problem,
            "given": dict(self.given.values),
            "not_understood": tuple(
                UnknownSetting(name, where, _similar(name))
                for name, where in unheeded
                if not is_known_to_kafka(name)
            ),
            "no_effect": tuple(
                UnknownSetting(name, where) for name, where in unheeded if is_known_to_kafka(name)
            ),
            "warnings": tuple(self.warnings),
        }

    def _settings(self) -> NodeSettings:
        given = self.given
        if "node.id" not in given.values and "broker.id" in given.values:
            given.values["node.id"] = given.values["broker.id"]
        values: dict[str, Any] = {}
        for name, rule in SETTINGS.items():
            if name in given.values:
                text = given.values[name]
                if "config.providers" in given.values and "${" in text:
                    given.fail(
                        name, "takes its value from a config provider; write the value itself"
                    )
                value = read_setting(rule, text, given.where.get(name, str(given.path)))
                values[name.replace(".", "_")] = value
                if rule.is_set and len(rule.entries(text)) != len(value):
                    self.warnings.append(f"{name} has an entry twice; it counts once")
            elif rule.default is MISSING:
                given.fail(name, f"is missing; it must be given: {rule.kind.value}")
        settings = NodeSettings(**values)
        if "broker.id" in given.values and settings.broker_id != settings.node_id:
            given.fail("broker.id", f"must be the same as node.id, {settings.node_id}")
        return settings

    def _security_protocols(self) -> dict[str, str]:
        """Return the security protocol of each listener, by its name in upper case."""
        name = "listener.security.protocol.map"
        try:
            pairs = read_csv_map(self.settings.listener_security_protocol_map)
        except ConfigValueError as refused:
            self.given.fail(name, f"is not {refused}")
        protocols: dict[str, str] = {}
        for listener, protocol in pairs.items():
            if listener.upper() in protocols:
                self.given.fail(name, f"names the listener {listener.upper()} twice")
            if protocol.upper() not in SECURITY_PROTOCOLS:
                self.given.fail(
                    name,
                    f"gives {listener} the protocol {protocol!r:.40}; expected one of "
                    f"{', '.join(SECURITY_PROTOCOLS)}",
                )
            protocols[listener.upper()] = protocol.upper()
        used = {
            *self.names,
            *(entry.partition(":")[0].upper() for entry in self.settings.listeners),
        }
        if name not in self.given.values and not used & set(_SASL_OR_SSL):
            # Kafka: without a map and without SSL or SASL listeners, controllers use PLAINTEXT.
            protocols |= dict.fromkeys(self.names, "PLAINTEXT")
        return protocols

    def _listeners(self, name: str, entries: tuple[str, ...]) -> tuple[ListenerConfig, ...]:
        try:
            return read_listeners(
                entries, self.protocols, distinct_ports=name != "advertised.listeners"
            )
        except ConfigValueError as refused:
            self.given.fail(name, f"is {', '.join(entries)!r:.200}; expected {refused}")

    def _advertised_controller_listeners(self) -> tuple[ListenerConfig, ...]:
        """Return the advertised address of each controller listener, else the bound one."""
        found = []
        for name in self.names:
            stated = [one for one in self.advertised or () if one.name == name]
            bound = [
                one._replace(host="") if one.host == NON_ROUTABLE_HOST else one
                for one in self.listeners
                if one.name == name
            ]
            found += (stated or bound)[:1]
        return tuple(found)

    def _inter_broker_listener(self) -> str:
        stated = self.settings.inter_broker_listener_name
        if stated is None:
            return self.settings.security_inter_broker_protocol
        if "security.inter.broker.protocol" in self.given.values:
            self.given.fail(
                "inter.broker.listener.name",
                "and security.inter.broker.protocol are both set; only one may be",
            )
        if stated.upper() not in self.protocols:
            self.given.fail(
                "inter.broker.listener.name",
                f"is {stated!r:.40}, which is not in listener.security.protocol.map",
            )
        return stated.upper()

    def _voters(self) -> VoterSet:
        name = "controller.quorum.voters"
        try:
            return read_voters(self.settings.controller_quorum_voters, self.names[0].upper())
        except ConfigValueError as refused:
            self.given.fail(name, f"is {self.given.values[name]!r:.200}; expected {refused}")

    def _bootstrap_servers(self) -> tuple[Endpoint, ...]:
        name = "controller.quorum.bootstrap.servers"
        try:
            return tuple(
                Endpoint(self.names[0].upper(), *read_address(entry))
                for entry in self.settings.controller_quorum_bootstrap_servers
            )
        except ConfigValueError as refused:
            self.given.fail(name, f"is {self.given.values[name]!r:.200}; expected {refused}")

    def _check_quorum(self) -> None:
        if not self.voters and not self.bootstrap_servers:
            raise InvalidConfigError(
                f"{self.given.path}: no controllers are configured: set either "
                "controller.quorum.bootstrap.servers (host:port, for voters that may change) or "
                "controller.quorum.voters (id@host:port, for voters that are fixed)"
            )

    def _check_controller(self) -> None:
        settings, given = self.settings, self.given
        bound = {one.name for one in self.listeners}
        if not self.advertised_controller or not bound.issuperset(self.names):
            given.fail(
                "controller.listener.names",
                f"is {','.join(self.names)}; a controller needs each of them in listeners, which "
                f"has {', '.join(sorted(bound))}",
            )
        if settings.process_roles == ("controller",):
            others = sorted(bound.difference(self.names))
            if others:
                given.fail(
                    "listeners",
                    f"has {', '.join(others)}; where process.roles=controller all of them must be "
                    "in controller.listener.names",
                )
            stated = settings.inter_broker_listener_name
            if stated is not None and stated.upper() in self.names:
                given.fail(
                    "inter.broker.listener.name",
                    "must not be one of controller.listener.names where process.roles=controller",
                )
        if self.voters and settings.node_id not in self.voters.ids:
            given.fail(
                "controller.quorum.voters",
                f"must have the node id {settings.node_id} of this controller; it has "
                f"{', '.join(map(str, sorted(self.voters.ids)))}",
            )

    def _check_authorizer(self) -> None:
        settings, given = self.settings, self.given
        name = settings.authorizer_class_name
        if name and name not in AUTHORIZERS:
            given.fail(
                "authorizer.class.name",
                f"is {name!r:.200}; kraft has no Java classes: set {AUTHORIZERS[0]}, whose "
                "decisions it makes, or remove the setting to allow every request",
            )
        try:
            parse_super_users(given.values.get(SUPER_USERS, ""))
        except InvalidConfigError as error:
            given.fail(SUPER_USERS, f"names an invalid principal: {error}")

    def _waiting_listeners(self) -> frozenset[str]:
        """Return the controller's listeners that open when the ACLs are loaded.

        As in Kafka, without early.start.listeners all of them open at once.
        """
        early = self._security_reader.early_listeners()
        if early is None or not self.settings.authorizer_class_name:
            return frozenset()
        names = {*self.names, *(one.name for one in self.listeners)}
        if early - names:
            self.given.fail(
                "early.start.listeners",
                f"has {', '.join(sorted(early - names))}, not in listeners, which has "
                f"{', '.join(sorted(names))}",
            )
        return frozenset(self.names) - early

    def _read_security(self) -> None:
        """Read how the listeners authenticate, and how this node connects to other nodes.

        The quorum uses the first of the controllers' listeners, which a broker alone has not.
        """
        quorum, reader = self.names[0], self._security_reader
        mechanisms = {
            quorum: "sasl.mechanism.controller.protocol",
            self.inter_broker_listener: "sasl.mechanism.inter.broker.protocol",
        }
        for listener in self.listeners:
            self.security[listener.name] = reader.read(
                listener, mechanism=mechanisms.get(listener.name)
            )
        if quorum not in self.security:
            unbound = ListenerConfig(quorum, "", 0, self.protocols[quorum.upper()])
            self.security[quorum] = reader.read(
                unbound, mechanism=mechanisms[quorum], is_bound=False
            )
        elif uses_scram(self.security[quorum]) and len(self.voters) != 1:
            self.warnings.append(
                "sasl.mechanism.controller.protocol is SCRAM, whose users are in the metadata: "
                "controllers that have none yet, and all controllers after a restart of the whole "
                "quorum, cannot authenticate to each other; use PLAIN, or SSL with certificates"
            )

    def _check_broker_alone(self) -> None:
        settings, given = self.settings, self.given
        if settings.node_id in self.voters.ids:
            given.fail(
                "node.id",
                f"is {settings.node_id}, which controller.quorum.voters names as a controller; "
                "where process.roles=broker it must be a different id",
            )
        both = [one.name for one in self.listeners if one.name in self.names]
        if both:
            given.fail(
                "listeners",
                f"has {', '.join(both)} of controller.listener.names; where process.roles=broker "
                "none of them is allowed",
            )
        for name in self.names:
            if name.upper() not in self.protocols:
                given.fail(
                    "controller.listener.names",
                    f"has {name}, which is not in listener.security.protocol.map",
                )
        if settings.controller_quorum_auto_join_enable:
            given.fail("controller.quorum.auto.join.enable", "is for controllers only")
        if len(self.names) > 1:
            self.warnings.append(
                "controller.listener.names has several entries; a broker uses only the first, "
                f"{self.names[0]}"
            )

    def _check_broker_listeners(self) -> None:
        names = [one.name for one in self.advertised_broker]
        setting = "listeners" if self.advertised is None else "advertised.listeners"
        if self.inter_broker_listener not in names:
            self.given.fail(
                setting,
                f"must have the listener between brokers, {self.inter_broker_listener} "
                "(inter.broker.listener.name or security.inter.broker.protocol); besides those of "
                f"controllers it has {', '.join(names) or 'none'}",
            )
        unbound = set(names).difference(one.name for one in self.listeners)
        if unbound:
            self.given.fail(
                "advertised.listeners", f"has {', '.join(sorted(unbound))}, not in listeners"
            )

    def _check_routable(self) -> None:
        for listener in (*self.advertised_broker, *self.advertised_controller):
            if listener.host == NON_ROUTABLE_HOST:
                self.given.fail(
                    "advertised.listeners" if self.advertised is not None else "listeners",
                    f"would advertise {listener}, which no node can connect to; set the address "
                    "in advertised.listeners",
                )

    def _connections_of_ips(self) -> dict[str, int]:
        name = "max.connections.per.ip.overrides"
        try:
            return read_ip_limits(self.settings.max_connections_per_ip_overrides, host_address)
        except ConfigValueError as refused:
            self.given.fail(name, f"is {self.given.values[name]!r:.200}; expected {refused}")

    def _check_connections(self) -> None:
        if self.settings.max_connections_per_ip == 0 and not self.overrides:
            self.given.fail(
                "max.connections.per.ip",
                "is 0, which rejects every client; only max.connections.per.ip.overrides would "
                "except addresses",
            )

    def _http_listener(self) -> tuple[str, int] | None:
        text = self.given.values.get(HTTP_LISTENER, "").strip()
        if not text:
            return None
        try:
            return read_address(LOOPBACK + text if text.startswith(":") else text)
        except ConfigValueError:
            self.given.fail(
                HTTP_LISTENER, f"is {text!r:.80}; expected host:port, or :port on {LOOPBACK}"
            )


def _is_of_listener(name: str) -> bool:
    """Return whether ``name`` is a setting for one listener that has an effect (OF_LISTENERS)."""
    prefix, _, rest = name.partition("listener.name.")
    return not prefix and rest.partition(".")[2] in OF_LISTENERS


def _similar(name: str) -> str | None:
    if len(name) > _LONGEST_NAME:
        return None
    # Imported for a wrong name only: a node should start fast.
    from difflib import get_close_matches

    known = (*KAFKA_NAMES, HTTP_LISTENER)
    return next(iter(get_close_matches(name, known, 1, 0.85)), None)
