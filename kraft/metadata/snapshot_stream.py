"""``SnapshotStream``: load a snapshot into a table while its bytes arrive, part by part.

Checks what ``SnapshotReader`` checks of a file: offsets from 0 without a gap, one epoch, a
SnapshotHeader at the begin, a SnapshotFooter at the end, every CRC. The reader checks the frame of
the whole file first; a stream applies each part at once, so that memory holds one part and a part
is loaded while it is in the processor's caches. Therefore the table is usable only after `finish`:
drop it after an error. Called by ``kraft.metadata.quorum_observer``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraft._core.bytes.batch import BatchTable, scan
from kraft._core.table.table import PartitionTable
from kraft.errors import CorruptRecordError

_HEADER_TYPE = 3
_FOOTER_TYPE = 4
_NO_HEADER = "the snapshot does not begin with a SnapshotHeader"
#: The bytes of a batch before its length, and with it (record batch v2).
_LENGTH_START, _LOG_OVERHEAD = 8, 12


class SnapshotStream:
    """The loading of one snapshot into an empty table.

    ``callbacks`` are those of ``PartitionTable.apply``. ``epoch`` is that of the snapshot's id.
    """

    def __init__(self, table: PartitionTable, callbacks: Mapping[str, Any], epoch: int) -> None:
        self._table = table
        self._on_control: Callable[..., object] = callbacks["on_control"]
        self._callbacks: dict[str, Any] = {**callbacks, "on_control": self._control}
        self._epoch = epoch
        #: The bytes that were applied, and the offset after the last of them.
        self._position = 0
        self._next_offset = 0
        #: The bytes after them, the begin of a batch.
        self._rest = bytearray()
        self._has_header = False
        self._footer_offset = -1
        self._has_reserved = False

    def add(self, part: bytes | memoryview, size: int) -> None:
        """Apply the next bytes of the snapshot, which has ``size`` bytes in all.

        Raises CorruptRecordError and the errors of ``PartitionTable.apply``.
        """
        part = memoryview(part)
        while self._rest and part:
            part = self._complete_batch(part, size)
        if part:
            self._rest += part[self._apply(part, size) :]

    def finish(self) -> None:
        """Check the end of the snapshot. Raises CorruptRecordError."""
        if self._rest:
            raise CorruptRecordError(
                f"the snapshot ends within a batch: {len(self._rest)} bytes are no whole batch",
                position=self._position,
            )
        if self._footer_offset < 0 or self._footer_offset != self._next_offset - 1:
            raise CorruptRecordError(
                "the snapshot ends without a SnapshotFooter: it was not written to its end",
                position=self._position,
            )

    def _complete_batch(self, part: memoryview, size: int) -> memoryview:
        """Move bytes of the part to the incomplete batch, and apply it once it is whole.

        Returns the other bytes of the part.
        """
        rest = self._rest
        if len(rest) < _LOG_OVERHEAD:
            taken = _LOG_OVERHEAD - len(rest)
            rest += part[:taken]
            return part[taken:]
        length = int.from_bytes(rest[_LENGTH_START:_LOG_OVERHEAD], "big", signed=True)
        taken = max(_LOG_OVERHEAD + length - len(rest), 0)
        rest += part[:taken]
        if len(rest) >= _LOG_OVERHEAD + length:
            self._rest = bytearray()
            if self._apply(memoryview(rest), size) < len(rest):
                reason = scan(rest, verify_crc=False).tail_reason
                raise CorruptRecordError(f"{reason}", position=self._position)
        return part[taken:]

    def _apply(self, data: memoryview, size: int) -> int:
        """Apply the whole batches at the begin of the bytes; return their size."""
        batches = scan(data, verify_crc=False)
        if not len(batches):
            return 0
        end = batches.tail_position
        self._check(batches)
        rows = self._table.row_count
        self._table.apply(data[:end], base_position=self._position, **self._callbacks)
        if not self._has_header:
            raise CorruptRecordError(_NO_HEADER, position=0)
        self._next_offset = int(batches.last_offsets[-1]) + 1
        self._position += end
        added = self._table.row_count - rows
        if added and not self._has_reserved:
            # Nearly all other bytes are partitions as well. Without it the columns grow by a
            # quarter again and again, and get no huge pages.
            self._table.reserve(added * (size - self._position) // end)
            self._has_reserved = True
        return end

    def _check(self, batches: BatchTable) -> None:
        """Raise CorruptRecordError for a gap and for another epoch."""
        expected = self._next_offset
        for index, (base, last, epoch) in enumerate(
            zip(
                batches.base_offsets.tolist(),
                batches.last_offsets.tolist(),
                batches.partition_leader_epochs.tolist(),
                strict=True,
            )
        ):
            position = self._position + int(batches.positions[index])
            if base != expected:
                raise CorruptRecordError(
                    f"a snapshot has no gaps, but offset {base} comes where {expected} should",
                    position=position,
                )
            if epoch != self._epoch:
                raise CorruptRecordError(
                    f"a batch of epoch {epoch} in a snapshot of epoch {self._epoch}",
                    position=position,
                )
            expected = last + 1

    def _control(self, offset: int, epoch: int, control_type: int, value: bytes) -> None:
        """Pass on a control record; raise CorruptRecordError where it does not belong."""
        is_header = control_type == _HEADER_TYPE
        if is_header != (offset == 0) or self._footer_offset >= 0:
            raise CorruptRecordError(
                "a SnapshotHeader or SnapshotFooter in the middle of a snapshot"
                if offset
                else _NO_HEADER,
                offset=offset,
            )
        self._has_header = True
        if control_type == _FOOTER_TYPE:
            self._footer_offset = offset
        self._on_control(offset, epoch, control_type, value)
