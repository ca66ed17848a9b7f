"""``kraft.follow`` with TLS and SASL, and with settings that do not fit: each says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft
from kraft.network.quorum_client import QuorumUnreachableError
from kraft.testing.cluster import QuorumForTests
from tests.harness.certificates import authority
from tests.harness.nodes import Controllers
from tests.harness.secured_pages import BLOCKS, settings_of

pytestmark = pytest.mark.nodes


class Secured:
    """One controller with SASL_SSL, and the settings of a client that it accepts."""

    def __init__(self, directory: Path) -> None:
        trust, key = directory / "authority.pem", directory / "key.pem"
        trust.write_text(authority().pem)
        key.write_text(authority().issue("controller-1").pem)
        self.trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)}
        settings = settings_of(*BLOCKS[:2]) | self.trusted | {"ssl.keystore.location": str(key)}
        self.nodes = Controllers(directory, 1, settings)
        self.client = settings_of(BLOCKS[2]) | self.trusted
        module = self.client["sasl.jaas.config"].replace("admin-secret", "broker-secret")
        self.client["sasl.jaas.config"] = module.replace("admin", "broker")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.nodes:
        made.nodes.form(made.nodes.all)
        yield made


def test_tls_and_sasl_are_read_from_the_properties(secured: Secured, tmp_path: Path) -> None:
    with kraft.follow(secured.nodes.bootstrap, properties=secured.client) as live:
        assert live.metadata_version > 0
        assert live.trouble == ""
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in secured.client.items()))
    with kraft.follow(secured.nodes.bootstrap, properties=str(file)) as live:
        assert live.metadata_version > 0


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"security.protocol": "PLAINTEXT"}, "the listener speaks TLS: set security.protocol to"),
        ({"security.protocol": "SSL"}, "the listener asks for SASL: set security.protocol to"),
        ({"sasl.jaas.config": "wrong"}, "check the user name and the password in sasl.jaas.config"),
        ({"ssl.truststore.location": "another"}, "not trusted"),
    ],
)
def test_settings_that_do_not_fit_the_listener(
    secured: Secured, tmp_path: Path, changes: dict[str, str], wanted: str
) -> None:
    properties = secured.client | changes
    if "sasl.jaas.config" in changes:
        right = secured.client["sasl.jaas.config"]
        properties["sasl.jaas.config"] = right.replace("-secret", "-wrong")
    if "ssl.truststore.location" in changes:
        other = tmp_path / "other.pem"
        other.write_text(authority("another authority").pem)
        properties["ssl.truststore.location"] = str(other)
    with pytest.raises(QuorumUnreachableError, match=wanted) as raised:
        kraft.follow(secured.nodes.bootstrap, properties=properties, timeout_s=5)
    assert secured.nodes.bootstrap in str(raised.value)


def test_tls_where_the_controller_speaks_plain(kraft_cluster: QuorumForTests) -> None:
    address = kraft_cluster.bootstrap_controllers
    with pytest.raises(QuorumUnreachableError, match=f"{address}: the listener does not speak TLS"):
        kraft.follow(address, properties={"security.protocol": "SSL"}, timeout_s=5)
