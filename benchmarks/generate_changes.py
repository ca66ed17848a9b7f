"""The end of a log over the uniform cluster: one change to every partition.

The batches are made as in `generate`; ``expected.json`` beside them contains the sums of the
cluster after the changes. A partition changes in one of five ways:

=====  =========  ==========================================================================
share  version    fields
=====  =========  ==========================================================================
50 %   0          isr: the last replica dropped out
25 %   1          isr and leader: the leader dropped out
15 %   2          isr, leader and elr: the replica that dropped out of the ISR is in the ELR
8 %    1          directories: every replica moved to its broker's other directory
2 %    2          replicas, adding, removing and directories: a reassignment begins
=====  =========  ==========================================================================
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks import generate
from benchmarks.generate import Bytes, Expected, Ints

PARTITION_CHANGE_KEY = 5
SHARES = (0.50, 0.25, 0.15, 0.08, 0.02)
VERSIONS = (0, 1, 2, 1, 2)


def _tag(number: int, payload: Bytes) -> Bytes:
    head = np.array([number, payload.shape[1]], np.uint8)
    return np.hstack((np.tile(head, (len(payload), 1)), payload))


def _uuids(ids: Bytes) -> Bytes:
    count, length = ids.shape[:2]
    return np.hstack((np.full((count, 1), length + 1, np.uint8), ids.reshape(count, -1)))


def _leader(leader: Ints) -> Bytes:
    return _tag(1, generate._be(leader, ">i4"))


def change_rows(partitions: int, brokers: int) -> tuple[generate.Rows, Ints]:
    """Return the uniform cluster after the changes, and the kind of change of each row."""
    rows = generate.uniform_rows(0, partitions, brokers)
    for name in ("removing", "adding", "elr", "last_known_elr"):
        setattr(rows, name, getattr(rows, name).copy())
    rng = np.random.default_rng([generate.SEED, 3])
    way = rng.choice(len(SHARES), size=partitions, p=SHARES)
    first_out = (way == 1) | (way == 2)
    dropped = rows.replicas[:, 0].copy()
    rows.isr[way == 0, 2] = -1
    rows.isr[first_out, :2] = rows.replicas[first_out, 1:3]
    rows.isr[first_out, 2] = -1
    rows.leader[first_out] = rows.isr[first_out, 0]
    rows.leader_epoch = rows.leader_epoch + first_out.astype(np.int32)
    rows.elr[way == 2, 0] = dropped[way == 2]
    moving = way == 4
    added = (rows.replicas[:, 2] + 1) % brokers
    rows.replicas[moving, 3] = added[moving]
    rows.adding[moving, 0] = added[moving]
    rows.removing[moving, 0] = dropped[moving]
    rows.partition_epoch = rows.partition_epoch + 1
    return rows, way


def _values(rows: generate.Rows, way: int, pick: Ints, ids: Bytes, dirs: Bytes) -> Bytes:
    side = (pick % 2)[:, None]
    if way == 0:
        tags = [_tag(0, generate._array(rows.isr[pick], 2))]
    elif way in (1, 2):
        tags = [_tag(0, generate._array(rows.isr[pick], 2)), _leader(rows.leader[pick])]
        if way == 2:
            tags.append(_tag(6, generate._array(rows.elr[pick], 1)))
    elif way == 3:
        tags = [_tag(8, _uuids(dirs[rows.replicas[pick, :3], 1 - side]))]
    else:
        tags = [
            _tag(2, generate._array(rows.replicas[pick], 4)),
            _tag(3, generate._array(rows.removing[pick], 1)),
            _tag(4, generate._array(rows.adding[pick], 1)),
            _tag(8, _uuids(dirs[rows.replicas[pick, :4], side])),
        ]
    head = np.array([1, PARTITION_CHANGE_KEY, VERSIONS[way]], np.uint8)
    parts = [
        np.tile(head, (len(pick), 1)),
        generate._be(pick % generate.PARTITIONS_PER_TOPIC, ">i4"),
        ids[pick // generate.PARTITIONS_PER_TOPIC],
        np.full((len(pick), 1), len(tags), np.uint8),
        *tags,
    ]
    return np.hstack(parts)


def make_changes(partitions: int) -> tuple[Path, Expected]:
    """Return the file of changes over ``uniform-<partitions>`` and its description."""
    directory = generate.INPUTS / f"changes-{partitions}"
    note, path = directory / "expected.json", directory / "00000000000000000000.log"
    if note.exists():
        return path, Expected(**json.loads(note.read_text()))
    _, before = generate.make("uniform", partitions)
    brokers = before.brokers
    rows, way = change_rows(partitions, brokers)
    topics = -(-partitions // generate.PARTITIONS_PER_TOPIC)
    ids = generate.topic_ids(0, topics)
    dirs = generate.directory_ids(brokers)
    # Broker by broker, as leaders' changes arrive in the log: rows are visited out of order.
    order = np.argsort(np.arange(partitions) % brokers, kind="stable")
    values: list[bytes] = [b""] * partitions
    for each in range(len(SHARES)):
        members = np.flatnonzero(way == each)
        matrix = _values(rows, each, members, ids, dirs)
        raw, size = matrix.tobytes(), matrix.shape[1]
        for number, row in enumerate(members):
            values[row] = raw[number * size : (number + 1) * size]
    out = bytearray()
    for first in range(0, partitions, generate.RECORDS_PER_BATCH):
        picked = order[first : first + generate.RECORDS_PER_BATCH]
        records = [generate.record(i, None, values[row]) for i, row in enumerate(picked)]
        out += generate.small_batch(before.records + 2 + first, records)
    expected = Expected(
        kind="changes",
        brokers=brokers,
        topics=topics,
        partitions=partitions,
        records=partitions,
        batches=-(-partitions // generate.RECORDS_PER_BATCH),
        bytes=len(out),
        partition_record_bytes=sum(map(len, values)),
        state_check=generate.state_check(rows),
        directory_check=generate.directory_check(rows, brokers, way == 3),
    )
    directory.mkdir(parents=True, exist_ok=True)
    generate.put(path, bytes(out))
    generate.put(note, json.dumps(asdict(expected), indent=1).encode())
    return path, expected
