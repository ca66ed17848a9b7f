"""A disk whose log is the house's own (`kraft._core.log`), in files that lie in memory.

Owns the real log beside the model of it in `storage`: each write goes to both, each read is held
against the other, and after a crash it is the real log's recovery that says what is left. Slower
than the model, so that only a share of the seeds has it; what it adds is that the model is right.

A crash keeps what was synced and any number of the bytes behind it; index files may be cut short.
"""

from __future__ import annotations

from random import Random

from kraft._core.log import Log
from kraft.raft.log_view import LogView
from kraft.raft.messages import LogSlice, OffsetAndEpoch
from kraft.raft.ready import AppendBatches
from kraft.raft.voters import VoterSet
from kraft.simulation.history import History, Violation
from kraft.simulation.memory_disk import MemoryDisk, MemoryFile
from kraft.simulation.storage import Storage

DIRECTORY = "/disk/__cluster_metadata-0"
SEGMENT_BYTES = 16 * 1024


class CrashingFile(MemoryFile):
    """Remembers how much of it is synced."""

    _disk: CrashingDisk

    def sync(self) -> None:
        self._disk.lasting[self.path] = len(self._content)

    def truncate(self, size: int, /) -> None:
        super().truncate(size)
        lasting = self._disk.lasting
        lasting[self.path] = min(size, lasting.get(self.path, 0))


class CrashingDisk(MemoryDisk):
    """A file's synced bytes outlive a crash; of the others, of a log, any number of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.lasting: dict[str, int] = {}

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CrashingFile:
        if create:
            self.files.setdefault(path, bytearray())
        super().open(path, read_only=read_only)
        return CrashingFile(self, path, self.files[path], read_only)

    def rename(self, source: str, target: str, /) -> None:
        super().rename(source, target)
        self.lasting[target] = self.lasting.pop(source, 0)

    def remove(self, path: str, /) -> None:
        super().remove(path)
        self.lasting.pop(path, None)

    def crash(self, random: Random) -> None:
        for path in sorted(self.files):
            content = self.files[path]
            kept = self.lasting.get(path, 0)
            if path.endswith(".log"):
                kept += int(random.random() * (len(content) - kept + 1))
            elif random.random() < 0.5:
                kept = len(content)
            # The old process may still hold the old bytes: a new one gets its own.
            self.files[path] = bytearray(content[:kept])
            self.lasting[path] = kept


class LogStorage(Storage):
    """See the module's docstring."""

    def __init__(self, owner_id: int, history: History, static_voters: VoterSet) -> None:
        super().__init__(owner_id, history, static_voters)
        self._disk = CrashingDisk()
        self._log = self._open()

    def _open(self) -> Log:
        return Log.open(
            DIRECTORY, disk=self._disk, segment_bytes=SEGMENT_BYTES, index_max_bytes=4096
        )

    # -- the same to both

    def sync(self) -> None:
        self._log.sync()

    def _append(self, write: AppendBatches) -> None:
        super()._append(write)
        first, last = self._log.append(write.batches, verify_crc=True)
        self._agree("append", (first, last + 1), (write.base_offset, write.end_offset))

    def _truncate(self, end_offset: int) -> None:
        super()._truncate(end_offset)
        self._agree("truncate", self._log.truncate_to(end_offset), end_offset)

    def begin_at(self, id: OffsetAndEpoch) -> None:
        super().begin_at(id)
        self._log.truncate_fully_and_start_at(id.offset)
        self._agree("begin", self._log.log_end_offset, id.offset)

    def clean(self, keep: int, start_offset: int) -> OffsetAndEpoch:
        earliest = super().clean(keep, start_offset)
        self._log.advance_log_start(start_offset)
        return earliest

    # -- what both say

    def read(self, slice: LogSlice) -> bytes:
        data = super().read(slice)
        real = bytes(self._log.fetch(slice.offset, slice.max_size))
        size = min(len(data), len(real))
        self._agree("read", real[:size], data[:size])
        if data and not size:
            raise Violation("the_log_keeps_its_word", f"{slice} is empty in the real log")
        return data

    def _agree(self, what: str, real: object, expected: object) -> None:
        if real != expected:
            raise Violation(
                "the_log_keeps_its_word", f"{what}: the real log says {real!r}, not {expected!r}"
            )

    def _lose(self, synced: int, random: Random) -> None:
        """The crash happens to the files, and the recovery of the real log says what is left."""
        self._disk.crash(random)
        self._log = self._open()
        end_offset = self._log.log_end_offset
        count = self.index_of(end_offset)
        if count < synced:
            raise Violation(
                "the_log_keeps_its_word",
                f"{synced} batches were synced, the recovered log ends at {end_offset}",
            )
        self._keep(count)

    def boot(self) -> LogView:
        view = super().boot()
        self._agree("end", self._log.log_end_offset, self.end_offset)
        entries = iter(self.entries)
        for batch in self._log.batches():
            if batch.last_offset < self.start_offset:
                continue
            entry = next(entries)
            self._agree("recovered batch", bytes(batch.data), entry.data)
        self._agree("batches left over", next(entries, None), None)
        known = dict(self._log.epochs)
        for epoch, start_offset in view.epochs.entries[1:]:
            self._agree(f"start of epoch {epoch}", known.get(epoch), start_offset)
        return view
