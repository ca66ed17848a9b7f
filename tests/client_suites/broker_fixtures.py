"""What the integration tests of kafka-python import to start a broker, for kraft's broker.

`KafkaFixture` has the attributes of kafka-python's fixture of this name that its tests and its
conftest use. It runs one process that is controller and broker, with node id 0: a test assigns
replicas to broker 0. `BACKEND` chooses the process: kraft's, or Apache Kafka's as the control.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import string
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import kafka  # type: ignore[import-untyped]

from kraft.metadata.identifiers import random_uuid
from kraft.server.local_quorum import free_ports
from tests.harness.certificates import authority
from tests.harness.commands import KRAFT, PATIENCE_S, eventually, logged
from tests.harness.configurations import write_properties
from tests.harness.kafka_jars import KAFKA_4, SMALL_JVM
from tests.harness.kafka_jars import kafka as kafka_jars

#: The variable that chooses the broker: kraft (the default) or kafka.
BACKEND = "CLIENT_SUITES_BACKEND"
_HOST = "localhost"
_MODULES = "org.apache.kafka.common.security"


def client_params(broker: KafkaFixture, client_id: str = "client", **given: Any) -> dict[str, Any]:
    """Return the arguments of a client of the broker."""
    suffix = "".join(random.choices(string.ascii_letters, k=4))
    return broker.client_arguments({"client_id": f"{client_id}_{suffix}"} | given)


def create_topics(
    broker: KafkaFixture,
    topic_names: Iterable[str],
    num_partitions: int | None = None,
    replication_factor: int | None = None,
) -> None:
    """Create topics, and wait until the broker has them."""
    count = broker.partitions if num_partitions is None else num_partitions
    replicas = broker.replicas if replication_factor is None else replication_factor
    wanted = {"num_partitions": count, "replication_factor": replicas}
    with kafka.KafkaAdminClient(**client_params(broker, "creator")) as admin:
        admin.create_topics(dict.fromkeys(topic_names, wanted), wait_for_metadata=True)


class ZookeeperFixture:
    """Only a name that the conftest imports: a broker of KRaft has no ZooKeeper."""


class _Process:
    """The broker's process; ``child`` of a fixture."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def dump_logs(self) -> None:
        print(self._log.read_text(errors="replace"))


