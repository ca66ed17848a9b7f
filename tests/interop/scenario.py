"""The scenario of the recorded clusters: every metadata record that clients can cause.

Each chapter is a function of a `Stage` and leaves the cluster settled. `record.py` calls them in
order for each Kafka release.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kraft.protocol.api_versions import (
    API_VERSIONS,
    ApiVersionsRequestData,
    ApiVersionsResponseData,
)
from tests.interop.cluster import (
    ADMIN_PASSWORD,
    ADMIN_USER,
    HOST,
    START_TIMEOUT_S,
    Cluster,
    ClusterError,
    Driver,
    Node,
    sasl_client,
    wait_for,
)
from tests.interop.raw_client import ask_node

RACKS = {1: "rack-a", 2: "rack-b", 3: "rack-c"}
CONTROLLERS = (101, 102, 103)
THROTTLE_BYTES = "1024"


@dataclass
class Stage:
    """The running cluster, its Admin client, and values that later chapters need."""

    cluster: Cluster
    ask: Driver
    notes: dict[str, Any] = field(default_factory=dict)

    def broker(self, node_id: int) -> None:
        """Start the broker and wait until it is unfenced."""
        self.cluster.nodes[node_id].start()
        self.cluster.nodes[node_id].wait_until_listening()
        self.wait_for_brokers(including=node_id)

    def wait_for_brokers(self, *, including: int = 0, without: int = 0) -> None:
        def settled() -> bool | None:
            # Another process may have taken the broker's port since the test reserved it.
            if including:
                self.cluster.nodes[including].check_running()
            alive = self.ask("brokers")
            return (not including or including in alive) and without not in alive

        what = f"the brokers (with {including}, without {without})"
        wait_for(what, settled, START_TIMEOUT_S)

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("describe_topics", topics=[topic])[topic][
            "partitions"
        ]
        return found

    def wait_for_isr(self, topic: str, size: int) -> None:
        wait_for(
            f"{topic}: {size} replicas in sync",
            lambda: all(len(one["isr"]) == size for one in self.partitions(topic)),
        )

    def wait_until_moved(self) -> None:
        wait_for("the end of all reassignments", lambda: self.ask("reassignments") == 0)

    def settle(self) -> int:
        """Wait until every running broker has applied what is committed now; return its end."""
        end: int = self.ask("quorum")["high_watermark"]
        for node in self.cluster.nodes.values():
            if node.role == "broker" and node.process is not None:
                wait_for(
                    f"broker {node.id} to have applied the metadata below {end}",
                    partial(_has_applied, node, end - 1),
                )
        return end

    def voter(self, node_id: int) -> dict[str, Any]:
        node = self.cluster.nodes[node_id]
        return {"id": node_id, "directory_id": node.directory_id(), "host": HOST, "port": node.port}

    def config(self, kind: str, name: str, *ops: tuple[str, str, str | None]) -> None:
        self.ask("alter_config", type=kind, name=name, ops=[list(op) for op in ops])

    def produce(self, topic: str, partitions: list[int], count: int, **more: str) -> None:
        brokers = [n for n in self.cluster.nodes.values() if n.role == "broker" and n.process]
        config = {"bootstrap.servers": brokers[0].address} | {
            name.replace("__", "."): value for name, value in more.items()
        }
        fields = {"partitions": partitions, "count": count, "size": 2000, "config": config}
        self.ask("produce", topic=topic, **fields)


def _has_applied(broker: Node, offset: int) -> bool:
    # A broker's features are those of its last applied offset.
    asked = ApiVersionsRequestData("test", "1")
    said = ask_node(broker, API_VERSIONS, 3, asked, ApiVersionsResponseData)
    return said.finalized_features_epoch >= offset


def grow_quorum(stage: Stage) -> None:
    """Write KRaftVoters: controllers that were formatted without voters join the first one."""
    for node_id in CONTROLLERS[1:]:
        wait_for(f"{node_id} among the voters", partial(_add_voter, stage, node_id))


def create_topics(stage: Stage) -> None:
    """Write Topic, Partition, Config: factors 1 to 3, manual placement, a long topic name."""
    stage.ask(
        "create_topics",
        topics=[
            {"name": "orders", "partitions": 6, "replication_factor": 3},
            {
                "name": "payments",
                "partitions": 4,
                "replication_factor": 3,
                "configs": {
                    "min.insync.replicas": "2",
                    "cleanup.policy": "compact,delete",
                    "retention.ms": "86400000",
                },
            },
            {"name": "clicks", "partitions": 3, "replication_factor": 2},
            {"name": "solo", "partitions": 2, "replication_factor": 1},
            {"name": "by-hand", "assignment": [[3, 1, 2], [1, 3, 2]]},
            {"name": "scratch", "partitions": 2, "replication_factor": 3},
            {"name": "x" * 249, "partitions": 1, "replication_factor": 2},
        ],
    )
    stage.wait_for_isr("orders", 3)


def create_many(stage: Stage) -> None:
    """Create a few hundred partitions, so that snapshots and segments have some size."""
    stage.ask(
        "create_topics",
        topics=[{"name": "wide", "partitions": 100, "replication_factor": 3}],
    )
    stage.wait_for_isr("wide", 3)


def create_partitions(stage: Stage) -> None:
    """Write Partition: add partitions to a topic, placed by Kafka and manually."""
    stage.ask("create_partitions", topic="clicks", total=5)
    stage.ask("create_partitions", topic="by-hand", total=4, assignment=[[2, 3, 1], [3, 2, 1]])


def delete_topic(stage: Stage) -> None:
    """Write RemoveTopic for a topic that has its own configs."""
    stage.config("TOPIC", "scratch", ("SET", "retention.bytes", "1000000"))
    # A node that applies both in one step keeps the config in its image and in its snapshots,
    # without the topic. Idle nodes apply them one by one.
    stage.settle()
    time.sleep(2.0)
    stage.ask("delete_topics", topics=["scratch"])


def configure(stage: Stage) -> None:
    """Write Config for every type of resource: set, append, subtract, delete."""
    stage.config(
        "TOPIC", "orders", ("SET", "retention.ms", "3600000"), ("SET", "segment.ms", "9000")
    )
    stage.config("TOPIC", "orders", ("DELETE", "segment.ms", None))
    stage.config("TOPIC", "solo", ("APPEND", "cleanup.policy", "compact"))
    stage.config("TOPIC", "solo", ("SUBTRACT", "cleanup.policy", "delete"))
    stage.config("TOPIC", "clicks", ("SET", "compression.type", "zstd"))
    stage.config("BROKER", "1", ("SET", "log.cleaner.threads", "1"))
    stage.config("BROKER", "2", ("SET", "follower.replication.throttled.rate", "10000000"))
    stage.config("BROKER", "2", ("DELETE", "follower.replication.throttled.rate", None))
    stage.config("BROKER", "", ("SET", "message.max.bytes", "2000000"))
    stage.config("BROKER", "", ("SET", "log.retention.ms", "604800000"))
    stage.config("BROKER", "", ("DELETE", "log.retention.ms", None))
    stage.config(
        "CLIENT_METRICS",
        "telemetry",
        ("SET", "metrics", "org.apache.kafka.producer."),
        ("SET", "interval.ms", "10000"),
        ("SET", "match", "client_software_name=apache-kafka-java"),
    )


def configure_group(stage: Stage) -> None:
    """Write Config for a consumer group (metadata.version of 4.x)."""
    stage.config("GROUP", "readers", ("SET", "consumer.session.timeout.ms", "50000"))
    stage.config("GROUP", "readers", ("SET", "consumer.heartbeat.interval.ms", "6000"))
    stage.config("GROUP", "readers", ("DELETE", "consumer.heartbeat.interval.ms", None))


def authorize(stage: Stage) -> None:
    """Write AccessControlEntry and RemoveAccessControlEntry."""
    rules = [
        ("TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW"),
        ("TOPIC", "pay", "PREFIXED", "User:bob", "10.0.0.1", "WRITE", "ALLOW"),
        ("TOPIC", "*", "LITERAL", "User:mallory", "*", "ALL", "DENY"),
        ("GROUP", "readers", "LITERAL", "User:alice", "*", "DESCRIBE", "ALLOW"),
        ("CLUSTER", "kafka-cluster", "LITERAL", "User:carol", "*", "ALTER_CONFIGS", "ALLOW"),
        ("TRANSACTIONAL_ID", "tx", "PREFIXED", "User:bob", "*", "WRITE", "ALLOW"),
    ]
    names = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
    for rule in rules:
        stage.ask("create_acl", **dict(zip(names, rule, strict=True)))
    stage.ask("delete_acl", **dict(zip(names, rules[3], strict=True)))


def credentials(stage: Stage) -> None:
    """Write UserScramCredential for both mechanisms: create, replace and remove."""
    for mechanism, user in (("SCRAM-SHA-256", "alice"), ("SCRAM-SHA-512", "alice")):
        scram = {"user": user, "mechanism": mechanism, "iterations": 4096}
        stage.ask("upsert_scram", password="throwaway-1", **scram)
    scram = {"user": "bob", "mechanism": "SCRAM-SHA-256", "iterations": 8192}
    stage.ask("upsert_scram", password="throwaway-2", **scram)
    stage.ask("upsert_scram", password="throwaway-3", **scram)
    stage.ask("delete_scram", user="alice", mechanism="SCRAM-SHA-512")


def admin_credential(stage: Stage) -> None:
    """Create the user of the SASL listener, for releases whose kafka-storage cannot create it."""
    scram = {"mechanism": "SCRAM-SHA-256", "iterations": 4096}
    stage.ask("upsert_scram", user=ADMIN_USER, password=ADMIN_PASSWORD, **scram)


def quotas(stage: Stage) -> None:
    """Write ClientQuota for users, clients, addresses and defaults: set, change and remove."""
    ask = stage.ask
    ask("alter_quota", entity={"user": "alice"}, key="producer_byte_rate", value=1048576.0)
    ask("alter_quota", entity={"user": "alice"}, key="producer_byte_rate", value=2097152.0)
    ask("alter_quota", entity={"user": None}, key="consumer_byte_rate", value=4194304.0)
    ask("alter_quota", entity={"client-id": "etl"}, key="request_percentage", value=12.5)
    pair = {"user": "bob", "client-id": None}
    ask("alter_quota", entity=pair, key="controller_mutation_rate", value=50.0)
    ask("alter_quota", entity={"ip": "10.0.0.7"}, key="connection_creation_rate", value=10.0)
    ask("alter_quota", entity={"client-id": "etl"}, key="request_percentage", value=None)
    ask("alter_quota", entity={"client-id": "web"}, key="request_percentage", value=0.1)


def produce(stage: Stage) -> None:
    """Write ProducerIds: run an idempotent and a transactional producer.

    The second one creates __transaction_state.
    """
    stage.produce("orders", [0, 1, 2], 20)
    stage.produce("orders", [3], 5, transactional__id="tx-orders")
    stage.produce("clicks", [0], 5, acks="1", enable__idempotence="false")


def tokens(stage: Stage) -> None:
    """Write DelegationToken: create, renew, and expire at once (RemoveDelegationToken)."""
    sasl = stage.cluster.nodes[1]
    config = sasl_client(f"{HOST}:{sasl.sasl_port}", ADMIN_USER, ADMIN_PASSWORD)
    stage.ask.connect("sasl", config)
    day_ms = 86_400_000

    def make(renewers: list[str]) -> str:
        made: str = stage.ask(
            "create_token", client="sasl", renewers=renewers, max_lifetime_ms=7 * day_ms
        )
        return made

    # The next broker may not have the user or a token yet.
    kept = wait_for("a token", lambda: make(["User:alice", "User:bob"]))
    gone = wait_for("another token", lambda: make([]))
    wait_for("the token's renewal", lambda: _renew(stage, kept, day_ms))
    wait_for("the token's end", lambda: _expire(stage, gone))
    stage.notes["token"] = kept


def _renew(stage: Stage, token: str, period_ms: int) -> bool:
    return bool(stage.ask("renew_token", client="sasl", token=token, period_ms=period_ms))


def _expire(stage: Stage, token: str) -> bool:
    return bool(stage.ask("expire_token", client="sasl", token=token, period_ms=-1))


def reassign(stage: Stage) -> None:
    """Write PartitionChange: reassignments that complete, and one that is cancelled."""
    first = stage.partitions("clicks")[0]["replicas"]
    other = ({1, 2, 3} - set(first)).pop()
    stage.ask("reassign", partitions={"clicks": {"0": [other, first[0]]}})
    stage.wait_until_moved()
    stage.ask("reassign", partitions={"by-hand": {"1": [1, 3]}})
    stage.wait_until_moved()
    stage.ask("create_topics", topics=[{"name": "moves", "assignment": [[1], [1], [2]]}])
    stage.wait_for_isr("moves", 1)
    slow_down(stage, "moves")
    stage.produce("moves", [0], 300)
    stage.ask("reassign", partitions={"moves": {"0": [2]}})
    stage.ask("reassign", partitions={"moves": {"0": None}})
    stage.wait_until_moved()


def slow_down(stage: Stage, topic: str) -> None:
    """Throttle the topic's replication, so that a reassignment stays in progress."""
    for name in ("leader", "follower"):
        stage.config("TOPIC", topic, ("SET", f"{name}.replication.throttled.replicas", "*"))
        for broker in ("1", "2", "3"):
            rate = f"{name}.replication.throttled.rate"
            stage.config("BROKER", broker, ("SET", rate, THROTTLE_BYTES))
    stage.settle()


