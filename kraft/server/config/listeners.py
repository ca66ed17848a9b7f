"""Addresses in a Kafka configuration: listeners, voters, bootstrap servers.

Parses their text forms and checks the rules among listeners. Listener names are compared in upper
case, as Kafka's ``ListenerName.normalised`` does. Sources: ``SocketServerConfigs``,
``CoreUtils.listenerListToEndPoints``, ``QuorumConfig``, ``Utils.getHost``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from kraft.configdef import ConfigValueError
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Uuid

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: The wildcard address: a node can listen at it, and no node can connect to it.
NON_ROUTABLE_HOST = "0.0.0.0"

_HOST = r"[0-9a-zA-Z\-%._:]"
_LISTENER = re.compile(rf"(.*)://\[?({_HOST}*)\]?:(-?[0-9]{{1,10}})", re.ASCII)
_ADDRESS = re.compile(rf"(?:[0-9a-zA-Z\-%._]*://)?\[?({_HOST}+)\]?:([0-9]{{1,10}})", re.ASCII)
_INITIAL_CONTROLLER = re.compile(
    rf"([0-9]{{1,10}})@(?:\[({_HOST}+)\]|([^:\[\]@]+)):([0-9]{{1,10}}):(.*)", re.ASCII
)
_VOTER_ID = re.compile(r"[+]?[0-9]{1,10}", re.ASCII)


class ListenerConfig(NamedTuple):
    """A bound or advertised listener; host "" stands for every address of the node."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def read_listeners(
    entries: Iterable[str], protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[ListenerConfig, ...]:
    """Parse ``NAME://host:port`` entries. Raises ConfigValueError."""
    listeners = []
    for entry in entries:
        match = _LISTENER.fullmatch(entry)
        if match is None or not 0 <= int(match[3]) < 1 << 16:
            raise ConfigValueError(f"NAME://host:port, not {entry!r:.80}")
        name = match[1].upper()
        if name not in protocols:
            raise ConfigValueError(
                f"a listener with a known security protocol: {name} is not in "
                "listener.security.protocol.map, nor, without that setting, in "
                "controller.listener.names"
            )
        listeners.append(ListenerConfig(name, match[2], int(match[3]), protocols[name]))
    if len({listener.name for listener in listeners}) != len(listeners):
        raise ConfigValueError("a different name for each listener")
    if distinct_ports:
        _check_ports(listeners)
    return tuple(listeners)


def _check_ports(listeners: list[ListenerConfig]) -> None:
    """Reject a port of two listeners, unless one is on IPv4 and one on IPv6, or the port is 0."""
    by_port: dict[int, list[ListenerConfig]] = defaultdict(list)
    for listener in listeners:
        if listener.port:
            by_port[listener.port].append(listener)
    for port, sharing in by_port.items():
        if len(sharing) == 1:
            continue
        versions = sorted(_ip_version(listener.host) for listener in sharing)
        if versions != [4, 6]:
            raise ConfigValueError(
                f"a different port for each listener (several have port {port}), unless "
                "one is on an IPv4 address and the other on an IPv6 address"
            )


def _ip_version(host: str) -> int:
    try:
        return ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def read_address(text: str) -> tuple[str, int]:
    """Parse ``host:port``. Raises ConfigValueError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) >= 1 << 16:
        raise ConfigValueError(f"host:port, not {text!r:.80}")
    return match[1], int(match[2])


def written_host(host: str) -> str:
    """Return the host as Kafka writes it into voter records: IPv6 in full, anything else as is."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.version == 4 or address.scope_id is not None:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def read_voters(entries: Iterable[str], listener: str) -> VoterSet:
    """Parse the static voters, ``id@host:port`` entries. Raises ConfigValueError.

    Two entries with the same id are an error; Kafka would use the last.
    """
    voters: dict[int, VoterNode] = {}
    for entry in entries:
        id_text, at, address = entry.partition("@")
        if not at or not _VOTER_ID.fullmatch(id_text) or int(id_text) >= 1 << 31:
            raise ConfigValueError(f"id@host:port, not {entry!r:.80}")
        host, port = read_address(address)
        id = int(id_text)
        if id in voters:
            raise ConfigValueError(f"each id once: {id} appears twice")
        voters[id] = VoterNode(ReplicaKey(id), (Endpoint(listener, host, port),))
    return VoterSet(voters.values())


def read_initial_controllers(text: str, listener: str) -> VoterSet:
    """Parse ``id@host:port:directory,…`` of a command line. Raises ConfigValueError."""
    voters: dict[int, VoterNode] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _INITIAL_CONTROLLER.fullmatch(entry)
        if match is None or int(match[1]) >= 1 << 31 or int(match[4]) >= 1 << 16:
            raise ConfigValueError(f"id@host:port:directory, not {entry!r:.100}")
        try:
            directory_id = Uuid.parse(match[5])
        except ValueError:
            raise ConfigValueError(
                f"a directory id of 22 characters, not {match[5]!r:.40}"
            ) from None
        id, host = int(match[1]), written_host(match[2] or match[3])
        if id in voters:
            raise ConfigValueError(f"each id once: {id} appears twice")
        endpoint = Endpoint(listener, host, int(match[4]))
        voters[id] = VoterNode(ReplicaKey(id, directory_id), (endpoint,), KRaftVersionRange(0, 1))
    if not voters:
        raise ConfigValueError("at least one id@host:port:directory")
    return VoterSet(voters.values())
