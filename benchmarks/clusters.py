"""Tables and clusters out of the input files, as the suites want them."""

from __future__ import annotations

from benchmarks import generate
from kraft._core.table import PartitionTable
from kraft.image.replay import Cluster


def decoded(raw: bytes, capacity: int = 0) -> PartitionTable:
    table = PartitionTable(capacity=capacity)
    table.apply(raw)
    return table


def loaded(raw: bytes, expected: generate.Expected) -> Cluster:
    cluster = Cluster()
    cluster.apply_snapshot(raw, end_offset=expected.records + 2)
    return cluster


def journaled(partitions: int) -> Cluster:
    """A cluster of the uniform kind that is indexed and remembers what changes."""
    path, expected = generate.make("uniform", partitions)
    cluster = loaded(path.read_bytes(), expected)
    cluster.table.ensure_index()
    cluster.start_journal()
    return cluster
