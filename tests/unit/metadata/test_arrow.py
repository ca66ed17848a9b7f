"""Arrow columns equal the rows that the library returns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kraft.metadata.facade import open_metadata
from kraft.records import Uuid
from tests.harness.partition_rows import partition_rows

pa = pytest.importorskip("pyarrow")

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize("node", ["kafka-4.3/controller-101", "kafka-3.9/controller-101"])
@pytest.mark.parametrize("at", [None, 776, 1200, 1746])
def test_every_column_equals_the_rows(node: str, at: int | None) -> None:
    from kraft.metadata.arrow import ARROW_COLUMNS, ArrowPartitions

    metadata = open_metadata(DATA / node, at=at)
    rows = metadata.cluster.table.live_rows()
    arrow = ArrowPartitions(metadata.cluster.table)
    table = pa.table({name: arrow.column(name, rows) for name in ARROW_COLUMNS})
    expected = partition_rows(metadata)
    assert table.to_pylist() == expected
    # Some rows, in any order.
    chosen = np.random.default_rng(1).permutation(len(rows))[:50]
    some = pa.table({name: arrow.column(name, rows[chosen]) for name in ARROW_COLUMNS})
    assert some.to_pylist() == [expected[place] for place in chosen]
    none = pa.table({name: arrow.column(name, rows[:0]) for name in ARROW_COLUMNS})
    assert none.num_rows == 0


def test_rows_of_a_reassignment_and_of_a_removed_topic_are_exact() -> None:
    from kraft.metadata.arrow import ARROW_COLUMNS, ArrowPartitions

    metadata = open_metadata(DATA / "kafka-4.3" / "controller-101")
    metadata.apply(metadata.delete_topic("orders"))
    moving = [info for info in metadata.partitions if len(info.replicas) == 2][:3]
    for info in moving:
        target = [*reversed(info.replicas), *({1, 2, 3} - set(info.replicas))]
        metadata.apply(
            metadata.alter_partition_reassignments({(info.topic, info.partition): target})
        )
    table = metadata.cluster.table
    rows = table.live_rows()
    assert len(rows) < len(table.column("topic"))
    assert len(metadata.partitions.irregular_rows) >= len(moving) > 0
    arrow = ArrowPartitions(table)
    made = pa.table({name: arrow.column(name, rows) for name in ARROW_COLUMNS})
    assert made.to_pylist() == partition_rows(metadata)
    assert metadata.to_arrow().select(["topic", "partition", "isr"]).to_pylist() == [
        {name: row[name] for name in ("topic", "partition", "isr")}
        for row in partition_rows(metadata)
    ]


def test_uuids_are_kafkas_text() -> None:
    from kraft.metadata.arrow import uuid_texts

    ids = np.random.default_rng(3).integers(0, 256, (500, 16), np.uint8)
    ids[0], ids[1] = 0, 255
    texts = [str(Uuid(each.tobytes())) for each in ids]
    assert uuid_texts(ids).to_pylist() == texts
    present = np.arange(500) % 3 != 1
    shown = uuid_texts(ids, present)
    shown.validate(full=True)
    assert shown.to_pylist() == [
        text if place % 3 != 1 else None for place, text in enumerate(texts)
    ]
    assert uuid_texts(ids[:0]).to_pylist() == []
    assert uuid_texts(ids[:2], np.zeros(2, np.bool_)).to_pylist() == [None, None]
