"""kraft's brokers through faults of all nodes, with clients that verify every record.

After each fault every replica is in sync again. At the end no acknowledged record is lost, repeated
or out of order, the replicas' logs are equal, and no node has logged an error. `make processes`
runs each fault once, and a few on nodes that are controllers and brokers; `BROKER_CHAOS=300` is the
soak, `SEED` draws others.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kraft.broker.groups import OFFSETS_TOPIC, partition_of_group
from kraft.testing.cluster import QuorumForTests
from tests.e2e.broker_chaos import (
    BROKERS,
    OFFSETS_PARTITIONS,
    SETTINGS,
    BrokerChaos,
    broker_chaos,
    check_node_logs,
    problem_of,
)
from tests.e2e.broker_disks import disk_chaos
from tests.harness.commands import eventually
from tests.harness.confluent_records import committed, produce

ROUNDS = int(os.environ.get("BROKER_CHAOS", "14"))
SEED = int(os.environ.get("SEED", "1"))

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(120 + 90 * ROUNDS)]


def test_records_and_replicas_survive_faults_of_every_kind(tmp_path: Path) -> None:
    with disk_chaos(tmp_path, SEED) as chaos:
        run(chaos, ROUNDS)


def test_combined_nodes_survive_faults_too(tmp_path: Path) -> None:
    with broker_chaos(tmp_path, SEED, combined=True) as chaos:
        run(chaos, max(ROUNDS * 3 // 10, 1))


def run(chaos: BrokerChaos, rounds: int) -> None:
    print(f"\nseed {SEED}, {rounds} faults; {'the cluster is well after':>38}")
    for fault in islice(chaos.faults(), rounds):
        print(chaos.run(fault), flush=True)
    print(f"{chaos.finish()} records: each is once in every replica, in order")


GROUP, PARTITIONS, RECORDS = "readers", 3, 100


def test_a_group_keeps_its_offsets_and_its_member_when_its_coordinator_is_killed(
    tmp_path: Path,
) -> None:
    # It parses 300 schemas when it is imported, and has no types.
    from kafka import KafkaConsumer  # type: ignore[import-untyped]
    from kafka.errors import KafkaConnectionError  # type: ignore[import-untyped]

    settings = SETTINGS | {"group.initial.rebalance.delay.ms": "0"}
    with (
        QuorumForTests(tmp_path, 1, brokers=BROKERS, settings=settings) as cluster,
        cluster.follow() as live,
    ):
        cluster.create_topic("records", PARTITIONS, BROKERS)

        def write(name: str) -> list[bytes]:
            values = [f"{name} {number}".encode() for number in range(RECORDS)]
            for id in range(PARTITIONS):
                produce(cluster.bootstrap_servers, "records", values, id)
            return values

        def offsets() -> set[int | None]:
            return committed(cluster.bootstrap_servers, GROUP, "records", PARTITIONS)

        def commit() -> bool:
            # Unlike other clients it does not try another broker if its first one is dead.
            with suppress(KafkaConnectionError):
                member.commit()
                return True
            return False

        member: Any = KafkaConsumer(
            "records",
            bootstrap_servers=cluster.bootstrap_servers.split(","),
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        written = write("first")
        received: dict[int, list[bytes]] = {id: [] for id in range(PARTITIONS)}

        def read_all() -> None:
            """Read and commit what was written; a record that comes twice fails the test."""

            def has_all() -> bool:
                for partition, records in member.poll(timeout_ms=200).items():
                    received[partition.partition] += [one.value for one in records]
                return all(len(values) >= len(written) for values in received.values())

            eventually(has_all)
            assert all(values == written for values in received.values())
            eventually(commit)

        read_all()
        offsets_partition = partition_of_group(GROUP, OFFSETS_PARTITIONS)
        for life in ("second", "third"):
            live.poll()
            coordinator = live.partitions.find(OFFSETS_TOPIC, offsets_partition).leader
            left_epochs = {coordinator: live.brokers[coordinator].epoch}
            cluster.kill(coordinator)
            # As in Kafka, a new coordinator serves what it knows to be committed: the last commits
            # only after a follower has fetched from it.
            count = len(written)
            eventually(offsets, until=lambda found, count=count: found == {count})  # type: ignore[misc]
            written = written + write(life)
            read_all()
            assert offsets() == {len(written)}
            cluster.start(coordinator)
            problem = partial(problem_of, cluster, live, left_epochs)
            eventually(problem, until=lambda found: not found)
        member.close()
        check_node_logs(cluster)
