"""The input of the benchmarks: metadata checkpoints as Apache Kafka writes them, made with numpy.

This module does not use kraft, so that kraft never checks itself: the bytes follow the record
schemas and the layout of record batch v2, and the Java peers read them with Kafka's own classes and
compare every count and sum below. Every file has its own directory under
``benchmarks/results/inputs`` with an ``expected.json``, is created once, and is equal on every
machine (fixed seed).

Two kinds of cluster:

``mixed``    partition record versions 0 to 2, replication factors 2, 3 and 5, ISRs that are full,
             reordered, shrunk or empty, ELR, last known ELR, reassignments in progress.
``uniform``  replication factor 3, version 2 with directories, full ISRs, and every broker holds
             exactly 10,000 partitions: the cluster of the fencing and memory figures.

The layout of a partition record's bytes depends only on its shape: rows of the same shape are
written together as a matrix of bytes and scattered to their positions.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

INPUTS = Path(__file__).resolve().parent / "results" / "inputs"
SEED = 20_260_401
PARTITIONS_PER_TOPIC = 100
RECORDS_PER_BATCH = 1024  # as in RecordsSnapshotWriter
HELD_PER_BROKER = 10_000
BATCH_HEADER_SIZE = 61
LEADER_EPOCH = 7
TIMESTAMP_MS = 1_775_000_000_000
METADATA_VERSION = 30  # 4.3-IV0, the highest level that a 4.3.1 cluster finalizes
MAX_REPLICAS = 6
TOPIC_WORDS = ("orders", "payments", "clicks", "audit-trail", "inventory-changelog", "a")

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[Any]  # integers, or booleans that select rows


@dataclass
class Rows:
    """Partitions as padded columns; row i is partition ``i % 100`` of topic ``i // 100``."""

    version: Ints  # [P] i64, version of the partition record
    replicas: Ints  # [P, 6] i32, -1 after the last
    isr: Ints
    removing: Ints
    adding: Ints
    elr: Ints
    last_known_elr: Ints
    leader: Ints  # [P] i32
    recovering: Ints  # [P] i8
    leader_epoch: Ints
    partition_epoch: Ints

    def __len__(self) -> int:
        return len(self.leader)


@dataclass
class Expected:
    """What any reader of the file must find; sums have 64 bits and wrap around."""

    kind: str
    brokers: int
    topics: int
    partitions: int
    records: int  # data records, without those of control batches
    batches: int
    bytes: int
    partition_record_bytes: int  # values only
    state_check: int
    directory_check: int


# --- clusters ----------------------------------------------------------------------------------


