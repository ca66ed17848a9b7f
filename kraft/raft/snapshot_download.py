"""The download of a leader's snapshot: how much of it has arrived, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.raft.rpc import OffsetAndEpoch

#: Bytes of a snapshot that may wait for the disk while the follower requests more.
MAX_DOWNLOAD_AHEAD = 6 * 1024 * 1024
#: Chunks in flight at once: while one is on its way the leader reads the next, and this node
#: writes the one before.
MAX_CHUNKS_IN_FLIGHT = 3


@dataclass(slots=True)
class SnapshotDownload:
    """A snapshot that is being downloaded; positions and sizes in bytes."""

    snapshot_id: OffsetAndEpoch
    #: The end of the contiguous bytes that arrived.
    position: int = 0
    #: The end of the bytes that were requested.
    requested_position: int = 0
    #: 0 until the first chunk has arrived.
    size: int = 0
    chunk_size: int = 0
    #: The snapshot is complete and the disk installs it; the log does not change meanwhile.
    is_installing: bool = False
