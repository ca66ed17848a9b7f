"""AlterPartition requests of whole clusters: every leader changes the ISRs of all its partitions.

The requests are built from the metadata that the quorum serves, by numpy, before anything is timed.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import generate
from kraft.metadata.facade import Metadata

_MEMBER = [("id", ">i4"), ("epoch", ">i8"), ("tags", "u1")]


def isr_requests(metadata: Metadata, members: int, most: int | None = None) -> dict[int, bytes]:
    """Return the body of one AlterPartition request (version 3) a leader, by broker id.

    Each leader proposes itself and the first other replicas as the ISR, ``members`` in all. At most
    ``most`` partitions are changed; only those of three replicas.
    """
    partitions = metadata.partitions
    is_regular = (partitions.replicas[:, :3] >= 0).all(axis=1)
    rows = np.flatnonzero(partitions.live & (partitions.leader >= 0) & is_regular)[:most]
    rows = rows[
        np.lexsort((partitions.partition[rows], partitions.topic[rows], partitions.leader[rows]))
    ]
    leaders = partitions.leader[rows]
    isr = _proposed(partitions.replicas[rows], leaders, members)
    epochs = np.zeros(int(max(metadata.brokers)) + 1, np.int64)
    for id, broker in metadata.brokers.items():
        epochs[id] = broker.epoch
    encoded = np.zeros(
        len(rows),
        [
            ("partition", ">i4"),
            ("leader_epoch", ">i4"),
            ("count", "u1"),
            ("isr", _MEMBER, (members,)),
            ("recovery", "u1"),
            ("partition_epoch", ">i4"),
            ("tags", "u1"),
        ],
    )
    encoded["partition"] = partitions.partition[rows]
    encoded["leader_epoch"] = partitions.leader_epoch[rows]
    encoded["partition_epoch"] = partitions.partition_epoch[rows]
    encoded["count"] = members + 1
    encoded["isr"]["id"] = isr
    encoded["isr"]["epoch"] = epochs[isr]
    topic_ids = {topic.number: topic.id for topic in metadata.topics.values()}
    numbers = partitions.topic[rows]
    return {
        int(leaders[begin]): _request(
            int(leaders[begin]),
            int(epochs[leaders[begin]]),
            [
                (bytes(topic_ids[int(numbers[start])]), encoded[start:stop])
                for start, stop in _runs(numbers, begin, end)
            ],
        )
        for begin, end in _runs(leaders, 0, len(rows))
    }


def _proposed(
    replicas: npt.NDArray[np.int32], leaders: npt.NDArray[np.int32], members: int
) -> npt.NDArray[np.int32]:
    """Return the leader and the first other replicas of each row."""
    # A stable sort of "is not the leader" keeps the order of the others.
    order = np.argsort(replicas != leaders[:, None], axis=1, kind="stable")
    return np.take_along_axis(replicas, order, axis=1)[:, :members]


def _runs(values: npt.NDArray[Any], begin: int, end: int) -> list[tuple[int, int]]:
    """Return the begin and the end of each run of equal values."""
    changes = np.flatnonzero(np.diff(values[begin:end])) + begin + 1
    return list(zip([begin, *changes.tolist()], [*changes.tolist(), end], strict=True))


def _request(broker_id: int, epoch: int, topics: list[tuple[bytes, npt.NDArray[Any]]]) -> bytes:
    parts = [struct.pack(">iq", broker_id, epoch), generate.uvarint(len(topics) + 1)]
    for id, partitions in topics:
        parts += [id, generate.uvarint(len(partitions) + 1), partitions.tobytes(), b"\0"]
    return b"".join([*parts, b"\0"])