def uniform_rows(first: int, last: int, brokers: int) -> Rows:
    """Return rows first..last, striped so that every broker holds the same number of partitions."""
    row = np.arange(first, last, dtype=np.int64)
    count = len(row)
    replicas = np.full((count, MAX_REPLICAS), -1, dtype=np.int32)
    for slot in range(3):
        replicas[:, slot] = (row + slot * (brokers // 3)) % brokers
    none = np.full((count, MAX_REPLICAS), -1, dtype=np.int32)
    return Rows(
        version=np.full(count, 2),
        replicas=replicas,
        isr=replicas.copy(),
        removing=none,
        adding=none,
        elr=none,
        last_known_elr=none,
        leader=replicas[:, 0].copy(),
        recovering=np.zeros(count, np.int8),
        leader_epoch=(row % 11).astype(np.int32),
        partition_epoch=(row % 11 + row % 17).astype(np.int32),
    )


def mixed_rows(first: int, last: int, brokers: int) -> Rows:
    """Return rows first..last (whole topics) of every shape that an older cluster contains."""
    rng = np.random.default_rng([SEED, first])
    count = last - first
    topics = -(-count // PARTITIONS_PER_TOPIC)
    by_topic = np.repeat(np.arange(topics), PARTITIONS_PER_TOPIC)[:count]
    version = rng.choice([0, 1, 2], size=topics, p=[0.1, 0.3, 0.6])[by_topic]
    factor = rng.choice([2, 3, 5], size=topics, p=[0.10, 0.84, 0.06])[by_topic]

    moving = rng.random(count) < 0.003
    held = factor + moving
    step = rng.integers(1, brokers // MAX_REPLICAS, size=count)
    start = rng.integers(0, brokers, size=count)
    slot = np.arange(MAX_REPLICAS)
    replicas = ((start[:, None] + slot * step[:, None]) % brokers).astype(np.int32)
    replicas[slot >= held[:, None]] = -1
    pick = np.arange(count)
    adding = _one_slot(replicas[pick, held - 1], moving)
    removing = _one_slot(replicas[:, 0], moving)

    kind = rng.choice(5, size=count, p=[0.86, 0.04, 0.07, 0.025, 0.005])
    full, rotated, one_out, one_left, nobody = (kind == k for k in range(5))
    one_out = one_out | (nobody & (version < 2))  # an empty ISR needs an ELR, so version 2
    nobody = nobody & (version == 2)
    order = np.where(rotated[:, None], (slot + 1) % held[:, None], slot)
    isr = np.take_along_axis(replicas, np.minimum(order, MAX_REPLICAS - 1), axis=1)
    isr[slot >= held[:, None]] = -1
    isr[one_out, held[one_out] - 1] = -1
    isr[one_left, 1:] = -1
    isr[nobody] = -1
    leader = np.where(nobody, -1, isr[:, 0]).astype(np.int32)

    out_of_isr = replicas[pick, held - 1]
    with_elr = (version == 2) & ((one_out & (rng.random(count) < 0.5)) | nobody)
    elr = _one_slot(out_of_isr, with_elr)
    last_known = _one_slot(replicas[:, 0], nobody)
    leader_epoch = rng.integers(0, 40, size=count, dtype=np.int32)
    return Rows(
        version=version,
        replicas=replicas,
        isr=isr,
        removing=removing,
        adding=adding,
        elr=elr,
        last_known_elr=last_known,
        leader=leader,
        recovering=(full & (rng.random(count) < 0.001)).astype(np.int8),
        leader_epoch=leader_epoch,
        partition_epoch=leader_epoch + rng.integers(0, 200, size=count, dtype=np.int32),
    )


def _one_slot(broker: Ints, where: Ints) -> Ints:
    column = np.full((len(broker), MAX_REPLICAS), -1, dtype=np.int32)
    column[where, 0] = broker[where]
    return column


def topic_ids(first: int, last: int) -> Bytes:
    """Return random ids as [T, 16] u8; the first byte avoids Kafka's reserved ids."""
    ids = np.random.default_rng([SEED, 1, first]).integers(0, 256, (last - first, 16), np.uint8)
    ids[:, 0] |= 1
    return ids


def directory_ids(brokers: int) -> Bytes:
    """Return two log directories per broker as [B, 2, 16] u8."""
    ids = np.random.default_rng([SEED, 2]).integers(0, 256, (brokers, 2, 16), np.uint8)
    ids[:, :, 0] |= 1
    return ids


def topic_name(topic: int) -> str:
    return f"{TOPIC_WORDS[topic % len(TOPIC_WORDS)]}-{topic:06d}"


def brokers_of(kind: str, partitions: int) -> int:
    return 300 if kind == "mixed" else max(3, partitions * 3 // HELD_PER_BROKER)


# --- values of the few other records
# -----------------------------------------------------------------


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 31))


def compact(text: str) -> bytes:
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def topic_value(name: str, topic_id: bytes) -> bytes:
    return b"\x01\x02\x00" + compact(name) + topic_id + b"\x00"


def feature_value(name: str, level: int) -> bytes:
    return b"\x01\x0c\x00" + compact(name) + struct.pack(">h", level) + b"\x00"


def broker_value(broker: int, racks: int, brokers: int, directories: Bytes) -> bytes:
    """Return RegisterBroker, version 3: one PLAINTEXT endpoint, one feature, a rack, two
    directories.
    """
    endpoint = compact("PLAINTEXT") + compact(f"broker-{broker}.example")
    endpoint += struct.pack(">Hh", 9092, 0) + b"\x00"
    feature = compact("metadata.version") + struct.pack(">hh", 7, METADATA_VERSION) + b"\x00"
    log_dirs = uvarint(3) + directories.tobytes()
    return b"".join(
        (
            b"\x01\x00\x03",
            struct.pack(">ib16sq", broker, 0, directories[0].tobytes()[::-1], 1000 + broker),
            uvarint(2) + endpoint,
            uvarint(2) + feature,
            compact(f"rack-{broker * racks // brokers}"),
            b"\x00\x00",  # neither fenced nor in controlled shutdown
            b"\x01\x00" + uvarint(len(log_dirs)) + log_dirs,
        )
    )


def prefix_values(brokers: int) -> list[bytes]:
    """Return the values before the topics of a checkpoint: features, then brokers."""
    directories = directory_ids(brokers)
    return [
        feature_value("metadata.version", METADATA_VERSION),
        feature_value("eligible.leader.replicas.version", 1),
        *(broker_value(b, 3, brokers, directories[b]) for b in range(brokers)),
    ]


# --- partition records, by shape -----------------------------------------------------------------


def _be(column: Ints, dtype: str) -> Bytes:
    wide = column.astype(dtype)
    return wide.reshape(len(column), -1).view(np.uint8)


def _array(column: Ints, size: int) -> Bytes:
    """Return a compact array of i32: one byte of length (+1), then the first `size` of each row."""
    length = np.full((len(column), 1), size + 1, np.uint8)
    return np.hstack((length, _be(column[:, :size], ">i4"))) if size else length


def _counts(rows: Rows) -> Ints:
    """Return [P, 8] u8: the counts that determine the length and framing of a partition record."""
    lists = (rows.replicas, rows.isr, rows.removing, rows.adding, rows.elr, rows.last_known_elr)
    return np.stack([rows.version, *((part >= 0).sum(1) for part in lists), rows.recovering], 1)


def _value_size(counts: Ints) -> Ints:
    version, replicas, isr, removing, adding, elr, last_known, recovering = counts.T
    size: Ints = 3 + 4 + 16 + (4 + 4 * (replicas + isr + removing + adding)) + 12 + 1
    size = size + (version >= 1) * (1 + 16 * replicas) + recovering * 3
    size = size + (elr > 0) * (3 + 4 * elr)
    size += (last_known > 0) * (3 + 4 * last_known)
    return size


def _partition_values(rows: Rows, pick: Ints, shape: Ints, ids: Bytes, dirs: Bytes) -> Bytes:
    """Return [len(pick), size] u8: the values of the rows `pick`, which all have this shape."""
    version, replicas, isr, removing, adding, elr, last_known, recovering = map(int, shape)
    count = len(pick)

    def constant(*values: int) -> Bytes:
        return np.tile(np.array(values, np.uint8), (count, 1))

    parts = [
        constant(1, 3, version),
        _be(pick % PARTITIONS_PER_TOPIC, ">i4"),
        ids[pick // PARTITIONS_PER_TOPIC],
        _array(rows.replicas[pick], replicas),
        _array(rows.isr[pick], isr),
        _array(rows.removing[pick], removing),
        _array(rows.adding[pick], adding),
        _be(rows.leader[pick], ">i4"),
        _be(rows.leader_epoch[pick], ">i4"),
        _be(rows.partition_epoch[pick], ">i4"),
    ]
    if version >= 1:
        chosen = dirs[rows.replicas[pick, :replicas], (pick % 2)[:, None]]
        parts += [constant(replicas + 1), chosen.reshape(count, -1)]
    parts.append(constant((elr > 0) + (last_known > 0) + recovering))
    if recovering:
        parts.append(constant(0, 1, 1))
    if elr:
        parts += [constant(1, 1 + 4 * elr), _array(rows.elr[pick], elr)]
    if last_known:
        parts += [constant(2, 1 + 4 * last_known), _array(rows.last_known_elr[pick], last_known)]
    return np.hstack(parts)


def _varint_size(value: Ints) -> Ints:
    return 1 + (value >= 64) + (value >= 8192)


def _varints(value: Ints, size: int) -> Bytes:
    """Return [n, size] u8: zig-zag varints of non-negative values, all of this size."""
    zigzag = value.astype(np.int64) << 1
    out = np.empty((len(value), size), np.uint8)
    for place in range(size):
        more = 0x80 if place < size - 1 else 0
        out[:, place] = (zigzag >> (7 * place)) & 0x7F | more
    return out


# --- batches ------------------------------------------------------------------------------------


def seal(batch: memoryview, base_offset: int, count: int, attributes: int) -> None:
    """Write the 61-byte header of a batch of `count` records that follow it."""
    tail = struct.pack(
        ">hiqqqhii", attributes, count - 1, TIMESTAMP_MS, TIMESTAMP_MS, -1, -1, -1, count
    )
    batch[21:BATCH_HEADER_SIZE] = tail
    head = struct.pack(">qiib", base_offset, len(batch) - 12, LEADER_EPOCH, 2)
    batch[:17] = head
    batch[17:21] = struct.pack(">I", crc32c(batch[21:]))


def record(delta: int, key: bytes | None, value: bytes) -> bytes:
    framed_key = varint(-1) if key is None else varint(len(key)) + key
    body = b"\x00\x00" + varint(delta) + framed_key + varint(len(value)) + value + b"\x00"
    return varint(len(body)) + body


def small_batch(base_offset: int, records: list[bytes], attributes: int = 0) -> bytes:
    batch = bytearray(BATCH_HEADER_SIZE) + b"".join(records)
    seal(memoryview(batch), base_offset, len(records), attributes)
    return bytes(batch)


def control_batch(base_offset: int, control_type: int, body: bytes) -> bytes:
    key = struct.pack(">hh", 0, control_type)
    return small_batch(base_offset, [record(0, key, body)], attributes=0x20)


def data_batch(size: int) -> bytes:
    """Return one batch of exactly `size` bytes (16 KiB for the log's figures), of 1,000-byte
    values.
    """
    values = [bytes(1000) for _ in range((size - BATCH_HEADER_SIZE) // 1100)]
    while True:
        made = small_batch(0, [record(i, None, value) for i, value in enumerate(values)])
        if len(made) == size:
            return made
        values[-1] = bytes(len(values[-1]) + size - len(made))


def topic_batches(
    rows: Rows, first_topic: int, base_offset: int, brokers: int, prefix: list[bytes]
) -> tuple[bytearray, int]:
    """Return the batches of `prefix` and then of each topic with its partitions; and the record
    count.
    """
    topics = -(-len(rows) // PARTITIONS_PER_TOPIC)
    ids = topic_ids(first_topic, first_topic + topics)
    dirs = directory_ids(brokers)
    loose = dict(enumerate(prefix))
    row = np.arange(len(rows))
    place = len(prefix) + row + row // PARTITIONS_PER_TOPIC + 1  # index of each row's record
    for topic in range(topics):
        loose[len(prefix) + topic * (PARTITIONS_PER_TOPIC + 1)] = topic_value(
            topic_name(first_topic + topic), ids[topic].tobytes()
        )

    total = len(loose) + len(rows)
    counts = _counts(rows)
    value_size = np.empty(total, np.int64)
    value_size[place] = _value_size(counts)
    value_size[list(loose)] = [len(value) for value in loose.values()]
    delta = np.arange(total) % RECORDS_PER_BATCH
    body_size = 4 + _varint_size(delta) + _varint_size(value_size) + value_size
    size = _varint_size(body_size) + body_size
    starts_batch = delta == 0
    end = np.cumsum(size + starts_batch * BATCH_HEADER_SIZE)
    position = end - size

    out = bytearray(int(end[-1]))
    flat = np.frombuffer(out, np.uint8)
    for index, value in loose.items():
        framed = record(int(delta[index]), None, value)
        out[position[index] : position[index] + len(framed)] = framed
    shapes, group = np.unique(
        np.hstack((counts, _varint_size(delta)[place][:, None])), axis=0, return_inverse=True
    )
    group = group.reshape(-1)
    for number, shape in enumerate(shapes):
        members = np.flatnonzero(group == number)
        for start in range(0, len(members), 20_000):
            pick = members[start : start + 20_000]
            at = place[pick]
            body = int(body_size[at[0]])
            matrix = _framed(rows, pick, shape, delta[at], body, ids, dirs)
            flat[position[at][:, None] + np.arange(matrix.shape[1])] = matrix
    view = memoryview(out)
    for first in range(0, total, RECORDS_PER_BATCH):
        last = min(first + RECORDS_PER_BATCH, total) - 1
        batch = view[int(position[first]) - BATCH_HEADER_SIZE : int(end[last])]
        seal(batch, base_offset + first, last - first + 1, 0)
    return out, total


def _framed(
    rows: Rows, pick: Ints, shape: Ints, delta: Ints, body_size: int, ids: Bytes, dirs: Bytes
) -> Bytes:
    value = _partition_values(rows, pick, shape[:-1], ids, dirs)

    def constant(raw: bytes) -> Bytes:
        return np.tile(np.frombuffer(raw, np.uint8), (len(pick), 1))

    return np.hstack(
        (
            constant(varint(int(body_size)) + b"\x00\x00"),
            _varints(delta, int(shape[-1])),
            constant(varint(-1) + varint(value.shape[1])),
            value,
            constant(b"\x00"),
        )
    )


def pieces(kind: str, partitions: int, piece: int = 1_000_000) -> Iterator[tuple[bytes, Rows]]:
    """Yield the batches of a checkpoint in chunks of at most `piece` partitions, and the rows of
    each.

    Each chunk is independent of the others, so that ten million partitions do not need the memory
    of all of them. The first and last chunk contain the control batches.
    """
    brokers = brokers_of(kind, partitions)
    make = mixed_rows if kind == "mixed" else uniform_rows
    header = control_batch(0, 3, struct.pack(">hqb", 0, TIMESTAMP_MS, 0))
    offset = 1
    for first in range(0, partitions, piece):
        last = min(first + piece, partitions)
        rows = make(first, last, brokers)
        prefix = prefix_values(brokers) if first == 0 else []
        out, count = topic_batches(rows, first // PARTITIONS_PER_TOPIC, offset, brokers, prefix)
        offset += count
        if first == 0:
            out[:0] = header
        if last == partitions:
            out += control_batch(offset, 4, struct.pack(">hb", 0, 0))
        yield bytes(out), rows


# --- what a reader must find
# -------------------------------------------------------------------------


def state_check(rows: Rows) -> int:
    """Return a sum over everything but directories that depends on the order of every list."""
    weight = np.arange(1, MAX_REPLICAS + 1)

    def weighed(column: Ints) -> int:
        return int((np.where(column >= 0, column, 0).astype(np.int64) * weight).sum())

    total = int(rows.leader.sum(dtype=np.int64)) + 3 * int(rows.leader_epoch.sum(dtype=np.int64))
    total += 5 * int(rows.partition_epoch.sum(dtype=np.int64))
    total += 7 * weighed(rows.replicas) + 11 * weighed(rows.isr)
    total += 13 * weighed(rows.elr) + 17 * weighed(rows.last_known_elr)
    return total + 19 * weighed(rows.adding) + 23 * weighed(rows.removing)


def directory_check(rows: Rows, brokers: int, moved: Ints | None = None) -> int:
    """Return a sum over both halves of the directory ids, slot by slot; version 0 rows have none.

    Replicas of `moved` rows (booleans) are in the other directory of their brokers.
    """
    halves = directory_ids(brokers).view(">u8").astype(np.uint64)
    mixed = halves[..., 0] ^ halves[..., 1]
    total = 0
    side = np.arange(len(rows)) % 2
    if moved is not None:
        side = np.where(moved, 1 - side, side)
    for slot in range(MAX_REPLICAS):
        held = (rows.replicas[:, slot] >= 0) & (rows.version >= 1)
        chosen = mixed[rows.replicas[held, slot], side[held]]
        total += (slot + 1) * int(chosen.sum(dtype=np.uint64))
    return _signed(total)


def make(kind: str, partitions: int) -> tuple[Path, Expected]:
    """Return the checkpoint of this kind and size and its description; written on first use."""
    directory = INPUTS / f"{kind}-{partitions}"
    note = directory / "expected.json"
    if note.exists():
        expected = Expected(**json.loads(note.read_text()))
        return directory / checkpoint_name(expected), expected
    directory.mkdir(parents=True, exist_ok=True)
    brokers = brokers_of(kind, partitions)
    state = directories = size = record_bytes = 0
    partial = directory / f"partial-{os.getpid()}"
    with partial.open("wb") as file:
        for raw, rows in pieces(kind, partitions):
            size += file.write(raw)
            state += state_check(rows)
            directories += directory_check(rows, brokers)
            record_bytes += int(_value_size(_counts(rows)).sum())
    topics = -(-partitions // PARTITIONS_PER_TOPIC)
    records = 2 + brokers + topics + partitions
    expected = Expected(
        kind=kind,
        brokers=brokers,
        topics=topics,
        partitions=partitions,
        records=records,
        batches=_batches(partitions, brokers),
        bytes=size,
        partition_record_bytes=record_bytes,
        state_check=state,
        directory_check=_signed(directories),
    )
    path = directory / checkpoint_name(expected)
    partial.rename(path)
    put(note, json.dumps(asdict(expected), indent=1).encode())
    return path, expected


def put(path: Path, content: bytes) -> None:
    """Write a file atomically: several processes may create the same one."""
    partial = path.with_name(f"{path.name}-{os.getpid()}")
    partial.write_bytes(content)
    partial.rename(path)


def checkpoint_name(expected: Expected) -> str:
    return f"{expected.records + 2:020d}-{LEADER_EPOCH:010d}.checkpoint"


def _batches(partitions: int, brokers: int, piece: int = 1_000_000) -> int:
    count = 2  # snapshot header and footer
    for first in range(0, partitions, piece):
        rows = min(piece, partitions - first)
        records = rows + -(-rows // PARTITIONS_PER_TOPIC) + (2 + brokers) * (first == 0)
        count += -(-records // RECORDS_PER_BATCH)
    return count


def _signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def make_data_batch(size: int = 16 * 1024) -> Path:
    """Return the file with one batch of `size` bytes; written on first use."""
    path = INPUTS / f"batch-{size}.bin"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, data_batch(size))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Write one input file and print what it holds.")
    parser.add_argument("kind", choices=("mixed", "uniform"))
    parser.add_argument("partitions", type=int)
    arguments = parser.parse_args()
    path, expected = make(arguments.kind, arguments.partitions)
    print(path)
    print(json.dumps(asdict(expected), indent=1))


if __name__ == "__main__":
    main()
