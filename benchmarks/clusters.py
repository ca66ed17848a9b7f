"""Tables and clusters of the input files, as the suites need them."""

from __future__ import annotations

from benchmarks import generate
from kraft._core.table.table import PartitionTable
from kraft.image.replay import MetadataState


def decoded(raw: bytes, capacity: int = 0) -> PartitionTable:
    table = PartitionTable(capacity=capacity)
    table.apply(raw)
    return table


def loaded(raw: bytes, expected: generate.Expected) -> MetadataState:
    cluster = MetadataState()
    cluster.apply_snapshot(raw, end_offset=expected.records + 2)
    return cluster


def journaled(partitions: int) -> MetadataState:
    """Return an indexed cluster of the uniform kind that records changes in a journal."""
    path, expected = generate.make("uniform", partitions)
    cluster = loaded(path.read_bytes(), expected)
    cluster.table.ensure_index()
    cluster.start_journal()
    return cluster
