"""The latest offset of each key in a run of batches, in 24 bytes a key."""

from typing import final

from typing_extensions import Buffer

@final
class KeyOffsets:
    """Keys with the offset of their last record; keys are kept as 128-bit hashes.

    ``memory`` are the bytes of the table, of which nine tenths are used. ``secret`` are 16 bytes
    that the hash depends on, random by default, so that no producer can choose keys that collide.
    Raises ValueError for a table without room for a key, or another size of the secret.
    """

    def __new__(cls, memory: int, *, secret: bytes | None = None) -> KeyOffsets: ...
    def __len__(self) -> int:
        """The number of keys."""

    @property
    def slot_count(self) -> int: ...
    @property
    def key_count(self) -> int: ...
    @property
    def latest_offset(self) -> int:
        """The offset up to which all records are in the map, -1 without one."""

    def get(self, key: Buffer) -> int:
        """Return the offset of a key, -1 if it is not in the map."""

    def add(
        self,
        batches: Buffer,
        first_offset: int,
        *,
        skipped: Buffer | None = None,
        budget: int = ...,
    ) -> bool:
        """Add the keys of whole batches from `first_offset` on; return whether the map is full.

        The batches follow those of the last call. Control batches have no keys; `skipped` has one
        byte for each batch, 1 for one whose transaction was aborted. A full map has all records up
        to `latest_offset`, which may be within a batch. A batch may inflate to `budget` bytes.

        Raises CorruptRecordError for malformed bytes, and the errors of decompression.
        """

    def reach(self, offset: int) -> None:
        """Raise `latest_offset`: there are no records up to `offset` but those in the map."""

    def clear(self) -> None:
        """Remove all keys."""

def key_hash(key: Buffer, secret: bytes) -> bytes:
    """Return the 16 bytes of SipHash-2-4-128 of a key; for tests."""
