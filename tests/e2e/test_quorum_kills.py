"""A few cycles of `quorum_chaos`: processes are killed, paused and stopped under load.

`admin_chaos` does the same, and cuts links, under admin requests over the network.

``make processes`` runs thirty cycles of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import admin_chaos
from tests.e2e.quorum_chaos import run


@pytest.mark.parametrize(("nodes", "cycles", "seed"), [(3, 5, 20260), (1, 2, 20261)])
def test_no_acknowledged_record_is_lost(nodes: int, cycles: int, seed: int, tmp_path: Path) -> None:
    chaos = run(tmp_path, cycles=cycles, nodes=nodes, seed=seed, report=print)
    assert chaos.audit.acknowledged > cycles * 33


def test_no_acknowledged_operation_of_a_controller_is_lost(tmp_path: Path) -> None:
    chaos = run(tmp_path, cycles=4, nodes=3, seed=20262, report=print, has_controllers=True)
    assert chaos.audit.acknowledged > 4 * 9
    assert chaos.audit.snapshots > 0


def test_histories_of_admin_requests_are_linearizable(tmp_path: Path) -> None:
    chaos = admin_chaos.run(tmp_path, cycles=4, nodes=3, seed=20263, report=print)
    assert chaos.history.acknowledged > 4 * 9
    assert chaos.operations > chaos.history.acknowledged
    assert sum(map(len, chaos.failovers.values())) > 0
