"""A log of a partition of `__consumer_offsets` in memory, as the leader's coordinator sees it."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import Buffer

from kraft._core.bytes.batch import assign_offsets
from kraft._core.bytes.batch_records import iterate
from kraft.broker.groups import GroupCoordinator
from kraft.broker.groups.records import decode_group, decode_key, decode_offset
from kraft.errors import (
    KAFKA_STORAGE_ERROR,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    KraftError,
    error_name,
)

#: Kafka's names of the errors that appends can fail with.
APPEND_ERRORS = {
    "NOT_ENOUGH_REPLICAS": NOT_ENOUGH_REPLICAS,
    "KAFKA_STORAGE_ERROR": KAFKA_STORAGE_ERROR,
    "NOT_LEADER_OR_FOLLOWER": NOT_LEADER_OR_FOLLOWER,
}


class AppendError(KraftError):
    """An append was rejected."""

    def __init__(self, code: int) -> None:
        super().__init__(error_name(code))
        self.kafka_code = code


class MemoryLog:
    """Batches in memory; ``fails_with`` is the code of the next appends' error, or None."""

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.fails_with: int | None = None

    @property
    def end_offset(self) -> int:
        return self.ends[-1] if self.batches else 0

    @property
    def ends(self) -> list[int]:
        """The offset after each batch."""
        return [one.next_offset for batch in self.batches for one in iterate(batch)]

    def append(self, batch: Buffer) -> int:
        """Append one batch; return the offset of its last record."""
        if self.fails_with is not None:
            raise AppendError(self.fails_with)
        copy = bytearray(batch)
        next_offset = assign_offsets(copy, self.end_offset, 1)
        self.batches.append(copy)
        return next_offset - 1

    def truncate(self, offset: int) -> None:
        """Remove the batches that are not below an offset."""
        while self.end_offset > offset:
            self.batches.pop()

    def records(self) -> list[tuple[object, object]]:
        """Return the typed keys and values of all records."""
        return [record for batch in self.batches for record in typed_records(batch)]


def load_coordinator(
    coordinator: GroupCoordinator, batches: Iterable[Buffer], high_watermark: int, now_ms: int
) -> None:
    """Give a coordinator its log, and let it decide from now on."""
    for batch in batches:
        for _ in coordinator.load(batch, high_watermark):
            pass
    for _ in coordinator.finish_loading(now_ms):
        pass
    coordinator.activate(now_ms, high_watermark)


def typed_records(batch: Buffer) -> list[tuple[object, object]]:
    """Return the typed keys and values of a batch; a tombstone's value is None."""
    found: list[tuple[object, object]] = []
    for key, value in raw_records(batch):
        decode = decode_group if key[:2] == b"\0\2" else decode_offset
        found.append((decode_key(key), None if value is None else decode(value)))
    return found


def raw_records(batch: Buffer) -> list[tuple[bytes, bytes | None]]:
    """Return the keys and values of a batch as bytes."""
    records = [record for one in iterate(batch) for record in one]
    return [(record.key or b"", record.value) for record in records]
