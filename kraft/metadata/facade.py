"""``Metadata``: a cluster's metadata as a library object, and ``open_metadata``, which makes one.

Owns the ties between the state (``Cluster``), the bytes it came from (``MetadataSource``) and the
batches that were applied since (``AppliedBatches``). Deciding (``fence`` and its like) never
changes the state: it returns the records that Kafka's controller would write, ``apply`` makes them
take effect, ``append`` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ref

from kraft._core.batch import assign_offsets
from kraft.errors import (
    InvalidArgumentError,
    InvalidRequestError,
    KraftError,
    OffsetOutOfRangeError,
)
from kraft.image.cluster import ClusterState
from kraft.image.replay import Cluster
from kraft.metadata.applied import AppliedBatches
from kraft.metadata.arguments import (
    disk_errors,
    instance_of,
    path_of,
    shown,
    whole_number,
)
from kraft.metadata.decisions import Decisions
from kraft.metadata.partitions import Partitions, Topics
from kraft.metadata.reading import LogRecord, read_records, record_type_of
from kraft.metadata.snapshots import save_snapshot
from kraft.metadata.source import MetadataSource
from kraft.records import METADATA_VERSION, Record
from kraft.records.batches import encode_records

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from kraft._core.log import Log
    from kraft.metadata.diff import Differences


def open_metadata(
    path: str | PathLike[str],
    *,
    at: int | None = None,
    salvage: bool = False,
    use_column_cache: bool = True,
) -> Metadata:
    """Opens the metadata of a Kafka cluster: a ``log.dir``, a ``__cluster_metadata-0`` directory,
    one ``.log`` segment or one ``.checkpoint``.

    The state is that of all records that are there, or with ``at`` of those below that offset;
    records of an open or aborted metadata transaction are not part of it. Nothing on disk is
    changed. A log does not say how much of it was committed: the last records may be ones that a
    leader had not committed yet.

    ``salvage`` reads past damage in the log and falls back from damaged snapshots to older ones
    (``Metadata.source.damage`` names what was left out).
    ``use_column_cache`` lets a column checkpoint beside the snapshot stand in for decoding it,
    after checking it.

    Raises :class:`StorageError` where nothing of the kind lies at ``path``,
    :class:`CorruptRecordError` (with file, offset and byte position) for malformed bytes,
    :class:`DamagedLogError` for damage that valid batches follow, :class:`OffsetOutOfRangeError`
    for an ``at`` that is not there any more.
    """
    found = path_of(path, "path")
    if at is not None:
        at = whole_number(at, "at")
    with disk_errors(found):
        source = MetadataSource(found, salvage=salvage)
        cluster, began = source.load(at, use_column_cache=use_column_cache)
    return Metadata(cluster, source=source, first_offset=began)


class Metadata(Decisions):
    """The state of a cluster, to be asked, changed and written back.

    Made by :func:`open_metadata`; ``Metadata()`` is an empty cluster. The state stands at
    ``next_offset``.
    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        source: MetadataSource | None = None,
        first_offset: int = 0,
    ) -> None:
        if cluster is None:
            cluster = Cluster(journaling=True)
        self.cluster = instance_of(cluster, Cluster, "cluster")
        self.source = None if source is None else instance_of(source, MetadataSource, "source")
        self.first_offset = whole_number(first_offset, "first_offset")
        self.partitions = Partitions(self.cluster.table)
        self.topics = Topics(self.cluster.table)
        #: The offset as of which the state was opened: the source holds the records below.
        self.opened_offset = self.cluster.next_offset
        self._applied = AppliedBatches(self.opened_offset)
        # A list, as differences are compared by value and so have no hash.
        self._differences: list[ref[Differences]] = []

    # -- the state

    @property
    def state(self) -> ClusterState:
        """Everything that is no topic or partition."""
        return self.cluster.state

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets; the state is that of all records below."""
        return self.cluster.next_offset

    @property
    def epoch(self) -> int:
        """The leader epoch of the last records."""
        return self.state.quorum.leader_epoch

    @property
    def cluster_id(self) -> str | None:
        """As meta.properties has it; None where there is none."""
        properties = self.source and self.source.directory.meta_properties
        return properties.cluster_id if properties else None

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version, as a level."""
        return self.state.metadata_version

    @property
    def quorum(self) -> Any:
        """Leader, epoch, voters and kraft.version, as the control records say."""
        return self.state.quorum

    @property
    def brokers(self) -> Mapping[int, Any]:
        """Broker registrations by id."""
        return self.state.brokers

    @property
    def controllers(self) -> Mapping[int, Any]:
        """Controller registrations by id."""
        return self.state.controllers

    @property
    def configs(self) -> Any:
        """Configs by (resource type, name); ``configs.topic(name)`` and its like find one
        resource's.
        """
        return self.state.configs

    @property
    def features(self) -> Mapping[str, int]:
        """Finalized feature levels by name."""
        return self.state.features

    @property
    def acls(self) -> Any:
        return self.state.acls

    @property
    def scram_credentials(self) -> Any:
        return self.state.scram_credentials

    @property
    def client_quotas(self) -> Any:
        return self.state.client_quotas

    @property
    def delegation_tokens(self) -> Any:
        return self.state.delegation_tokens

    @property
    def next_producer_id(self) -> int:
        return self.state.next_producer_id

    @property
    def record_counts(self) -> dict[int, int]:
        """How many data records of each api key went into this state."""
        return self.cluster.table.counts_by_key

    # -- time

    def at(self, offset: int) -> Metadata:
        """The state as of ``offset``: of all records below it. This one stays as it is.

        Raises :class:`OffsetOutOfRangeError` where the records are not there any more.
        """
        offset = whole_number(offset, "offset")
        if offset > self.next_offset:
            raise OffsetOutOfRangeError(
                f"there is no state as of offset {offset}: the last is as of {self.next_offset}"
            )
        if self.source is None:
            cluster, began = Cluster(journaling=True), 0
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

        ``offset`` is the first of a batch that was applied since opening and is not written, or
        ``next_offset``. Raises :class:`OffsetOutOfRangeError` for any other offset, and for one
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
        """Every record that is there from offset ``since`` on, control records included.

        Those of the log, then those applied since; of a lone checkpoint, those in it. ``type``
        keeps one type, by class or by Kafka's name.
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
                        # An earlier state was opened: the applied records took these offsets.
                        break
                    yield record
        for _, batches in self._applied.since(start):
            yield from read_records(batches, record_type=wanted, since=start)

    # -- change

    def apply(self, records: Buffer | Record | Iterable[Record], *, timestamp_ms: int = 0) -> int:
        """Makes records take effect: typed ones, a decision of this class, or encoded batches.

        They get the next offsets and the present epoch; the offset of the first is returned. Typed
        records are appended as of ``timestamp_ms``; what is encoded keeps the time that it has.
        When a record contradicts the state, :class:`ReplayError` is raised and the state stays.
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
            # Records that abort a transaction and then contradict the state revert its begin too.
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
            # The bytes get their offsets in place, so they must be this object's own.
            return memoryview(bytearray(encoded))
        if not isinstance(encoded, Iterable):
            raise InvalidArgumentError(
                f"records must be records or encoded batches, not {shown(records)}"
            )
        return encode_records(
            (instance_of(each, Record, "each of the records") for each in encoded),
            timestamp_ms=timestamp_ms,
            # Before the first FeatureLevel nothing says which versions are meant: the newest are.
            metadata_version=self.metadata_version if METADATA_VERSION in self.features else None,
        )

    @property
    def has_applied(self) -> bool:
        """True where records were applied since opening, written or not."""
        return len(self._applied) > 0

    def _keep_differences(self, differences: Differences) -> None:
        """Have ``differences``, made from this state, settled before the state changes."""
        self._differences = [each for each in self._differences if each() is not None]
        self._differences.append(ref(differences))

    def _settle_differences(self) -> None:
        for each in self._differences:
            differences = each()
            if differences is not None:
                differences.settle()
        self._differences.clear()

    @property
    def pending(self) -> int:
        """How many applied records are not written yet."""
        return self.next_offset - self._applied.written_offset

    def append(self, log: Log) -> tuple[int, int] | None:
        """Write the records that were applied and are not written to ``log``, and fsync it.

        Return the (first, last) offset written, None where ``pending`` is 0. The log must end where
        these records begin, and not inside a metadata transaction that the state leaves out;
        otherwise raise :class:`InvalidRequestError`, and write nothing. Raise
        :class:`StorageError` where the disk refuses.
        """
        from kraft._core.log import Log

        instance_of(log, Log, "log")
        first = self._applied.written_offset
        if not self.pending:
            return None
        if log.log_end_offset != first:
            raise InvalidRequestError(
                f"the log ends at offset {log.log_end_offset}, the applied records begin at "
                f"{first}: open the metadata that this log holds, or begin a log at that offset"
            )
        if self.cluster.dropped_transaction is not None:
            raise InvalidRequestError(
                f"the log ends inside the transaction of offset {self.cluster.dropped_transaction},"
                " which this state leaves out: records behind it would be left out too. Cut the "
                "log there, or let a controller abort the transaction"
            )
        for _, batches in self._applied.unwritten():
            # Counted one by one: where the disk refuses a later one, these are in the log.
            self._applied.written_offset = log.append(batches)[1] + 1
        log.sync()
        # A written record is not reverted any more.
        self.cluster.forget(self.next_offset)
        return first, self.next_offset - 1

    def write_snapshot(
        self,
        directory: str | PathLike[str],
        *,
        columns: bool = True,
        timestamp_ms: int | None = None,
    ) -> Path:
        """Writes the state as Kafka's snapshot (``%020d-%010d.checkpoint``) into ``directory``; its
        path.

        ``columns`` puts a column checkpoint beside it, from which the next opening is faster; it is
        a cache and may be deleted at any time. ``timestamp_ms`` is the append time of the last
        record in it (default: what the log it came from says of that record, or what ``apply`` was
        told). Raises :class:`StorageError`, :class:`UnsupportedVersionError`.
        """
        if timestamp_ms is None:
            timestamp_ms = self.newest_timestamp_ms
        timestamp_ms = whole_number(timestamp_ms, "timestamp_ms", low=-1)
        return save_snapshot(
            path_of(directory, "directory"),
            self.cluster,
            last_contained_log_timestamp_ms=timestamp_ms,
            timestamp_ms=timestamp_ms,
            columns=columns,
        )

    @property
    def newest_timestamp_ms(self) -> int:
        """When the last record of the state was appended: as the log it came from says, else its
        snapshot, and as was told of what was applied since.
        """
        opened = -1
        if self.source is not None:
            opened = self.source.timestamp_ms_before(self.opened_offset)
        if opened < 0:
            opened = self.quorum.last_contained_log_timestamp_ms
        return max(opened, self._applied.newest_timestamp_ms(), 0)

    def to_arrow(self) -> pa.Table:
        """The partitions as an Arrow table (the extra ``kraft[arrow]``), names and lists spread
        out.
        """
        from kraft.metadata.arrow import partitions_to_arrow

        return partitions_to_arrow(self.cluster.table, self.partitions)

    def __repr__(self) -> str:
        return (
            f"Metadata(next_offset={self.next_offset}, brokers={len(self.brokers)}, "
            f"topics={len(self.topics)}, partitions={len(self.partitions)})"
        )
