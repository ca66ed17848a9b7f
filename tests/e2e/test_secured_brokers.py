"""Brokers that replicate over TLS, with each other authenticated and strangers refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kraft.testing.cluster import QuorumForTests
from tests.harness.certificates import authority
from tests.harness.commands import PATIENCE_S, eventually
from tests.harness.confluent_records import QUIET, consumed, produce

pytestmark = pytest.mark.nodes

BROKERS = 3
MECHANISM = "PLAIN"
#: How long a client tries that is refused; a known one is answered at once.
REFUSED_S = 3.0
PLAIN_MODULE = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="broker" password="broker-secret"'
    ' user_broker="broker-secret" user_client="client-secret";'
)
#: The principal of the brokers, by the protocol between them.
BROKER = {"SSL": "User:CN=broker", "SASL_SSL": "User:broker"}
CLIENT = {"SSL": "User:CN=client", "SASL_SSL": "User:client"}


def cluster_settings(protocol: str, directory: Path) -> dict[str, str]:
    """Return settings of nodes whose brokers' listener speaks ``protocol``."""
    key = directory / "broker.pem"
    key.write_text(authority().issue("broker").pem)
    trust = directory / "authority.pem"
    trust.write_text(authority().pem)
    settings = {
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:{protocol}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        "replica.lag.time.max.ms": "2000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The controllers' listener is plain: brokers are nobody there.
        "super.users": f"User:ANONYMOUS;{BROKER[protocol]};{CLIENT[protocol]}",
    }
    if protocol == "SSL":
        return settings | {"ssl.client.auth": "required"}
    return settings | {
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "listener.name.plaintext.plain.sasl.jaas.config": PLAIN_MODULE,
    }


def client_settings(protocol: str, directory: Path) -> dict[str, str]:
    """Return the settings of librdkafka for the user "client"."""
    settings = {"security.protocol": protocol, "ssl.ca.location": str(directory / "authority.pem")}
    if protocol == "SSL":
        key = directory / "client.pem"
        key.write_text(authority().issue("client").pem)
        return settings | {
            "ssl.key.location": str(key),
            "ssl.certificate.location": str(key),
        }
    return settings | {
        "sasl.mechanism": MECHANISM,
        "sasl.username": "client",
        "sasl.password": "client-secret",
    }


def strangers(settings: Mapping[str, str], protocol: str) -> list[dict[str, str]]:
    """Return settings of clients that prove nothing, each in its own way."""
    plain = {"security.protocol": "PLAINTEXT"}
    if protocol == "SASL_SSL":
        return [plain, {**settings, "sasl.password": "guessed"}]
    trusted = {name: settings[name] for name in ("security.protocol", "ssl.ca.location")}
    return [plain, trusted]


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_brokers_replicate_over_tls_and_refuse_strangers(tmp_path: Path, protocol: str) -> None:
    settings = cluster_settings(protocol, tmp_path)
    with (
        QuorumForTests(tmp_path, 1, brokers=BROKERS, settings=settings) as cluster,
        cluster.follow() as live,
    ):
        cluster.create_topic("records", 1, BROKERS)
        known = client_settings(protocol, tmp_path)
        values = [b"%d" % number for number in range(1000)]
        produce(cluster.bootstrap_servers, "records", values, settings=known)

        def leader() -> int:
            live.poll(0.1)
            return live.partitions.find("records", 0).leader if "records" in live.topics else -1

        # A standstill of the machine may have fenced all brokers.
        killed = eventually(leader, until=lambda id: id != -1)
        cluster.kill(killed)
        eventually(lambda: leader() not in (killed, -1))
        later = [b"later %d" % number for number in range(1000)]
        produce(cluster.bootstrap_servers, "records", later, settings=known)
        read = consumed(cluster.bootstrap_servers, "records", settings=known)
        assert read[0] == list(enumerate([*values, *later]))

        addresses = zip(cluster.broker_ids, cluster.bootstrap_servers.split(","), strict=True)
        alive = next(address for id, address in addresses if id != killed)

        def topics(client: Mapping[str, str], timeout_s: float) -> set[str]:
            admin = AdminClient({"bootstrap.servers": alive, **client}, logger=QUIET)
            return set(admin.list_topics(timeout=timeout_s).topics)

        assert "records" in topics(known, PATIENCE_S)
        for stranger in strangers(known, protocol):
            with pytest.raises(KafkaException):
                topics(stranger, REFUSED_S)
