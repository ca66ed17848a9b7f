"""What clients and tools are checked for, at brokers of any kind: groups, console, verifiable and
performance tools.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from typing import Any

from tests.harness.missing_tools import skipped_if_missing
from tests.interop.client_cluster import (
    IS_FULL_SIZE,
    TOOLS,
    ClientCluster,
)
from tests.interop.cluster import wait_for
from tests.interop.data_clients import (
    CLASSIC,
    CONSUMER,
    SHARE,
    DataClient,
    Kcat,
    Member,
    check_complete,
    joined,
    numbered,
)

COUNT = 5000 if IS_FULL_SIZE else 200
CLIENTS = ("java", "confluent-kafka", "kafka-python", "aiokafka", "kcat")
#: A member of kafka-python that leads its group before its broker knows the new topic assigns
#: nothing, sometimes for a minute. Its group runs in the full size, with Kafka's own controllers
#: too.
NOT_IN_CI = () if IS_FULL_SIZE else ("kafka-python",)
GROUP_TYPES = {CLASSIC: "Classic", CONSUMER: "Consumer"}
PARTITIONS = 4


def client_of(clients: ClientCluster, name: str) -> DataClient:
    if name == "java":
        return clients.java
    if name == "kcat":
        with skipped_if_missing():
            return Kcat(clients.servers)
    from tests.interop import python_data_clients

    return python_data_clients.CLIENTS[name](clients.servers)


def wait_for_values(members: list[Member], count: int) -> None:
    """Wait until the members have received so many values together, or more."""

    def received() -> bool:
        return sum(len(each) for one in members for each in one.values().values()) >= count

    wait_for(f"{count} values", received)


def check_group(clients: ClientCluster, name: str, protocol: str) -> None:
    """Check that two members share the partitions, and receive and commit all records."""
    topic = f"group-{name}-{protocol}"
    clients.create(topic, PARTITIONS)
    client = client_of(clients, name)
    members = [client.join(topic, topic, protocol) for _ in range(2)]

    def is_shared() -> bool:
        first, second = (member.assigned() for member in members)
        return bool(first and second) and sorted([*first, *second]) == list(range(PARTITIONS))

    wait_for("an assignment", is_shared)
    # A member may join once more, when it looks at the metadata again.
    stable = [GROUP_TYPES[protocol], "consumer", "Stable"]
    wait_for("a stable group", lambda: clients.java("groups")[topic] == stable)
    sent = numbered(name, COUNT)
    clients.java.produce(topic, sent, is_idempotent=True)
    wait_for_values(members, len(sent))
    for member in members:
        member.leave()
    check_complete(joined(*(member.values() for member in members)), sent)
    # They have committed all of it: the next member would begin at the end.
    assert clients.java("offsets", group=topic)[topic] == len(sent)


def lines(values: Iterable[str]) -> str:
    return "".join(f"{value}\n" for value in values)


def check_console_tools(clients: ClientCluster, protocol: str) -> None:
    topic = f"console-{protocol}"
    clients.create(topic, 1)
    sent = numbered("console", COUNT)
    clients.tool(f"{TOOLS}.ConsoleProducer", "--topic", topic, text=lines(sent))
    limits = ("--topic", topic, "--group", topic, "--max-messages", str(COUNT))
    patience = ("--timeout-ms", "120000")
    if protocol == SHARE:
        clients.share_from_the_beginning(topic)
        printed = clients.tool(f"{TOOLS}.consumer.ConsoleShareConsumer", *limits, *patience)
    else:
        how = ("--from-beginning", "--command-property", f"group.protocol={protocol}")
        printed = clients.tool(f"{TOOLS}.consumer.ConsoleConsumer", *limits, *how, *patience)
    assert [line for line in printed.splitlines() if line.startswith("console-")] == sent
    assert f"Processed a total of {COUNT} messages" in printed


def check_performance_tools(clients: ClientCluster, *consumers: tuple[str, str]) -> None:
    """Check the counts of the producer's tool and of each consumer's, given with its group."""
    topic, count = "performance", 20 * COUNT
    clients.create(topic)
    size = ("--num-records", str(count), "--record-size", "100", "--throughput", "-1")
    settings = ("--command-property", "enable.idempotence=true")
    printed = clients.tool(f"{TOOLS}.ProducerPerformance", "--topic", topic, *size, *settings)
    assert f"{count} records sent" in printed
    asked = ("--topic", topic, "--num-records", str(count), "--hide-header", "--group")
    for main, group in consumers:
        assert f", {count}, " in clients.tool(f"{TOOLS}.{main}", *asked, group)


def check_verifiable_tools(clients: ClientCluster, protocol: str) -> None:
    topic = f"verifiable-{protocol}"
    clients.create(topic, 1)
    main, how = "VerifiableConsumer", ("--group-protocol", protocol)
    if protocol == SHARE:
        main, how = "VerifiableShareConsumer", ("--offset-reset-strategy", "earliest")
    limit = ("--topic", topic, "--max-messages", str(COUNT))
    consumer = clients.started_tool(
        f"{TOOLS}.{main}", *limit, "--group-id", topic, "--verbose", *how
    )
    producer = clients.started_tool(f"{TOOLS}.VerifiableProducer", *limit, "--acks", "-1")
    (summary,) = events(producer, "tool_data")
    assert (summary["sent"], summary["acked"]) == (COUNT, COUNT)
    values = [event["value"] for event in events(consumer, "record_data")]
    check_complete({0: values}, list(map(str, range(COUNT))))


def events(process: subprocess.Popen[str], name: str) -> list[dict[str, Any]]:
    """Return the events of this name that a verifiable tool prints until it ends."""
    printed, _ = process.communicate(timeout=120)
    found = [json.loads(line) for line in printed.splitlines()]
    return [event for event in found if event["name"] == name]
