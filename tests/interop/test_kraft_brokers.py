"""Clients and tools of Apache Kafka at kraft's brokers; both kinds of broker share directories.

The cluster has three controllers and three brokers of kraft, formatted with Kafka 4.3's default
features; brokers of kraft and of Kafka 4.3.1 register with these. The tests run in their order:

    clients and admin tools   at kraft's brokers
    directories               Kafka's dump tool; Kafka's broker takes broker 3's directory over
    mixed cluster             two kraft brokers and Kafka's; leaders move under a load
    back again                kraft's broker takes the directory over from Kafka's

Transactions, share groups and groups of KIP-848 are not supported: Kafka's own clients report it.
librdkafka does not: it asks for a coordinator of transactions until its timeout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.commands import eventually
from tests.harness.line_process import RejectedError
from tests.interop.client_checks import (
    CLIENTS,
    COUNT,
    NOT_IN_CI,
    check_console_tools,
    check_group,
    check_performance_tools,
    check_verifiable_tools,
    client_of,
    wait_for_values,
)
from tests.interop.client_cluster import (
    CONFIG_TOOL,
    IS_FULL_SIZE,
    TOOLS,
    ClientCluster,
    client_cluster,
)
from tests.interop.cluster import wait_for
from tests.interop.data_clients import CLASSIC, CONSUMER, Batch, Values, check_complete, numbered
from tests.interop.idempotent_load import Load, lead
from tests.interop.kraft_node import KraftNode, add_kraft_broker, run_by_kafka, run_by_kraft

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
OFFSETS = f"{TOOLS}.GetOffsetShell"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
DUMP = f"{TOOLS}.DumpLogSegments"
#: A broker that starts again registers after the session of its last life.
SETTINGS = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}
#: Topics of the tests of directories: small segments; broker 3 has the only replica, or one of 3.
ALONE, SHARED, MOVED = "alone", "shared", "moved"
#: The broker whose directory both kinds of broker use.
TAKEN = 3
SMALL_SEGMENTS = {"internal.segment.bytes": "20000", "index.interval.bytes": "200"}
SHARED_PARTITIONS, FILLS = 3, 24
GROUP, OFFSETS_TOPIC = "kept", "__consumer_offsets"


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    home = tmp_path_factory.mktemp("brokers")
    with client_cluster(home, add_broker=add_kraft_broker, settings=SETTINGS) as cluster:
        yield cluster


# -- clients


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("name", CLIENTS)
def test_acknowledged_records_are_read(
    clients: ClientCluster, name: str, is_idempotent: bool
) -> None:
    topic = f"{name}-{is_idempotent}"
    clients.create(topic, min__insync__replicas="2")
    sent = numbered(name, COUNT)
    client_of(clients, name).produce(topic, sent, is_idempotent=is_idempotent)
    check_complete(clients.read_all(topic, len(sent)), sent)


@pytest.mark.parametrize("name", [name for name in CLIENTS if name not in NOT_IN_CI])
def test_the_members_of_a_group_share_the_partitions(clients: ClientCluster, name: str) -> None:
    check_group(clients, name, CLASSIC)


def test_kafkas_console_tools_print_what_they_were_given(clients: ClientCluster) -> None:
    check_console_tools(clients, CLASSIC)


def test_kafkas_verifiable_tools_agree(clients: ClientCluster) -> None:
    check_verifiable_tools(clients, CLASSIC)


def test_kafkas_performance_tools_count_the_same_records(clients: ClientCluster) -> None:
    check_performance_tools(clients, ("ConsumerPerformance", "performance"))


def test_kafkas_clients_report_what_is_not_supported(clients: ClientCluster) -> None:
    clients.create("unsupported", 1)
    impatient = clients.java.with_config({"max.block.ms": "60000"})
    with pytest.raises(RejectedError, match="This broker does not support transactions"):
        impatient.transact("unsupported", [Batch(["value"])], "transaction")
    for member, api in (
        (clients.java.join("unsupported", "newer", CONSUMER), "CONSUMER_GROUP_HEARTBEAT"),
        (clients.java.join_share("unsupported", "share"), "SHARE_GROUP_HEARTBEAT"),
    ):
        with pytest.raises(AssertionError, match=f"UnsupportedVersionException: .*{api}"):
            wait_for("the error", member.values)


@pytest.mark.parametrize("name", ["kafka-python", "aiokafka"])
def test_clients_of_python_report_transactions_as_an_error(
    clients: ClientCluster, name: str
) -> None:
    with pytest.raises(Exception, match="InvalidRequestError"):
        client_of(clients, name).transact("unsupported", [Batch(["value"])], "transaction")


# -- admin tools


@pytest.fixture(scope="module")
def managed(clients: ClientCluster) -> str:
    """Return a topic with four partitions that Kafka's tool created, and 100 records."""
    topic = "managed"
    said = clients.tool(
        TOPICS, "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3"
    )
    assert said == f"Created topic {topic}.\n"
    clients.tool(TOPICS, "--alter", "--topic", topic, "--partitions", "4")
    clients.settle()
    clients.stage.wait_for_isr(topic, 3)
    clients.java.produce(topic, numbered("managed", 100), is_idempotent=True)
    return topic


