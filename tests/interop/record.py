"""Record real metadata: `python -m tests.interop.record [4.3] [3.9]` fills `tests/data/kafka-…`.

Starts a cluster of that Kafka release, drives it through the chapters of `scenario.py`, lets
Kafka's tools print the state, stops it, and keeps the nodes' metadata directories with that text. A
run takes two to three minutes. The bytes of two runs differ (ids, times, the order of elections),
so a new recording is committed as a whole.

    tests/data/kafka-4.3/
        manifest.json       the release, the cluster's id, and each moment: the end offset of the
                            log when the tools ran; they printed the state of all records below it
        controller-101/     as kept by `keep.py`
        text/<node>/…       kafka-dump-log of each log and checkpoint, kafka-metadata-shell's tree
        text/<moment>/…     the tools' output for the running cluster at that moment
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import kraft
from kraft.records import NoOp
from tests.harness import kafka_jars
from tests.harness.configurations import write_properties
from tests.interop import keep, scenario, tools
from tests.interop.cluster import (
    ADMIN_PASSWORD,
    ADMIN_USER,
    SCRAM,
    Cluster,
    ClusterError,
    Node,
    sasl_client,
    wait_for,
)
from tests.interop.scenario import CONTROLLERS, RACKS, Stage, upgrade

DATA = kafka_jars.PROJECT / "tests" / "data"
TOPIC_TOOL = "org.apache.kafka.tools.TopicCommand"
FILTERS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
#: A time without changes is a few runs of the tools long.
QUIET_TIMEOUT_S = 300.0
#: Adds a broker with this id and rack to a cluster.
AddBroker = Callable[[Cluster, int, str], Node]


@dataclass
class Recording:
    """One set under `tests/data`: its moments and its text."""

    stage: Stage
    target: Path
    moments: dict[str, int] = field(default_factory=dict)

    def tool(self, main: str, *arguments: str) -> str:
        bootstrap = ("--bootstrap-server", self.stage.cluster.nodes[1].address)
        said = self.stage.cluster.jars.run(main, *bootstrap, *arguments)
        return said.stdout

    def describe_topics(self, moment: str) -> None:
        """Keep the output of `kafka-topics --describe`, without and with each filter."""
        text = self.target / "text" / moment
        keep.write_text(text / "topics.txt", self.tool(TOPIC_TOOL, "--describe"))
        for one in FILTERS:
            said = self.tool(TOPIC_TOOL, "--describe", f"--{one}")
            keep.write_text(text / f"topics-{one}.txt", said)

    def describe_rest(self, moment: str) -> None:
        """Keep the output of the other tools."""
        text = self.target / "text" / moment
        tools = "org.apache.kafka.tools"
        quorum = f"{tools}.MetadataQuorumCommand"
        said = {
            "quorum-status": self.tool(quorum, "describe", "--status"),
            "quorum-replication": self.tool(quorum, "describe", "--replication"),
            "features": self.tool(f"{tools}.FeatureCommand", "describe"),
            "configs-topics": self.configs("--entity-type", "topics"),
            "configs-brokers": self.configs("--entity-type", "brokers"),
            "configs-brokers-default": self.configs("--entity-type", "brokers", "--entity-default"),
            "configs-client-metrics": self.configs("--entity-type", "client-metrics"),
            "quotas-users": self.configs("--entity-type", "users"),
            "quotas-clients": self.configs("--entity-type", "clients"),
            "quotas-ips": self.configs("--entity-type", "ips"),
            "acls": self.tool(self.acl_tool(), "--list"),
            "tokens": self.tokens(),
        }
        if self.stage.cluster.jars.version.startswith("4"):
            said["configs-groups"] = self.configs("--entity-type", "groups")
            bootstrap = ("--bootstrap-server", self.stage.cluster.nodes[1].address)
            said["brokers"] = self.stage.cluster.jars.run(
                f"{tools}.ClusterTool", "list-endpoints", *bootstrap, "--include-fenced-brokers"
            ).stdout
        for name, one in said.items():
            keep.write_text(text / f"{name}.txt", one)

    def configs(self, *which: str) -> str:
        return self.tool("kafka.admin.ConfigCommand", "--describe", *which)

    def acl_tool(self) -> str:
        is_4 = self.stage.cluster.jars.version.startswith("4")
        return "org.apache.kafka.tools.AclCommand" if is_4 else "kafka.admin.AclCommand"

    def tokens(self) -> str:
        node = self.stage.cluster.nodes[1]
        config = sasl_client(f"127.0.0.1:{node.sasl_port}", ADMIN_USER, ADMIN_PASSWORD)
        path = node.directory / "sasl.properties"
        write_properties(path, config)
        main = "org.apache.kafka.tools.DelegationTokenCommand"
        owner = ("--owner-principal", f"User:{ADMIN_USER}")
        arguments = ["--describe", *owner, "--command-config", str(path)]
        bootstrap = ["--bootstrap-server", config["bootstrap.servers"]]
        said = self.stage.cluster.jars.run(main, *bootstrap, *arguments).stdout
        return re.sub(r"[A-Za-z0-9+/]{86}==", "<HMAC>", said)

    def moment(self, name: str, *describe: Callable[[str], None]) -> None:
        """Run the tools while only NoOps are written; `check_moments` verifies that later."""

        def run_tools() -> None:
            for one in describe:
                one(name)

        self.moments[name], self.moments[f"{name}/after"] = while_quiet(self.stage, run_tools)

    def keep_nodes(self, nodes: dict[str, int], extra: tuple[str, ...]) -> None:
        """Keep the directories, dump every file, and check the moments."""
        jars = self.stage.cluster.jars
        for name, node_id in nodes.items():
            keep.keep_node(self.stage.cluster.nodes[node_id], self.target / name)
        names = [*nodes, *extra]
        dumps = tools.dump(jars, self.target, keep.dumpable(self.target, names))
        for path, said in dumps.items():
            keep.write_text(self.target / "text" / f"{path}.txt", said)
        for name in nodes:
            for path in keep.shell_readable(self.target / name):
                where = path.relative_to(self.target)
                text = self.target / "text" / f"{where}.tree.txt"
                keep.write_text(text, tools.tree(jars, path))
        self.check_moments("".join(dumps.values()))
        manifest = {
            "kafka": jars.version,
            "cluster_id": self.stage.cluster.cluster_id,
            "moments": {name: end for name, end in self.moments.items() if "/" not in name},
        }
        path = self.target / "manifest.json"
        path.write_text(json.dumps(manifest, indent=2) + "\n")

    def check_moments(self, dumped: str) -> None:
        for name in [one for one in self.moments if "/" not in one]:
            begin, end = self.moments[name], self.moments[f"{name}/after"]
            during = keep.record_types(dumped, begin, end) - {"NO_OP_RECORD"}
            if during:
                raise ClusterError(f"{during} was written while the tools were asked at {name}")


def while_quiet(stage: Stage, act: Callable[[], None]) -> tuple[int, int]:
    """Act at brokers that have applied all; return the offsets before and after.

    Repeats it if a record other than NoOp was written meanwhile: a busy machine may have fenced a
    broker.
    """

    def offsets() -> tuple[int, int] | None:
        before = stage.settle()
        act()
        said = stage.ask("quorum")
        after = int(said["high_watermark"])
        log = kraft.open_metadata(stage.cluster.nodes[said["leader"]].metadata_directory)
        written = [one.record for one in log.records(since=before) if one.offset < after]
        return (before, after) if all(isinstance(one, NoOp) for one in written) else None

    return wait_for("a time without changes", offsets, QUIET_TIMEOUT_S)


def play(stage: Stage, *chapters: Callable[[Stage], None]) -> None:
    for chapter in chapters:
        print(f"  {chapter.__name__.replace('_', ' ')}", flush=True)
        chapter(stage)


def record_4(cluster: Cluster, target: Path) -> Recording:
    """Record 4.3: dynamic voters; metadata.version from 3.9-IV0 up; ELR; two retention policies."""
    cluster.reserve_controllers(*CONTROLLERS)
    cluster.settings["metadata.log.max.record.bytes.between.snapshots"] = "50000"
    for node_id in CONTROLLERS:
        # Several segments; one controller deletes the log below a snapshot, so that it does not
        # begin at 0.
        retention = {"internal__metadata__log__segment__bytes": "50000"}
        if node_id == 103:
            retention["metadata__max__retention__bytes"] = "80000"
        how = "--standalone" if node_id == 101 else "--no-initial-controllers"
        node = cluster.add_controller(node_id, **retention)
        node.format(cluster.cluster_id, how, "-r", "3.9-IV0", "-f", "kraft.version=1", "-S", SCRAM)
    stage = start(cluster)
    recording = Recording(stage, target)
    play(stage, scenario.grow_quorum, scenario.create_topics, scenario.delete_topic)
    play(stage, scenario.create_many, scenario.create_partitions, scenario.configure)
    play(stage, scenario.authorize, scenario.credentials, scenario.quotas)
    play(stage, scenario.produce, scenario.tokens, scenario.log_directories, scenario.fence)
    play(stage, scenario.lose_directory)
    recording.moment("before-upgrade", recording.describe_topics)
    for feature, level in (
        ("metadata.version", 30),
        ("group.version", 1),
        ("transaction.version", 2),
        ("share.version", 1),
        ("streams.version", 1),
        ("eligible.leader.replicas.version", 1),
    ):
        upgrade(stage, feature, level)
    upgrade(stage, "streams.version", 0, "SAFE_DOWNGRADE")
    play(stage, scenario.configure_group, scenario.cordon, scenario.reassign)
    play(stage, scenario.eligible_replicas, scenario.clear_eligible_replicas)
    recording.moment("two-brokers-dead", recording.describe_topics)
    play(stage, scenario.return_unclean, scenario.clear_all_eligible_replicas)
    play(stage, scenario.unclean_election, scenario.voters, scenario.retire_broker)
    play(stage, scenario.failover, scenario.trouble)
    recording.moment("end", recording.describe_topics, recording.describe_rest)
    return recording


def record_3(cluster: Cluster, target: Path) -> Recording:
    """Record 3.9: static voters; metadata.version from 3.3-IV0 up, for old record versions."""
    cluster.reserve_controllers(*CONTROLLERS)
    cluster.settings["metadata.log.max.record.bytes.between.snapshots"] = "30000"
    cluster.settings["metadata.log.segment.min.bytes"] = "1000"
    for node_id in CONTROLLERS:
        node = cluster.add_controller(node_id, metadata__log__segment__bytes="40000")
        node.format(cluster.cluster_id, "-r", "3.3-IV0")
    stage = start(cluster, "-r", "3.3-IV0")
    recording = Recording(stage, target)
    play(stage, scenario.create_topics, scenario.delete_topic, scenario.create_partitions)
    play(stage, scenario.quotas, scenario.produce, scenario.fence)
    recording.moment("first", recording.describe_topics)
    upgrade(stage, "metadata.version", 7)  # 3.3-IV3
    play(stage, scenario.authorize, scenario.fence)
    upgrade(stage, "metadata.version", 14)  # 3.6-IV2: SCRAM and tokens
    play(stage, scenario.credentials, scenario.admin_credential, scenario.tokens, scenario.fence)
    upgrade(stage, "metadata.version", 21)  # 3.9-IV0: directories
    play(stage, scenario.create_many, scenario.configure, scenario.log_directories)
    play(stage, scenario.reassign, scenario.lose_directory, scenario.unclean_election)
    play(stage, scenario.retire_broker, scenario.failover, scenario.trouble)
    recording.moment("end", recording.describe_topics, recording.describe_rest)
    return recording


def record_small(
    cluster: Cluster, target: Path, first: str, levels: Mapping[str, int], is_elr: bool = False
) -> Recording:
    """Record one controller and three brokers, formatted at release ``first``.

    The features are raised to ``levels`` half-way. It has fewer chapters than the sets above:
    releases differ in record versions, snapshots, and the features that brokers register.
    """
    (controller,) = SMALL_CONTROLLERS
    cluster.reserve_controllers(controller)
    cluster.settings["metadata.log.max.record.bytes.between.snapshots"] = "15000"
    voters = [] if cluster.is_static else ["--standalone"]
    cluster.add_controller(controller).format(cluster.cluster_id, *voters, "-r", first, "-S", SCRAM)
    stage = start(cluster, *(["-r", first] if cluster.is_static else []))
    recording = Recording(stage, target)
    play(stage, scenario.create_topics, scenario.delete_topic, scenario.create_partitions)
    play(stage, scenario.authorize, scenario.credentials, scenario.quotas, scenario.fence)
    recording.moment("before-upgrade", recording.describe_topics)
    for feature, level in levels.items():
        upgrade(stage, feature, level)
    play(stage, scenario.configure, scenario.produce, scenario.tokens, scenario.reassign)
    if is_elr:
        play(stage, scenario.eligible_replicas, scenario.clear_eligible_replicas)
        play(stage, scenario.return_unclean)
    play(stage, scenario.retire_broker, scenario.trouble)
    recording.moment("end", recording.describe_topics, recording.describe_rest)
    return recording


def record_transaction(cluster: Cluster, target: Path) -> Recording:
    """Record 4.3 with a single controller that aborts an open transaction in its log.

    The records of an unfinished transaction are appended to the log of a stopped controller; that
    state is kept as `controller-201-open`. Then the controller starts again and writes
    AbortTransaction.
    """
    cluster.reserve_controllers(201)
    node = cluster.add_controller(201)
    node.format(cluster.cluster_id, "--standalone", "-S", SCRAM)
    run_alone(cluster, lambda epoch: epoch >= 1)
    log = node.metadata_directory / keep.METADATA_LOG / f"{0:020}.log"
    jars = cluster.jars
    jars.run("OpenTransaction", log, classes=jars.compiled("OpenTransaction"))
    keep.keep_node(node, target / "controller-201-open")
    run_alone(cluster, lambda epoch: epoch >= 2)
    return Recording(Stage(cluster, cluster.drivers[-1]), target)


def run_alone(cluster: Cluster, is_there: Callable[[int], bool]) -> None:
    """Run the only controller until it leads in a new epoch and its first records are committed."""
    node = cluster.nodes[201]
    node.start()
    node.wait_until_listening()
    ask = cluster.driver(to_controllers=True)

    def leads() -> bool:
        quorum = ask("quorum")
        return is_there(quorum["epoch"]) and ask("features")["metadata.version"] > 0

    wait_for("the controller to lead", leads)
    node.stop()


def start(
    cluster: Cluster, *broker_format: str, add_broker: AddBroker = Cluster.add_broker
) -> Stage:
    """Format and start the brokers of the three racks, and the controllers added before."""
    for node_id, rack in RACKS.items():
        node = add_broker(cluster, node_id, rack)
        node.format(cluster.cluster_id, *cluster.broker_format(), *broker_format)
    cluster.start()
    stage = Stage(cluster, cluster.driver())
    for node_id in RACKS:
        stage.wait_for_brokers(including=node_id)
    return stage


@dataclass(frozen=True)
class Set:
    """How to record `tests/data/kafka-<name>`."""

    version: str
    cluster_id: str
    record: Callable[[Cluster, Path], Recording]
    kept: dict[str, int]
    is_static: bool = False
    extra: tuple[str, ...] = ()  # further directories that `record` kept itself


NODES = {"controller-101": 101, "controller-103": 103, "broker-1": 1}
NODES_3 = {"controller-101": 101, "broker-1": 1}
SMALL_CONTROLLERS = (101,)
FEATURES_4_0 = {"group.version": 1, "transaction.version": 2}
FEATURES_4_1 = FEATURES_4_0 | {"eligible.leader.replicas.version": 1}
FEATURES_4_2 = FEATURES_4_1 | {"share.version": 1, "streams.version": 1}
SETS = {
    "4.3": Set(kafka_jars.KAFKA_4, "Jm4zGxYVQxO0Jq5lRd5rBw", record_4, NODES),
    "3.9": Set(kafka_jars.KAFKA_3, "pXq1mVxRTo2gVh0c2xk9mA", record_3, NODES_3, is_static=True),
    "4.3-transaction": Set(
        kafka_jars.KAFKA_4,
        "Q0vYpQe8T9C3p1dB8mYxXg",
        record_transaction,
        {"controller-201": 201},
        extra=("controller-201-open",),
    ),
    "3.7": Set(
        "3.7.2",
        "c21hbGwgc2V0IG9mIDMuNw",
        partial(record_small, first="3.7-IV2", levels={"metadata.version": 19}),
        NODES_3,
        is_static=True,
    ),
    "4.0": Set(
        "4.0.2",
        "c21hbGwgc2V0IG9mIDQuMA",
        partial(record_small, first="3.9-IV0", levels={"metadata.version": 25} | FEATURES_4_0),
        NODES_3,
    ),
    "4.1": Set(
        "4.1.1",
        "c21hbGwgc2V0IG9mIDQuMQ",
        partial(
            record_small,
            first="4.0-IV3",
            levels={"metadata.version": 27} | FEATURES_4_1,
            is_elr=True,
        ),
        NODES_3,
    ),
    "4.2": Set(
        "4.2.0",
        "c21hbGwgc2V0IG9mIDQuMg",
        partial(
            record_small,
            first="4.1-IV1",
            levels={"metadata.version": 29} | FEATURES_4_2,
            is_elr=True,
        ),
        NODES_3,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Records metadata that Apache Kafka writes.")
    parser.add_argument("sets", nargs="*", default=list(SETS), help=f"of {', '.join(SETS)}")
    parser.add_argument("--into", type=Path, default=DATA, help="instead of tests/data")
    parser.add_argument("--run", type=Path, help="keep the nodes' directories and logs here")
    asked = parser.parse_args()
    for name in asked.sets:
        base = asked.run or Path(tempfile.mkdtemp(prefix="kraft-record-"))
        run, target = base / name, asked.into / f"kafka-{name}"
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir(parents=True)
        shutil.rmtree(target, ignore_errors=True)
        print(f"recording {name} into {target}", flush=True)
        record(SETS[name], run, target)
        if asked.run is None:
            shutil.rmtree(base)


def record(what: Set, run: Path, target: Path) -> None:
    jars = kafka_jars.kafka(what.version)
    cluster = Cluster(jars, run, what.cluster_id, is_static=what.is_static)
    try:
        recording = what.record(cluster, target)
        cluster.freeze()
        recording.keep_nodes(what.kept, what.extra)
    finally:
        cluster.kill()


if __name__ == "__main__":
    main()
