"""Contradictions between log and snapshot that Apache Kafka itself writes, and why.

Recognizes them by the records in the log that Kafka applied only in part. Observed with Kafka 4.3.1
(``tests/interop/test_verify.py``). Called by ``verification`` and ``node_comparison``.
"""

from __future__ import annotations

from typing import Any

from kraft._core.bytes.batch_records import iterate
from kraft.image.configs import TOPIC
from kraft.metadata.change_causes import ChangeCauses
from kraft.metadata.contiguous_slices import batch_ranges
from kraft.metadata.diff import Difference
from kraft.metadata.log_records import LogRecord, batch_records
from kraft.metadata.source import MetadataSource
from kraft.records import (
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    RemoveTopic,
    Topic,
)

KEPT_SETTINGS = (
    "Kafka keeps the configs of a topic that was created and deleted within one load of its "
    "metadata: ConfigurationsDelta removes only configs from before the load"
)
KEPT_TRANSACTION = (
    "Kafka keeps the records of an aborted metadata transaction that more records follow within "
    "one load of its metadata: MetadataBatchLoader drops them only at the end of a load"
)
NO_MIGRATION = "Kafka 4.0 and later drop the state of a migration from ZooKeeper"


class KnownKafkaFaults:
    """The traces that known faults of Kafka may leave in a snapshot at ``end_offset``.

    Reads the log once, so create it only where a snapshot differs. Raises as reading records does.
    """

    def __init__(self, source: MetadataSource, end_offset: int) -> None:
        self._names: dict[bytes, str] = {}
        self._deleted: set[str] = set()
        self._aborted = ChangeCauses({})
        self._open: list[LogRecord] | None = None
        for block in batch_ranges(source.slices()):
            for batch in iterate(block.data, verify_crc=False):
                if batch.base_offset >= end_offset:
                    return
                if not batch.is_control:
                    for record in batch_records(batch, path=block.path):
                        self._add(record)

    def _add(self, record: LogRecord) -> None:
        made = record.record
        match made:
            case BeginTransaction():
                self._open = []
                return
            case EndTransaction():
                self._open = None
            case AbortTransaction():
                for each in self._open or ():
                    self._aborted.add(each)
                self._open = None
            case Topic():
                self._names[made.topic_id] = made.name
            case RemoveTopic():
                self._deleted.add(self._names.get(made.topic_id, ""))
        if self._open is not None:
            self._open.append(record)

    def reason(self, change: Difference) -> str | None:
        """Return why Kafka's snapshot has this difference; None where it should not."""
        if change.kind == "zk_migration" and change.after is None:
            return NO_MIGRATION
        if self._aborted.of(change) is not None:
            return KEPT_TRANSACTION
        key: Any = change.key
        is_setting = change.kind == "config" and key[0] == TOPIC and change.before is None
        return KEPT_SETTINGS if is_setting and key[1] in self._deleted else None
