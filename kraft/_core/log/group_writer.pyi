"""Group commit without the GIL: append to one file, with one sync for all waiting writes."""

from typing_extensions import Buffer

from kraft._core.log.disk import OsFile

class GroupWriter:
    """Appends buffers to a file in the thread that calls `run`, and syncs it after each group.

    ``signal_fd`` is an eventfd, raised when a group is done or has failed; ``notes`` is the file
    for notes. One thread calls every method except `run`.
    """

    def __init__(self, signal_fd: int, notes: OsFile) -> None: ...
    @property
    def pending(self) -> int:
        """Appends that `take_done` has not returned yet."""

    @property
    def sync_count(self) -> int:
        """The number of synced groups."""

    def set_position(self, file: OsFile, position: int) -> None:
        """Make ``position`` of ``file`` the place of the next append. Nothing may be pending."""

    def put(self, data: Buffer, note_position: int, note: bytes) -> bool:
        """Queue ``data`` for `hand_over`; return False if 1024 appends are pending.

        The data must not change until it is done. If it is the last of its group, ``note`` (128
        bytes at most) is written at ``note_position`` of the notes once the data is on the device.
        """

    def hand_over(self) -> None:
        """Let the other thread write the queued appends, at once or as the next group."""

    def write_now(self) -> None:
        """Write and sync the queued appends in this thread, without the GIL.

        No handed-over append may be pending, and at most 512 may be queued. `take_done` returns
        them like others.
        """

    def take_done(self) -> int:
        """Return how many of the oldest appends have become durable since the last call.

        Raises StorageError, after those were returned, if a write or a sync has failed: nothing
        more is written.
        """

    def run(self) -> None:
        """Work until `close` was called and all queued appends are done, or until a write fails."""

    def close(self) -> None: ...
