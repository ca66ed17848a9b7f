"""Who hears of new metadata, when, and of how much of it."""

from __future__ import annotations

import gc

import pytest

from kraft import records
from kraft.errors import InvalidRequestError, OffsetOutOfRangeError
from kraft.image.publishing import Image, ImageDelta, ImagePublishing, Phase
from kraft.image.replay import Cluster
from kraft.records import Record, Uuid
from kraft.records.batches import encode_records

TOPIC = Uuid(b"\1" * 16)
OTHER = Uuid(b"\2" * 16)
BASE: list[Record] = [
    records.FeatureLevel("metadata.version", 30),
    records.Topic(name="a", topic_id=TOPIC),
    records.Partition(partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[1, 2], leader=1),
]


class Told:
    """A publisher that writes down what it is told, into one list with the others."""

    def __init__(self, name: str, heard: list[tuple[str, ImageDelta]]) -> None:
        self.name = name
        self.heard = heard
        self.fails = False

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        assert image is delta.image
        self.heard.append((self.name, delta))
        if self.fails:
            raise ValueError(f"{self.name} does not like it")


class Lab:
    def __init__(self) -> None:
        self.cluster = Cluster(journaling=True)
        self.faults: list[tuple[str, Exception]] = []
        self.publishing = ImagePublishing(
            self.cluster, lambda name, error: self.faults.append((name, error))
        )
        self.heard: list[tuple[str, ImageDelta]] = []

    def register(self, name: str, phase: Phase = Phase.OTHERS) -> Told:
        told = Told(name, self.heard)
        self.publishing.register(told, phase)
        return told

    def append(self, *log: Record, timestamp_ms: int = 0) -> int:
        offset = self.cluster.next_offset
        batch = encode_records(log, base_offset=offset, timestamp_ms=timestamp_ms)
        self.cluster.apply(batch)
        self.publishing.note_batches(batch)
        return self.cluster.next_offset

    def publish(self, committed_offset: int | None = None) -> ImageDelta:
        delta = self.publishing.publish(
            self.cluster.next_offset if committed_offset is None else committed_offset
        )
        assert delta is not None
        return delta


def leader_of(image: Image) -> int:
    leader: int = image.table.partition("a", 0)["leader"]
    return leader


def change(leader: int) -> records.PartitionChange:
    return records.PartitionChange(partition_id=0, topic_id=TOPIC, leader=leader)


def test_the_metadata_cache_is_told_last_and_replicas_first() -> None:
    lab = Lab()
    lab.register("cache", Phase.METADATA_CACHE)
    lab.register("quotas")
    lab.register("groups", Phase.COORDINATORS)
    lab.register("transactions", Phase.COORDINATORS)
    lab.register("replicas", Phase.REPLICA_MANAGER)
    lab.append(*BASE)
    lab.publish()
    assert [name for name, _ in lab.heard] == [
        "replicas",
        "groups",
        "transactions",
        "quotas",
        "cache",
    ]


def test_the_first_publication_is_all_there_is_and_the_next_what_changed() -> None:
    lab = Lab()
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


def test_nothing_is_said_where_nothing_is_new() -> None:
    lab = Lab()
    end = lab.append(*BASE)
    lab.register("cache")
    lab.publish()
    assert lab.publishing.publish(end) is None
    assert lab.publishing.publish(end - 1) is None
    assert len(lab.heard) == 1


def test_what_is_not_committed_is_not_seen() -> None:
    lab = Lab()
    committed = lab.append(*BASE)
    lab.append(change(2), records.Config(2, "a", "k", "v"), records.RemoveTopic(topic_id=TOPIC))
    delta = lab.publish(committed)
    assert leader_of(delta.image) == 1
    assert delta.image.state.configs == {}
    assert delta.topics_added == [0]
    # Leadership is lost, and the tip goes back; the image stays.
    lab.cluster.revert(committed)
    lab.append(change(7))
    assert leader_of(delta.image) == 1
    assert leader_of(lab.publish().image) == 7


def test_no_part_of_a_metadata_transaction_is_seen() -> None:
    lab = Lab()
    before = lab.append(*BASE)
    lab.publish()
    lab.append(records.BeginTransaction(name="x"))
    middle = lab.append(change(2))
    assert lab.publishing.publish(middle) is None
    lab.append(records.EndTransaction())
    # The end is there, but not committed.
    assert lab.cluster.stable_at(middle) == before
    assert lab.publishing.publish(middle) is None
    delta = lab.publish()
    assert delta.rows_changed.tolist() == [0]
    assert leader_of(delta.image) == 2


def test_an_aborted_transaction_changes_nothing() -> None:
    lab = Lab()
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


def test_a_publisher_that_fails_is_named_and_stops_nobody() -> None:
    lab = Lab()
    bad = lab.register("bad")
    lab.register("cache", Phase.METADATA_CACHE)
    bad.fails = True
    lab.append(*BASE)
    lab.publish()
    assert [name for name, _ in lab.heard] == ["bad", "cache"]
    assert lab.publishing.fault_counts == {"bad": 1}
    assert [(name, str(error)) for name, error in lab.faults] == [("bad", "bad does not like it")]


