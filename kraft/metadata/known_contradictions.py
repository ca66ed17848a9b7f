"""Contradictions between log and snapshot that Apache Kafka itself writes, and why.

Owns how each is told from damage: by the records of the log that Kafka took a part of. Seen with
Kafka 4.3.1 (``tests/interop/test_verify.py``). Fed by ``verification``.
"""

from __future__ import annotations

from kraft._core.batch_records import iterate
from kraft.image.configs import TOPIC
from kraft.metadata.causes import Causes
from kraft.metadata.diff import Difference
from kraft.metadata.reading import LogRecord, batch_records
from kraft.metadata.runs import pieces_of
from kraft.metadata.source import MetadataSource
from kraft.records import (
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    RemoveTopic,
    Topic,
)

KEPT_SETTINGS = (
    "Kafka keeps the settings of a topic that was created and deleted within one load of its "
    "metadata: ConfigurationsDelta forgets only settings that were there before the load"
)
KEPT_TRANSACTION = (
    "Kafka keeps the records of an aborted metadata transaction that more records follow within "
    "one load of its metadata: MetadataBatchLoader drops them only at the end of a load"
)
NO_MIGRATION = "Kafka 4.0 and later drop the state of a migration from ZooKeeper"


class KnownContradictions:
    """What the records of a log below ``end_offset`` may have left in a snapshot of Kafka's.

    Made from one pass over the log, so only where there are differences. Raises what reading
    records raises.
    """

    def __init__(self, source: MetadataSource, end_offset: int) -> None:
        self._names: dict[bytes, str] = {}
        self._deleted: set[str] = set()
        self._aborted = Causes({})
        self._open: list[LogRecord] | None = None
        for piece in pieces_of(source.slices()):
            for batch in iterate(piece.data, verify_crc=False):
                if batch.base_offset >= end_offset:
                    return
                if not batch.is_control:
                    for record in batch_records(batch, path=piece.path):
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
        """Why Kafka's snapshot has this; None where it should not."""
        if change.kind == "zk_migration" and change.after is None:
            return NO_MIGRATION
        if self._aborted.of(change) is not None:
            return KEPT_TRANSACTION
        is_setting = change.kind == "config" and change.key[0] == TOPIC and change.before is None
        return KEPT_SETTINGS if is_setting and change.key[1] in self._deleted else None
