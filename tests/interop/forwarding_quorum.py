"""A quorum of one controller for admin clients, with a broker of Apache Kafka that forwards.

Kafka's Admin and tools (4.3.1) send only a part of their requests to controllers; for the rest they
need a broker, which forwards the requests or answers them from the metadata. The topics lie on
brokers that no process runs: their endpoint is that of the real broker, because clients send
requests to any broker of the cluster. So no partition changes but by a request.

Clients authenticate as `ADMIN_USER` by SASL PLAIN, at the controller as at the broker: tokens need
an authenticated connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kraft.admin import BlockingAdmin, ConfigChange, ConfigResourceType, connect_blocking
from kraft.network.quorum_client import QuorumClient, QuorumRefusedError
from kraft.protocol.api_versions import (
    API_VERSIONS,
    ApiVersionsRequestData,
    ApiVersionsResponseData,
)
from kraft.protocol.common import AdvertisedListener
from kraft.records import Uuid
from kraft.server.local_quorum import free_ports
from tests.harness.kafka_jars import Jars
from tests.harness.plain_users import PASSWORD, jaas_config
from tests.interop.cluster import ADMIN_USER, HOST, Cluster, Driver, Node, wait_for
from tests.interop.kraft_node import add_kraft_controller
from tests.interop.raw_client import FEATURES, ask_node, unfenced_broker

CONTROLLER = 101
#: The broker that a process runs; it holds no replica.
FORWARDING_BROKER = 1010
#: A client's properties.
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{ADMIN_USER}" password="{PASSWORD}";'
    ),
}
#: Brokers without a process, which hold the replicas.
HOLDERS = (1001, 1002, 1003)
_CLUSTER_ID = "a3JhZnQgZ2VuZXJhdGVkIA"
_SASL_PLAINTEXT = 2
_START_TIMEOUT_S = 180.0


@dataclass
class ForwardingQuorum:
    """A controller, kraft's or Apache Kafka's, and brokers."""

    jars: Jars
    directory: Path
    kind: Literal["kraft", "kafka"] = "kraft"
    cluster: Cluster = field(init=False)
    _awaited: int = 0

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.jars, self.directory, _CLUSTER_ID, True)
        self.cluster.reserve_controllers(CONTROLLER)
        (self._users_port,) = free_ports(1)
        self.cluster.settings = {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": jaas_config([ADMIN_USER]),
        }
        port = self.cluster.controller_ports[CONTROLLER]
        own = {
            "listeners": f"CONTROLLER://{HOST}:{port},SASL://{HOST}:{self._users_port}",
            "controller.listener.names": "CONTROLLER,SASL",
            # The brokers without a process send one heartbeat.
            "broker.session.timeout.ms": "7200000",
        }
        add = add_kraft_controller if self.kind == "kraft" else Cluster.add_controller
        self.node: Node = add(self.cluster, CONTROLLER, **own)

    @property
    def address(self) -> str:
        """The controller's address for authenticated clients."""
        return f"{HOST}:{self._users_port}"

    @property
    def broker(self) -> Node:
        return self.cluster.nodes[FORWARDING_BROKER]

    @property
    def broker_address(self) -> str:
        """The broker's address for authenticated clients."""
        return f"{HOST}:{self.broker.sasl_port}"

    def start(self) -> None:
        """Start the controller."""
        self.node.format(_CLUSTER_ID)
        self.node.start()
        self.node.wait_until_listening()

    def start_broker(self, id: int = FORWARDING_BROKER) -> None:
        """Start a broker of Apache Kafka, by default the one that forwards."""
        broker = self.cluster.add_broker(id, None)
        broker.format(_CLUSTER_ID)
        broker.start()
        broker.wait_until_listening()

    def broker_features(self, id: int = FORWARDING_BROKER) -> dict[str, tuple[int, int]]:
        """Wait until the broker is unfenced; return the features that it supports."""

        def registered() -> dict[str, tuple[int, int]] | None:
            broker = admin.read_metadata().brokers.get(id)
            if broker is None or broker.fenced:
                return None
            return {name: (each.min, each.max) for name, each in broker.features.items()}

        with self.admin() as admin:
            return wait_for("the broker to be unfenced", registered, _START_TIMEOUT_S)

    def register(self, ids: tuple[int, ...], features: Mapping[str, tuple[int, int]]) -> None:
        """Register and unfence brokers that no process runs."""
        broker = self.cluster.nodes.get(FORWARDING_BROKER)
        port = 9092 if broker is None else broker.sasl_port
        listener = AdvertisedListener("SASL", HOST, port, _SASL_PLAINTEXT)
        for id in ids:
            log_dir = Uuid(id.to_bytes(16, "big"))
            unfenced_broker(self.node, _CLUSTER_ID, id, listener, features, log_dir)

    def admin(self) -> BlockingAdmin:
        return connect_blocking(self.address, SASL)

    def driver(self) -> Driver:
        """Return Kafka's Admin: its client "plain" for controllers, "brokers" for the broker."""
        log = self.directory / "driver.log"
        driver = Driver(self.jars, {"bootstrap.controllers": self.address, **SASL}, log)
        self.cluster.drivers.append(driver)
        driver.connect("brokers", {"bootstrap.servers": self.broker_address, **SASL})
        return driver

    def await_brokers(self) -> None:
        """Wait until the brokers that run have applied all that is committed now."""
        with QuorumClient([(HOST, self.node.port)]) as controller:
            last = controller.describe_quorum().high_watermark - 1
        asked = ApiVersionsRequestData("test", "1")

        brokers = [node for node in self.cluster.nodes.values() if node.role == "broker"]

        def applied() -> bool:
            # A broker's features are those of its last applied offset.
            return all(
                ask_node(
                    broker, API_VERSIONS, 3, asked, ApiVersionsResponseData
                ).finalized_features_epoch
                >= last
                for broker in brokers
            )

        wait_for("the brokers to apply the metadata", applied)

    def await_controller(self) -> None:
        """Wait until the controller describes all that was committed before.

        Kafka's controller answers a change before the caches from which it describes configurations
        and ACLs have it: they follow the log (``MetadataCachePublisher``, ``AclPublisher``). They
        get changes in their order, so a setting of our own shows how far they are.
        """
        resource = (ConfigResourceType.CLIENT_METRICS, "awaited")
        self._awaited += 1
        wanted = str(1000 + self._awaited)
        with self.admin() as admin:
            change = ConfigChange("interval.ms", wanted)
            admin.incremental_alter_configs({resource: [change]}).all()

            def is_described() -> bool:
                described = admin.describe_configs([resource]).all()[resource]
                return described["interval.ms"].value == wanted

            wait_for("the controller to describe the metadata", is_described)

    def await_tokens(self) -> None:
        """Wait until the controller knows the tokens that were created or have expired before.

        Kafka's controller answers before its token cache has the change
        (``DelegationTokenPublisher`` follows the log): a token that was just created may not be
        found. The cache gets changes in their order, so a token of our own shows how far it is.
        """
        with self.admin() as admin:
            created = admin.create_delegation_token()

            def is_known() -> bool:
                try:
                    return admin.renew_delegation_token(created.hmac) > 0
                except QuorumRefusedError as refused:
                    if refused.name != "DELEGATION_TOKEN_NOT_FOUND":
                        raise
                    return False

            wait_for("the controller to know the tokens", is_known)


@contextmanager
def both_quorums(
    jars: Jars, directory: Path, *, has_broker: bool = True
) -> Iterator[list[ForwardingQuorum]]:
    """Run two quorums with the same brokers: the controller is kraft's, and Apache Kafka's."""
    started = [
        ForwardingQuorum(jars, directory / "kraft", "kraft"),
        ForwardingQuorum(jars, directory / "kafka", "kafka"),
    ]
    try:
        for quorum in started:
            quorum.start()
            if has_broker:
                quorum.start_broker()
        for quorum in started:
            quorum.register(HOLDERS, quorum.broker_features() if has_broker else FEATURES)
        yield started
    finally:
        for quorum in started:
            quorum.cluster.kill()
