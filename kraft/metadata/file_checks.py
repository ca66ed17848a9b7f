"""Checks of the files beside the batches: indexes, leader epochs, small text files.

Owns what must hold between a segment and its ``.index`` and ``.timeindex`` (Kafka's
``OffsetIndex``, ``TimeIndex``, ``LogSegment.append``), between a log and its
``leader-epoch-checkpoint`` (``LeaderEpochFileCache``), and between a directory's text files. Fed by
``verification``.

Invariant: a segment is looked at in pieces; of an index all entries are in memory (10 MiB at most
in Kafka).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kraft._core.batch import scan
from kraft._core.checksum import crc32c
from kraft._core.epoch_cache import FILE_NAME as LEADER_EPOCHS
from kraft._core.epoch_cache import EpochCache
from kraft._core.partition_directory import (
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    parse_partition_metadata,
    parse_segment_file,
)
from kraft.errors import CorruptRecordError, KraftError
from kraft.metadata.directory import PARTITION_METADATA, QUORUM_STATE, reason_of
from kraft.metadata.findings import Finding, Severity
from kraft.metadata.runs import pieces_of
from kraft.metadata.source import MetadataSource, Slice

_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_MOST_INDEX_BYTES = 1 << 28

Longs = NDArray[np.int64]


def check_text_files(source: MetadataSource) -> Iterator[Finding]:
    """The text files can be read, and the election state is not older than the log."""
    directory = source.directory
    for left_out in directory.left_out:
        yield Finding(Severity.CONTRADICTION, left_out.path, left_out.reason)
    if directory.metadata_dir is None:
        return
    path = directory.metadata_dir / PARTITION_METADATA
    if path.is_file() and all(each.path != path for each in directory.left_out):
        try:
            parse_partition_metadata(path.read_bytes())
        except KraftError as error:
            yield Finding(Severity.CONTRADICTION, path, reason_of(error))
    kept = directory.quorum_state
    if kept is not None and source.log is not None and kept.leader_epoch < source.log.last_epoch:
        yield Finding(
            Severity.CONTRADICTION,
            directory.metadata_dir / QUORUM_STATE,
            f"the node remembers epoch {kept.leader_epoch}, and its log has records of epoch "
            f"{source.log.last_epoch}",
        )


def check_leader_epochs(source: MetadataSource) -> Iterator[Finding]:
    """Each epoch begins in the log where ``leader-epoch-checkpoint`` says.

    Kafka notes an epoch before its first record, and forgets those before the log's start.
    """
    metadata_dir, log = source.directory.metadata_dir, source.log
    if metadata_dir is None or log is None:
        return
    path = metadata_dir / LEADER_EPOCHS
    if not path.is_file():
        yield Finding(Severity.NOTE, path, "is missing; an opening makes it anew")
        return
    try:
        said = EpochCache.from_bytes(path.read_bytes()).entries
    except CorruptRecordError as error:
        yield Finding(Severity.CONTRADICTION, path, reason_of(error))
        return
    starts = {epoch: start for epoch, start in log.epochs if start < log.log_end_offset}
    first_start = said[0][1] if said else 0
    for number, (epoch, start) in enumerate(said):
        if start >= log.log_end_offset or (number == 0 and start <= log.log_start_offset):
            continue
        # The first entry begins where the log does, be it inside of the first segment.
        wrong = log.epoch_at(start) != epoch if number == 0 else starts.get(epoch) != start
        if wrong:
            yield Finding(
                Severity.CONTRADICTION,
                path,
                f"says that epoch {epoch} begins here; in the log the epoch is "
                f"{log.epoch_at(start)}",
                start,
            )
    for epoch, start in starts.items():
        if start > first_start and (epoch, start) not in said:
            yield Finding(
                Severity.CONTRADICTION, path, f"lacks epoch {epoch}, which begins here", start
            )


def check_indexes(source: MetadataSource) -> Iterator[Finding]:
    """Every index entry is true of its segment; producer snapshots have sound checksums."""
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
            yield Finding(Severity.NOTE, path, "is an index without a segment")
        elif suffix in (OFFSET_INDEX, TIME_INDEX):
            if path.stat().st_size > _MOST_INDEX_BYTES:
                yield Finding(Severity.CONTRADICTION, path, "is larger than an index can be")
                continue
            problem = (
                _check_offset_index(path, base, slices[base])
                if suffix == OFFSET_INDEX
                else _check_time_index(path, base, slices[base])
            )
            if problem is not None:
                yield problem
    for base in sorted(logs):
        for suffix in (OFFSET_INDEX, TIME_INDEX):
            path = metadata_dir / f"{base:020d}{suffix}"
            if not path.exists():
                yield Finding(Severity.NOTE, path, "is missing; an opening makes it anew")


def _check_producer_snapshot(path: Path) -> Iterator[Finding]:
    content = path.read_bytes()
    if len(content) < 10 or struct.unpack_from(">hI", content) != (1, crc32c(content[6:])):
        yield Finding(Severity.CONTRADICTION, path, "is no producer snapshot, or its CRC is wrong")


def _entries(path: Path, dtype: np.dtype[np.void]) -> tuple[NDArray[np.void], str | None]:
    """The entries before the zeros that Kafka preallocates, and what is wrong with the file."""
    content = path.read_bytes()
    whole = len(content) - len(content) % dtype.itemsize
    entries = np.frombuffer(content[:whole], dtype)
    used = np.zeros(len(entries), np.bool_)
    for name in dtype.names or ():
        used |= entries[name] != 0
    count = int(used.nonzero()[0][-1]) + 1 if used.any() else 0
    problem = None
    if whole < len(content) and any(content[whole:]):
        problem = f"is {len(content)} bytes long, which is no multiple of {dtype.itemsize}"
    return entries[:count], problem


def _check_offset_index(path: Path, base: int, slices: list[Slice]) -> Finding | None:
    entries, problem = _entries(path, _OFFSET_ENTRY)
    offsets = entries["offset"].astype(np.int64) + base
    positions = entries["position"].astype(np.int64)
    if problem is not None:
        return Finding(Severity.CONTRADICTION, path, problem)
    if (np.diff(offsets) <= 0).any() or (np.diff(positions) <= 0).any():
        return Finding(Severity.CONTRADICTION, path, "has entries that do not ascend")
    seen = np.zeros(len(entries), np.bool_)
    for piece in pieces_of(slices):
        batches = scan(piece.data, base_position=piece.position, verify_crc=False)
        here = (positions >= piece.position) & (positions < piece.position + len(piece.data))
        number = np.searchsorted(batches.positions, positions[here])
        number = np.minimum(number, len(batches) - 1)
        # An entry leads to a batch from which the batch with its offset is found by going on.
        seen[here] = (batches.positions[number] == positions[here]) & (
            batches.base_offsets[number] <= offsets[here]
        )
    return _first_wrong(path, seen, offsets, positions, "byte")


def _check_time_index(path: Path, base: int, slices: list[Slice]) -> Finding | None:
    entries, problem = _entries(path, _TIME_ENTRY)
    offsets = entries["offset"].astype(np.int64) + base
    timestamps = entries["timestamp"].astype(np.int64)
    if problem is not None:
        return Finding(Severity.CONTRADICTION, path, problem)
    if (np.diff(offsets) < 0).any() or (np.diff(timestamps) < 0).any():
        return Finding(Severity.CONTRADICTION, path, "has entries that do not ascend")
    seen = np.zeros(len(entries), np.bool_)
    largest = -1
    for piece in pieces_of(slices):
        batches = scan(piece.data, base_position=piece.position, verify_crc=False)
        lasts = batches.last_offsets
        here = (offsets >= batches.base_offsets[0]) & (offsets <= lasts[-1])
        number = np.searchsorted(lasts, offsets[here])
        so_far = np.maximum(np.maximum.accumulate(batches.max_timestamps), largest)
        # The largest timestamp so far, and the offset of the batch that has it.
        seen[here] = (batches.max_timestamps[number] == timestamps[here]) & (
            so_far[number] == timestamps[here]
        )
        largest = int(so_far[-1])
    return _first_wrong(path, seen, offsets, timestamps, "timestamp")


def _first_wrong(
    path: Path, seen: NDArray[np.bool_], offsets: Longs, values: Longs, what: str
) -> Finding | None:
    wrong = np.flatnonzero(~seen)
    if not len(wrong):
        return None
    first = int(wrong[0])
    return Finding(
        Severity.CONTRADICTION,
        path,
        f"{len(wrong)} of {len(seen)} entries are not true of the segment; the first is entry "
        f"{first} with {what} {int(values[first])}",
        int(offsets[first]),
    )
