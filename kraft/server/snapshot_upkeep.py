"""What a running node does about its snapshots beside making them: checks, and column checkpoints.

A start reads little: of the snapshots before the latest nothing, and of the latest only its columns
where they are there. Their files are checked some seconds later.

The column checkpoint of the latest snapshot makes the next start fast: it is mapped, where the
snapshot of two million partitions takes 200 ms to decode. It is written once no newer snapshot has
come for some seconds, so that a burst of changes does not write one after the other. A child
process of the lowest priority writes it from the snapshot's file: in a thread, the event loop would
wait for the interpreter lock with each record that becomes a Python object. A child that outlives
its node writes the same file as the next one would. Nothing depends on the file: where it is
missing or damaged, a start reads the snapshot.

A new snapshot also tells that much has changed. The buffers of so much work leave gaps in the heap,
which the allocator keeps: up to 100 MB after a million changes. They are returned to the system at
the same time.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Callable

from kraft._core.snapshot.column_checkpoint import columns_path
from kraft._core.snapshot.snapshot_file import snapshot_name
from kraft._core.table.table import PartitionTable
from kraft.errors import StorageError
from kraft.raft.rpc import OffsetAndEpoch
from kraft.server.disk.snapshots import INVALID_SNAPSHOT, StoredSnapshot
from kraft.server.disk.store import MetadataStore

logger = logging.getLogger(__name__)

#: After the start: what it has not read is checked.
CHECK_S = 10.0
#: A snapshot gets its columns if it is still the latest after so long; at most twice as long.
SETTLED_S = 3.0
#: Bytes of a snapshot. A smaller one is read in a few milliseconds.
LEAST_SIZE = 8 << 20


def return_free_memory() -> None:
    """Return the free pages of the heap to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class SnapshotUpkeep:
    """The upkeep of one node's snapshots; call `begin` on its event loop, and `close`.

    ``unread`` is the snapshot whose state the start took from its columns, if so, and ``table`` the
    node's table of partitions. ``resolve`` takes each earlier snapshot once it is checked,
    ``on_failure`` the error of the unread one, after which the node must end.
    """

    def __init__(
        self,
        store: MetadataStore,
        *,
        unread: OffsetAndEpoch | None,
        table: PartitionTable | None,
        resolve: Callable[[OffsetAndEpoch, StoredSnapshot | None], None],
        on_failure: Callable[[BaseException], None],
        least_size: int = LEAST_SIZE,
    ) -> None:
        self._store = store
        self._unread = unread
        self._table = table
        self._resolve = resolve
        self._on_failure = on_failure
        self._least_size = least_size
        #: The latest snapshot when last looked at, and the last one that was so at two looks.
        self._seen: OffsetAndEpoch | None = None
        self._settled: OffsetAndEpoch | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._child: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._unread is not None or self._store.unchecked_snapshots:
            self._tasks.append(loop.create_task(self._check_snapshots()))
        if self._table is not None:
            self._tasks.append(loop.create_task(self._write_columns(self._table)))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._child is not None:
            self._child.kill()

    async def _check_snapshots(self) -> None:
        """Check the snapshots that the start has not read, one by one, in a thread."""
        await asyncio.sleep(CHECK_S)
        loop, store = asyncio.get_running_loop(), self._store
        if self._unread is not None:
            try:
                await loop.run_in_executor(None, store.check_listed_snapshot, self._unread)
            except (*INVALID_SNAPSHOT, StorageError) as error:
                self._on_failure(error)
        for id in store.unchecked_snapshots:
            self._resolve(id, await loop.run_in_executor(None, store.check_snapshot, id))

    async def _write_columns(self, table: PartitionTable) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(SETTLED_S)
        await loop.run_in_executor(None, table.copy_shared_pages)
        del table
        while True:
            latest = self._store.latest_snapshot()
            if latest is not None and latest.id == self._seen != self._settled:
                self._settled = latest.id
                # All other threads wait for it when they allocate: never amid the changes.
                await loop.run_in_executor(None, return_free_memory)
                if self._lacks_columns(latest):
                    path = f"{self._store.directory}/{snapshot_name(*latest.id)}"
                    await loop.run_in_executor(None, self._run_child, path)
            self._seen = None if latest is None else latest.id
            await asyncio.sleep(SETTLED_S)

    def _lacks_columns(self, snapshot: StoredSnapshot) -> bool:
        """Return whether a snapshot is large, and no file has its columns."""
        if snapshot.size < self._least_size:
            return False
        path = f"{self._store.directory}/{snapshot_name(*snapshot.id)}"
        return not os.path.exists(columns_path(path))

    def _run_child(self, path: str) -> None:
        """Write the columns of a snapshot, in a thread that waits for the child."""
        command = [sys.executable, "-m", "kraft.metadata.column_writer", path]
        self._child = child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        _, said = child.communicate()
        self._child = None
        if child.returncode > 0:
            problem = said.decode(errors="replace").strip().rpartition("\n")[2]
            logger.warning("no column checkpoint is beside %s: %s", path, problem)
