"""The first records that a controller writes when it becomes active."""

from __future__ import annotations

import pytest

from kraft import records
from kraft._core.bytes.batch import assign_offsets
from kraft.controller.decision import Records
from kraft.controller.runtime.bootstrap import activation_records, bootstrap_version, read_bootstrap
from kraft.controller.state import DEFAULTS
from kraft.errors import (
    CorruptRecordError,
    InvalidRequestError,
    PolicyViolationError,
    ReplayError,
    UnsupportedVersionError,
)
from kraft.image.replay import MetadataState
from kraft.records import (
    LATEST_PRODUCTION,
    Record,
    SnapshotFooter,
    SnapshotHeader,
    Uuid,
    encode_value,
)
from kraft.records.batches import encode_control_records, encode_records

BEGIN = records.BeginTransaction(name="Bootstrap records")
END = records.EndTransaction()
ABORT = records.AbortTransaction(reason="Controller failover")


def level(number: int) -> records.FeatureLevel:
    return records.FeatureLevel("metadata.version", number)


def replayed(*written: Record) -> MetadataState:
    cluster = MetadataState(journaling=True)
    apply(cluster, Records.of(written, 30))
    return cluster


def apply(cluster: MetadataState, written: Records) -> None:
    assign_offsets(written.batches, cluster.next_offset, 1)
    cluster.apply(written.batches)


def bytes_of(written: Records) -> list[bytes]:
    return [encode_value(record) for record in written]


def activation(cluster: MetadataState, *bootstrap: Record) -> list[Record]:
    """Return the activation records; check that they can be applied and are needed only once."""
    written = activation_records(cluster, bootstrap, DEFAULTS)
    apply(cluster, written)
    assert cluster.transaction_start is None
    assert len(activation_records(cluster, bootstrap, DEFAULTS)) == 0
    return list(written)


def test_the_bootstrap_of_an_empty_log_is_one_transaction() -> None:
    user = records.UserScramCredential(
        name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    assert activation(MetadataState(journaling=True), level(21), user) == [
        BEGIN,
        level(21),
        user,
        END,
    ]


def test_an_unformatted_node_begins_at_the_latest_metadata_version() -> None:
    assert activation(MetadataState(journaling=True)) == [BEGIN, level(LATEST_PRODUCTION), END]


def test_below_3_6_the_bootstrap_is_one_batch_without_a_transaction() -> None:
    assert activation(MetadataState(journaling=True), level(12)) == [level(12)]
    users = [
        records.UserScramCredential(
            name=f"u{i}", mechanism=1, salt=b"", stored_key=b"", server_key=b"", iterations=4096
        )
        for i in range(10_000)
    ]
    with pytest.raises(PolicyViolationError, match="10001 records"):
        activation_records(MetadataState(), [level(12), *users], DEFAULTS)
    assert len(activation(MetadataState(journaling=True), level(13), *users)) == 10_003


def test_with_elr_the_bootstrap_sets_min_insync_replicas_of_the_cluster() -> None:
    cluster = MetadataState(journaling=True)
    elr = records.FeatureLevel("eligible.leader.replicas.version", 1)
    settings = DEFAULTS._replace(min_insync_replicas=2)
    written = activation_records(cluster, [level(26), elr], settings)
    config = records.Config(4, "", "min.insync.replicas", "2")
    assert list(written) == [BEGIN, level(26), elr, config, END]


def test_a_log_with_a_metadata_version_gets_no_bootstrap() -> None:
    assert activation(replayed(level(30)), level(21)) == []


def test_an_open_transaction_is_aborted() -> None:
    cluster = replayed(level(30), records.BeginTransaction(name="t"), records.NoOp())
    assert activation(cluster) == [ABORT]


@pytest.mark.parametrize("half", [(), (level(30),)])
def test_an_incomplete_bootstrap_is_aborted_and_repeated(half: tuple[Record, ...]) -> None:
    """Also after its metadata.version was written, where Kafka would not repeat the bootstrap."""
    cluster = replayed(BEGIN, *half)
    assert activation(cluster, level(21)) == [ABORT, BEGIN, level(21), END]
    assert cluster.state.metadata_version == 21


def test_a_log_without_a_metadata_version_counts_as_empty() -> None:
    topic = records.Topic("t", Uuid(b"t" * 16))
    cluster = replayed(topic)
    assert activation(cluster, level(30)) == [BEGIN, level(30), END]
    assert cluster.table.topic_number("t") >= 0


def test_an_open_transaction_below_3_6_is_fatal() -> None:
    for cluster in (replayed(level(12), BEGIN), replayed(BEGIN)):
        with pytest.raises(ReplayError, match="open since offset"):
            activation_records(cluster, [level(12)], DEFAULTS)


@pytest.mark.parametrize("number", [6, 34])
def test_a_bootstrap_of_an_unsupported_metadata_version_is_fatal(number: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"metadata.version {number}"):
        activation_records(MetadataState(), [level(number)], DEFAULTS)
    assert activation(replayed(level(30)), level(number)) == []


def test_bootstrap_version_returns_the_last_level() -> None:
    assert bootstrap_version([level(20), level(21)]) == 21
    with pytest.raises(InvalidRequestError, match="no record of the bootstrap"):
        activation_records(MetadataState(), [records.NoOp()], DEFAULTS)


def checkpoint(*data: Record) -> bytes:
    return b"".join(
        (
            encode_control_records([SnapshotHeader()]),
            encode_records(data, base_offset=1),
            encode_control_records([SnapshotFooter()], base_offset=1 + len(data)),
        )
    )


def test_a_bootstrap_checkpoint_is_read_whole() -> None:
    data = checkpoint(level(30), records.NoOp())
    assert read_bootstrap(data) == (level(30), records.NoOp())


def test_the_error_of_a_damaged_bootstrap_checkpoint_names_the_file() -> None:
    data = bytearray(checkpoint(level(30)))
    footer_size = len(encode_control_records([SnapshotFooter()]))
    for damaged in (data[:-footer_size], data[:-1], data + data[-footer_size:]):
        with pytest.raises(CorruptRecordError, match="bootstrap checkpoint"):
            read_bootstrap(bytes(damaged), path="a bootstrap checkpoint")
    data[-footer_size - 1] ^= 1
    with pytest.raises(CorruptRecordError, match="bootstrap checkpoint"):
        read_bootstrap(bytes(data), path="a bootstrap checkpoint")
    with pytest.raises(InvalidRequestError, match="no record of the bootstrap"):
        read_bootstrap(checkpoint(records.NoOp()))