def log_directories(stage: Stage) -> None:
    """Write PartitionChange.directories: move a replica to the broker's other log directory."""
    held = stage.ask("log_directories", broker=1)
    source = next(path for path, there in held.items() if "orders-0" in there)
    target = next(path for path in held if path != source)
    fields = {"topic": "orders", "partition": 0, "broker": 1, "directory": target}
    stage.ask("move_replica", **fields)
    wait_for(
        "orders-0 in the other directory",
        lambda: "orders-0" in stage.ask("log_directories", broker=1)[target],
    )


def lose_directory(stage: Stage) -> None:
    """Write BrokerRegistrationChange.logDirs: a log directory fails; its replicas go offline."""
    node = stage.cluster.nodes[3]
    directory = node.directory / "data-1"
    aside = directory.rename(node.directory / "data-1-aside")
    directory.write_text("no directory any more\n")
    wait_for("replicas to leave the ISR", lambda: _is_short(stage, "wide"))
    node.kill()
    stage.wait_for_brokers(without=3)
    directory.unlink()
    aside.rename(directory)
    stage.broker(3)
    stage.wait_for_isr("wide", 3)


def _is_short(stage: Stage, topic: str) -> bool:
    return any(len(one["isr"]) < len(one["replicas"]) for one in stage.partitions(topic))


