"""Log storage: a simulated disk with kraft's real log (`kraft._core.log`) in memory files.

Each write goes to the real log and to its model in `storage`, and both must return the same reads.
After a crash, the recovery of the real log decides which batches are left. This proves the model
right; it is slower, so that only a share of the seeds uses it.

A crash keeps the synced bytes and any number of the bytes after them; it may cut index files short.
"""

from __future__ import annotations

from random import Random

from kraft._core.log.log import Log
from kraft.raft.interface import AppendBatches
from kraft.raft.log_view import LogView
from kraft.raft.rpc import LogSlice, OffsetAndEpoch
from kraft.raft.voters import VoterSet
from kraft.simulation.batch_tree import BatchTree, Violation
from kraft.simulation.memory_disk import MemoryDisk, MemoryFile
from kraft.simulation.storage import Storage

DIRECTORY = "/disk/__cluster_metadata-0"
SEGMENT_BYTES = 16 * 1024


class CrashingFile(MemoryFile):
    """A file that records how many of its bytes are synced."""

    _disk: CrashingDisk

    def sync(self) -> None:
        self._disk.lasting[self.path] = len(self._content)

    def truncate(self, size: int, /) -> None:
        super().truncate(size)
        lasting = self._disk.lasting
        lasting[self.path] = min(size, lasting.get(self.path, 0))


class CrashingDisk(MemoryDisk):
    """A disk that keeps synced bytes in a crash, and any number of a log's first unsynced ones."""

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
            # The old process may still refer to the old bytes: the new one gets a copy.
            self.files[path] = bytearray(content[:kept])
            self.lasting[path] = kept


class LogStorage(Storage):
    """A disk with the real log beside its model."""

    def __init__(self, owner_id: int, tree: BatchTree, static_voters: VoterSet) -> None:
        super().__init__(owner_id, tree, static_voters)
        self._disk = CrashingDisk()
        self._log = self._open()

    def _open(self) -> Log:
        return Log.open(
            DIRECTORY, disk=self._disk, segment_bytes=SEGMENT_BYTES, index_max_bytes=4096
        )

    # -- writes to both logs

    def sync(self) -> None:
        self._log.sync()

    def _append(self, write: AppendBatches) -> None:
        super()._append(write)
        first, last = self._log.append(write.batches, verify_crc=True)
        self._compare("append", (first, last + 1), (write.base_offset, write.end_offset))

    def _truncate(self, end_offset: int) -> None:
        super()._truncate(end_offset)
        self._compare("truncate", self._log.truncate_to(end_offset), end_offset)

    def begin_at(self, id: OffsetAndEpoch) -> None:
        super().begin_at(id)
        self._log.truncate_fully_and_start_at(id.offset)
        self._compare("begin", self._log.log_end_offset, id.offset)

    def clean(self, keep: int, start_offset: int) -> OffsetAndEpoch:
        earliest = super().clean(keep, start_offset)
        self._log.advance_log_start(start_offset)
        return earliest

    # -- comparisons of both logs

    def read(self, slice: LogSlice) -> bytes:
        data = super().read(slice)
        real = bytes(self._log.fetch(slice.offset, slice.max_size))
        size = min(len(data), len(real))
        self._compare("read", real[:size], data[:size])
        if data and not size:
            raise Violation("the_real_log_equals_its_model", f"{slice} is empty in the real log")
        return data

    def _compare(self, what: str, real: object, expected: object) -> None:
        if real != expected:
            raise Violation(
                "the_real_log_equals_its_model",
                f"{what}: the real log says {real!r}, not {expected!r}",
            )

    def _lose(self, synced: int, random: Random) -> None:
        """Crash the files; the recovery of the real log decides which batches are left."""
        self._disk.crash(random)
        self._log = self._open()
        end_offset = self._log.log_end_offset
        count = self.index_of(end_offset)
        if count < synced:
            raise Violation(
                "the_real_log_equals_its_model",
                f"{synced} batches were synced, the recovered log ends at {end_offset}",
            )
        self._keep(count)

    def boot(self) -> LogView:
        view = super().boot()
        self._compare("end", self._log.log_end_offset, self.end_offset)
        entries = iter(self.entries)
        for batch in self._log.batches():
            if batch.last_offset < self.start_offset:
                continue
            entry = next(entries)
            self._compare("recovered batch", bytes(batch.data), entry.data)
        self._compare("batches left over", next(entries, None), None)
        known = dict(self._log.epochs)
        for epoch, start_offset in view.epochs.entries[1:]:
            self._compare(f"start of epoch {epoch}", known.get(epoch), start_offset)
        return view
