"""The findings of ``kraft preflight`` about partitions, provoked by brokers that go and come back.

The brokers of these tests register, send heartbeats and change the ISRs of partitions that they
lead. Each finding's commands are typed as printed.
"""

from __future__ import annotations

import json
import shlex
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from kraft.network.controller_connection import Address
from kraft.network.quorum_client import QuorumClient
from kraft.protocol.alter_partition import (
    ALTER_PARTITION,
    AlterPartitionRequestData,
    AlterPartitionResponseData,
    IsrMember,
    IsrPartition,
    IsrTopic,
)
from kraft.protocol.broker_heartbeat import (
    BROKER_HEARTBEAT,
    BrokerHeartbeatRequestData,
    BrokerHeartbeatResponseData,
)
from kraft.records import Uuid
from kraft.testing.cluster import QuorumForTests
from tests.harness.commands import eventually, printed
from tests.harness.preflight import (
    Document,
    addresses,
    await_rules,
    finding,
    preflight,
    register_broker,
    rules,
    type_kraft,
)

pytestmark = pytest.mark.nodes

#: A broker that a standstill of the machine fences would leave the ISR, and not come back.
SESSION_TIMEOUT = {"broker.session.timeout.ms": "6000"}
_BEAT_EVERY_S = 0.2


class DirectedBrokers:
    """Registered brokers, of which those in ``live`` send heartbeats; a context manager."""

    def __init__(self, controllers: list[Address], cluster_id: str, ids: tuple[int, ...]) -> None:
        self._client = QuorumClient(controllers)
        self.epochs = {id: register_broker(self._client, cluster_id, id) for id in ids}
        self.live = set(ids)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(QuorumClient(controllers),))

    def _run(self, client: QuorumClient) -> None:
        with client:
            while not self._is_over.wait(_BEAT_EVERY_S):
                for id in sorted(self.live):
                    beat = BrokerHeartbeatRequestData(id, self.epochs[id], self.epochs[id])
                    client.call(
                        BROKER_HEARTBEAT,
                        beat,
                        BrokerHeartbeatResponseData,
                        lambda each: each.error_code,
                    )

    def fill_isr(self, topic: Document) -> None:
        """Let the leader of each partition put all replicas into the ISR, as Kafka's broker."""
        for partition in topic["partitions"]:
            leader = partition["leader"]
            members = [IsrMember(id, self.epochs[id]) for id in partition["replicas"]]
            change = IsrPartition(
                partition["partition"],
                partition["leaderEpoch"],
                new_isr_with_epochs=members,
                partition_epoch=partition["partitionEpoch"],
            )
            request = AlterPartitionRequestData(
                leader, self.epochs[leader], [IsrTopic(Uuid.parse(topic["topicId"]), [change])]
            )
            altered = self._client.call(
                ALTER_PARTITION, request, AlterPartitionResponseData, lambda each: each.error_code
            ).response
            assert altered.topics[0].partitions[0].error_code == 0, altered

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._client.close()


def described(at: tuple[str, ...], topic: str) -> Document:
    (document,) = json.loads(printed("topics", "describe", "--topic", topic, "--json", *at))
    result: Document = document
    return result


def wait_for_leaders(at: tuple[str, ...], topic: str, *leaders: int) -> None:
    eventually(
        lambda: [each["leader"] for each in described(at, topic)["partitions"]],
        until=lambda seen: seen == list(leaders),
    )


def shown(step: Document) -> list[str]:
    """Run the kraft command of a step, as printed, and return the lines of its output."""
    return printed(*shlex.split(step["kraft"])[1:]).splitlines()


def fenced(step: Document) -> set[str]:
    """Return the fenced brokers in the list of brokers that a step shows."""
    _, *rows = (line.split() for line in shown(step))
    return {row[0] for row in rows if "fenced" in row}


def partition_rules(document: Document) -> set[str]:
    """Return the rules about partitions; others name the brokers that are gone."""
    return {rule for rule, subject in rules(document) if subject == "partitions"}


def test_partitions_that_a_restart_of_a_broker_would_hurt(tmp_path: Path) -> None:
    with QuorumForTests(tmp_path, 1, settings=SESSION_TIMEOUT) as cluster:
        controllers = addresses(cluster.bootstrap_controllers)
        at = ("--bootstrap-controller", cluster.bootstrap_controllers)
        with DirectedBrokers(controllers, cluster.cluster_id, (1, 2, 3)) as brokers:
            eventually(lambda: "fenced" not in printed("brokers", "list", *at).split())
            both = ("topics", "create", *at, "--replica-assignment", "1:2,2:1", "--topic")
            printed(*both, "safe", "--config", "min.insync.replicas=2")
            printed(*both, "lossy", "--config", "min.insync.replicas=1")
            eventually(lambda: preflight("quorum", *at)[1]["findings"] == [])

            # Broker 2 is gone.
            brokers.live.remove(2)
            wait_for_leaders(at, "safe", 1, 1)
            code, document = preflight("quorum", *at)
            assert (code, partition_rules(document)) == (3, {"under-min-isr"})
            under = finding(document, "under-min-isr")
            assert under["found"].startswith("2 have")
            see, start = under["steps"]
            assert len([line for line in shown(see) if "safe" in line]) == 2
            assert fenced(start) == {"2"}

            # And now broker 1, so that no partition has a leader.
            brokers.live.remove(1)
            wait_for_leaders(at, "safe", -1, -1)
            code, document = preflight("quorum", *at)
            assert (code, partition_rules(document)) == (3, {"under-min-isr", "without-leader"})
            without = finding(document, "without-leader")
            assert without["found"] == "4 have no leader"
            see, start, _ = without["steps"]
            assert len(shown(see)) == 4

            # Broker 2 was in no ISR; of "safe" it is in the ELR, of "lossy" nowhere.
            brokers.live.add(2)
            wait_for_leaders(at, "safe", 2, 2)
            code, document = preflight("quorum", *at)
            without = finding(document, "without-leader")
            assert without["found"] == "2 have no leader"
            # "Only if such a broker is lost for good": of one of the two.
            *_, unclean = without["steps"]
            words = unclean["kraft"].replace("TOPIC", "lossy").replace("PARTITION", "0")
            printed(*shlex.split(words)[1:])
            wait_for_leaders(at, "lossy", 2, -1)
            # "Start the brokers of their replicas that are fenced."
            brokers.live.add(1)
            wait_for_leaders(at, "lossy", 2, 1)
            code, document = preflight("quorum", *at)
            assert (code, partition_rules(document)) == (3, {"under-min-isr"})
            # "Then wait until their replicas are in sync."
            brokers.fill_isr(described(at, "safe"))
            assert await_rules(("quorum", *at), set())[0] == 0

            # Broker 3, which has no replica, is gone for good.
            brokers.live.remove(3)
            code, document = await_rules(("quorum", *at), {("gone-broker", "broker 3")})
            assert code == 3
            type_kraft(*finding(document, "gone-broker")["steps"])
            assert await_rules(("quorum", *at), set())[0] == 0
