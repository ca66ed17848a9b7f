"""Run real clients against a cluster, and keep what they print against Apache Kafka's controllers.

The clients are Kafka's tools at ``--bootstrap-controller``, its Admin client over
``bootstrap.controllers``, and the admin clients kafka-python, confluent-kafka and aiokafka at
Kafka's broker, which forwards their requests. ``run_clients``
returns for each step the output or result, without what differs between two runs: ids, ports,
times, offsets. Of an error the class remains, because kraft has its own words.

``python -m tests.interop.real_clients`` writes the table again.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.harness.kafka_jars import KAFKA_4, Jars, kafka
from tests.harness.line_process import JsonRequests, LineProcess
from tests.interop import python_clients
from tests.interop.cluster import Cluster, ClusterError, Driver, Node, wait_for

TABLE = Path(__file__).parents[1] / "data" / "real-clients-4.3.1.json.gz"
CONTROLLER, BROKER = 101, 1
Outcomes = dict[str, Any]

_TOOLS = "org.apache.kafka.tools."
ACLS, CLUSTER = _TOOLS + "AclCommand", _TOOLS + "ClusterTool"
FEATURES, QUORUM = _TOOLS + "FeatureCommand", _TOOLS + "MetadataQuorumCommand"
REASSIGN, CONFIGS = _TOOLS + "reassign.ReassignPartitionsCommand", "kafka.admin.ConfigCommand"

_TOPIC_CONFIGS = ("--entity-type", "topics", "--entity-name", "tools")
_DEFAULTS = ("--entity-type", "brokers", "--entity-default")
_NODE = ("--entity-type", "brokers", "--entity-name", str(CONTROLLER))
_PREFIXED = ("--resource-pattern-type", "prefixed")
#: Class and words; ``@name`` is a file of `_FILES`. The topic *tools* exists, with a replica on the
#: broker 1.
TOOL_STEPS: tuple[tuple[str, ...], ...] = (
    (CLUSTER, "cluster-id"),
    (CLUSTER, "list-endpoints"),
    (CLUSTER, "unregister", "--id", "77"),
    (QUORUM, "describe", "--status"),
    (QUORUM, "describe", "--replication"),
    (QUORUM, "remove-controller", "-i", "5", "-d", "AAAAAAAAAAAAAAAAAAAABQ"),
    (FEATURES, "describe"),
    (FEATURES, "upgrade", "--feature", "group.version=9"),
    (FEATURES, "upgrade", "--feature", "eligible.leader.replicas.version=1"),
    (FEATURES, "downgrade", "--feature", "eligible.leader.replicas.version=0"),
    (FEATURES, "downgrade", "--feature", "group.version=0", "--dry-run"),
    (FEATURES, "disable", "--feature", "no.such.feature"),
    (FEATURES, "downgrade", "--metadata", "3.3-IV0", "--unsafe"),
    (ACLS, "--add", "--allow-principal", "User:ann", "--operation", "Read", "--topic", "tools"),
    (ACLS, "--add", "--deny-principal", "User:bob", "--operation", "All",
     "--group", "g", *_PREFIXED),
    (ACLS, "--add", "--allow-principal", "User:ann", "--producer", "--topic", "t-", *_PREFIXED),
    (ACLS, "--list"),
    (ACLS, "--list", "--topic", "tools"),
    (ACLS, "--list", "--principal", "User:ann"),
    (ACLS, "--remove", "--force", "--allow-principal", "User:ann", "--operation", "Read",
     "--topic", "tools"),
    (ACLS, "--remove", "--force", "--group", "g", *_PREFIXED),
    (ACLS, "--list"),
    (CONFIGS, "--alter", *_TOPIC_CONFIGS,
     "--add-config", "retention.ms=5000,cleanup.policy=compact"),
    (CONFIGS, "--alter", *_TOPIC_CONFIGS, "--add-config", "retention.ms=much"),
    (CONFIGS, "--alter", *_TOPIC_CONFIGS, "--add-config", "no.such.config=1"),
    (CONFIGS, "--alter", *_TOPIC_CONFIGS, "--delete-config", "retention.ms"),
    (CONFIGS, "--describe", *_TOPIC_CONFIGS),
    (CONFIGS, "--describe", "--all", *_TOPIC_CONFIGS),
    (CONFIGS, "--alter", *_DEFAULTS, "--add-config", "log.retention.ms=60000"),
    (CONFIGS, "--describe", *_DEFAULTS),
    (CONFIGS, "--alter", *_NODE, "--add-config", "max.connections=500"),
    (CONFIGS, "--describe", *_NODE),
    (CONFIGS, "--alter", *_NODE, "--delete-config", "max.connections"),
    (CONFIGS, "--alter", *_NODE, "--add-config", "node.id=5"),
    (CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "absent"),
    (CONFIGS, "--alter", "--entity-type", "client-metrics", "--entity-name", "m",
     "--add-config", "interval.ms=30000"),
    (CONFIGS, "--describe", "--entity-type", "client-metrics", "--entity-name", "m"),
    (REASSIGN, "--list"),
    (REASSIGN, "--cancel", "--reassignment-json-file", "@same"),
    (REASSIGN, "--cancel", "--reassignment-json-file", "@absent-topic"),
)  # fmt: skip


_TOPIC = {"type": "TOPIC", "name": "tools"}
#: Verbs and fields of `Drive.java`: Kafka's Admin client over ``bootstrap.controllers``.
ADMIN_STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("cluster_id", {}),
    ("features", {}),
    ("reassignments", {}),
    ("describe_config", {"type": "BROKER", "name": str(CONTROLLER)}),
    ("describe_config", _TOPIC),
    ("alter_config", _TOPIC | {"ops": [["SET", "retention.ms", "8000"]]}),
    ("alter_config", _TOPIC | {"ops": [["APPEND", "retention.ms", "8000"]]}),
    ("describe_config", _TOPIC),
    ("create_acl", {"resource": "TOPIC", "name": "adm", "pattern": "LITERAL", "principal": "User:a",
                    "host": "*", "operation": "READ", "permission": "ALLOW"}),
    ("unregister_broker", {"broker": 77}),
    ("reassign", {"partitions": {"absent": {"0": [BROKER]}}}),
    ("create_topics", {"topics": [{"name": "no", "partitions": 1, "replication_factor": 1}]}),
    ("elect", {"type": "PREFERRED", "partitions": {"tools": [0]}}),
)  # fmt: skip


def _assignment(topic: str, *replicas: int) -> str:
    partitions = [{"topic": topic, "partition": 0, "replicas": list(replicas)}]
    return json.dumps({"version": 1, "partitions": partitions})


_FILES = {
    "@same": _assignment("tools", BROKER),
    "@absent-topic": _assignment("absent", BROKER),
}


#: The first words of operations that read what a broker, or the controller's image, has applied. It
#: may lag behind the response to a change.
_READS = ("describe", "reassignments", "features", "list", "--list", "--describe")
_READ_TIMEOUT_S, _SETTLED_S = 60.0, 2.0


def run_clients(cluster: Cluster, wanted: Outcomes | None = None) -> Outcomes:
    """Return the outcome of each step, by client and number; the cluster runs.

    A step that reads is repeated until its outcome is the wanted one, for at most 60 s. Without
    ``wanted``, it waits until nothing can lag.
    """
    controller, broker = cluster.nodes[CONTROLLER], cluster.nodes[BROKER]
    python_clients.create_topic(broker.address, "tools")
    outcomes: Outcomes = {}
    for client in python_clients.CLIENTS:
        for name, ask in client(broker.address):
            step = f"{client.__name__} {name}"
            outcomes[step] = _settled(name, step, lambda ask=ask: plain(ask()), wanted)
    driver = cluster.driver(to_controllers=True)
    for number, (verb, fields) in enumerate(ADMIN_STEPS):
        step = f"Admin {number} {verb}"
        outcomes[step] = _settled(verb, step, partial(_admin, driver, verb, fields), wanted)
    for name, words, run in _tools(cluster.jars, controller, cluster.directory):
        outcomes[name] = _settled(words, name, run, wanted)
    return outcomes


def _admin(driver: Driver, verb: str, fields: dict[str, Any]) -> Any:
    try:
        return plain(driver(verb, **fields))
    except ClusterError as error:
        return f"error {plain(str(error.__cause__)).split(':')[0]}"


def _settled(words: str, step: str, run: Callable[[], Any], wanted: Outcomes | None) -> Any:
    if not words.startswith(_READS):
        return run()
    if wanted is None:
        time.sleep(_SETTLED_S)
        return run()
    deadline = time.monotonic() + _READ_TIMEOUT_S
    while (outcome := run()) != wanted.get(step) and time.monotonic() < deadline:
        time.sleep(0.05)
    return outcome


def _tools(
    jars: Jars, controller: Node, directory: Path
) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield name, words and run of each step of Kafka's tools, in one JVM."""
    for name, text in _FILES.items():
        (directory / name).write_text(text)
    with LineProcess(jars.oracle("RunTools"), errors=subprocess.DEVNULL) as process:
        requests = JsonRequests(process)
        for number, (tool, *words) in enumerate(TOOL_STEPS):
            given = [str(directory / word) if word in _FILES else word for word in words]
            at = ["--bootstrap-controller", controller.address]
            # ClusterTool takes its options after the command, FeatureCommand before it.
            given = [*given, *at] if tool == CLUSTER else [*at, *given]

            def run(tool: str = tool, given: list[str] = given) -> Any:
                said = requests(tool, words=given)
                return [said["code"], _lines(said["out"])]

            line = " ".join(words)
            yield f"{tool.rpartition('.')[2]} {number} {line}", line, run


