"""A backup of a quorum, restored: its controller leads, and Kafka's brokers bring their data."""

from __future__ import annotations

import shutil
from pathlib import Path

import kafka as kafka_python
import pytest

from kraft.metadata.facade import Metadata, open_metadata
from kraft.server.storage.restore import EPOCH_MARGIN
from tests.harness.commands import printed
from tests.harness.kafka_jars import kafka
from tests.interop.cluster import Cluster, Driver, Node, wait_for
from tests.interop.kraft_node import add_kraft_controller
from tests.interop.operations import cases

pytestmark = pytest.mark.interop

CLUSTER_ID = "YmFja2VkIHVwIGJ5IGtyYQ"
RECORDS = 40


def create(ask: Driver, name: str, copies: int) -> None:
    """Create a topic once brokers are there to hold it, and wait until a broker lists it."""
    topic = {"name": name, "partitions": 2, "replication_factor": copies}

    def is_listed() -> bool:
        # A request whose answer was late may have created it.
        return name in ask("list_topics") or not ask("create_topics", topics=[topic])

    wait_for(f"topic {name}", is_listed)


def produce(broker: Node, topic: str, first: int) -> None:
    """Write `RECORDS` records, numbered from ``first`` on, to partition 0."""
    producer = kafka_python.KafkaProducer(bootstrap_servers=broker.address, acks="all")
    try:
        sent = [
            producer.send(topic, b"%d" % number, partition=0)
            for number in range(first, first + RECORDS)
        ]
        for each in sent:
            each.get(timeout=120)
    finally:
        producer.close()


def consumed(broker: Node, topic: str, count: int) -> list[int]:
    """Return the numbers of the first ``count`` records of partition 0."""
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=broker.address, auto_offset_reset="earliest", enable_auto_commit=False
    )
    try:
        consumer.assign([kafka_python.TopicPartition(topic, 0)])
        numbers: list[int] = []

        def read() -> bool:
            for records in consumer.poll(timeout_ms=1000).values():
                numbers.extend(int(record.value) for record in records)
            return len(numbers) >= count

        wait_for(f"{count} records of {topic}", read)
        return numbers
    finally:
        consumer.close()


def epochs_of(metadata: Metadata, topic: str) -> list[int]:
    rows = metadata.topics[topic].rows
    return [int(epoch) for epoch in metadata.partitions.leader_epoch[rows]]


@pytest.mark.parametrize(
    ("program", "brokers_return"),
    [
        *cases(("kafka", "after a crash"), ("kafka", "after a stop")),
        ("kraft", "after a stop, one of them wiped"),
    ],
)
def test_brokers_return_to_a_restored_quorum(
    program: str, brokers_return: str, tmp_path: Path
) -> None:
    cluster = Cluster(kafka(), tmp_path / "cluster", CLUSTER_ID)
    cluster.reserve_controllers(101)
    backup, target = tmp_path / "backup", tmp_path / "new"
    try:
        add = add_kraft_controller if program == "kraft" else Cluster.add_controller
        controller = add(cluster, 101)
        controller.format(CLUSTER_ID, "--standalone")
        brokers = [cluster.add_broker(one, None) for one in (1, 2)]
        for broker in brokers:
            broker.format(CLUSTER_ID, *cluster.broker_format())
        cluster.start()
        ask = cluster.driver()
        wait_for("both brokers", lambda: len(ask("brokers")) == 2)
        create(ask, "before", copies=2)
        produce(brokers[0], "before", 0)
        printed("backup", "--bootstrap-controller", controller.address, "--to", backup)
        create(ask, "lost", copies=1)
        produce(brokers[0], "before", RECORDS)
        if brokers_return != "after a crash":
            while cluster.drivers:
                cluster.drivers.pop().close()
            cluster.stop()
        cluster.kill()

        printed("restore", backup, "--to", target, "-c", controller.properties)
        controller.settings["log.dirs"] = str(target)
        if brokers_return == "after a stop, one of them wiped":
            for path in brokers[1].directory.glob("data-*"):
                shutil.rmtree(path)
            brokers[1].format(CLUSTER_ID, *cluster.broker_format())
            # The order in which the wiped broker could take over: the other one registers, and
            # leaves the ISR, before it.
            cluster.start(controller, brokers[0])
            ask = cluster.driver()
            wait_for("the other broker", lambda: ask("brokers") == [1])
            cluster.start(brokers[1])
        else:
            cluster.start()
            ask = cluster.driver()

        def is_whole() -> bool:
            now = open_metadata(target)
            found = [now.partitions.find("before", number) for number in range(2)]
            return all(set(each.isr) == {1, 2} and each.leader > 0 for each in found)

        wait_for("leaders and both replicas in sync", is_whole)
        assert set(ask("list_topics")) >= {"before"}
        assert "lost" not in ask("list_topics")
        kept = [path for broker in brokers for path in broker.directory.glob("data-*/*-stray")]
        assert any("lost" in path.name for path in kept)

        assert consumed(brokers[0], "before", 2 * RECORDS) == list(range(2 * RECORDS))
        produce(brokers[1], "before", 2 * RECORDS)
        assert consumed(brokers[1], "before", 3 * RECORDS) == list(range(3 * RECORDS))
        create(ask, "after", copies=2)
        saved = open_metadata(next(backup.glob("*.checkpoint")))
        now = open_metadata(target)
        for old, new in zip(epochs_of(saved, "before"), epochs_of(now, "before"), strict=True):
            assert new >= old + EPOCH_MARGIN
        assert list(now.controllers) == [101]
    finally:
        cluster.kill()
