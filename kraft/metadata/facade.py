"""``Metadata``: a cluster's metadata as a library object, and ``open_metadata``, which makes one.

A ``Metadata`` joins the questions to a state (``MetadataView``), the files it was read from
(``MetadataSource``) and the batches applied since (``AppliedBatches``). A decision method
(``fence_broker``, ...) never changes the state: it returns the records that Kafka's controller
would write. ``apply`` applies records, ``append`` writes them to a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import TYPE_CHECKING

from kraft._core.bytes.batch import assign_offsets
from kraft.errors import (
    InvalidArgumentError,
    InvalidRequestError,
    KraftError,
    OffsetOutOfRangeError,
)
from kraft.image.replay import MetadataState
from kraft.metadata.applied_batches import AppliedBatches
from kraft.metadata.arguments import (
    disk_errors,
    instance_of,
    path_of,
    shown,
    whole_number,
)
from kraft.metadata.log_records import LogRecord, read_records, record_type_of
from kraft.metadata.source import MetadataSource
from kraft.metadata.view import MetadataView
from kraft.records import METADATA_VERSION, Record
from kraft.records.batches import encode_records

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kraft._core.log.log import Log


def open_metadata(
    path: str | PathLike[str],
    *,
    at: int | None = None,
    salvage: bool = False,
    use_column_cache: bool = True,
) -> Metadata:
    """Open a Kafka cluster's metadata: a ``log.dir``, a ``__cluster_metadata-0`` directory, one
    ``.log`` segment or one ``.checkpoint``.

    Returns the state of all records found, or with ``at`` of those below that offset, without
    records of an open or aborted metadata transaction. Nothing on disk is changed. A log does not
    say how much of it was committed: its last records may be uncommitted ones.

    Without ``at`` this is the state that a node has after a restart on the directory, also where
    the restart empties the log for a later snapshot. It differs in four cases. A kraft node does
    not start where the log ends before an offset that it has acknowledged, or where no snapshot has
    the records before the log's start, or where its latest snapshot is an empty file. It skips
    configurations that Kafka does not know. With an empty log it has no state; this function
    returns the state of ``bootstrap.checkpoint``.

    ``salvage`` reads past damage in the log and falls back from damaged snapshots to older ones
    (``Metadata.source.damage`` lists what was skipped). ``use_column_cache`` loads a column
    checkpoint beside the snapshot, after checking it, instead of decoding the snapshot.

    Raises :class:`StorageError` where ``path`` holds no metadata, :class:`CorruptRecordError` (with
    file, offset and byte position) for malformed bytes, :class:`DamagedLogError` for damage that
    valid batches follow, :class:`OffsetOutOfRangeError` for an ``at`` outside the available
    offsets.
    """
    if isinstance(path, str) and path.startswith("zookeeper://"):
        raise InvalidArgumentError(f"{path} is no path: use kraft.open_zookeeper")
    found = path_of(path, "path")
    if at is not None:
        at = whole_number(at, "at")
    with disk_errors(found):
        source = MetadataSource(found, salvage=salvage)
        cluster, began = source.load(at, use_column_cache=use_column_cache)
    return Metadata(cluster, source=source, first_offset=began)


class Metadata(MetadataView):
    """The state of a cluster as of ``next_offset``: read it, change it, write it.

    Made by :func:`open_metadata`; ``Metadata()`` is an empty cluster.
    """

    def __init__(
        self,
        cluster: MetadataState | None = None,
        *,
        source: MetadataSource | None = None,
        first_offset: int = 0,
    ) -> None:
        if cluster is None:
            cluster = MetadataState(journaling=True)
        super().__init__(instance_of(cluster, MetadataState, "cluster"))
        self.source = None if source is None else instance_of(source, MetadataSource, "source")
        self.first_offset = whole_number(first_offset, "first_offset")
        self._applied = AppliedBatches(self.opened_offset)

    @property
    def cluster_id(self) -> str | None:
        """The ``cluster.id`` of meta.properties; None without that file."""
        properties = self.source and self.source.directory.meta_properties
        return properties.cluster_id if properties else None

    # -- time

    def at(self, offset: int) -> Metadata:
        """Return the state as of ``offset``, of all records below it; this object does not change.

        Raises :class:`OffsetOutOfRangeError` where the records are not available.
        """
        offset = whole_number(offset, "offset")
        if offset > self.next_offset:
            raise OffsetOutOfRangeError(
                f"no state is available as of offset {offset}: the last is {self.next_offset}"
            )
        if self.source is None:
            cluster, began = MetadataState(journaling=True), 0
        else:
            cluster, began = self.source.load(min(offset, self.opened_offset))
        past = Metadata(cluster, source=self.source, first_offset=began)
        past._applied = self._applied.copy_below(offset)
        for _, batches in past._applied.since(0):
            cluster.apply(batches, verify_crc=False)
        cluster.drop_open_transaction()
        return past

    def revert(self, offset: int) -> None:
        """Remove every record from ``offset`` on from the state.

        ``offset`` is ``next_offset``, or the first of a batch that was applied since opening and
        not yet written. Raises :class:`OffsetOutOfRangeError` for any other offset, and for one
        inside a metadata transaction that was aborted since.
        """
        offset = whole_number(offset, "offset")
        self._applied.check_revert(offset)
        self._settle_differences()
        self.cluster.revert(offset)
        self._applied.cut(offset)

    def records(
        self, type: str | type[Record] | None = None, since: int | None = None
    ) -> Iterator[LogRecord]:
        """Yield every available record from offset ``since`` on, control records included.

        First the records of the log, then those applied since; for a lone checkpoint the records in
        it. ``type`` selects one type, by class or by Kafka's name.
        """
        wanted = None if type is None else record_type_of(type)
        start = 0 if since is None else whole_number(since, "since")
        return self._records(wanted, start)

    def _records(self, wanted: type[Record] | None, start: int) -> Iterator[LogRecord]:
        if self.source is not None:
            for data, path, position in self.source.slices_or_snapshot(start):
                for record in read_records(
                    data, record_type=wanted, since=start, path=path, base_position=position
                ):
                    if len(self._applied) and record.offset >= self.opened_offset:
                        # The state was opened before the log's end: applied records replace these.
                        break
                    yield record
        for _, batches in self._applied.since(start):
            yield from read_records(batches, record_type=wanted, since=start)

    # -- change

    def apply(self, records: Buffer | Record | Iterable[Record], *, timestamp_ms: int = 0) -> int:
        """Apply records and return the offset of the first: typed records, a decision, or encoded
        batches.

        They get the next offsets and the current epoch. Typed records get ``timestamp_ms`` as
        append time; encoded batches keep theirs. Raises :class:`ReplayError` where a record
        contradicts the state, which then does not change.
        """
        first = self.next_offset
        batches = self._encode(records, whole_number(timestamp_ms, "timestamp_ms", low=-1))
        if len(batches) == 0:
            return first
        assign_offsets(batches, first, self.epoch)
        self._settle_differences()
        try:
            self.cluster.apply(batches, verify_crc=False)
        except KraftError:
            # A batch that aborts a transaction and then fails also reverted the begin: re-apply it.
            for _, earlier in self._applied.since(self.next_offset):
                self.cluster.apply(earlier, verify_crc=False)
            raise
        self._applied.add(first, batches)
        return first

    def _encode(self, records: Buffer | Record | Iterable[Record], timestamp_ms: int) -> memoryview:
        if isinstance(records, Record):
            records = (records,)
        encoded = getattr(records, "batches", records)
        if isinstance(encoded, (bytes, bytearray, memoryview)):
            # Offsets are assigned in place, so copy the caller's bytes.
            return memoryview(bytearray(encoded))
        if not isinstance(encoded, Iterable):
            raise InvalidArgumentError(
                f"records must be records or encoded batches, not {shown(records)}"
            )
        return encode_records(
            (instance_of(each, Record, "each of the records") for each in encoded),
            timestamp_ms=timestamp_ms,
            # Before the first FeatureLevel no metadata.version is set: use the newest.
            metadata_version=self.metadata_version if METADATA_VERSION in self.features else None,
        )

    @property
    def has_applied(self) -> bool:
        """True where records were applied since opening, written or not."""
        return len(self._applied) > 0

    @property
    def pending(self) -> int:
        """The number of applied records that are not yet written."""
        return self.next_offset - self._applied.written_offset

    def append(self, log: Log) -> tuple[int, int] | None:
        """Append the applied, unwritten records to ``log``, and fsync it.

        Returns the (first, last) offset written, None where ``pending`` is 0. The log must end at
        the first of these records, and not inside a metadata transaction that the state leaves out;
        otherwise raises :class:`InvalidRequestError` and writes nothing. Raises
        :class:`StorageError` where the write fails.
        """
        from kraft._core.log.log import Log

        instance_of(log, Log, "log")
        first = self._applied.written_offset
        if not self.pending:
            return None
        if log.log_end_offset != first:
            raise InvalidRequestError(
                f"the log ends at offset {log.log_end_offset}, the applied records begin at "
                f"{first}: open the metadata of this log, or start a log at that offset"
            )
        if self.cluster.dropped_transaction is not None:
            raise InvalidRequestError(
                f"the log ends inside the transaction of offset {self.cluster.dropped_transaction},"
                " which this state excludes: records after it would be excluded too. Truncate the "
                "log there, or let a controller abort the transaction"
            )
        for _, batches in self._applied.unwritten():
            # After each append, as a later one may fail.
            self._applied.written_offset = log.append(batches)[1] + 1
        log.sync()
        # A written record is never reverted.
        self.cluster.forget(self.next_offset)
        return first, self.next_offset - 1

    @property
    def newest_timestamp_ms(self) -> int:
        """The append time of the last record, in ms: from the log, else the snapshot, or from
        ``apply``.
        """
        opened = -1
        if self.source is not None:
            opened = self.source.timestamp_ms_before(self.opened_offset)
        if opened < 0:
            opened = self.quorum.last_contained_log_timestamp_ms
        return max(opened, self._applied.newest_timestamp_ms(), 0)
