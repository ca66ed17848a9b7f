"""Apache Kafka's controllers and tools on secured listeners of kraft's controllers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.errors import KraftError
from kraft.metadata.properties import read_properties
from kraft.network.quorum_client import QuorumClient
from kraft.raft.rpc import DescribeQuorumResponse
from kraft.server.config.key_stores import read_client_security
from tests.harness.certificates import Authority, KeyPair, authority
from tests.harness.commands import eventually
from tests.harness.configurations import write_properties
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop.cluster import HOST, Cluster, ClusterError, wait_for
from tests.interop.kraft_node import add_kraft_controller
from tests.interop.mixed_quorum import FAULT, QUORUM_TOOL

pytestmark = pytest.mark.interop

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KAFKA, KRAFTS = 1, (2, 3)
LISTENER = "listener.name.controller."


class SecuredQuorum:
    """One controller of Kafka and two of kraft, whose listeners have this protocol."""

    def __init__(self, directory: Path, protocol: str, settings: dict[str, str]) -> None:
        self.directory = directory
        trust = directory / "authority.pem"
        trust.write_text(authority().pem)
        self.trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)}
        self.cluster = Cluster(kafka(KAFKA_4), directory, "dHdvIEthZmthcyBhbmQgdXM", is_static=True)
        self.cluster.settings |= settings | self.trusted
        self.cluster.settings["listener.security.protocol.map"] = f"CONTROLLER:{protocol}"
        self.cluster.reserve_controllers(KAFKA, *KRAFTS)
        self.cluster.add_controller(KAFKA)
        for one in KRAFTS:
            add_kraft_controller(self.cluster, one)
        for node in self.cluster.nodes.values():
            node.settings |= self.keys(f"controller-{node.id}")

    def keys(self, name: str, keys: KeyPair | None = None) -> dict[str, str]:
        """Write a key store of this name; return the settings that use it."""
        path = self.directory / f"{name}.pem"
        path.write_text((keys or authority().issue(name)).pem)
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}

    def start(self) -> None:
        for node in self.cluster.nodes.values():
            scram = ("--add-scram", "SCRAM-SHA-256=[name=tool,password=tool-secret]")
            node.format(self.cluster.cluster_id, *scram)
        self.cluster.start()

    def client(self, name: str, settings: dict[str, str], timeout_ms: int = 60_000) -> Path:
        path = self.directory / f"{name}.properties"
        limits = dict.fromkeys(("request.timeout.ms", "default.api.timeout.ms"), str(timeout_ms))
        write_properties(path, self.trusted | limits | settings)
        return path

    def described(self, client: Path) -> DescribeQuorumResponse:
        """Return the description by kraft's client; retry while there is no leader."""
        given = {key: value for key, value, _ in read_properties(client.read_text(), client)}
        servers = [(HOST, node.port) for node in self.cluster.nodes.values()]
        security = read_client_security(given, client)

        def ask() -> DescribeQuorumResponse | None:
            try:
                with QuorumClient(servers, timeout_s=5.0, security=security) as asked:
                    said = asked.describe_quorum()
            except KraftError as error:
                raise ClusterError(str(error)) from error
            ends = {state.log_end_offset for state in said.voters}
            return said if min(ends) > 0 and said.high_watermark > 0 else None

        return wait_for("all voters to have records", ask)

    def kafka_says(self, node_id: int, client: Path) -> str:
        """Return what Kafka's tool prints for this node, or its error."""
        asked = ("--bootstrap-controller", self.cluster.nodes[node_id].address)
        said = self.cluster.jars.run(
            QUORUM_TOOL,
            *(*asked, "--command-config", client, "describe", "--status"),
            timeout_s=180,
            check=False,
        )
        return said.stdout + said.stderr

    def wait_until_logged(self, node_id: int, text: str) -> None:
        log = self.cluster.nodes[node_id].log
        eventually(lambda: text in log.read_text(errors="replace"))

    def check_logs(self) -> None:
        for node in self.cluster.nodes.values():
            text = node.log.read_text(errors="replace")
            assert FAULT.search(text) is None, text[-4000:]


@pytest.fixture(scope="module")
def with_passwords(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredQuorum]:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"{LISTENER}plain.sasl.jaas.config": (
            f'{PLAIN} required username="node" password="node-secret" user_node="node-secret";'
        ),
        f"{LISTENER}scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        "super.users": "User:node;User:tool",
        "connections.max.reauth.ms": "4000",
    }
    quorum = SecuredQuorum(tmp_path_factory.mktemp("sasl"), "SASL_SSL", settings)
    try:
        quorum.start()
        yield quorum
    finally:
        quorum.cluster.kill()


def sasl(mechanism: str, user: str, password: str) -> dict[str, str]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


def test_a_mixed_quorum_authenticates_by_passwords(with_passwords: SecuredQuorum) -> None:
    quorum = with_passwords
    node = quorum.client("node", sasl("PLAIN", "node", "node-secret"))
    said = quorum.described(node)
    assert {state.key.id for state in said.voters} == {KAFKA, *KRAFTS}
    tool = quorum.client("tool", sasl("SCRAM-SHA-256", "tool", "tool-secret"))
    # A follower of kraft's, or its leader; it has applied the SCRAM user.
    assert quorum.described(tool).leader_id in (KAFKA, *KRAFTS)
    wait_for(
        "this node to know the user", lambda: "CurrentVoters" in quorum.kafka_says(KRAFTS[0], tool)
    )
    quorum.check_logs()


def test_a_wrong_password_is_rejected_and_logged(with_passwords: SecuredQuorum) -> None:
    quorum = with_passwords
    wrong = quorum.client("wrong", sasl("SCRAM-SHA-256", "tool", "wrong"))
    said = quorum.kafka_says(KRAFTS[1], wrong)
    assert "CurrentVoters" not in said
    assert "SaslAuthenticationException" in said
    quorum.wait_until_logged(KRAFTS[1], "the SASL authentication of 127.0.0.1 failed")


@pytest.fixture(scope="module")
def with_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredQuorum]:
    settings = {
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "super.users": "User:controller-1;User:controller-2;User:controller-3;User:tool",
    }
    quorum = SecuredQuorum(tmp_path_factory.mktemp("ssl"), "SSL", settings)
    try:
        quorum.start()
        yield quorum
    finally:
        quorum.cluster.kill()


def test_a_mixed_quorum_authenticates_by_certificates(with_certificates: SecuredQuorum) -> None:
    quorum = with_certificates
    tool = quorum.client("tool", {"security.protocol": "SSL"} | quorum.keys("tool"))
    said = quorum.described(tool)
    assert {state.key.id for state in said.voters} == {KAFKA, *KRAFTS}
    assert "CurrentVoters" in quorum.kafka_says(KRAFTS[0], tool)
    quorum.check_logs()


def test_a_certificate_of_another_authority_is_rejected_and_logged(
    with_certificates: SecuredQuorum,
) -> None:
    quorum = with_certificates
    keys = quorum.keys("stranger", Authority("another").issue("tool"))
    # Kafka's client connects again until its timeout.
    stranger = quorum.client("stranger", {"security.protocol": "SSL"} | keys, timeout_ms=4000)
    assert "CurrentVoters" not in quorum.kafka_says(KRAFTS[1], stranger)
    quorum.wait_until_logged(KRAFTS[1], "the TLS handshake with 127.0.0.1 failed")
