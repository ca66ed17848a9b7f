"""Clients produce and consume at Apache Kafka's brokers, whose controllers are kraft's.

Each client writes numbered values in every way that it knows: plain, idempotent, in transactions of
versions 1 and 2. Each reads them as a member of every kind of group that it knows. What is read is
what was acknowledged, once each and in order.

CI runs small numbers of records. `make clients` (`CLIENTS=all`) is the full size, with a Kafka
Streams application and a Connect worker while the controllers change their leader; it runs all
tests with Apache Kafka's own controllers first. Where kcat is not
installed, they unpack Debian's package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from operator import eq
from pathlib import Path

import pytest

from tests.harness.commands import eventually
from tests.interop.client_applications import ConnectWorker, word_count
from tests.interop.client_checks import (
    CLIENTS,
    COUNT,
    NOT_IN_CI,
    PARTITIONS,
    check_console_tools,
    check_group,
    check_performance_tools,
    check_verifiable_tools,
    client_of,
    lines,
    wait_for_values,
)
from tests.interop.client_cluster import (
    BROKERS,
    IS_FULL_SIZE,
    ClientCluster,
    client_cluster,
    full_size,
)
from tests.interop.cluster import wait_for
from tests.interop.data_clients import (
    CLASSIC,
    CONSUMER,
    SHARE,
    Batch,
    Member,
    check_complete,
    numbered,
)
from tests.interop.verified_load import COPIES, LOAD_PARTITIONS, TOPIC, VerifiedLoad

#: The clients of each group protocol. Others know only the classic one.
MEMBERS = (
    *((name, CLASSIC) for name in CLIENTS if name not in NOT_IN_CI),
    *((name, CONSUMER) for name in ("java", "confluent-kafka")),
)
TRANSACTION_VERSION = "transaction.version"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    with client_cluster(tmp_path_factory.mktemp("clients")) as cluster:
        yield cluster


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


@pytest.mark.parametrize(("name", "protocol"), MEMBERS)
def test_the_members_of_a_group_share_the_partitions(
    clients: ClientCluster, name: str, protocol: str
) -> None:
    check_group(clients, name, protocol)


@pytest.fixture(scope="module", params=[2, 1])
def transaction_version(request: pytest.FixtureRequest, clients: ClientCluster) -> Iterator[int]:
    """Let the cluster use this version of transactions."""
    version: int = request.param
    clients.set_feature(TRANSACTION_VERSION, version)
    yield version
    clients.set_feature(TRANSACTION_VERSION, 2)


@pytest.mark.parametrize("name", CLIENTS)
def test_only_committed_transactions_are_read(
    clients: ClientCluster, transaction_version: int, name: str
) -> None:
    topic = f"transactions-{name}-{transaction_version}"
    clients.create(topic)
    sent = numbered(name, COUNT)
    size = COUNT // 5
    parts = [sent[first : first + size] for first in range(0, COUNT, size)]
    batches = [Batch(part, number % 2 == 0) for number, part in enumerate(parts)]
    client_of(clients, name).transact(topic, batches, topic)
    committed = [value for one in batches if one.is_committed for value in one.values]
    # The brokers end a transaction a moment after the client's commit.
    check_complete(clients.read_all(topic, len(committed)), committed)
    check_complete(clients.read(topic, isolation="read_uncommitted"), sent)


def test_version_2_bumps_the_epoch_of_each_transaction(
    clients: ClientCluster, transaction_version: int
) -> None:
    """With version 1 a producer keeps its epoch: that the brokers use the version is seen."""
    topic = f"epochs-{transaction_version}"
    clients.create(topic)
    batches = [Batch([value]) for value in numbered("epoch", 5)]
    clients.java.transact(topic, batches, topic)
    epoch = clients.java("producer_epoch", id=topic)
    assert epoch == (0 if transaction_version == 1 else len(batches))


def test_copies_are_exact_while_the_version_of_transactions_changes(
    clients: ClientCluster,
) -> None:
    """The load runs on while the feature goes down and up, and another controller leads."""
    for topic in (TOPIC, COPIES):
        clients.create(topic, LOAD_PARTITIONS, min__insync__replicas="2")
    cluster = clients.cluster
    brokers = [cluster.nodes[id] for id in BROKERS]
    load = VerifiedLoad(cluster.jars, brokers, cluster.directory / "load.log")
    with load.process:

        def copies() -> None:
            """Wait for a few transactions that begin now."""
            load.ask("mark")
            for _ in range(3):
                wait_for("transactions", lambda: load.ask("mark")["transactions"])

        copies()
        clients.set_feature(TRANSACTION_VERSION, 1)
        copies()
        if IS_FULL_SIZE:
            clients.fail_over()
            copies()
        clients.set_feature(TRANSACTION_VERSION, 2)
        copies()
        load.check_end(at_least=100)


@pytest.mark.parametrize("name", ["java", "confluent-kafka"])
def test_the_members_of_a_share_group_take_each_record_once(
    clients: ClientCluster, name: str
) -> None:
    topic = f"shared-{name}"
    clients.create(topic, 1)
    clients.share_from_the_beginning(topic)
    from tests.interop.python_data_clients import Confluent

    client = clients.java if name == "java" else Confluent(clients.servers)
    sent = numbered(name, COUNT)
    clients.java.produce(topic, sent, is_idempotent=True)
    members: list[Member] = [client.join_share(topic, topic) for _ in range(2)]
    wait_for_values(members, len(sent))
    assert clients.java("groups")[topic][0] == "Share"
    for member in members:
        member.leave()
    found = [value for one in members for values in one.values().values() for value in values]
    assert sorted(found) == sent


def test_a_released_record_is_delivered_again(clients: ClientCluster) -> None:
    topic = "released"
    clients.create(topic, 1)
    clients.share_from_the_beginning(topic)
    sent = numbered("released", COUNT)
    clients.java.produce(topic, sent, is_idempotent=True)
    member = clients.java.join_share(topic, topic, is_releasing=True)
    # It accepts a record at its second delivery.
    wait_for_values([member], len(sent))
    member.leave()
    assert sorted(member.values()[0]) == sent


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER, SHARE])
def test_kafkas_console_tools_print_what_they_were_given(
    clients: ClientCluster, protocol: str
) -> None:
    check_console_tools(clients, protocol)


@full_size
def test_kafkas_performance_tools_count_the_same_records(clients: ClientCluster) -> None:
    clients.share_from_the_beginning("performance-share")
    check_performance_tools(
        clients,
        ("ConsumerPerformance", "performance"),
        ("ShareConsumerPerformance", "performance-share"),
    )


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(CLASSIC, marks=full_size), CONSUMER, pytest.param(SHARE, marks=full_size)],
)
def test_kafkas_verifiable_tools_agree(clients: ClientCluster, protocol: str) -> None:
    check_verifiable_tools(clients, protocol)


@full_size
@pytest.mark.parametrize("protocol", [CLASSIC, "streams"])
def test_a_streams_application_counts_exactly(
    clients: ClientCluster, tmp_path: Path, protocol: str
) -> None:
    source, sink = f"text-{protocol}", f"counts-{protocol}"
    clients.create(source, PARTITIONS)
    clients.create(sink, PARTITIONS)
    words = [f"word{number % 97} word{number % 89}" for number in range(COUNT)]
    wanted = Counter(word for text in words for word in text.split())

    def counts() -> dict[str, int]:
        found: dict[str, int] = {}
        for values in clients.read(sink).values():
            for value in values:
                word, count = value.split()
                assert int(count) > found.get(word, 0), f"the counts of {word} go back"
                found[word] = int(count)
        return found

    with word_count(tmp_path, clients.servers, source, sink, protocol):
        third = COUNT // 3
        for first in range(0, COUNT, third):
            clients.java.produce(source, words[first : first + third], is_idempotent=True)
            clients.fail_over()
        wait_for("all counts", lambda: counts() == wanted, 120)
        kind = "Classic" if protocol == CLASSIC else "Streams"
        assert clients.java("groups")[f"count-{protocol}"][0] == kind


@full_size
def test_a_connect_worker_copies_a_file_exactly(clients: ClientCluster, tmp_path: Path) -> None:
    topic, source, sink = "file", tmp_path / "source", tmp_path / "sink"
    clients.create(topic, 1)
    sent = numbered("line", COUNT)
    source.touch()
    worker = ConnectWorker(tmp_path, clients.servers)
    try:
        kind = "org.apache.kafka.connect.file.FileStream"
        config = {"connector.class": f"{kind}SourceConnector", "file": str(source), "topic": topic}
        worker.put("source", config)
        config = {"connector.class": f"{kind}SinkConnector", "file": str(sink), "topics": topic}
        worker.put("sink", config)
        for name in ("source", "sink"):
            eventually(partial(worker.state, name), until=partial(eq, "RUNNING"))
        third = COUNT // 3
        for first in range(0, COUNT, third):
            with source.open("a") as file:
                file.write(lines(sent[first : first + third]))
            clients.fail_over()
        wait_for("the copy", lambda: sink.read_text() == source.read_text(), 120)
    finally:
        worker.stop()
    check_complete(clients.read(topic), sent)
    for what in ("offset", "config", "status"):
        assert all(len(one["replicas"]) == 3 for one in clients.stage.partitions(f"connect-{what}"))


def test_no_process_logs_a_fault(clients: ClientCluster) -> None:
    clients.check_logs()