def fence(stage: Stage) -> None:
    """Write BrokerRegistrationChange: kill and restart a broker; shut another down cleanly."""
    stage.cluster.nodes[3].kill()
    stage.wait_for_brokers(without=3)
    stage.broker(3)
    stage.wait_for_isr("orders", 3)
    stage.cluster.nodes[2].stop()
    stage.wait_for_brokers(without=2)
    stage.broker(2)
    stage.wait_for_isr("orders", 3)
    for topic in ("orders", "by-hand", "payments"):
        count = len(stage.partitions(topic))
        _elect(stage, "PREFERRED", topic, list(range(count)))


def _elect(stage: Stage, kind: str, topic: str, partitions: list[int]) -> None:
    try:
        stage.ask("elect", type=kind, partitions={topic: partitions})
    except ClusterError as error:
        if "ElectionNotNeeded" not in str(error):
            raise


def unclean_election(stage: Stage) -> None:
    """Let a partition elect an out-of-sync replica (leaderRecoveryState)."""
    stage.ask("create_topics", topics=[{"name": "unclean", "assignment": [[3, 2]]}])
    stage.wait_for_isr("unclean", 2)
    stage.cluster.nodes[2].kill()
    stage.wait_for_brokers(without=2)
    stage.wait_for_isr("unclean", 1)
    stage.produce("unclean", [0], 5)
    stage.cluster.nodes[3].kill()
    stage.wait_for_brokers(without=3)
    stage.broker(2)
    wait_for("no leader", lambda: stage.partitions("unclean")[0]["leader"] == -1)
    _elect(stage, "UNCLEAN", "unclean", [0])
    wait_for("broker 2 to lead", lambda: stage.partitions("unclean")[0]["leader"] == 2)
    stage.broker(3)
    stage.wait_for_isr("unclean", 2)


