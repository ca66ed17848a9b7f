"""Two threads that take turns at a log: while one syncs, the other writes what comes next."""

from kraft._core.disk import OsFile

class SyncTurns:
    """The write turn and the sync turn; ``signal_fd`` is an eventfd that each success adds to.

    A thread takes the write turn, writes, and then either calls `sync`, which gives it up, or
    takes the sync turn too (it is then alone with the files) and gives both up itself.
    """

    def __init__(self, signal_fd: int) -> None: ...
    def take(self) -> None:
        """Waits for the write turn, without the interpreter's lock; as `take_sync` does."""

    def take_sync(self) -> None: ...
    def release_sync(self) -> None: ...
    def release(self) -> None: ...
    def sync(self, file: OsFile, sequence: int) -> bool:
        """Waits for the sync turn, gives up the write turn, syncs the file, tells, gives up the
        sync turn.

        False where a sync has failed before: nothing was done then. Raises StorageError where
        this one failed.
        """

    def tell(self, sequence: int) -> None:
        """Everything up to ``sequence`` is on the device."""

    def fail(self) -> None:
        """Nothing is synced or told any more."""

    @property
    def failed(self) -> bool: ...
    @property
    def synced_sequence(self) -> int:
        """Everything up to it is on the device; readable in any thread."""
