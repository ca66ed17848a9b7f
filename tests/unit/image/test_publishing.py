"""Publishing: the order of publishers, full deltas, failures, transactions and the journal."""

from __future__ import annotations

import gc

import pytest

from kraft import records
from kraft.errors import InvalidRequestError, OffsetOutOfRangeError
from kraft.image.publishing import Image, Phase
from kraft.image.replay import MetadataState
from kraft.records import Uuid
from kraft.records.batches import encode_records
from tests.harness.publishing import BASE, OTHER, TOPIC, PublishedCluster, change


def leader_of(image: Image) -> int:
    leader: int = image.table.partition("a", 0)["leader"]
    return leader


def test_publishers_are_called_in_kafkas_order() -> None:
    """``BrokerMetadataPublisher.onMetadataUpdate``, then the offset of the heartbeats."""
    lab = PublishedCluster()
    lab.register("heartbeats", Phase.HEARTBEATS)
    lab.register("quotas")
    lab.register("groups", Phase.COORDINATORS)
    lab.register("transactions", Phase.COORDINATORS)
    lab.register("replicas", Phase.REPLICA_MANAGER)
    lab.register("cache", Phase.METADATA_CACHE)
    lab.append(*BASE)
    lab.publish()
    assert [name for name, _ in lab.deltas] == [
        "cache",
        "replicas",
        "groups",
        "transactions",
        "quotas",
        "heartbeats",
    ]


def test_the_first_delta_is_full_and_the_next_lists_changes() -> None:
    lab = PublishedCluster()
    lab.append(*BASE)
    first = lab.publish()
    assert first.is_full
    assert first.rows_added == [(0, 1)]
    assert first.topics_added == [0]
    assert first.rows_changed.tolist() == []
    assert list(first.changes) == ["feature"]

    lab.append(
        change(2),
        records.Config(2, "a", "k", "v"),
        records.Topic(name="b", topic_id=OTHER),
    )
    second = lab.publish()
    assert not second.is_full
    assert second.before is first.image
    assert second.rows_changed.tolist() == [0]
    assert second.rows_added == []
    assert second.topics_added == [1]
    assert second.changes == {"config": {((2, "a"), "k"): (None, "v")}}
    assert leader_of(first.image) == 1
    assert leader_of(second.image) == 2
    assert first.image.state.configs == {}
    assert second.image.state.configs.topic("a") == {"k": "v"}


def test_nothing_is_published_without_changes() -> None:
    lab = PublishedCluster()
    end = lab.append(*BASE)
    lab.register("cache")
    lab.publish()
    assert lab.publishing.publish(end) is None
    assert lab.publishing.publish(end - 1) is None
    assert len(lab.deltas) == 1


def test_uncommitted_records_are_not_published() -> None:
    lab = PublishedCluster()
    committed = lab.append(*BASE)
    lab.append(change(2), records.Config(2, "a", "k", "v"), records.RemoveTopic(topic_id=TOPIC))
    delta = lab.publish(committed)
    assert leader_of(delta.image) == 1
    assert delta.image.state.configs == {}
    assert delta.topics_added == [0]
    # The node loses leadership and reverts the state; the image must not change.
    lab.cluster.revert(committed)
    lab.append(change(7))
    assert leader_of(delta.image) == 1
    assert leader_of(lab.publish().image) == 7


def test_no_part_of_a_metadata_transaction_is_published() -> None:
    lab = PublishedCluster()
    before = lab.append(*BASE)
    lab.publish()
    lab.append(records.BeginTransaction(name="x"))
    middle = lab.append(change(2))
    assert lab.publishing.publish(middle) is None
    lab.append(records.EndTransaction())
    # The end of the transaction is applied, but not committed.
    assert lab.cluster.stable_at(middle) == before
    assert lab.publishing.publish(middle) is None
    delta = lab.publish()
    assert delta.rows_changed.tolist() == [0]
    assert leader_of(delta.image) == 2


def test_an_aborted_transaction_changes_nothing() -> None:
    lab = PublishedCluster()
    lab.append(*BASE)
    lab.publish()
    lab.append(records.BeginTransaction(name="x"))
    middle = lab.append(change(2), records.Config(2, "a", "k", "v"))
    lab.append(records.AbortTransaction(reason="no"))
    assert lab.publishing.publish(middle) is None
    delta = lab.publish()
    assert delta.rows_changed.tolist() == []
    assert delta.changes == {}
    assert leader_of(delta.image) == 1


