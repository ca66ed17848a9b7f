"""What a decision gives: the records to be written, encoded, and the answer.

Owns ``Records``, the form in which records leave the controller: finished record batches whose
offsets count from 0, so that appending only has to stamp the base offset and the epoch, which lie
outside the CRC. It reads as a sequence of typed records too, which are decoded when somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

from kraft._core.batch import BatchBuilder
from kraft._core.batch_records import iterate
from kraft.records import Record, decode_value, encode_value

#: The most records that one batch, and so one atomic decision, may have
#: (QuorumController.MAX_RECORDS_PER_BATCH).
MAX_RECORDS_PER_BATCH = 10_000

Response = TypeVar("Response")


class Records(Sequence[Record]):
    """Metadata records as batches: ``batches`` is their bytes, writable, offsets from 0."""

    __slots__ = ("_count", "_decoded", "batches")

    def __init__(self, batches: memoryview, count: int) -> None:
        self.batches = batches
        self._count = count
        self._decoded: list[Record] | None = None

    @classmethod
    def of(cls, records: Iterable[Record], metadata_version: int) -> Records:
        """These records in the versions that ``metadata_version`` asks for; see `encode_value`."""
        builder = BatchBuilder()
        append_records(builder, records, metadata_version)
        return cls.finished(builder)

    @classmethod
    def finished(cls, builder: BatchBuilder) -> Records:
        """What ``builder`` holds, which must have begun at offset 0; ends the builder."""
        count = builder.record_count
        return cls(builder.finish(), count)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        if self._decoded is not None:
            yield from self._decoded
            return
        for batch in iterate(self.batches, verify_crc=False):
            for record in batch:
                value = record.value
                assert value is not None
                yield decode_value(value)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if self._decoded is None:
            self._decoded = list(self)
        return self._decoded[index]

    def __repr__(self) -> str:
        return f"Records({self._count} records, {len(self.batches)} bytes)"


NO_RECORDS = Records(memoryview(b""), 0)


def append_records(builder: BatchBuilder, records: Iterable[Record], metadata_version: int) -> None:
    """Adds typed records behind what a builder holds already."""
    for record in records:
        builder.append(encode_value(record, metadata_version=metadata_version))


@dataclass(frozen=True, slots=True)
class Decision(Generic[Response]):
    """The records that an operation writes, and what it answers once they are committed.

    ``is_atomic``: all of them or none take effect, so they must go into one batch
    (ControllerResult.atomicOf). ``is_partial``: more is to be decided once these records have taken
    effect, by asking again; only the last response counts.
    """

    records: Records
    response: Response
    is_atomic: bool = False
    is_partial: bool = False