def test_a_publisher_that_failed_is_told_everything_next_time() -> None:
    lab = Lab()
    bad = lab.register("bad")
    lab.register("cache", Phase.METADATA_CACHE)
    lab.append(*BASE)
    lab.publish()
    bad.fails = True
    lab.append(change(2))
    lab.publish()
    # Not over and over of the same image.
    assert lab.publishing.publish(lab.cluster.next_offset) is None
    bad.fails = False
    lab.append(change(1))
    lab.publish()
    lab.append(change(2))
    lab.publish()
    assert [(name, delta.is_full) for name, delta in lab.heard] == [
        ("bad", True),
        ("cache", True),
        ("bad", False),
        ("cache", False),
        ("bad", True),
        ("cache", False),
        ("bad", False),
        ("cache", False),
    ]


def test_a_publisher_that_comes_later_hears_everything_without_waiting_for_a_change() -> None:
    lab = Lab()
    lab.register("cache")
    end = lab.append(*BASE)
    lab.publish()
    late = lab.register("late")
    assert lab.publishing.publish(end) is None
    assert [(name, delta.is_full) for name, delta in lab.heard[1:]] == [("late", True)]
    lab.publishing.unregister(late)
    lab.append(change(2))
    lab.publish()
    assert [name for name, _ in lab.heard] == ["cache", "late", "cache"]
    with pytest.raises(InvalidRequestError, match="no publisher late"):
        lab.publishing.unregister(late)
    with pytest.raises(InvalidRequestError, match="cache is registered already"):
        lab.register("cache")


def test_after_a_snapshot_was_loaded_everyone_is_told_everything() -> None:
    lab = Lab()
    lab.register("cache")
    lab.append(*BASE)
    lab.publish()
    loaded = Cluster(journaling=True)
    loaded.apply_snapshot(encode_records(BASE), end_offset=100)
    lab.publishing.replace_cluster(loaded)
    delta = lab.publishing.publish(100)
    assert delta is not None
    assert delta.is_full
    assert delta.image.offset == 100
    assert delta.image.is_batch_aligned
    assert [told.is_full for _, told in lab.heard] == [True, True]


def test_an_image_knows_the_time_and_the_bytes_of_its_last_batch() -> None:
    lab = Lab()
    first = lab.append(*BASE, timestamp_ms=1000)
    lab.append(change(2), timestamp_ms=2000)
    delta = lab.publish(first)
    assert delta.image.last_contained_log_timestamp_ms == 1000
    assert delta.batch_count == 1
    assert delta.byte_size == len(encode_records(BASE))
    assert lab.publish().image.last_contained_log_timestamp_ms == 2000


def test_an_image_inside_of_a_batch_says_so() -> None:
    lab = Lab()
    lab.append(*BASE)
    lab.append(change(2), records.BeginTransaction(name="x"), change(1))
    delta = lab.publish()
    assert delta.image.offset == 4
    assert not delta.image.is_batch_aligned
    assert leader_of(delta.image) == 2


def test_batches_of_another_leader_take_the_place_of_those_that_were_not_committed() -> None:
    lab = Lab()
    committed = lab.append(*BASE)
    lab.append(change(2), change(1), timestamp_ms=5)
    lab.cluster.revert(committed)
    lab.append(change(2), timestamp_ms=7)
    delta = lab.publish()
    assert delta.image.is_batch_aligned
    assert delta.batch_count == 2
    assert delta.image.last_contained_log_timestamp_ms == 7


def test_what_is_not_applied_is_not_published() -> None:
    lab = Lab()
    end = lab.append(*BASE)
    with pytest.raises(InvalidRequestError, match="the state is at 3"):
        lab.publishing.publish(end + 1)


def test_the_journal_is_forgotten_but_for_what_somebody_holds() -> None:
    lab = Lab()
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
    gc.disable()  # It goes at once, without a collection.
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


def test_an_image_in_use_stands_in_the_way_of_a_revert_of_the_whole_cluster() -> None:
    lab = Lab()
    start = lab.append(*BASE)
    lab.append(change(2), records.Config(2, "a", "k", "1"))
    image = lab.cluster.state.image(start + 2)
    with pytest.raises(InvalidRequestError, match="in use"):
        lab.cluster.revert(start)
    # Neither half of it went back.
    assert lab.cluster.next_offset == start + 2
    assert lab.cluster.table.partition_count == 1
    assert lab.cluster.table.state_of(0)["leader"] == 2
    assert image.configs.topic("a") == {"k": "1"}


def test_an_image_of_the_state_refuses_every_change() -> None:
    lab = Lab()
    image = lab.cluster.state.image(lab.append(*BASE))
    with pytest.raises(TypeError):
        image.configs.replay(records.Config(2, "a", "k", "1"), 9)
    with pytest.raises(OffsetOutOfRangeError):
        image.changes_since(Cluster(journaling=True).state.image(0))


def test_an_image_keeps_a_row_that_is_reassigned_after_its_isr_has_changed() -> None:
    """The second change makes the row irregular; the image has kept it from the first one on."""
    lab = Lab()
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
