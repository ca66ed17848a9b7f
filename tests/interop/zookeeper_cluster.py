"""Run Apache Kafka 3.9 brokers in ZooKeeper mode, and fill their metadata.

The brokers are those of `cluster`, with the settings of ZooKeeper mode instead of a quorum's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.interop import scenario
from tests.interop.cluster import ADMIN_USER, TOKEN_KEY, Cluster, wait_for
from tests.interop.scenario import Stage

#: The partitions of the topic `orders`, and the records that `number_orders` writes to each.
PARTITIONS, RECORDS = 4, 20
#: Encrypts the passwords in settings of brokers.
ENCODER_SECRET = "secret-of-a-throwaway-cluster"


@dataclass
class ZooKeeperCluster(Cluster):
    """Brokers whose metadata is in ZooKeeper; ``connect`` is its address with the chroot."""

    connect: str = ""

    def _common(self, node_id: int, role: str) -> dict[str, str]:
        return {
            "broker.id": str(node_id),
            "zookeeper.connect": self.connect,
            "zookeeper.session.timeout.ms": "18000",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{ADMIN_USER}",
            "delegation.token.secret.key": TOKEN_KEY,
            "password.encoder.secret": ENCODER_SECRET,
            # The last broker has nobody to hand its leaders over to: it tries three times.
            "controlled.shutdown.retry.backoff.ms": "100",
        }


def fill(stage: Stage) -> None:
    """Write every kind of znode that a migration reads, with two brokers."""
    stage.ask(
        "create_topics",
        topics=[
            {"name": "orders", "partitions": PARTITIONS, "replication_factor": 2},
            {
                "name": "payments",
                "partitions": 2,
                "replication_factor": 1,
                "configs": {"retention.ms": "86400000", "cleanup.policy": "compact,delete"},
            },
            {"name": "by-hand", "assignment": [[2], [1]]},
            {"name": "moves", "assignment": [[1]]},
            {"name": "doomed", "partitions": 1, "replication_factor": 1},
        ],
    )
    stage.ask("create_partitions", topic="by-hand", total=3, assignment=[[2]])
    stage.config("TOPIC", "orders", ("SET", "min.insync.replicas", "1"))
    stage.config("BROKER", "1", ("SET", "log.cleaner.threads", "1"))
    password = "listener.name.sasl.ssl.keystore.password"
    stage.config("BROKER", "2", ("SET", password, "of a keystore, with ünicode"))
    stage.config("BROKER", "", ("SET", "message.max.bytes", "2000000"))
    scenario.authorize(stage)
    scenario.credentials(stage)
    scenario.admin_credential(stage)
    scenario.quotas(stage)
    pair = {"user": "käthe @*+ /%", "client-id": "a b"}
    stage.ask("alter_quota", entity=pair, key="request_percentage", value=0.5)
    stage.ask("alter_quota", entity=pair | {"client-id": None}, key="consumer_byte_rate", value=9.0)
    stage.ask("alter_quota", entity={"ip": None}, key="connection_creation_rate", value=7.0)
    stage.wait_for_isr("orders", 2)
    number_orders(stage, 0)
    scenario.tokens(stage)
    stage.ask("reassign", partitions={"moves": {"0": [2, 1]}})
    wait_for("the reassignment", lambda: stage.ask("reassignments") == 0)


def number_orders(stage: Stage, sent: int) -> None:
    """Write `RECORDS` numbered records to each partition of `orders`, which has ``sent``."""
    stage.ask(
        "write_numbers",
        topic="orders",
        sent=[sent] * PARTITIONS,
        count=RECORDS,
        config=_bootstrap(stage),
    )


def check_orders(stage: Stage, sent: int) -> None:
    """Read `orders`, which has ``sent`` numbered records in each partition."""
    found = stage.ask(
        "read_numbers", topic="orders", sent=[sent] * PARTITIONS, config=_bootstrap(stage)
    )
    assert found == {"read": sent * PARTITIONS, "missing": 0, "out_of_order": 0}


def _bootstrap(stage: Stage) -> dict[str, str]:
    brokers = [each.address for each in stage.cluster.nodes.values() if each.role == "broker"]
    return {"bootstrap.servers": ",".join(brokers)}
