"""Any table is restored by its snapshot and by its column checkpoint."""

from __future__ import annotations

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft._core.snapshot.column_checkpoint import ColumnCheckpoint, load_columns, save_columns
from kraft._core.snapshot.snapshot_file import SnapshotWriter, read_snapshot
from kraft._core.table.table import PartitionTable
from tests.reference.random_tables import meaning, random_table


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    topics=st.integers(0, 30),
    chunk_size=st.integers(1, 5000),
    batch_records=st.integers(1, 40),
    verify=st.booleans(),
    rest=st.binary(max_size=200),
)
def test_a_table_is_restored_from_its_snapshot_and_from_its_columns(
    seed: int, topics: int, chunk_size: int, batch_records: int, verify: bool, rest: bytes
) -> None:
    table = random_table(seed, topics)
    expected = meaning(table)
    with tempfile.TemporaryDirectory() as directory:
        with SnapshotWriter(
            directory,
            seed,
            3,
            last_contained_log_timestamp_ms=seed,
            timestamp_ms=1,
            max_batch_records=batch_records,
            chunk_size=chunk_size,
        ) as writer:
            writer.append_table(table, version=2)
            path = writer.finish()
        replayed = PartitionTable()
        info = read_snapshot(path, replayed)
        assert meaning(replayed) == expected
        assert list(meaning(replayed)) == list(expected)
        assert info[:3] == (seed, 3, seed)
        assert info.record_count == table.topic_count + table.partition_count

        save_columns(path, table, records=rest)
        found = load_columns(path, verify=verify)
        assert isinstance(found, ColumnCheckpoint)
        assert meaning(found.table) == expected
        assert bytes(found.records) == rest
        save_columns(path, found.table, records=rest)
        again = load_columns(path)
        assert isinstance(again, ColumnCheckpoint)
        assert meaning(again.table) == expected
