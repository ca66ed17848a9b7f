"""A command at the wrong address, protocol, password or cluster says which, and what to do.

The port of a real broker is in ``tests/interop/test_admin_commands.py``.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kraft.admin import QuorumUnreachableError, TopicSpec, connect_blocking
from kraft.server.local_quorum import free_ports
from tests.harness.certificates import authority
from tests.harness.commands import eventually, kraft
from tests.harness.configurations import write_properties
from tests.harness.nodes import Controllers
from tests.harness.plain_users import PASSWORD, jaas_config
from tests.harness.running_nodes import RunningNodes

pytestmark = pytest.mark.nodes

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SASL = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": jaas_config(["node"], own="node"),
}


def complaint(*words: object, code: int = 1) -> str:
    """Return what a command says that must fail, without a traceback."""
    ran = kraft(*words)
    print(" ".join(map(str, words)), ran.stderr, sep="\n")
    assert (ran.returncode, ran.stdout) == (code, ""), ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


def controllers(directory: Path, settings: dict[str, str]) -> Controllers:
    directory.mkdir()
    nodes = Controllers(directory, 1, settings)
    nodes.form(nodes.all)
    return nodes


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    with controllers(tmp_path_factory.mktemp("plain") / "nodes", {}) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    """A controller that speaks TLS."""
    directory = tmp_path_factory.mktemp("tls")
    trust, key = directory / "authority.pem", directory / "key.pem"
    trust.write_text(authority().pem)
    key.write_text(authority().issue("controller").pem)
    settings = {
        "listener.security.protocol.map": "CONTROLLER:SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
    }
    with controllers(directory / "nodes", settings) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def authenticating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    """A controller whose clients authenticate by SASL PLAIN."""
    with controllers(tmp_path_factory.mktemp("sasl") / "nodes", _SASL) as nodes:
        yield nodes


def client_file(directory: Path, **properties: str) -> Path:
    path = directory / "client.properties"
    write_properties(path, {name.replace("_", "."): value for name, value in properties.items()})
    return path


def login(password: str) -> str:
    return f'{_PLAIN} required username="node" password="{password}";'


def test_an_address_without_a_controller() -> None:
    (port,) = free_ports(1)
    nowhere = ("--bootstrap-controller", f"127.0.0.1:{port}")
    said = complaint("topics", "list", *nowhere)
    assert f"127.0.0.1:{port}: " in said
    assert "no process listens there; is the address right, and does it run?" in said
    said = complaint(
        "topics", "create", "--topic", "a", "--bootstrap-controller", f"127.0.0.1:{port}"
    )
    assert "note: 0 of 1 topics have an answer\n" in said
    said = complaint("topics", "list", "--bootstrap-controller", "no-such-host.invalid:9093")
    assert "the host name 'no-such-host.invalid' cannot be resolved" in said


def test_an_error_says_whether_the_request_was_sent(tmp_path: Path) -> None:
    settings = {"default.api.timeout.ms": "4000", "request.timeout.ms": "2000"}
    with controllers(tmp_path / "nodes", {}) as nodes:
        running = nodes.all[0].running
        assert running is not None
        with connect_blocking(nodes.bootstrap, settings) as admin:

            def is_connected() -> bool:
                # A standstill of the machine may be longer than these timeouts.
                with suppress(QuorumUnreachableError):
                    return admin.describe_metadata_quorum().leader_id == 1
                return False

            eventually(is_connected)
            running.process.send_signal(signal.SIGSTOP)
            with pytest.raises(QuorumUnreachableError) as unanswered:
                admin.create_topics([TopicSpec("b", 1, 1)])
            assert unanswered.value.may_be_done
        with (
            connect_blocking(nodes.bootstrap, settings) as late,
            pytest.raises(QuorumUnreachableError) as unconnected,
        ):
            late.create_topics([TopicSpec("c", 1, 1)])
        assert not unconnected.value.may_be_done
        running.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("address", ["localhost", "localhost:port", ",", "localhost:70000"])
def test_a_text_that_is_no_address(address: str) -> None:
    said = complaint("topics", "list", "--bootstrap-controller", address, code=2)
    assert "--bootstrap-controller" in said
    assert "host:port" in " ".join(said.replace("│", "").split())


def test_plain_where_tls_is_spoken(secured: Controllers) -> None:
    said = complaint("brokers", "list", "--bootstrap-controller", secured.bootstrap)
    assert f"{secured.bootstrap}: the listener speaks TLS: set security.protocol to SSL" in said


def test_tls_where_plain_is_spoken(plain: Controllers, tmp_path: Path) -> None:
    client = client_file(tmp_path, security_protocol="SSL")
    at = ("--bootstrap-controller", plain.bootstrap, "--command-config", client)
    said = complaint("acls", "list", *at)
    assert f"{plain.bootstrap}: the listener does not speak TLS: set security.protocol to " in said


def test_no_and_wrong_credentials(authenticating: Controllers, tmp_path: Path) -> None:
    at = ("--bootstrap-controller", authenticating.bootstrap)
    said = complaint("quorum", "describe", "--status", *at)
    assert "the listener asks for SASL: set security.protocol to SASL_PLAINTEXT" in said
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    wrong = client_file(tmp_path, sasl_jaas_config=login("wrong-password"), **given)
    said = complaint("quorum", "describe", "--status", *at, "--command-config", wrong)
    assert "user 'node' cannot authenticate by PLAIN" in said
    assert "check the user name and the password in sasl.jaas.config" in said
    assert "wrong-password" not in said
    right = client_file(tmp_path, sasl_jaas_config=login(PASSWORD), **given)
    ran = kraft("quorum", "describe", "--status", *at, "--command-config", right)
    assert "LeaderId: " in ran.stdout, ran.stderr


def test_a_directory_of_another_cluster(plain: Controllers, tmp_path: Path) -> None:
    other = Controllers(tmp_path, 1)
    other.lay_out(other.all)
    (node,) = other.all
    said = complaint(
        *("quorum", "add-controller", "-c", node.file, "--bootstrap-controller", plain.bootstrap)
    )
    ran = kraft(
        *("quorum", "describe", "--status", "--json", "--bootstrap-controller", plain.bootstrap)
    )
    assert "INCONSISTENT_CLUSTER_ID" in said
    assert f"{node.data} belongs to cluster " in said
    assert f"{plain.bootstrap} to cluster " in said
    assert said.partition(f"{plain.bootstrap} to cluster ")[2][:22] in ran.stdout
    assert "kraft storage format --cluster-id " in said


def test_controllers_before_kafka_3_7() -> None:
    """They do not serve DescribeCluster, which has the cluster id and the controllers."""
    with RunningNodes(serves_describe_cluster=False) as nodes:
        at = ("--bootstrap-controller", f"127.0.0.1:{nodes.ports[1]}")
        said = complaint("quorum", "describe", "--status", *at)
        assert "does not serve DescribeCluster" in said
        assert "it needs controllers of Apache Kafka 3.7 or newer" in said
        said = complaint("topics", "create", "--topic", "a", *at)
        assert "does not serve CreateTopics" in said


def test_tokens_on_a_connection_without_a_user(plain: Controllers) -> None:
    said = complaint("tokens", "create", "--bootstrap-controller", plain.bootstrap)
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in said
    assert "tokens need an authenticated connection: set security.protocol to SASL_" in said
