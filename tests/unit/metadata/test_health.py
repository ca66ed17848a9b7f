"""Health masks over all partitions equal the rules applied to each row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kraft
from kraft import Metadata
from kraft.metadata.health import Health

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3"
MOMENTS = json.loads((DATA / "manifest.json").read_text())["moments"]


def min_isr(metadata: Metadata, topic: str) -> int:
    own = metadata.configs.topic(topic).get("min.insync.replicas")
    default = metadata.configs.cluster_default().get("min.insync.replicas")
    return int(own or default or 1)


@pytest.mark.parametrize("moment", sorted(MOMENTS))
def test_each_mask_equals_the_rows(moment: str) -> None:
    metadata = kraft.open_metadata(DATA / "controller-101", at=MOMENTS[moment])
    health = Health(metadata)
    unfenced = {each.id for each in metadata.brokers.values() if not each.fenced}
    rows = np.flatnonzero(health.live)
    assert len(rows) == len(metadata.partitions) > 0
    for row in rows:
        each = metadata.partitions.row(int(row))
        least = min_isr(metadata, each.topic)
        factor = len(each.replicas) - len(each.adding_replicas)
        assert health.without_leader[row] == (each.leader < 0)
        assert health.unavailable[row] == (each.leader not in unfenced)
        assert health.reassigning[row] == bool(each.adding_replicas or each.removing_replicas)
        assert health.under_replicated[row] == (len(each.isr) < factor)
        assert health.under_min_isr[row] == (each.leader < 0 or len(each.isr) < least)
        assert health.at_min_isr[row] == (len(each.isr) == least)


def test_an_empty_cluster_has_nothing_to_mark() -> None:
    health = Health(Metadata())
    for name in ("without_leader", "unavailable", "under_replicated", "under_min_isr"):
        assert not getattr(health, name).any()
    assert len(health.min_isr) == 0
