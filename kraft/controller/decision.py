"""Decisions: the encoded records to write, and the response.

``Records`` are finished record batches whose offsets count from 0. Appending only has to set the
base offset and the epoch, which lie outside the CRC. They also read as a sequence of typed records,
decoded on access.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar, overload

from kraft._core.bytes.batch import BatchBuilder, assign_offsets
from kraft._core.bytes.batch_records import iterate
from kraft.errors import PolicyViolationError
from kraft.records import (
    BeginTransaction,
    EndTransaction,
    Record,
    decode_value,
    encode_value,
)
from kraft.records.versions import MetadataVersion

#: The most records in one batch, and so in one atomic decision
#: (QuorumController.MAX_RECORDS_PER_BATCH).
MAX_RECORDS_PER_BATCH = 10_000

Response = TypeVar("Response")


class Records(Sequence[Record]):
    """Metadata records as batches; ``batches`` holds their bytes, writable, offsets from 0."""

    __slots__ = ("_count", "_decoded", "batches")

    def __init__(self, batches: memoryview, count: int) -> None:
        self.batches = batches
        self._count = count
        self._decoded: list[Record] | None = None

    @classmethod
    def of(cls, records: Iterable[Record], metadata_version: int) -> Records:
        """Encode records in the versions that ``metadata_version`` asks for; see `encode_value`."""
        builder = BatchBuilder()
        append_records(builder, records, metadata_version)
        return cls.finished(builder)

    @classmethod
    def finished(cls, builder: BatchBuilder) -> Records:
        """Return the records of ``builder``, which began at offset 0; finishes the builder."""
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
    """Append typed records to a builder."""
    for record in records:
        builder.append(encode_value(record, metadata_version=metadata_version))


@dataclass(frozen=True, slots=True)
class Decision(Generic[Response]):
    """The records that an operation writes, and its response once they are committed.

    ``is_atomic``: all records take effect or none, so they must fit into one batch
    (ControllerResult.atomicOf). ``is_partial``: there is more to decide after these records are
    applied; the controller asks again, and only the last response counts.
    """

    records: Records
    response: Response
    is_atomic: bool = False
    is_partial: bool = False


#: A request that is decided in chunks: yields finished chunks of records, possibly empty ones, and
#: returns the last chunk with the response. If only the last chunk has records, the request is one
#: atomic batch, otherwise a metadata transaction (KIP-868). All chunks before are applied when the
#: generator is asked for the next. An empty chunk only lets other events run. The generator raises
#: all errors of the request before its first chunk that has records.
ChunkedDecision = Generator[Records, None, Decision[Response]]


def in_chunks(
    records: Iterator[Record], size: int, metadata_version: int
) -> Generator[Records, None, Records]:
    """Yield ``size`` records at a time; return the remaining ones, possibly none."""
    while len(chunk := list(islice(records, size))) == size:
        yield Records.of(chunk, metadata_version)
    return Records.of(chunk, metadata_version)


def begin_transaction(name: str, metadata_version: int) -> Records:
    """Return the record that begins a metadata transaction.

    Raises PolicyViolationError if the metadata.version has no transactions.
    """
    if metadata_version < MetadataVersion.IBP_3_6_IV1:
        raise PolicyViolationError(
            f"{name} writes more records than one batch may have, and metadata.version "
            f"{MetadataVersion.from_level(metadata_version).text} has no transactions"
        )
    return Records.of([BeginTransaction(name=name)], metadata_version)


def decide_whole(
    name: str, chunks: ChunkedDecision[Response], metadata_version: int
) -> Decision[Response]:
    """Run a chunked decision to its end; several chunks become one metadata transaction.

    ``name`` is the name of the transaction. For callers that apply all chunks together. Raises
    PolicyViolationError if the metadata.version has no transactions and one batch is too small.
    """
    parts: list[Records] = []
    while True:
        try:
            parts.append(next(chunks))
        except StopIteration as end:
            decision: Decision[Response] = end.value
            break
    parts = [part for part in (*parts, decision.records) if len(part)]
    if len(parts) < 2:
        return replace(decision, records=parts[0] if parts else NO_RECORDS)
    begin = begin_transaction(name, metadata_version)
    end_of_all = Records.of([EndTransaction()], metadata_version)
    batches = bytearray()
    for part in (begin, *parts, end_of_all):
        batches += part.batches
    assign_offsets(batches, 0, -1)
    return Decision(Records(memoryview(batches), sum(map(len, parts)) + 2), decision.response)
