"""kraft's brokers through faults of all nodes, with clients that verify every record.

After each fault every replica is in sync again. At the end no acknowledged record is lost, repeated
or out of order, the replicas' logs are equal, and no node has logged an error. `make processes`
runs each fault once; `BROKER_CHAOS=200` runs more rounds, `SEED` draws others.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from tests.e2e.broker_chaos import broker_chaos

ROUNDS = int(os.environ.get("BROKER_CHAOS", "10"))
SEED = int(os.environ.get("SEED", "1"))

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120 + 90 * ROUNDS)]


def test_records_and_replicas_survive_faults_of_every_kind(tmp_path: Path) -> None:
    print(f"\nseed {SEED}, {ROUNDS} faults; {'the cluster is well after':>38}")
    with broker_chaos(tmp_path, SEED) as chaos:
        for fault in islice(chaos.faults(), ROUNDS):
            print(chaos.run(fault), flush=True)
        print(f"{chaos.finish()} records: each is once in every replica, in order")
