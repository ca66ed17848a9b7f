"""Check the files beside the batches: indexes, leader epochs, small text files.

Checks a segment against its ``.index`` and ``.timeindex`` (Kafka's ``OffsetIndex``, ``TimeIndex``,
``LogSegment.append``), a log against its ``leader-epoch-checkpoint`` (``LeaderEpochFileCache``),
and a directory's text files against each other. Called by ``verification``.

Invariant: a segment is read in blocks; all entries of one index are in memory (at most 10 MiB in
Kafka).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kraft._core.bytes.batch import scan
from kraft._core.bytes.checksum import crc32c
from kraft._core.log.epoch_cache import FILE_NAME as LEADER_EPOCHS
from kraft._core.log.epoch_cache import EpochCache
from kraft._core.log.partition_directory import (
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    parse_partition_metadata,
    parse_segment_file,
)
from kraft.errors import CorruptRecordError, KraftError
from kraft.metadata.contiguous_slices import batch_ranges
from kraft.metadata.directory import PARTITION_METADATA, QUORUM_STATE, reason_of
from kraft.metadata.source import MetadataSource, Slice
from kraft.metadata.verification_findings import Severity, VerificationFinding

_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_MOST_INDEX_BYTES = 1 << 28
_NO_END = (1 << 63) - 1

Longs = NDArray[np.int64]


def check_text_files(source: MetadataSource) -> Iterator[VerificationFinding]:
    """Yield findings for unreadable text files and an election state older than the log."""
    directory = source.directory
    for left_out in directory.left_out:
        yield VerificationFinding(Severity.CONTRADICTION, left_out.path, left_out.reason)
    if directory.metadata_dir is None:
        return
    path = directory.metadata_dir / PARTITION_METADATA
    if path.is_file() and all(each.path != path for each in directory.left_out):
        try:
            parse_partition_metadata(path.read_bytes())
        except KraftError as error:
            yield VerificationFinding(Severity.CONTRADICTION, path, reason_of(error))
    quorum_state = directory.quorum_state
    if (
        quorum_state is not None
        and source.log is not None
        and quorum_state.leader_epoch < source.log.last_epoch
    ):
        yield VerificationFinding(
            Severity.CONTRADICTION,
            directory.metadata_dir / QUORUM_STATE,
            f"stores epoch {quorum_state.leader_epoch}, but the log has records of "
            f"epoch {source.log.last_epoch}",
        )


def check_leader_epochs(source: MetadataSource) -> Iterator[VerificationFinding]:
    """Yield findings where an epoch does not begin at the offset that ``leader-epoch-checkpoint``
    says.

    Kafka writes an epoch before its first record, and removes those before the log's start.
    """
    metadata_dir, log = source.directory.metadata_dir, source.log
    if metadata_dir is None or log is None:
        return
    path = metadata_dir / LEADER_EPOCHS
    if not path.is_file():
        yield VerificationFinding(Severity.NOTE, path, "is missing; opening the log rebuilds it")
        return
    try:
        stored = EpochCache.from_bytes(path.read_bytes()).entries
    except CorruptRecordError as error:
        yield VerificationFinding(Severity.CONTRADICTION, path, reason_of(error))
        return
    starts = {epoch: start for epoch, start in log.epochs if start < log.log_end_offset}
    first_start = stored[0][1] if stored else 0
    for number, (epoch, start) in enumerate(stored):
        if start >= log.log_end_offset or start < log.log_start_offset:
            # An open removes entries before the log's start; after a crash they are still there.
            continue
        if number == 0 and start == log.log_start_offset:
            continue
        # The first entry begins at the log's start, which may lie inside the first segment.
        wrong = log.epoch_at(start) != epoch if number == 0 else starts.get(epoch) != start
        if wrong:
            yield VerificationFinding(
                Severity.CONTRADICTION,
                path,
                f"says that epoch {epoch} begins here; in the log the epoch is "
                f"{log.epoch_at(start)}",
                start,
            )
    for epoch, start in starts.items():
        if start > first_start and (epoch, start) not in stored:
            yield VerificationFinding(
                Severity.CONTRADICTION, path, f"lacks epoch {epoch}, which begins here", start
            )


def check_indexes(source: MetadataSource) -> Iterator[VerificationFinding]:
    """Yield findings for index entries that contradict their segment, and for bad producer
    snapshots.
    """
    metadata_dir = source.directory.metadata_dir
    if metadata_dir is None:
        return
    logs = {each.base_offset for each in source.directory.segments}
    slices: dict[int, list[Slice]] = {base: [] for base in logs}
    for each in source.slices():
        slices[int(Path(each.path).stem)].append(each)
    for path in sorted(metadata_dir.iterdir()):
        parsed = parse_segment_file(path.name)
        if parsed is None:
            continue
        base, suffix = parsed
        if suffix == PRODUCER_SNAPSHOT:
            yield from _check_producer_snapshot(path)
        elif suffix in (OFFSET_INDEX, TIME_INDEX) and base not in logs:
            yield VerificationFinding(Severity.NOTE, path, "is an index without a segment")
        elif suffix in (OFFSET_INDEX, TIME_INDEX):
            if path.stat().st_size > _MOST_INDEX_BYTES:
                yield VerificationFinding(
                    Severity.CONTRADICTION, path, "is larger than an index can be"
                )
                continue
            # An interrupted write may have left entries for the batch that it did not complete.
            torn = source.torn_tail
            end = source.log_end_offset if torn is not None else _NO_END
            problem = (
                _check_offset_index(path, base, slices[base], end)
                if suffix == OFFSET_INDEX
                else _check_time_index(path, base, slices[base], end)
            )
            if problem is not None:
                yield problem
    for base in sorted(logs):
        for suffix in (OFFSET_INDEX, TIME_INDEX):
            path = metadata_dir / f"{base:020d}{suffix}"
            if not path.exists():
                yield VerificationFinding(
                    Severity.NOTE, path, "is missing; opening the log rebuilds it"
                )


def _check_producer_snapshot(path: Path) -> Iterator[VerificationFinding]:
    content = path.read_bytes()
    if len(content) < 10 or struct.unpack_from(">hI", content) != (1, crc32c(content[6:])):
        yield VerificationFinding(
            Severity.CONTRADICTION, path, "is not a producer snapshot, or its CRC does not match"
        )


def _entries(path: Path, dtype: np.dtype[np.void]) -> tuple[NDArray[np.void], str | None]:
    """Return the entries before the zeros that Kafka preallocates, and the fault of the
    file, or None.
    """
    content = path.read_bytes()
    whole = len(content) - len(content) % dtype.itemsize
    entries = np.frombuffer(content[:whole], dtype)
    used = np.zeros(len(entries), np.bool_)
    for name in dtype.names or ():
        used |= entries[name] != 0
    count = int(used.nonzero()[0][-1]) + 1 if used.any() else 0
    problem = None
    if whole < len(content) and any(content[whole:]):
        problem = f"is {len(content)} bytes long, which is not a multiple of {dtype.itemsize}"
    return entries[:count], problem


def _check_offset_index(
    path: Path, base: int, slices: list[Slice], end_offset: int
) -> VerificationFinding | None:
    """Return the finding of an ``.index``; entries from ``end_offset`` on are not checked."""
    entries, problem = _entries(path, _OFFSET_ENTRY)
    offsets = entries["offset"].astype(np.int64) + base
    positions = entries["position"].astype(np.int64)
    if problem is not None:
        return VerificationFinding(Severity.CONTRADICTION, path, problem)
    if (np.diff(offsets) <= 0).any() or (np.diff(positions) <= 0).any():
        return VerificationFinding(Severity.CONTRADICTION, path, "has entries that do not ascend")
    seen = offsets >= end_offset
    for block in batch_ranges(slices):
        batches = scan(block.data, base_position=block.position, verify_crc=False)
        here = (positions >= block.position) & (positions < block.position + len(block.data))
        number = np.searchsorted(batches.positions, positions[here])
        number = np.minimum(number, len(batches) - 1)
        # An entry points to a batch at or before its offset; a reader scans forward from it.
        seen[here] = (batches.positions[number] == positions[here]) & (
            batches.base_offsets[number] <= offsets[here]
        )
    return _first_wrong(path, seen, offsets, positions, "byte")


def _check_time_index(
    path: Path, base: int, slices: list[Slice], end_offset: int
) -> VerificationFinding | None:
    """Return the finding of a ``.timeindex``; entries from ``end_offset`` on are not checked."""
    entries, problem = _entries(path, _TIME_ENTRY)
    offsets = entries["offset"].astype(np.int64) + base
    timestamps = entries["timestamp"].astype(np.int64)
    if problem is not None:
        return VerificationFinding(Severity.CONTRADICTION, path, problem)
    if (np.diff(offsets) < 0).any() or (np.diff(timestamps) < 0).any():
        return VerificationFinding(Severity.CONTRADICTION, path, "has entries that do not ascend")
    seen = offsets >= end_offset
    largest = -1
    for block in batch_ranges(slices):
        batches = scan(block.data, base_position=block.position, verify_crc=False)
        lasts = batches.last_offsets
        here = (offsets >= batches.base_offsets[0]) & (offsets <= lasts[-1])
        number = np.searchsorted(lasts, offsets[here])
        so_far = np.maximum(np.maximum.accumulate(batches.max_timestamps), largest)
        # An entry holds the largest timestamp so far and the offset of its batch.
        seen[here] = (batches.max_timestamps[number] == timestamps[here]) & (
            so_far[number] == timestamps[here]
        )
        largest = int(so_far[-1])
    return _first_wrong(path, seen, offsets, timestamps, "timestamp")


def _first_wrong(
    path: Path, seen: NDArray[np.bool_], offsets: Longs, values: Longs, what: str
) -> VerificationFinding | None:
    wrong = np.flatnonzero(~seen)
    if not len(wrong):
        return None
    first = int(wrong[0])
    return VerificationFinding(
        Severity.CONTRADICTION,
        path,
        f"{len(wrong)} of {len(seen)} entries contradict the segment; the first is entry "
        f"{first} with {what} {int(values[first])}",
        int(offsets[first]),
    )
