"""Records of new partitions equal those that the typed codec encodes."""

from __future__ import annotations

import numpy as np
import pytest

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.bytes.batch_records import iterate
from kraft._core.decide.creation import encode_new_partitions, partition_without_active_replica
from kraft._core.decide.election import ElectionContext
from kraft._core.table.table import PartitionTable
from kraft.errors import InvalidReplicationFactorError, InvalidRequestError
from kraft.records import Uuid, encode_value
from tests.reference.election_twin import MIGRATING, UNASSIGNED, Broker

TOPIC = Uuid(b"t" * 16)
ONE, TWO = Uuid(b"1" * 16), Uuid(b"2" * 16)
BROKERS = [
    Broker(1, log_dirs=(ONE,)),
    Broker(2, log_dirs=(ONE, TWO)),
    Broker(3),
    Broker(4, fenced=True, log_dirs=(TWO,)),
    Broker(5, in_controlled_shutdown=True),
]


def context(level: int = 30) -> ElectionContext:
    return ElectionContext(PartitionTable(), BROKERS, metadata_version=level)


@pytest.mark.parametrize("level", [7, 17, 30])
def test_each_row_becomes_the_expected_record(level: int) -> None:
    replicas = np.array([[1, 2, 3], [4, 3, 1], [5, 9, 2]], np.int32)
    builder = BatchBuilder()
    encode_new_partitions(context(level), builder, TOPIC, replicas, 7)
    written = [record.value for batch in iterate(builder.finish()) for record in batch]
    directory = {1: ONE, 2: UNASSIGNED, 3: MIGRATING, 4: TWO, 5: MIGRATING, 9: UNASSIGNED}
    expected = [
        records.Partition(
            partition_id=id,
            topic_id=TOPIC,
            replicas=row,
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory[broker] for broker in row] if level >= 17 else [],
        )
        for id, row, isr in ((7, [1, 2, 3], [1, 2, 3]), (8, [4, 3, 1], [3, 1]), (9, [5, 9, 2], [2]))
    ]
    assert written == [encode_value(record, metadata_version=level) for record in expected]


def test_a_partition_without_an_active_replica_is_found_before_anything_is_written() -> None:
    replicas = np.array([[1, 2], [4, 5]], np.int32)
    builder = BatchBuilder()
    assert partition_without_active_replica(context(), replicas) == 1
    assert partition_without_active_replica(context(), replicas[:1]) is None
    with pytest.raises(InvalidReplicationFactorError):
        encode_new_partitions(context(), builder, TOPIC, replicas)
    assert builder.record_count == 0


def test_invalid_partitions_are_rejected() -> None:
    builder = BatchBuilder()
    with pytest.raises(InvalidReplicationFactorError):
        encode_new_partitions(context(), builder, TOPIC, np.empty((1, 0), np.int32))
    with pytest.raises(InvalidReplicationFactorError):
        encode_new_partitions(context(), builder, TOPIC, np.ones((1, 65), np.int32))
    with pytest.raises(InvalidRequestError):
        encode_new_partitions(context(), builder, b"short", np.ones((1, 1), np.int32))
    with pytest.raises(InvalidRequestError):
        encode_new_partitions(context(), builder, TOPIC, np.ones((1, 1), np.int32), -1)
