"""Addresses in a Kafka configuration: listeners, voters, bootstrap servers.

Owns their text forms and the rules that hold among listeners. Names of listeners are compared in
upper case, as Kafka's ``ListenerName.normalised`` makes them. Sources: ``SocketServerConfigs``,
``CoreUtils.listenerListToEndPoints``, ``QuorumConfig``, ``Utils.getHost``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from kraft.configdef import RefusedError
from kraft.raft.voters import Endpoint, ReplicaKey, VersionRange, Voter, VoterSet
from kraft.records import Uuid

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: The address that listens everywhere and that nobody can connect to.
NON_ROUTABLE_HOST = "0.0.0.0"

_HOST = r"[0-9a-zA-Z\-%._:]"
_LISTENER = re.compile(rf"(.*)://\[?({_HOST}*)\]?:(-?[0-9]{{1,10}})", re.ASCII)
_ADDRESS = re.compile(rf"(?:[0-9a-zA-Z\-%._]*://)?\[?({_HOST}+)\]?:([0-9]{{1,10}})", re.ASCII)
_INITIAL_CONTROLLER = re.compile(
    rf"([0-9]{{1,10}})@(?:\[({_HOST}+)\]|([^:\[\]@]+)):([0-9]{{1,10}}):(.*)", re.ASCII
)
_VOTER_ID = re.compile(r"[+]?[0-9]{1,10}", re.ASCII)


class Listener(NamedTuple):
    """Where a node listens, or says that it does; host "" stands for every address of its own."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def read_listeners(
    entries: Iterable[str], protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[Listener, ...]:
    """The listeners of ``NAME://host:port`` entries. Raises RefusedError."""
    listeners = []
    for entry in entries:
        match = _LISTENER.fullmatch(entry)
        if match is None or not 0 <= int(match[3]) < 1 << 16:
            raise RefusedError(f"NAME://host:port, which {entry!r:.80} is not")
        name = match[1].upper()
        if name not in protocols:
            raise RefusedError(
                f"a listener whose security protocol is known: {name} is not in "
                "listener.security.protocol.map, nor, where that is not given, in "
                "controller.listener.names"
            )
        listeners.append(Listener(name, match[2], int(match[3]), protocols[name]))
    if len({listener.name for listener in listeners}) != len(listeners):
        raise RefusedError("a different name for each listener")
    if distinct_ports:
        _check_ports(listeners)
    return tuple(listeners)


def _check_ports(listeners: list[Listener]) -> None:
    """A port is for one listener, or for one on IPv4 and one on IPv6; port 0 is for any."""
    by_port: dict[int, list[Listener]] = defaultdict(list)
    for listener in listeners:
        if listener.port:
            by_port[listener.port].append(listener)
    for port, sharing in by_port.items():
        if len(sharing) == 1:
            continue
        versions = sorted(_ip_version(listener.host) for listener in sharing)
        if versions != [4, 6]:
            raise RefusedError(
                f"a different port for each listener (port {port} is given to several), unless "
                "one is on an IPv4 address and the other on an IPv6 address"
            )


def _ip_version(host: str) -> int:
    try:
        return ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def read_address(text: str) -> tuple[str, int]:
    """The host and port of ``host:port``. Raises RefusedError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) >= 1 << 16:
        raise RefusedError(f"host:port, which {text!r:.80} is not")
    return match[1], int(match[2])


def written_host(host: str) -> str:
    """The host as Kafka writes it into a voter's record: IPv6 addresses in full, the rest as is."""
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
    """The static voters of ``id@host:port`` entries. Raises RefusedError.

    Kafka takes the last of two entries with the same id; here that is refused.
    """
    voters: dict[int, Voter] = {}
    for entry in entries:
        id_text, at, address = entry.partition("@")
        if not at or not _VOTER_ID.fullmatch(id_text) or int(id_text) >= 1 << 31:
            raise RefusedError(f"id@host:port, which {entry!r:.80} is not")
        host, port = read_address(address)
        id = int(id_text)
        if id in voters:
            raise RefusedError(f"each id once: {id} stands twice")
        voters[id] = Voter(ReplicaKey(id), (Endpoint(listener, host, port),))
    return VoterSet(voters.values())


def read_initial_controllers(text: str, listener: str) -> VoterSet:
    """The voters of ``id@host:port:directory,…``, as a command line names them. Raises
    RefusedError.
    """
    voters: dict[int, Voter] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _INITIAL_CONTROLLER.fullmatch(entry)
        if match is None or int(match[1]) >= 1 << 31 or int(match[4]) >= 1 << 16:
            raise RefusedError(f"id@host:port:directory, which {entry!r:.100} is not")
        try:
            directory_id = Uuid.parse(match[5])
        except ValueError:
            raise RefusedError(f"a directory id of 22 characters, not {match[5]!r:.40}") from None
        id, host = int(match[1]), written_host(match[2] or match[3])
        if id in voters:
            raise RefusedError(f"each id once: {id} stands twice")
        endpoint = Endpoint(listener, host, int(match[4]))
        voters[id] = Voter(ReplicaKey(id, directory_id), (endpoint,), VersionRange(0, 1))
    if not voters:
        raise RefusedError("at least one id@host:port:directory")
    return VoterSet(voters.values())
