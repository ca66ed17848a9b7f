"""Read the metadata of a cluster in ZooKeeper for a command, with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.zookeeper.opened import TreeMetadata


@contextmanager
def progress_of_reading() -> Iterator[Callable[[int, int], object]]:
    """Show the progress of reading a tree; yield the ``on_progress`` of `read_tree`."""
    from kraft.cli.output import progress

    with progress("reading ZooKeeper", 1.0) as advance:
        # The number of znodes becomes known only by reading them.
        yield lambda done, known: advance(done / max(known, 1))


def read_zookeeper(address: str) -> TreeMetadata:
    """Return the metadata of the cluster at ``[zookeeper://]HOST:PORT[,…][/CHROOT]``."""
    from kraft.zookeeper.opened import open_zookeeper

    with progress_of_reading() as on_progress:
        return open_zookeeper(address, on_progress=on_progress)
