"""A cluster whose images are published, and a publisher that records them."""

from __future__ import annotations

from kraft import records
from kraft.image.publishing import Image, ImageDelta, ImagePublishing, Phase
from kraft.image.replay import MetadataState
from kraft.records import Record, Uuid
from kraft.records.batches import encode_records

TOPIC = Uuid(b"\1" * 16)
OTHER = Uuid(b"\2" * 16)
BASE: list[Record] = [
    records.FeatureLevel("metadata.version", 30),
    records.Topic(name="a", topic_id=TOPIC),
    records.Partition(partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[1, 2], leader=1),
]


class RecordingPublisher:
    """A publisher that appends every delta to a list that all publishers share."""

    def __init__(self, name: str, deltas: list[tuple[str, ImageDelta]]) -> None:
        self.name = name
        self.deltas = deltas
        self.fails = False

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        assert image is delta.image
        self.deltas.append((self.name, delta))
        if self.fails:
            raise ValueError(f"{self.name} fails")


class PublishedCluster:
    """A cluster that applies records, and publishes its image when a test requests it."""

    def __init__(self) -> None:
        self.cluster = MetadataState(journaling=True)
        self.faults: list[tuple[str, Exception]] = []
        self.publishing = ImagePublishing(
            self.cluster, lambda name, error: self.faults.append((name, error))
        )
        self.deltas: list[tuple[str, ImageDelta]] = []

    def register(self, name: str, phase: Phase = Phase.OTHERS) -> RecordingPublisher:
        publisher = RecordingPublisher(name, self.deltas)
        self.publishing.register(publisher, phase)
        return publisher

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


def change(leader: int) -> records.PartitionChange:
    return records.PartitionChange(partition_id=0, topic_id=TOPIC, leader=leader)
