"""Apache Kafka's brokers on kraft controllers, through faults of both, under a verified load.

After each fault everything is replicated again. At the end no acknowledged record is lost, repeated
or out of order, all controllers have the same log, and no broker has logged an error of its own.

In CI six faults are drawn from one seed; `BROKER_FAULTS=50` is the full size, `SEED` draws others.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from tests.interop.broker_faults import faulty_cluster
from tests.interop.kafka_faults import check_errors

ROUNDS = int(os.environ.get("BROKER_FAULTS", "6"))
#: Its first six faults stop nodes, cut links, and fill and slow down disks.
SEED = int(os.environ.get("SEED", "400"))

EXPECTED = tuple(
    rf"Error processing append operation on partition .*\n.*\.{exception}: "
    for exception in (
        # Two brokers are fenced, or dead, at the same time.
        "NotEnoughReplicasException",
        # The leader of a partition has changed, and a later batch of the producer arrives before
        # the first one that it sends again.
        "OutOfOrderSequenceException",
    )
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120 + 60 * ROUNDS)]


def test_brokers_and_clients_live_through_faults(tmp_path: Path) -> None:
    with faulty_cluster(tmp_path, SEED) as cluster:
        nodes = list(cluster.quorum.cluster.nodes.values())
        print(f"\n{'fault':34} {'well after':>8} {'producer':>11}")
        for fault in islice(cluster.faults(), ROUNDS):
            print(cluster.run(fault), flush=True)
        print(f"\n{cluster.load.check_end()}")
        cluster.recover()
        committed = cluster.quorum.stop()
        cluster.quorum.check_equal_logs(committed)
    check_errors(nodes, provoked=EXPECTED)