def _lines(text: str) -> list[str]:
    """Return what a tool prints; the order of ACLs and configurations is that of Java's hashes."""
    lines = [plain(line.rstrip()) for line in text.splitlines()]
    return sorted(line for line in lines if line.strip() and not line.lstrip().startswith("at "))


#: What differs between two runs, or where kraft has its own words.
_DIFFERS = (
    (re.compile(r"(\w+(?:Exception|Error)): .*", re.DOTALL), r"\1: …"),
    (re.compile(r"\b(?:127\.0\.0\.1|localhost):\d+"), "ADDRESS"),
    (re.compile(r"\b[A-Za-z0-9_-]{22}\b"), "ID"),
    (re.compile(r"/\S*/"), "DIRECTORY/"),
    (re.compile(r"((?:Epoch|HighWatermark|Lag|LagTimeMs|Timestamp\w*):?\s+)-?\d+"), r"\1N"),
    (re.compile(r"\s+"), " "),
    # Of kafka-metadata-quorum --replication: offset, lag and times.
    (re.compile(r"^(\d+ ID) \d+ \d+ \d+ \d+ "), r"\1 N N N N "),
    (re.compile(r"127\.0\.0\.1 \d+"), "127.0.0.1 PORT"),
    # kraft supports the levels of 4.4.
    (re.compile(r"(SupportedMaxVersion:) (?:UNKNOWN )?\S+"), r"\1 MAX"),
)