def offsets(clients: ClientCluster, topic: str, time: str = "latest") -> list[int]:
    said = clients.tool(OFFSETS, "--topic", topic, "--time", time)
    return [int(line.rpartition(":")[2]) for line in said.splitlines()]


def test_kafka_topics(clients: ClientCluster, managed: str) -> None:
    clients.stage.wait_for_isr(managed, 3)
    said = clients.tool(TOPICS, "--describe", "--topic", managed)
    assert "PartitionCount: 4\tReplicationFactor: 3" in said
    assert len(re.findall(r"Isr: \d,\d,\d", said)) == 4
    assert managed in clients.tool(TOPICS, "--list").splitlines()
    again = ("--create", "--topic", managed)
    assert f"Topic '{managed}' already exists" in clients.tool(TOPICS, *again, code=1)
    clients.tool(TOPICS, "--create", "--topic", "short-lived", "--partitions", "1")
    clients.settle()
    clients.tool(TOPICS, "--delete", "--topic", "short-lived")
    clients.settle()
    assert "short-lived" not in clients.tool(TOPICS, "--list").splitlines()


def test_kafka_configs(clients: ClientCluster, managed: str) -> None:
    clients.alter("topics", managed, "retention.ms=86400000")
    of_topic = ("--entity-type", "topics", "--entity-name", managed)
    said = clients.tool(CONFIG_TOOL, "--describe", *of_topic)
    assert "retention.ms=86400000 sensitive=false" in said
    clients.alter("topics", managed, "retention.ms")
    assert "retention.ms" not in clients.tool(CONFIG_TOOL, "--describe", *of_topic)
    wrong = ("--alter", *of_topic, "--add-config", "retention.ms=long")
    assert "InvalidConfigurationException" in clients.tool(CONFIG_TOOL, *wrong, code=1)
    clients.alter("brokers", "1", "log.retention.ms=70000000")
    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    # The broker applies it to itself a moment after its metadata have it.
    eventually(
        lambda: clients.tool(CONFIG_TOOL, "--describe", *of_broker),
        until=lambda said: "DYNAMIC_BROKER_CONFIG:log.retention.ms=70000000" in said,
    )
    said = clients.tool(CONFIG_TOOL, "--describe", "--all", *of_broker)
    assert "STATIC_BROKER_CONFIG:broker.rack=rack-a" in said


