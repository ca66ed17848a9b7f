"""Nodes that lose power lose no acknowledged record, as far as Kafka promises that.

A loss of power ends a process and drops what it had not synced (`power_loss`). With
`flush.messages=1` no acknowledged record is lost when all nodes lose power at once. With Kafka's
defaults, which leave syncs to the operating system, none is lost when one node after the other
does: the controller takes a broker that did not stop cleanly out of the ISR.

`POWER_LOSSES=200` is the long run, `SEED` draws other moments and losses.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest

from tests.e2e.broker_chaos import Topics
from tests.e2e.power_loss import power_loss

ROUNDS = int(os.environ.get("POWER_LOSSES", "2"))
SEED = int(os.environ.get("SEED", "1"))
#: A segment has some batches: their files appear with each loss.
SMALL_SEGMENTS = {"internal.segment.bytes": "50000"}
FLUSHED: Topics = {"flushed": (3, {"flush.messages": "1", **SMALL_SEGMENTS})}
UNFLUSHED: Topics = {"records": (3, SMALL_SEGMENTS)}

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(120 + 90 * ROUNDS)]


def test_flushed_records_survive_losses_of_power_of_all_nodes() -> None:
    print(f"\nseed {SEED}")
    with power_loss(SEED, FLUSHED) as cluster:
        for _ in range(ROUNDS):
            print(cluster.run(cluster.power_of_all_nodes_lost), flush=True)
        print(f"{cluster.finish()} records: each is once in every replica, in order")


def test_acknowledged_records_survive_losses_of_power_of_single_nodes() -> None:
    print(f"\nseed {SEED}")
    with power_loss(SEED, UNFLUSHED) as cluster:
        for fault in islice(cluster.faults(), ROUNDS):
            print(cluster.run(fault), flush=True)
        print(f"{cluster.finish()} records: each is once in every replica, in order")


@pytest.mark.parametrize(
    ("topics", "dropped"),
    [(UNFLUSHED, ""), (FLUSHED, "s:.log")],
    ids=["without-flushes", "without-syncs"],
)
def test_a_loss_of_power_of_all_nodes_loses_what_was_not_synced(
    topics: Topics, dropped: str
) -> None:
    """The proofs above would fail if the broker did not sync, or the fault lost nothing."""
    with power_loss(SEED, topics, dropped=dropped) as cluster:
        assert all(cluster.end_with_loss().values())
