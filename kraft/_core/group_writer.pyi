"""Group commit without the interpreter's lock: appends to one file, one sync for all that wait."""

from typing_extensions import Buffer

from kraft._core.disk import OsFile

class GroupWriter:
    """Appends buffers to a file in the thread that calls `run`, and syncs it behind each group.

    ``signal_fd`` is an eventfd that is raised when a group is done, or has failed; ``notes`` is
    the file that notes are written to. Everything but `run` belongs to one thread.
    """

    def __init__(self, signal_fd: int, notes: OsFile) -> None: ...
    @property
    def pending(self) -> int:
        """Appends that were put and not yet taken back by `take_done`."""

    @property
    def sync_count(self) -> int:
        """How many groups were synced."""

    def aim(self, file: OsFile, position: int) -> None:
        """The next append goes to ``position`` of ``file``. Nothing may be pending."""

    def put(self, data: Buffer, note_position: int, note: bytes) -> bool:
        """Has ``data`` appended, once it is handed over; it must not change until it is done.

        Once it is on the device and is the last of its group, ``note`` (128 bytes at most) is
        written at ``note_position`` of the notes. False where 1024 are pending: not put.
        """

    def hand_over(self) -> None:
        """What was put is the other thread's to write: at once, or as the next group."""

    def write_now(self) -> None:
        """Writes and syncs what was put in this thread, and leaves the interpreter's lock.

        Nothing may have been handed over that is not taken back; no more than 512 may have been
        put. What became of them is told by `take_done`, as of others.
        """

    def take_done(self) -> int:
        """How many of those that were put first are on the device now, and were not before.

        Raises StorageError, once those are taken, where a write or a sync has failed: nothing is
        written any more.
        """

    def run(self) -> None:
        """Works until `close`, and until all that was put is done or a write failed."""

    def close(self) -> None: ...