def test_a_failed_publisher_is_reported_and_the_others_are_called() -> None:
    lab = PublishedCluster()
    bad = lab.register("bad")
    lab.register("last", Phase.HEARTBEATS)
    bad.fails = True
    lab.append(*BASE)
    lab.publish()
    assert [name for name, _ in lab.deltas] == ["bad", "last"]
    assert lab.publishing.fault_counts == {"bad": 1}
    assert [(name, str(error)) for name, error in lab.faults] == [("bad", "bad fails")]


def test_a_failed_publisher_gets_a_full_delta_next_time() -> None:
    lab = PublishedCluster()
    bad = lab.register("bad")
    lab.register("last", Phase.HEARTBEATS)
    lab.append(*BASE)
    lab.publish()
    bad.fails = True
    lab.append(change(2))
    lab.publish()
    # A failed publisher is not called again with the same image.
    assert lab.publishing.publish(lab.cluster.next_offset) is None
    bad.fails = False
    lab.append(change(1))
    lab.publish()
    lab.append(change(2))
    lab.publish()
    assert [(name, delta.is_full) for name, delta in lab.deltas] == [
        ("bad", True),
        ("last", True),
        ("bad", False),
        ("last", False),
        ("bad", True),
        ("last", False),
        ("bad", False),
        ("last", False),
    ]


def test_a_later_publisher_gets_a_full_delta_without_waiting_for_a_change() -> None:
    lab = PublishedCluster()
    lab.register("cache")
    end = lab.append(*BASE)
    lab.publish()
    late = lab.register("late")
    assert lab.publishing.publish(end) is None
    assert [(name, delta.is_full) for name, delta in lab.deltas[1:]] == [("late", True)]
    lab.publishing.unregister(late)
    lab.append(change(2))
    lab.publish()
    assert [name for name, _ in lab.deltas] == ["cache", "late", "cache"]
    with pytest.raises(InvalidRequestError, match="no publisher late"):
        lab.publishing.unregister(late)
    with pytest.raises(InvalidRequestError, match="cache is registered already"):
        lab.register("cache")


def test_after_a_compaction_a_delta_says_that_only_numbers_changed() -> None:
    lab = PublishedCluster()
    lab.register("cache")
    other = records.Topic(name="b", topic_id=OTHER)
    lab.append(other, *BASE, records.RemoveTopic(topic_id=OTHER))
    first = lab.publish().image
    lab.cluster.compact()
    late = lab.register("late")
    lab.publishing.publish_renumbered()
    (_, renumbered), (_, full) = lab.deltas[1:]
    assert (renumbered.is_full, renumbered.is_renumbered) == (False, True)
    assert (full.is_full, full.is_renumbered) == (True, False)
    assert len(renumbered.rows_changed) == 0
    assert renumbered.rows_added == renumbered.topics_added == renumbered.topics_removed == []
    assert renumbered.changes == {}
    assert renumbered.before is first
    for image, number in ((first, 1), (renumbered.image, 0)):
        assert image.table.topic_number("a") == number
        assert image._replace(table=first.table) == first
    lab.publishing.unregister(late)
    lab.append(change(2))
    delta = lab.publish()
    assert (delta.is_renumbered, list(delta.rows_changed)) == (False, [0])


def test_after_a_loaded_snapshot_every_publisher_gets_a_full_delta() -> None:
    lab = PublishedCluster()
    lab.register("cache")
    lab.append(*BASE)
    lab.publish()
    loaded = MetadataState(journaling=True)
    loaded.apply_snapshot(encode_records(BASE), end_offset=100)
    lab.publishing.replace_cluster(loaded)
    delta = lab.publishing.publish(100)
    assert delta is not None
    assert delta.is_full
    assert delta.image.offset == 100
    assert delta.image.is_batch_aligned
    assert [each.is_full for _, each in lab.deltas] == [True, True]


def test_an_image_knows_the_time_and_the_bytes_of_its_last_batch() -> None:
    lab = PublishedCluster()
    first = lab.append(*BASE, timestamp_ms=1000)
    lab.append(change(2), timestamp_ms=2000)
    delta = lab.publish(first)
    assert delta.image.last_contained_log_timestamp_ms == 1000
    assert delta.batch_count == 1
    assert delta.byte_size == len(encode_records(BASE))
    assert lab.publish().image.last_contained_log_timestamp_ms == 2000


def test_an_image_inside_a_batch_is_not_batch_aligned() -> None:
    lab = PublishedCluster()
    lab.append(*BASE)
    lab.append(change(2), records.BeginTransaction(name="x"), change(1))
    delta = lab.publish()
    assert delta.image.offset == 4
    assert not delta.image.is_batch_aligned
    assert leader_of(delta.image) == 2


