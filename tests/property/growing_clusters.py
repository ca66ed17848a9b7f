"""Clusters that get generated logs record by record, with their images."""

from __future__ import annotations

import contextlib

from hypothesis import strategies as st

from kraft import records
from kraft.errors import KraftError, OffsetOutOfRangeError
from kraft.image.publishing import ImagePublishing
from kraft.image.replay import MetadataState
from kraft.records import Record, Uuid
from tests.harness import state_records, table_records
from tests.harness.table_records import batch_of

NEWEST = records.FeatureLevel(name="metadata.version", feature_level=30)
TRANSACTIONS: st.SearchStrategy[Record] = st.sampled_from(
    [records.BeginTransaction(), records.EndTransaction(), records.AbortTransaction()]
)
# At the newest metadata.version, which has all of the fields.
LOGS = st.lists(
    table_records.RECORDS
    | table_records.RECORDS
    | state_records.RECORDS.filter(lambda record: not isinstance(record, records.FeatureLevel))
    | TRANSACTIONS,
    max_size=60,
)


class Growing:
    """A cluster that gets a log one record at a time, and the log's batches."""

    def __init__(self) -> None:
        self.cluster = MetadataState(journaling=True)
        self.publishing = ImagePublishing(self.cluster)
        self.batches: list[memoryview] = []
        for record in (NEWEST, records.Topic(name="a", topic_id=Uuid(b"\1" * 16))):
            self.apply(record)

    def apply(self, record: Record) -> None:
        """Apply a record, unless the state rejects it."""
        reached = self.cluster.next_offset
        try:
            batch = batch_of([record], reached)
            self.cluster.apply(batch)
        except KraftError:
            # Then the part of an aborted transaction that was applied may be reverted too.
            assert self.cluster.next_offset <= reached
        else:
            self.publishing.note_batches(batch)
            self.batches.append(batch)
        del self.batches[self.cluster.next_offset :]

    def revert(self, offset: int) -> None:
        """Revert, if the journal and the images allow it."""
        image = self.publishing.image
        if image is not None and offset < image.offset:
            return
        # A revert cannot end inside of an aborted transaction.
        with contextlib.suppress(OffsetOutOfRangeError):
            self.cluster.revert(offset)
        del self.batches[self.cluster.next_offset :]

    def compact(self) -> None:
        """Publish the state and compact the table, unless a transaction is open."""
        if self.cluster.transaction_start is None:
            self.publishing.publish(self.cluster.next_offset)
            self.cluster.compact()
            self.publishing.publish_renumbered()

    def frozen(self, offset: int) -> MetadataState:
        cluster = MetadataState(journaling=True)
        for batch in self.batches[:offset]:
            cluster.apply(batch)
        assert cluster.next_offset == offset
        return cluster
