"""The unbroken stretches of a log, and whole batches out of them, a few MiB at a time.

Owns where a log that was read past damage breaks: where the offsets are not dense, or the epoch
falls. Fed by ``MetadataSource.slices``; called by ``salvage`` and ``verification``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kraft._core.batch import scan, split
from kraft.metadata.source import MetadataSource, Slice

_PIECE_BYTES = 16 << 20


@dataclass(slots=True)
class Run:
    """Slices of the log whose offsets are dense, up to ``end_offset`` (exclusive), and whose epochs
    do not fall.
    """

    slices: list[Slice]
    first_offset: int
    end_offset: int
    first_epoch: int
    last_epoch: int


class Piece(NamedTuple):
    """Whole batches from byte ``position`` of ``path`` on."""

    path: str
    position: int
    data: memoryview


def runs_of(source: MetadataSource) -> Iterator[Run]:
    """The slices of the log, joined where one goes on where the one before it ends."""
    current: Run | None = None
    for each in source.slices():
        run = _run(each)
        if current is None:
            current = run
        elif current.end_offset == run.first_offset and current.last_epoch <= run.first_epoch:
            current.slices += run.slices
            current.end_offset, current.last_epoch = run.end_offset, run.last_epoch
        else:
            yield current
            current = run
    if current is not None:
        yield current


def _run(each: Slice) -> Run:
    first = last = None
    for piece in split(each.data, _PIECE_BYTES):
        last = scan(piece, verify_crc=False)
        first = first or last
    assert first is not None
    assert last is not None
    return Run(
        [each],
        int(first.base_offsets[0]),
        int(last.last_offsets[-1]) + 1,
        int(first.partition_leader_epochs[0]),
        int(last.partition_leader_epochs[-1]),
    )


def pieces_of(slices: Iterable[Slice], size: int = _PIECE_BYTES) -> Iterator[Piece]:
    """The slices in pieces of at most ``size`` bytes, or one batch."""
    for data, path, position in slices:
        for piece in split(data, size):
            yield Piece(path, position, piece)
            position += len(piece)