def test_batches_of_a_new_leader_replace_uncommitted_ones() -> None:
    lab = PublishedCluster()
    committed = lab.append(*BASE)
    lab.append(change(2), change(1), timestamp_ms=5)
    lab.cluster.revert(committed)
    lab.append(change(2), timestamp_ms=7)
    delta = lab.publish()
    assert delta.image.is_batch_aligned
    assert delta.batch_count == 2
    assert delta.image.last_contained_log_timestamp_ms == 7


def test_publishing_beyond_the_applied_records_is_rejected() -> None:
    lab = PublishedCluster()
    end = lab.append(*BASE)
    with pytest.raises(InvalidRequestError, match="has only applied records below 3"):
        lab.publishing.publish(end + 1)


def test_the_journal_is_dropped_except_for_live_images() -> None:
    lab = PublishedCluster()
    lab.append(*BASE)
    lab.publish()
    lab.append(change(2), records.Config(2, "a", "k", "1"))
    held = lab.publish().image
    for leader in (1, 2, 1, 2):
        lab.append(change(leader), records.Config(2, "a", "k", str(leader)))
        lab.publish()
    assert leader_of(held) == 2
    assert held.state.configs.topic("a") == {"k": "1"}
    assert lab.cluster.table.journal_start_offset == held.offset
    del held
    gc.disable()  # The last reference must free the image, without a garbage collection.
    try:
        lab.append(change(1))
        image = lab.publish().image
        lab.append(change(2))
        lab.publish()
        assert lab.cluster.table.journal_start_offset == image.offset
        with pytest.raises(OffsetOutOfRangeError):
            lab.cluster.state.image(image.offset - 1)
    finally:
        gc.enable()


def test_a_live_image_prevents_a_revert_of_table_and_state() -> None:
    lab = PublishedCluster()
    start = lab.append(*BASE)
    lab.append(change(2), records.Config(2, "a", "k", "1"))
    image = lab.cluster.state.image(start + 2)
    with pytest.raises(InvalidRequestError, match="in use"):
        lab.cluster.revert(start)
    # Neither table nor state was reverted.
    assert lab.cluster.next_offset == start + 2
    assert lab.cluster.table.partition_count == 1
    assert lab.cluster.table.state_of(0)["leader"] == 2
    assert image.configs.topic("a") == {"k": "1"}


def test_an_image_of_the_state_is_read_only() -> None:
    lab = PublishedCluster()
    image = lab.cluster.state.image(lab.append(*BASE))
    with pytest.raises(TypeError):
        image.configs.replay(records.Config(2, "a", "k", "1"), 9)
    with pytest.raises(OffsetOutOfRangeError):
        image.changes_since(MetadataState(journaling=True).state.image(0))


def test_an_image_keeps_a_row_that_is_reassigned_after_its_isr_has_changed() -> None:
    """An image shows neither a later ISR change nor a later reassignment."""
    lab = PublishedCluster()
    lab.append(*BASE)
    image = lab.publish().image
    before = dict(image.table.partition("a", 0))
    lab.append(records.PartitionChange(partition_id=0, topic_id=TOPIC, isr=[1]))
    lab.append(
        records.PartitionChange(
            partition_id=0,
            topic_id=TOPIC,
            replicas=[1, 2, 3],
            adding_replicas=[3],
            removing_replicas=[2],
        )
    )
    assert image.table.partition("a", 0) == before
    assert (before["replicas"], before["isr"]) == ([1, 2], [1, 2])
    second = lab.publish()
    moving = dict(second.image.table.partition("a", 0))
    assert (moving["replicas"], moving["isr"], moving["adding_replicas"]) == ([1, 2, 3], [1], [3])
    lab.append(
        records.PartitionChange(
            partition_id=0,
            topic_id=TOPIC,
            isr=[1, 3],
            replicas=[1, 3],
            adding_replicas=[],
            removing_replicas=[],
        )
    )
    assert image.table.partition("a", 0) == before
    assert dict(second.image.table.partition("a", 0)) == moving


def test_an_image_finds_acls_as_they_were_at_its_offset() -> None:
    first, second = Uuid(b"\3" * 16), Uuid(b"\4" * 16)
    alice = {"resource_name": "a", "principal": "User:alice"}
    lab = PublishedCluster()
    lab.append(*BASE, records.AccessControlEntry(id=first, **alice))
    image = lab.publish().image
    lab.append(
        records.RemoveAccessControlEntry(id=first),
        records.AccessControlEntry(id=second, **alice),
    )
    for acls, id in ((image.state.acls, first), (lab.cluster.state.acls, second)):
        assert list(acls.ids_with_name("a")) == [id]
        assert list(acls.ids_with_principal("User:alice")) == [id]
        assert list(acls.ids_of(acls[id])) == [id]
