"""Kinds of clusters of Apache Kafka: releases of the brokers, kind of voters, secured listeners.

`Variant` names one. `ClusterSecurity` requires certificates at the controllers of a cluster, and
SCRAM over TLS at its brokers, and has the settings of the clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from kraft.network.controller_connection import ClientSecurity
from kraft.server.config.key_stores import read_client_security
from tests.harness.certificates import authority
from tests.harness.configurations import write_properties
from tests.harness.kafka_jars import KAFKA_3, KAFKA_4
from tests.interop.cluster import ADMIN_PASSWORD, ADMIN_USER, HOST, SCRAM, Cluster, Node
from tests.interop.scenario import RACKS

BROKERS = tuple(RACKS)
RELEASES = (KAFKA_3, "4.1.1", KAFKA_4)
LOGIN = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="{ADMIN_USER}" password="{ADMIN_PASSWORD}";'
)


@dataclass(frozen=True)
class Variant:
    """The brokers, the kind of quorum, and the listeners of one cluster."""

    releases: tuple[str, ...]
    is_static: bool
    is_secured: bool

    def __str__(self) -> str:
        brokers = self.releases[0] if len({*self.releases}) == 1 else "mixed"
        voters = "static" if self.is_static else "dynamic"
        return f"{brokers}-{voters}-{'secured' if self.is_secured else 'plaintext'}"

    @property
    def level(self) -> str:
        """Return the release at which the cluster is formatted: that of its oldest broker."""
        return ".".join(min(self.releases).split(".")[:2])


OF_ALL = [
    *((release,) * len(BROKERS) for release in RELEASES),
    RELEASES,
]
EVERY = {
    str(one): one
    for brokers, is_static, is_secured in product(OF_ALL, (True, False), (True, False))
    for one in (Variant(brokers, is_static, is_secured),)
}
#: Each set of brokers with both kinds of quorum and both kinds of listeners, and each kind of
#: quorum with both kinds of listeners.
MATRIX = [
    Variant(brokers, is_static, is_secured=is_static == bool(number % 2))
    for number, brokers in enumerate(OF_ALL)
    for is_static in (True, False)
]


def asked_variants(asked: str, default: str) -> list[Variant]:
    """Return the variants with these names, separated by spaces; "all" is the matrix."""
    return MATRIX if asked == "all" else [EVERY[name] for name in (asked or default).split()]


class ClusterSecurity:
    """The settings of nodes and clients of a cluster, which has secured listeners or not."""

    def __init__(self, cluster: Cluster, *, is_secured: bool) -> None:
        self._cluster = cluster
        self._is_secured = is_secured

    @property
    def client(self) -> dict[str, str]:
        """Return the settings of a client of the brokers."""
        if not self._is_secured:
            return {}
        return self._trust | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": LOGIN,
        }

    @property
    def scram(self) -> tuple[str, ...]:
        """Return the options that create the user of the clients when a controller is formatted."""
        return ("--add-scram", SCRAM) if self._is_secured else ()

    @cached_property
    def controller_client_file(self) -> Path:
        """Return the file of a client of the controllers, for `--command-config`."""
        path = self._cluster.directory / "client.properties"
        write_properties(path, self._controller_client)
        return path

    @cached_property
    def controller_client(self) -> ClientSecurity | None:
        """Return what kraft's client of the controllers needs."""
        if not self._is_secured:
            return None
        return read_client_security(self._controller_client, self.controller_client_file)

    def secure(self, *nodes: Node) -> None:
        """Change the settings of nodes that are not formatted yet."""
        if not self._is_secured:
            return
        controllers = [f"controller-{id}" for id in self._cluster.controller_ports]
        names = [*controllers, *(f"broker-{id}" for id in BROKERS), ADMIN_USER]
        for node in nodes:
            node.settings |= self._keys(f"{node.role}-{node.id}") | {
                "listener.security.protocol.map": "CONTROLLER:SSL,CLIENTS:SASL_SSL",
                "super.users": ";".join(f"User:{name}" for name in names),
            }
            if node.role == "controller":
                node.settings |= {
                    "ssl.client.auth": "required",
                    "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
                }
            else:
                node.settings |= {
                    "listeners": f"CLIENTS://{HOST}:{node.port}",
                    "inter.broker.listener.name": "CLIENTS",
                    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
                    "listener.name.clients.scram-sha-256.sasl.jaas.config": LOGIN,
                }

    @property
    def _controller_client(self) -> dict[str, str]:
        return {"security.protocol": "SSL"} | self._keys(ADMIN_USER) if self._is_secured else {}

    @cached_property
    def _trust(self) -> dict[str, str]:
        # Written once: the nodes load a changed file again, and one being written is damaged.
        path = self._cluster.directory / "authority.pem"
        path.write_text(authority().pem)
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}

    def _keys(self, name: str) -> dict[str, str]:
        """Return the settings of a process that has this name in its certificate."""
        path = self._cluster.directory / f"{name}.pem"
        if not path.exists():
            path.write_text(authority().issue(name).pem)
        return self._trust | {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
