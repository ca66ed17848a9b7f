"""FetchSnapshot's response for the metadata log, versions 0 and 1; see fetch_snapshot.pyx for the
layout, and messages.pyi for what is raised.
"""

from typing_extensions import Buffer

def decode_fetch_snapshot_response(
    body: Buffer, version: int, position: int = 0
) -> tuple[int, int, int, tuple[str, int] | None, tuple[int, int], int, int, int, int]:
    """(error, epoch, leader id, the leader's host and port, snapshot end offset and epoch, size of
    the snapshot, position, where the bytes begin, how many there are); raises as
    `messages.decode_fetch_response`.
    """

def encode_fetch_snapshot_response(
    version: int,
    error: int,
    epoch: int,
    leader_id: int,
    leader_endpoint: tuple[str, int] | None,
    snapshot_id: tuple[int, int] | None,
    size: int,
    position: int,
    records_size: int,
) -> tuple[bytes, bytes]:
    """What stands before and behind ``records_size`` bytes of the snapshot."""
