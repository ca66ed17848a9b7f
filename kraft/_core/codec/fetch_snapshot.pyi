"""FetchSnapshot responses of the metadata log, versions 0 and 1.

fetch_snapshot.pyx has the layout, fetch.pyi the errors.
"""

from typing_extensions import Buffer

def decode_fetch_snapshot_response(
    body: Buffer, version: int, position: int = 0
) -> tuple[int, int, int, tuple[str, int] | None, tuple[int, int], int, int, int, int]:
    """Return the fields of a FetchSnapshot response; raise like `fetch.decode_fetch_response`.

    They are (error, epoch, leader id, the leader's host and port, snapshot end offset and epoch,
    size of the snapshot, position, where the bytes begin, their count).
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
    """Return the bytes before and after ``records_size`` bytes of the snapshot."""