def test_kafka_consumer_groups(clients: ClientCluster, managed: str) -> None:
    group, limit = "managed-group", ("--max-messages", "100", "--timeout-ms", "120000")
    read = ("--topic", managed, "--group", group, "--from-beginning")
    clients.tool(f"{TOOLS}.consumer.ConsoleConsumer", *read, *limit)
    assert re.search(rf"^{group} +Empty", clients.tool(GROUPS, "--list", "--state"), re.MULTILINE)

    def committed() -> list[list[str]]:
        said = clients.tool(GROUPS, "--describe", "--group", group)
        return sorted(line.split()[2:6] for line in said.splitlines() if line.startswith(group))

    ends = offsets(clients, managed)
    assert sum(ends) == 100
    assert committed() == [[str(p), str(end), str(end), "0"] for p, end in enumerate(ends)]
    reset = ("--reset-offsets", "--group", group, "--topic", managed, "--execute")
    clients.tool(GROUPS, *reset, "--shift-by", "-1")
    assert committed() == [[str(p), str(end - 1), str(end), "1"] for p, end in enumerate(ends)]
    clients.tool(GROUPS, *reset, "--to-datetime", "2020-01-01T00:00:00.000")
    assert committed() == [[str(p), "0", str(end), str(end)] for p, end in enumerate(ends)]
    clients.tool(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{managed}:0")
    assert len(committed()) == 3
    assert "was successful" in clients.tool(GROUPS, "--delete", "--group", group)
    assert group not in clients.tool(GROUPS, "--list")


def test_kafka_broker_api_versions(clients: ClientCluster) -> None:
    said = clients.tool(f"{TOOLS}.BrokerApiVersionsCommand")
    assert len(re.findall(r"id: [123] rack: rack-[abc] isFenced: false", said)) == 3
    # UnregisterController of 4.4 is 94.
    assert set(re.findall(r"UNKNOWN\(\d+\)", said)) == {"UNKNOWN(94)"}
    for name in ("Produce(0): 3 to 13", "Fetch(1): 4 to 18", "JoinGroup(11): 0 to 9"):
        assert said.count(f"\t{name} ") == 3
    for name in ("EndTxn(26)", "ConsumerGroupHeartbeat(68)", "ShareFetch(78)"):
        assert said.count(f"\t{name}: UNSUPPORTED") == 3


def test_kafka_log_dirs(clients: ClientCluster, managed: str) -> None:
    said = clients.tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", managed)
    found = {
        one["broker"]: sorted(
            partition["partition"]
            for directory in one["logDirs"]
            for partition in directory["partitions"]
            if partition["size"] > 0 and not partition["isFuture"]
        )
        for one in json.loads(said.splitlines()[-1])["brokers"]
    }
    assert found == {broker: [f"{managed}-{p}" for p in range(4)] for broker in (1, 2, 3)}


def test_kafka_get_offsets_and_delete_records(
    clients: ClientCluster, managed: str, tmp_path: Path
) -> None:
    ends = offsets(clients, managed)
    assert offsets(clients, managed, "earliest") == [0] * 4
    assert offsets(clients, managed, "1600000000000") == [0] * 4
    assert all(0 <= at < end for at, end in zip(offsets(clients, managed, "-3"), ends, strict=True))
    wanted = tmp_path / "offsets.json"
    deleted = [{"topic": managed, "partition": 0, "offset": 5}]
    wanted.write_text(json.dumps({"version": 1, "partitions": deleted}))
    main, file = f"{TOOLS}.DeleteRecordsCommand", ("--offset-json-file", str(wanted))
    assert f"partition: {managed}-0\tlow_watermark: 5" in clients.tool(main, *file)
    assert offsets(clients, managed, "earliest") == [5, 0, 0, 0]
    deleted[0]["offset"] = ends[0] + 1
    wanted.write_text(json.dumps({"version": 1, "partitions": deleted}))
    assert "OffsetOutOfRangeException" in clients.tool(main, *file, code=None)


def test_kafka_reassign_partitions_and_leader_election(
    clients: ClientCluster, managed: str, tmp_path: Path
) -> None:
    wanted = tmp_path / "moves.json"
    moves = [
        {"topic": managed, "partition": 0, "replicas": [3, 2]},
        {"topic": managed, "partition": 1, "replicas": [1]},
        {"topic": managed, "partition": 2, "replicas": [2, 3, 1]},
    ]
    wanted.write_text(json.dumps({"version": 1, "partitions": moves}))
    file = ("--reassignment-json-file", str(wanted))
    clients.tool(REASSIGN, *file, "--execute", "--throttle", "10000000")
    clients.stage.wait_until_moved()
    assert clients.tool(REASSIGN, *file, "--verify").count("is completed.") == 3
    assert "No partition reassignments found." in clients.tool(REASSIGN, "--list")
    clients.settle()
    said = clients.tool(TOPICS, "--describe", "--topic", managed)
    assert "throttled" not in said
    every = ("--election-type", "preferred", "--all-topic-partitions")
    clients.tool(f"{TOOLS}.LeaderElectionCommand", *every)
    clients.settle()
    partitions = clients.stage.partitions(managed)
    assert [one["replicas"] for one in partitions[:3]] == [move["replicas"] for move in moves]
    assert [one["leader"] for one in partitions[:3]] == [3, 1, 2]
    # What was below the new start offset is gone, everything else has moved.
    found = clients.read(managed)
    assert sum(map(len, found.values())) == 95


# -- directories


@dataclass
class Contents:
    """What the cluster has to keep: the values in each topic, and the offsets of a group."""

    clients: ClientCluster
    sent: dict[str, list[str]] = field(default_factory=lambda: {ALONE: [], SHARED: [], MOVED: []})
    #: The sum of the offsets that `GROUP` has committed in `SHARED`.
    committed: int = 0

    def add(self, topic: str, prefix: str, *, is_idempotent: bool = True) -> None:
        values = numbered(prefix, COUNT)
        self.clients.java.produce(topic, values, is_idempotent=is_idempotent)
        self.sent[topic] += values

    def commit_earlier(self) -> None:
        """Move the group back by one record in each partition."""
        words = ("--reset-offsets", "--group", GROUP, "--topic", SHARED, "--execute")
        self.clients.tool(GROUPS, *words, "--shift-by", "-1")
        self.committed -= SHARED_PARTITIONS

    def check(self) -> None:
        for topic, values in self.sent.items():
            check_complete(self.clients.read_all(topic, len(values)), values)
        assert self.clients.java("offsets", group=GROUP)[SHARED] == self.committed


@pytest.fixture(scope="module")
def contents(clients: ClientCluster) -> Contents:
    """Fill the topics of small segments, and let a group read one."""
    clients.place(ALONE, [[TAKEN], [TAKEN]], SMALL_SEGMENTS)
    replicas = [[1 + (p + r) % 3 for r in range(3)] for p in range(SHARED_PARTITIONS)]
    clients.place(SHARED, replicas, SMALL_SEGMENTS | {"min.insync.replicas": "2"})
    clients.create(MOVED, min__insync__replicas="2")
    made = Contents(clients)
    for number in range(FILLS):
        for topic in (ALONE, SHARED):
            made.add(topic, f"filled-{number}", is_idempotent=number % 2 == 0)
    made.add(MOVED, "filled")
    member = clients.java.join(SHARED, GROUP)
    wait_for_values([member], FILLS * COUNT)
    member.leave()
    made.committed = FILLS * COUNT
    made.check()
    return made


def check_files(clients: ClientCluster, broker: int) -> None:
    """Let Kafka's tool read every data file of a stopped broker, and compare the indexes."""
    home = clients.cluster.nodes[broker].directory
    logs = [each for each in home.glob("data-*/*/*.log") if each.parent.name[:2] != "__"]
    assert len([each for each in logs if each.parent.name.startswith(SHARED)]) > 10

    def dumped(files: list[Path], *options: str) -> str:
        said = clients.run_tool(DUMP, words=[*options, "--files", ",".join(map(str, files))])
        assert said["code"] == 0, said["out"]
        printed: str = said["out"]
        assert printed.count("Dumping ") == len(files)
        return printed

    printed = dumped(logs, "--deep-iteration")
    assert "isvalid: false" not in printed
    # The tool expects each file to begin at offset 0: "-1 is followed by 970".
    assert re.search(r"^ +\d+ is followed by", printed, re.MULTILINE) is None
    assert printed.count("| offset: ") > 16 * COUNT
    groups = [*home.glob("data-*/__consumer_offsets-*/*.log")]
    printed = dumped(groups, "--offsets-decoder", "--deep-iteration")
    assert f'{{"group":"{GROUP}","topic":"{SHARED}","partition":0}}' in printed
    indexes = [each for kind in ("index", "timeindex") for each in home.glob(f"data-*/*/*.{kind}")]
    said = dumped(indexes, "--index-sanity-check")
    assert said.count(" passed sanity check.") + said.count(" is empty.") == len(indexes)
    assert said.count(" passed sanity check.") > 10
    said = dumped(indexes, "--verify-index-only")
    rest = [
        line for line in said.splitlines() if not re.search(r"^Dumping |is empty\.$", line) and line
    ]
    assert rest == []
    snapshots = [*home.glob("data-*/*/*.snapshot")]
    assert "producerId: " in dumped(snapshots)


def take_over(clients: ClientCluster, by: Callable[..., object]) -> None:
    """Start the stopped broker with its directory, run by the other program."""
    by(clients.cluster, clients.cluster.nodes[TAKEN])
    clients.stage.broker(TAKEN)
    for topic in (SHARED, MOVED):
        clients.stage.wait_for_isr(topic, 3)
    clients.settle()


def end(clients: ClientCluster, *, is_clean: bool) -> None:
    node = clients.cluster.nodes[TAKEN]
    if is_clean:
        node.stop()
    else:
        node.kill()
    clients.stage.wait_for_brokers(without=TAKEN)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_each_program_reads_and_continues_the_directory_of_the_other(
    clients: ClientCluster, contents: Contents, is_clean: bool
) -> None:
    for by in (run_by_kafka, run_by_kraft):
        end(clients, is_clean=is_clean)
        if by is run_by_kafka:
            # Kafka's broker, if it is killed, leaves preallocated indexes, which its tool rejects.
            check_files(clients, TAKEN)
        take_over(clients, by)
        # The other brokers could serve the records and offsets as well.
        for topic in (SHARED, OFFSETS_TOPIC):
            lead(clients, topic, TAKEN)
        contents.check()
        for topic in (ALONE, SHARED):
            contents.add(topic, f"{by.__name__}-{is_clean}")
        contents.commit_earlier()
        contents.check()


# -- a mixed cluster


@contextmanager
def mixed(clients: ClientCluster) -> Iterator[None]:
    """Let Kafka's broker run beside two of kraft's."""
    end(clients, is_clean=True)
    take_over(clients, run_by_kafka)
    yield
    end(clients, is_clean=True)
    take_over(clients, run_by_kraft)


def test_both_kinds_of_broker_replicate_from_each_other(
    clients: ClientCluster, contents: Contents
) -> None:
    """All leaders move to Kafka's broker, to kraft's, and back, while records are acknowledged."""
    with mixed(clients):
        kinds = [isinstance(clients.cluster.nodes[id], KraftNode) for id in (1, 2, 3)]
        assert kinds == [True, True, False]
        with Load(clients, MOVED) as load:
            for leader in (3, 1, 3, 2) * (3 if IS_FULL_SIZE else 1):
                lead(clients, MOVED, leader)
                load.wait_for_more()
                clients.stage.wait_for_isr(MOVED, 3)
        contents.sent[MOVED] += load.values
        contents.check()
        check_replicas(clients, MOVED, contents.sent[MOVED])


def check_replicas(clients: ClientCluster, topic: str, values: list[str]) -> None:
    """Check what each replica serves when it is the leader."""
    found: list[Values] = []
    for broker in (1, 2, 3):
        lead(clients, topic, broker)
        found.append(clients.read_all(topic, len(values)))
    check_complete(found[0], values)
    assert found[0] == found[1] == found[2]


def test_krafts_brokers_name_the_features_that_they_lack(clients: ClientCluster) -> None:
    for broker in (1, 2):
        text = clients.cluster.nodes[broker].log.read_text()
        for feature in ("group.version=1", "transaction.version=2"):
            assert f"the cluster has {feature}, but this broker has no " in text


def test_no_process_logs_a_fault(clients: ClientCluster) -> None:
    clients.check_logs()
