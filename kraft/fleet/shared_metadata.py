"""``SharedMetadata``: the metadata that all light brokers of one process share.

Every broker fetches the log over its own connection from its own offset. The first broker that
receives a run of batches keeps its bytes; once a leader reports that they are committed, they are
applied to one state. What other brokers receive for the same offsets is counted and compared,
batch by batch, by CRC-32C; it is neither decoded nor kept. `SharingCounts` says how many. Only
committed batches are compared: a leader that does not know yet that it was replaced may send a
broker records that are never committed.

Invariants: the state holds committed records only, in the order of the log, and never goes back; a
broker's committed offset is at or below the state's. Called by `light_broker`, on one event loop.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import numpy as np

from kraft._core.bytes.batch import scan
from kraft._core.bytes.checksum import crc32c
from kraft.errors import CorruptRecordError, InvalidRequestError
from kraft.fleet.own_cost import Tally
from kraft.image.publishing import Image, ImageDelta, ImagePublishing
from kraft.image.replay import MetadataState
from kraft.metadata.snapshot_stream import SnapshotStream
from kraft.raft.rpc import OffsetAndEpoch

#: Descriptions of received pieces that are kept, so that a slow broker's bytes are recognised.
_KNOWN_PIECES = 4096
#: Checksums of committed batches that are kept, to compare what brokers receive later.
_KNOWN_BATCHES = 1 << 16
#: The dead rows from which on a table is compacted that has more of them than live ones.
_MIN_DEAD_ROWS = 10_000


@dataclass(slots=True)
class SharingCounts:
    """What the brokers of a process received, and how much of it was decoded."""

    received_bytes: int = 0
    decoded_bytes: int = 0
    snapshot_bytes: int = 0
    decoded_snapshot_bytes: int = 0
    #: Requests that a controller answered without an error.
    fetches: int = 0
    heartbeats: int = 0


@dataclass(slots=True)
class LogPiece:
    """Whole batches of one response; ``data`` is None once they are applied.

    ``epochs`` are the leader epochs of the batches with their first offsets, ``batches`` the base
    offset, last offset and CRC-32C of those batches that are not known to be the committed ones.
    """

    base_offset: int
    end_offset: int
    epochs: list[tuple[int, int]]
    batches: list[tuple[int, int, int]]
    size: int
    data: memoryview | None


class SharedMetadata:
    """One state, applied as far as any broker of the process knows it to be committed.

    ``on_delta`` is called after each change with what changed, and with the bytes of its batches.
    """

    def __init__(self, on_delta: Callable[[ImageDelta, int], object]) -> None:
        self.state = MetadataState(journaling=True)
        self.counts = SharingCounts()
        #: The times in ms in which pieces and snapshots were decoded and applied.
        self.applied = Tally()
        self._on_delta = on_delta
        self._publishing = ImagePublishing(self.state)
        self._pieces: OrderedDict[tuple[int, int, int], LogPiece] = OrderedDict()
        #: The CRC-32C of committed batches by their base offset, in their order.
        self._batch_crcs: OrderedDict[int, int] = OrderedDict()
        self._loading: SnapshotLoading | None = None
        #: The CRC-32C of each snapshot that was downloaded as a whole.
        self._snapshot_crcs: dict[OffsetAndEpoch, int] = {}

    @property
    def next_offset(self) -> int:
        return self.state.next_offset

    @property
    def image(self) -> Image | None:
        """The last published image; None before the first."""
        return self._publishing.image

    @property
    def is_loading(self) -> bool:
        """Whether a broker is loading a snapshot into the next state."""
        return self._loading is not None

    # -- the log

    def receive(self, offset: int, records: bytes | memoryview) -> LogPiece:
        """Return the whole batches of a response to a fetch of ``offset``.

        Raises CorruptRecordError where they do not continue at the offset, and where a batch is
        damaged.
        """
        size = len(records)
        self.counts.received_bytes += size
        key = (offset, size, crc32c(records))
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._describe(offset, records)
            self._pieces[key] = piece
            if len(self._pieces) > _KNOWN_PIECES:
                self._pieces.popitem(last=False)
        return piece

    def _describe(self, offset: int, records: bytes | memoryview) -> LogPiece:
        table = scan(records)
        if not len(table) or not table.base_offsets[0] <= offset <= table.last_offsets[-1]:
            first = f"offset {table.base_offsets[0]}" if len(table) else "no batch"
            reason = f" ({table.tail_reason})" if table.tail_reason else ""
            raise CorruptRecordError(
                f"the leader sent {len(records)} bytes for a fetch of offset {offset}, which begin "
                f"with {first}{reason}"
            )
        batches = list(
            zip(
                *(table.base_offsets.tolist(), table.last_offsets.tolist(), table.crcs.tolist()),
                strict=True,
            )
        )
        epochs = table.partition_leader_epochs
        begins = [0, *map(int, np.flatnonzero(np.diff(epochs)) + 1)]
        size = int(table.positions[-1] + table.sizes[-1])
        end_offset = int(table.last_offsets[-1]) + 1
        return LogPiece(
            int(table.base_offsets[0]),
            end_offset,
            [(int(epochs[at]), int(table.base_offsets[at])) for at in begins],
            [
                (base_offset, last_offset, crc)
                for base_offset, last_offset, crc in batches
                if last_offset >= self.next_offset or self._batch_crcs.get(base_offset, crc) != crc
            ],
            size,
            None if end_offset <= self.next_offset else memoryview(records)[:size],
        )

    def commit(self, piece: LogPiece, high_watermark: int) -> None:
        """Apply those records of a piece that are committed, unless they are applied already.

        Raises CorruptRecordError where another broker received another batch for an offset below
        ``high_watermark``.
        """
        self._note_committed(piece, high_watermark)
        if piece.end_offset > self.next_offset and high_watermark > self.next_offset:
            assert piece.data is not None, "the bytes of a piece are kept until they are applied"
            if piece.base_offset > self.next_offset:
                raise CorruptRecordError(
                    f"committed records begin at offset {piece.base_offset}, and the state ends "
                    f"at {self.next_offset}"
                )
            begun_s = time.perf_counter()
            self.counts.decoded_bytes += piece.size
            self._compact()
            self.state.apply(piece.data, end_offset=high_watermark)
            self._publishing.note_batches(piece.data)
            delta = self._publishing.publish(self.state.next_offset)
            if delta is not None:
                self._on_delta(delta, piece.size)
            self.applied.add((time.perf_counter() - begun_s) * 1000)
        if piece.end_offset <= self.next_offset:
            piece.data = None

    def _note_committed(self, piece: LogPiece, high_watermark: int) -> None:
        """Compare the batches of a piece that are committed now, and keep their checksums."""
        if not piece.batches:
            return
        open_ones = []
        for each in piece.batches:
            base_offset, last_offset, crc = each
            if last_offset >= high_watermark:
                open_ones.append(each)
            elif self._batch_crcs.get(base_offset, crc) != crc:
                raise CorruptRecordError(
                    f"two brokers received different batches for the committed offset {base_offset}"
                )
            elif last_offset >= self.next_offset:
                self._batch_crcs[base_offset] = crc
        piece.batches = open_ones
        while len(self._batch_crcs) > _KNOWN_BATCHES:
            self._batch_crcs.popitem(last=False)

    def stable_at(self, committed_offset: int) -> int:
        """Return how far a broker's image reaches: to the begin of a transaction that is open."""
        return self.state.stable_at(committed_offset)

    def _compact(self) -> None:
        """Drop the rows of removed topics if they are many; the next delta is then full."""
        table = self.state.table
        dead_rows = table.row_count - table.partition_count
        if dead_rows < max(_MIN_DEAD_ROWS, table.partition_count):
            return
        if self.state.transaction_start is not None:
            return
        self._publishing.forget_image()
        # An image that a caller keeps is in use until its turn of the event loop ends.
        with suppress(InvalidRequestError):
            self.state.compact()

    # -- snapshots

    def begin_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotLoading:
        """Begin to load a snapshot into the next state; one broker of the process does so."""
        assert self._loading is None
        self._loading = SnapshotLoading(snapshot_id)
        return self._loading

    def abandon_snapshot(self) -> None:
        """Forget a snapshot that was not loaded to its end."""
        self._loading = None

    def finish_snapshot(self, loading: SnapshotLoading) -> None:
        """Replace the state by that of a snapshot, which is loaded to its end.

        A state that is further by now stays: other brokers have fetched and applied the log.
        """
        assert loading is self._loading
        begun_s = time.perf_counter()
        state = loading.finish()
        self._loading = None
        if state.next_offset <= self.next_offset:
            return
        state.start_journal()
        self.state = state
        self._publishing.replace_cluster(state)
        delta = self._publishing.publish(state.next_offset)
        if delta is not None:
            self._on_delta(delta, loading.size)
        self.applied.add((time.perf_counter() - begun_s) * 1000 + loading.loading_ms)

    def check_snapshot(self, snapshot_id: OffsetAndEpoch, crc: int) -> None:
        """Note the checksum of a downloaded snapshot.

        Raises CorruptRecordError where another broker received other bytes for this id.
        """
        known = self._snapshot_crcs.setdefault(snapshot_id, crc)
        if known != crc:
            raise CorruptRecordError(
                f"two brokers received different bytes of snapshot {snapshot_id.offset}-"
                f"{snapshot_id.epoch}"
            )


class SnapshotLoading:
    """A state that a snapshot is loaded into, part by part."""

    def __init__(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.size = 0
        #: The time that the parts took so far.
        self.loading_ms = 0.0
        self._state = MetadataState()
        self._open = ExitStack()
        callbacks = self._open.enter_context(self._state.loading_snapshot(snapshot_id.offset))
        self._stream = SnapshotStream(self._state.table, callbacks, snapshot_id.epoch)

    def add(self, part: bytes | memoryview, size: int) -> None:
        """Load the next bytes of the snapshot, which has ``size`` bytes in all."""
        self.size = size
        begun_s = time.perf_counter()
        self._stream.add(part, size)
        self.loading_ms += (time.perf_counter() - begun_s) * 1000

    def finish(self) -> MetadataState:
        self._stream.finish()
        self._open.close()
        return self._state