def plain(value: Any) -> Any:
    """Return a result as JSON, without what differs between two runs."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in sorted(value.items(), key=str)}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, str) and not value.startswith("error "):
        for pattern, text in _DIFFERS:
            value = pattern.sub(text, value)
        return value
    return value if isinstance(value, (str, int, float, type(None))) else plain(str(value))


def start(directory: Path, add_controller: Callable[[Cluster, int], Node]) -> Cluster:
    """Start one controller and one broker of Kafka; end them with `Cluster.kill`."""
    cluster = Cluster(kafka(KAFKA_4), directory, "a3JhZnQgcmVhbCBjbGllbg", True)
    cluster.settings = {
        **{
            f"{kind}.replication.factor": "1" for kind in ("offsets.topic", "transaction.state.log")
        },
        "transaction.state.log.min.isr": "1",
        "broker.session.timeout.ms": "9000",
    }
    cluster.reserve_controllers(CONTROLLER)
    try:
        for node in (add_controller(cluster, CONTROLLER), cluster.add_broker(BROKER, None)):
            node.format(cluster.cluster_id)
            node.start()
        for node in cluster.nodes.values():
            node.wait_until_listening()

        def has_topic() -> bool:
            try:
                python_clients.create_topic(cluster.nodes[BROKER].address, "first")
            except Exception as error:
                raise ClusterError(str(error)) from error
            return True

        wait_for("the first topic", has_topic)
    except BaseException:
        cluster.kill()
        raise
    return cluster


def load_table() -> Outcomes:
    """Return the outcomes at Apache Kafka's controllers."""
    with gzip.open(TABLE, "rt", encoding="utf-8") as file:
        table: Outcomes = json.load(file)
    return table


def save_table(outcomes: Outcomes) -> None:
    text = json.dumps(outcomes, indent=1, ensure_ascii=False)
    TABLE.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        running = start(Path(place), Cluster.add_controller)
        try:
            save_table(run_clients(running))
        finally:
            running.kill()
    print(TABLE, file=sys.stderr)