def eligible_replicas(stage: Stage) -> None:
    """Create an ELR: kill in-sync replicas until fewer than min.insync.replicas are left."""
    two = {"min.insync.replicas": "2"}
    stage.ask(
        "create_topics",
        topics=[
            {"name": "elr", "assignment": [[2, 3], [3, 2]], "configs": two},
            {"name": "elr-of-three", "assignment": [[2, 3, 1], [3, 1, 2]], "configs": two},
            {"name": "elr-cleared", "assignment": [[2, 3], [3, 2]], "configs": two},
        ],
    )
    for topic, size in (("elr", 2), ("elr-of-three", 3), ("elr-cleared", 2)):
        stage.wait_for_isr(topic, size)
    stage.cluster.nodes[2].kill()
    stage.wait_for_brokers(without=2)
    stage.cluster.nodes[3].kill()
    stage.wait_for_brokers(without=3)
    wait_for("no leader", lambda: stage.partitions("elr")[0]["leader"] == -1)


def clear_eligible_replicas(stage: Stage) -> None:
    """Write ClearElr for one topic: change its min.insync.replicas while it has an ELR."""
    stage.config("TOPIC", "elr-cleared", ("SET", "min.insync.replicas", "1"))


def clear_all_eligible_replicas(stage: Stage) -> None:
    """Write ClearElr for every topic: change the cluster's min.insync.replicas."""
    stage.config("BROKER", "", ("SET", "min.insync.replicas", "2"))
    stage.config("BROKER", "", ("SET", "min.insync.replicas", "1"))


