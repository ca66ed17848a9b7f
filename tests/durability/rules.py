"""The order of durable writes, checked call by call on a recording.

Each rule is named in the `BrokenRuleError` that a call raises:

- *synced before renamed*: a renamed file has no unsynced bytes;
- *a name is synced next*: a thread that renamed a file, or created ``synced-offset-checkpoint``,
  syncs the directory before its next change;
- *removals are synced one by one*: between the removals of two segments the directory is synced, so
  that a crash leaves no gap; the crashes find the removal of a needed snapshot;
- *noted once synced*: the log has the offset in a slot of ``synced-offset-checkpoint`` on the
  device, since any write may reach the device at any time;
- *cut once lowered*: while the log is shorter than a slot that a crash may leave, the file does not
  exist, in no possible state;
- *never tried again*: after a failed write or sync, the file is neither written nor synced. The
  kernel may have dropped the data, and reports that once. Index files and
  ``synced-offset-checkpoint`` are exempt: they are rebuilt, or are a lower bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from kraft._core.bytes.batch import scan
from kraft._core.bytes.checksum import crc32c
from kraft._core.log.partition_directory import LOG, OFFSET_INDEX, TIME_INDEX, parse_segment_file
from kraft.server.disk.files import SYNCED_OFFSET_FILE
from tests.durability.recording import Call, Kind
from tests.durability.replayed_disk import ReplayedDisk
from tests.harness.crash_disk import Directory, Inode, put

_CHANGES = (Kind.CREATE, Kind.WRITE, Kind.TRUNCATE, Kind.RENAME, Kind.UNLINK)
_REBUILT = (OFFSET_INDEX, TIME_INDEX, SYNCED_OFFSET_FILE)
_SLOTS = (0, 512)


class BrokenRuleError(Exception):
    """A call that came before another that it depends on."""


class Rules:
    """Rules on a `ReplayedDisk`: call `check` before each system call, `check_after` after it."""

    def __init__(self, disk: ReplayedDisk, log_directory: str) -> None:
        self._disk = disk
        self._log = log_directory
        #: Directories with an unsynced name, by the thread that created it.
        self._named: dict[int, str] = {}
        self._removed: str | None = None
        self._failed: set[int] = set()
        self._counts_of_segments: dict[int, tuple[bytes, int]] = {}
        #: How often each rule was checked.
        self.counts: dict[str, int] = {}

    def check(self, call: Call) -> None:
        """Raise BrokenRuleError where the call comes too early."""
        kind = call.kind
        if kind in _CHANGES and not self._is_note(call):
            self._hold("a name is synced next", self._named.get(call.thread) is None, call)
        if kind is Kind.RENAME:
            source, target = call.paths
            directory, name = os.path.split(source)
            inode = self._disk.directories[directory].names[name]
            is_synced = isinstance(inode, Inode) and not inode.pending
            self._hold("synced before renamed", is_synced, call, target)
            self._named[call.thread] = os.path.dirname(target)
        elif kind is Kind.UNLINK and call.path.endswith(LOG):
            self._hold("removals are synced one by one", self._removed is None, call, call.path)
            self._removed = os.path.dirname(call.path)
        elif kind is Kind.SYNC_END and call.at == 0:
            synced = self._disk.synced_by(call)
            if isinstance(synced, Directory):
                self._end_of_directory_sync(call.thread, synced)
        elif kind is Kind.FAILED:
            if not call.path.endswith(_REBUILT):
                self._failed.add(call.inode)
        elif kind is Kind.CREATE:
            self._failed.discard(call.inode)
            if call.path.endswith(SYNCED_OFFSET_FILE):
                self._named[call.thread] = os.path.dirname(call.path)
        if kind in (Kind.WRITE, Kind.SYNC_BEGIN, Kind.TRUNCATE) and self._failed:
            self._hold("never tried again", call.inode not in self._failed, call)

    def check_after(self, call: Call) -> None:
        """Check the synced offsets, after a call that may have made them wrong."""
        inode = self._notes()
        if inode is None:
            return
        if self._is_note(call):
            rule = "noted once synced"
        elif call.kind in (Kind.TRUNCATE, Kind.UNLINK, Kind.RENAME, Kind.CREATE):
            rule = "cut once lowered"
        else:
            return
        noted = max(self._offsets_a_crash_may_leave(inode), default=-1)
        end = self.durable_log_end() if noted >= 0 else -1
        self._hold(rule, noted <= end, call, f"{noted} is noted, the log may end at {end}")

    def _hold(self, rule: str, holds: bool, call: Call, detail: str = "") -> None:
        self.counts[rule] = self.counts.get(rule, 0) + 1
        if not holds:
            inode = self._disk.inodes.get(call.inode)
            path = detail or (None if inode is None else self._disk.path_of(inode))
            raise BrokenRuleError(f"{rule}: {call.kind.name} {path}")

    def _end_of_directory_sync(self, thread: int, directory: Directory) -> None:
        if self._disk.directories.get(self._named.get(thread, "")) is directory:
            del self._named[thread]
        if self._disk.directories.get(self._removed or "") is directory:
            self._removed = None

    def _notes(self) -> Inode | None:
        directory = self._disk.directories.get(self._log)
        found = None if directory is None else directory.names.get(SYNCED_OFFSET_FILE)
        return found if isinstance(found, Inode) else None

    def _is_note(self, call: Call) -> bool:
        notes = self._notes()
        is_write = call.kind is Kind.WRITE and notes is not None
        return is_write and self._disk.inodes.get(call.inode) is notes

    def _offsets_a_crash_may_leave(self, inode: Inode) -> Iterator[int]:
        """Return the offsets in the slots, and those before each unsynced write."""
        content = bytearray(inode.durable)
        for change in [None, *inode.pending]:
            if change is not None:
                put(content, *change)
            for start in _SLOTS:
                yield _noted(bytes(content[start : start + 512]))

    def durable_log_end(self) -> int:
        """Return the smallest log end after any crash."""
        directory = self._disk.directories[self._log]
        end: int | None = None
        for name in sorted({*directory.names} & {*directory.durable}):
            segment = parse_segment_file(name)
            if segment is None or segment[1] != LOG:
                continue
            if end is not None and end != segment[0]:
                break
            forms = (directory.names[name], directory.durable[name])
            end = segment[0] + min(
                self._durable_count(inode) for inode in forms if isinstance(inode, Inode)
            )
        return end or 0

    def _durable_count(self, inode: Inode) -> int:
        """Return how many offsets of a segment survive any crash."""
        cuts = [size for size, data in inode.pending if data is None]
        content = inode.durable[: min(cuts, default=len(inode.durable))]
        known = self._counts_of_segments.get(id(inode))
        if known is None or known[0] != content:
            table = scan(content, verify_crc=False)
            count = int(table.last_offsets[-1] - table.base_offsets[0]) + 1 if len(table) else 0
            known = self._counts_of_segments[id(inode)] = (content, count)
        return known[1]


def _noted(slot: bytes) -> int:
    """Return the offset in a slot of ``synced-offset-checkpoint``; -1 for an invalid slot."""
    checked = slot[:56]
    return int(checked[23:43]) if slot[56:65] == b"%08x\n" % crc32c(checked) else -1