class KafkaFixture:
    """A running broker that is its own controller."""

    broker_user, broker_password = "alice", "alice-secret"

    @classmethod
    def instance(cls, broker_id: int, **given: Any) -> KafkaFixture:
        """Start a broker; arguments that name a test directory or a ZooKeeper have no effect."""
        known = ("transport", "sasl_mechanism", "partitions", "replicas")
        return cls(broker_id, **{name: given[name] for name in known if name in given})

    def __init__(
        self,
        broker_id: int,
        *,
        transport: str = "PLAINTEXT",
        sasl_mechanism: str | None = None,
        partitions: int = 4,
        replicas: int = 1,
    ) -> None:
        self.host = _HOST
        self.port, self._internal_port, self._controller_port = free_ports(3)
        self.transport = transport
        self.sasl_mechanism = sasl_mechanism
        self.partitions = partitions
        self.replicas = replicas
        self.zookeeper = None
        self._id = broker_id
        self._directory = Path(tempfile.mkdtemp(prefix="client-suites-"))
        #: The directory with the file `ca-cert`.
        self.ssl_dir = str(self._directory)
        self._is_kraft = os.environ.get(BACKEND, "kraft") == "kraft"
        try:
            self._properties = self._write()
            self._format()
            self.child: _Process | None = self._started()
        except BaseException:
            self.close()
            raise

    def _write(self) -> Path:
        """Write the certificates and the properties; return the file of the properties."""
        directory = self._directory
        (directory / "ca-cert").write_text(authority().pem)
        settings = {
            "node.id": str(self._id),
            "process.roles": "broker,controller",
            "listeners": (
                f"CLIENTS://{_HOST}:{self.port},INTERNAL://{_HOST}:{self._internal_port},"
                f"CONTROLLER://{_HOST}:{self._controller_port}"
            ),
            "advertised.listeners": (
                f"CLIENTS://{_HOST}:{self.port},INTERNAL://{_HOST}:{self._internal_port}"
            ),
            "listener.security.protocol.map": (
                f"CLIENTS:{self.transport},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{_HOST}:{self._controller_port}",
            "log.dirs": str(directory / "data"),
            "num.partitions": str(self.partitions),
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # A test has sessions of 3 s.
            "group.min.session.timeout.ms": "1000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
        }
        if self.sasl_mechanism is not None:
            settings["sasl.enabled.mechanisms"] = self.sasl_mechanism
            login = f"listener.name.clients.{self.sasl_mechanism.lower()}.sasl.jaas.config"
            settings[login] = self._login(self.sasl_mechanism)
        if self.transport.endswith("SSL"):
            keys = directory / "broker.pem"
            keys.write_text(authority().issue("localhost").pem)
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys)}
        path = directory / "server.properties"
        write_properties(path, settings)
        return path

    def _login(self, mechanism: str) -> str:
        if mechanism == "PLAIN":
            user = f'user_{self.broker_user}="{self.broker_password}"'
            return f"{_MODULES}.plain.PlainLoginModule required {user};"
        return f"{_MODULES}.scram.ScramLoginModule required;"

    def _format(self) -> None:
        options = ["format", "--standalone", "-t", str(random_uuid()), "-c", str(self._properties)]
        if self.sasl_mechanism is not None and self.sasl_mechanism.startswith("SCRAM"):
            user = f"name={self.broker_user},password={self.broker_password}"
            options += ["--add-scram", f"{self.sasl_mechanism}=[{user}]"]
        if self._is_kraft:
            subprocess.run([*KRAFT, "storage", *options], check=True)
        else:
            kafka_jars(KAFKA_4).run("kafka.tools.StorageTool", *options)

    def _started(self) -> _Process:
        log = self._directory / "log"
        if self._is_kraft:
            command: list[Any] = [*KRAFT, "server", "start", self._properties]
        else:
            command = kafka_jars(KAFKA_4).command("kafka.Kafka", self._properties, jvm=SMALL_JVM)
        started = _Process(logged(command, log, cwd=self._directory), log)

        def is_listening() -> bool:
            assert started.process.poll() is None, log.read_text(errors="replace")[-3000:]
            with suppress(OSError), socket.create_connection((_HOST, self.port), 1):
                return True
            return False

        try:
            eventually(is_listening)
        except BaseException:
            started.process.kill()
            started.process.wait()
            raise
        return started

    def start(self) -> None:
        """Do nothing: the broker runs since the object exists."""

    def close(self) -> None:
        """Stop the process, and remove its files."""
        child, self.child = getattr(self, "child", None), None
        if child is not None:
            child.process.terminate()
            try:
                child.process.wait(PATIENCE_S)
            finally:
                child.process.kill()
                child.process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def get_topic_names(self) -> list[str]:
        """Return the topics that the broker lists for a client."""
        with kafka.KafkaAdminClient(**client_params(self, "lister")) as admin:
            return list(admin.list_topics())

    def client_arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a client of this broker, of which ``given`` overrides some."""
        arguments: dict[str, Any] = {
            "bootstrap_servers": f"{self.host}:{self.port}",
            "security_protocol": self.transport,
        }
        if self.sasl_mechanism is not None:
            arguments |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.broker_user,
                "sasl_plain_password": self.broker_password,
            }
        if self.transport.endswith("SSL"):
            ca_file = os.path.join(self.ssl_dir, "ca-cert")
            arguments |= {"ssl_cafile": ca_file, "ssl_check_hostname": False}
        return arguments | given
