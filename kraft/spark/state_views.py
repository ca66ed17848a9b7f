"""The state of a cluster as of an offset, as Arrow batches: partitions, topics, brokers.

This module defines the schemas of these views and the rows of each task. It reads ``open_metadata``
and ``kraft.metadata.arrow``; it computes only the requested columns.

Invariant: the task of a partition depends only on its topic id and number, so that the tasks of a
query divide all rows, however each of them loaded the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from kraft.metadata.arrow import ArrowPartitions
from kraft.metadata.facade import Metadata, open_metadata
from kraft.metadata.kafka_json import json_value
from kraft.spark.pushdown import Pushdown
from kraft.spark.source_options import columns

STATE_VIEWS: dict[str, StructType] = {
    "partitions": columns(
        "source string, topic string, topic_id string, partition int, leader int, "
        "leader_epoch int, partition_epoch int, leader_recovery_state tinyint, "
        "replicas array<int>, isr array<int>, elr array<int>, last_known_elr array<int>, "
        "adding_replicas array<int>, removing_replicas array<int>, directories array<string>"
    ),
    "topics": columns(
        "source string, topic string, topic_id string, partitions int, configs map<string,string>"
    ),
    "brokers": columns(
        "source string, broker int, broker_epoch bigint, incarnation_id string, rack string, "
        "fenced boolean, in_controlled_shutdown boolean, log_dirs array<string>, endpoints string"
    ),
}

_BATCH_ROWS = 1 << 16
#: 2**_RUN_BITS consecutive partitions of a topic belong to the same task.
_RUN_BITS = 12


@dataclass
class StatePart(InputPartition):
    """Part ``number`` of ``count`` of the cluster at ``path`` as of offset ``at``."""

    path: str
    at: int
    number: int
    count: int


def read_state(
    view: str, part: StatePart, schema: pa.Schema, pushdown: Pushdown, *, salvage: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part that pass the filters. Raises the errors of ``open_metadata``."""
    metadata = open_metadata(part.path, at=part.at, salvage=salvage)
    if view == "partitions":
        yield from _partitions(metadata, part, schema, pushdown)
        return
    rows = _ROWS[view](metadata)
    for name in pushdown.columns:
        values = [part.path if name == "source" else row[name] for row in rows]
        passed = pushdown.mask(name, pa.array(values, _type_of(view, name)))
        rows = [row for row, passes in zip(rows, passed, strict=True) if passes]
    for row in rows:
        row["source"] = part.path
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


# -- partitions


def _partitions(
    metadata: Metadata, part: StatePart, schema: pa.Schema, pushdown: Pushdown
) -> Iterator[pa.RecordBatch]:
    table = metadata.cluster.table
    arrow = ArrowPartitions(table)
    rows: NDArray[Any] = table.live_rows()
    if part.count > 1:
        rows = rows[_share(metadata, rows, part.count) == part.number]
    for name in pushdown.columns:
        if name == "source":
            continue  # was evaluated during planning
        if name in ("topic", "topic_id"):
            passed = pushdown.mask(name, arrow.topics(name))[arrow.dense_topics(rows)]
        else:
            passed = pushdown.mask(name, arrow.column(name, rows))
        rows = rows[passed]
    for first in range(0, len(rows), _BATCH_ROWS):
        here = rows[first : first + _BATCH_ROWS]
        arrays = []
        for field in schema:
            if field.name == "source":
                arrays.append(pa.repeat(pa.scalar(part.path), len(here)))
            elif field.name in ("topic", "topic_id"):
                numbers = pa.array(arrow.dense_topics(here))
                arrays.append(arrow.topics(field.name).take(numbers))
            else:
                arrays.append(arrow.column(field.name, here).cast(field.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _share(metadata: Metadata, rows: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the part of each row, from the topic's id, which is random, and groups of its
    partitions.
    """
    table = metadata.cluster.table
    numbers = table.topic_numbers()
    ids = b"".join(table.topic_id_of(number) for number in numbers)
    of_topic = np.zeros(max(numbers, default=-1) + 1, np.int64)
    of_topic[numbers] = np.frombuffer(ids, "<u4").reshape(-1, 4)[:, 3]
    runs = table.column("partition")[rows].astype(np.int64) >> _RUN_BITS
    share: NDArray[np.int64] = (of_topic[table.column("topic")[rows]] + runs) % count
    return share


# -- topics and brokers


def _topics(metadata: Metadata) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic.name,
            "topic_id": str(topic.id),
            "partitions": topic.partition_count,
            "configs": list(metadata.configs.topic(topic.name).items()),
        }
        for topic in metadata.topics.values()
    ]


def _brokers(metadata: Metadata) -> list[dict[str, Any]]:
    return [
        {
            "broker": broker.id,
            "broker_epoch": broker.epoch,
            "incarnation_id": str(broker.incarnation_id),
            "rack": broker.rack,
            "fenced": broker.fenced,
            "in_controlled_shutdown": broker.in_controlled_shutdown,
            "log_dirs": [str(each) for each in broker.log_dirs],
            "endpoints": _json(json_value(broker.endpoints)),
        }
        for broker in metadata.brokers.values()
    ]


_ROWS: dict[str, Callable[[Metadata], list[dict[str, Any]]]] = {
    "topics": _topics,
    "brokers": _brokers,
}


def _json(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _type_of(view: str, name: str) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type

    made: pa.DataType = to_arrow_type(STATE_VIEWS[view][name].dataType, timezone="UTC")
    return made
