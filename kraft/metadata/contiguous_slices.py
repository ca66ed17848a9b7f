"""Group the slices of a log into contiguous ranges, and split slices into blocks of a few MiB.

A log that was read past damage is not contiguous where offsets are missing or the epoch decreases.
Called by ``salvage``, ``verification`` and its checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kraft._core.bytes.batch import scan, split
from kraft.metadata.source import MetadataSource, Slice

_BLOCK_BYTES = 16 << 20


@dataclass(slots=True)
class ContiguousSlices:
    """Slices of the log without missing offsets, up to ``end_offset`` (exclusive); epochs never
    decrease.
    """

    slices: list[Slice]
    first_offset: int
    end_offset: int
    first_epoch: int
    last_epoch: int


class BatchRange(NamedTuple):
    """Whole batches from byte ``position`` of ``path`` on."""

    path: str
    position: int
    data: memoryview


def contiguous_slices(source: MetadataSource) -> Iterator[ContiguousSlices]:
    """Yield the log's slices, joined where one continues the one before it."""
    current: ContiguousSlices | None = None
    for each in source.slices():
        following = _one_slice(each)
        if current is None:
            current = following
        elif (
            current.end_offset == following.first_offset
            and current.last_epoch <= following.first_epoch
        ):
            current.slices += following.slices
            current.end_offset, current.last_epoch = following.end_offset, following.last_epoch
        else:
            yield current
            current = following
    if current is not None:
        yield current


def _one_slice(each: Slice) -> ContiguousSlices:
    first = last = None
    for block in split(each.data, _BLOCK_BYTES):
        last = scan(block, verify_crc=False)
        first = first or last
    assert first is not None
    assert last is not None
    return ContiguousSlices(
        [each],
        int(first.base_offsets[0]),
        int(last.last_offsets[-1]) + 1,
        int(first.partition_leader_epochs[0]),
        int(last.partition_leader_epochs[-1]),
    )


def batch_ranges(slices: Iterable[Slice], size: int = _BLOCK_BYTES) -> Iterator[BatchRange]:
    """Yield the slices in blocks of whole batches: at most ``size`` bytes, or one batch."""
    for data, path, position in slices:
        for block in split(data, size):
            yield BatchRange(path, position, block)
            position += len(block)