def return_unclean(stage: Stage) -> None:
    """Restart killed brokers, so that they move from the ELR to the last known ELR."""
    stage.broker(3)
    stage.broker(2)
    stage.wait_for_isr("orders", 3)


def cordon(stage: Stage) -> None:
    """Write BrokerRegistrationChange.cordonedLogDirs (KIP-1066): it gets no new replicas."""
    # Not a directory by its path: the records would contain a path of this machine.
    stage.config("BROKER", "2", ("SET", "cordoned.log.dirs", "*"))
    time.sleep(1.5)  # the next heartbeats carry it
    stage.config("BROKER", "2", ("DELETE", "cordoned.log.dirs", None))
    time.sleep(1.5)


def retire_broker(stage: Stage) -> None:
    """Write UnregisterBroker: a fourth broker, without a rack, joins, stops and is unregistered."""
    node = stage.cluster.add_broker(4, None)
    node.format(stage.cluster.cluster_id, *stage.cluster.broker_format())
    stage.broker(4)
    node.stop()
    stage.wait_for_brokers(without=4)
    stage.ask("unregister_broker", broker=4)
    del stage.cluster.nodes[4]


def voters(stage: Stage) -> None:
    """Write KRaftVoters control records: remove a voter and add it again."""
    stage.ask("remove_voter", **stage.voter(103))
    wait_for("two voters", lambda: len(stage.ask("quorum")["voters"]) == 2)
    time.sleep(1.0)  # it must have fetched as an observer before it may be added again
    wait_for("103 among the voters again", lambda: _add_voter(stage, 103))


def _add_voter(stage: Stage, node_id: int) -> bool:
    if str(node_id) not in stage.ask("quorum")["voters"]:
        stage.ask("add_voter", **stage.voter(node_id))
    return str(node_id) in stage.ask("quorum")["voters"]


def failover(stage: Stage) -> None:
    """Write LeaderChange control records: stop the active controller, wait, and restart it."""
    leader = stage.ask("quorum")["leader"]
    stage.cluster.nodes[leader].stop()
    wait_for("another active controller", lambda: stage.ask("quorum")["leader"] not in (leader, -1))
    stage.config("TOPIC", "orders", ("SET", "max.message.bytes", "1048588"))
    stage.cluster.nodes[leader].start()
    stage.cluster.nodes[leader].wait_until_listening()


def upgrade(stage: Stage, feature: str, level: int, kind: str = "UPGRADE") -> None:
    """Write FeatureLevel: change the level of a feature."""
    stage.ask("update_feature", feature=feature, level=level, type=kind)
    wait_for(f"{feature} at {level}", lambda: stage.ask("features").get(feature, 0) == level)


def trouble(stage: Stage) -> None:
    """Create the last state, whose tool output is kept: a cluster with many problems.

    One reassignment is throttled, another waits for a dead broker. Broker 3 is dead, so partitions
    are under-replicated, under min ISR or without a leader, and (with ELR) have eligible replicas.
    """
    stage.ask("create_topics", topics=[{"name": "lost", "assignment": [[3], [3]]}])
    stage.ask("reassign", partitions={"moves": {"0": [2]}})
    stage.cluster.nodes[3].kill()
    stage.wait_for_brokers(without=3)
    stage.ask("reassign", partitions={"moves": {"1": [2, 3]}})
    wait_for("2 in the ISR of moves-1", lambda: 2 in stage.partitions("moves")[1]["isr"])
