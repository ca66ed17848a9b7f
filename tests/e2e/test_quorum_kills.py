"""A few cycles of `quorum_chaos`: processes are killed, paused and stopped under load.

``make processes`` runs thirty cycles.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.quorum_chaos import run


@pytest.mark.parametrize(("nodes", "cycles", "seed"), [(3, 5, 20260), (1, 2, 20261)])
def test_no_acknowledged_record_is_lost(nodes: int, cycles: int, seed: int, tmp_path: Path) -> None:
    chaos = run(tmp_path, cycles=cycles, nodes=nodes, seed=seed, tell=print)
    assert chaos.audit.acknowledged > cycles * 33


def test_no_acknowledged_operation_of_a_controller_is_lost(tmp_path: Path) -> None:
    chaos = run(tmp_path, cycles=4, nodes=3, seed=20262, tell=print, has_controllers=True)
    assert chaos.audit.acknowledged > 4 * 9
    assert chaos.audit.snapshots > 0
