"""Hot messages of a broker with 1,000 partitions: bytes to objects, objects to parts.

``fetch_request``   Fetch 17 of a follower with each partition in a topic of its own: the worst case
``fetch_response``  Fetch 17 with 1 KiB of records a partition, in parts without a copy of records
``produce_request`` Produce 13 with 1 KiB of records a partition, read as views

One thread, warm. A partition is a Python object, a record none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.conftest import Sizes
from kraft.protocol.fetch import (
    FetchedPartitionData,
    FetchedTopicData,
    FetchPartitionData,
    FetchReplicaState,
    FetchRequestData,
    FetchResponseData,
    FetchTopicData,
)
from kraft.protocol.produce import PartitionProduceData, ProduceRequestData, TopicProduceData
from kraft.records import Uuid

PARTITIONS = 1_000
RECORDS = bytes(1024)
TOPICS = [Uuid(number.to_bytes(16, "big")) for number in range(1, PARTITIONS + 1)]
DIRECTORY = Uuid(b"d" * 16)


def bench_fetch_request(benchmark: Any, measured: Callable[..., None], sizes: Sizes) -> None:
    partition = FetchPartitionData(7, 5, 123_456, 5, 100, 1 << 20, DIRECTORY)
    request = FetchRequestData(
        replica_state=FetchReplicaState(3, 9),
        topics=[FetchTopicData(topic_id=topic, partitions=[partition]) for topic in TOPICS],
    )
    body = request.encode(17)
    read = benchmark.pedantic(
        FetchRequestData.decode, (body, 17), rounds=sizes.rounds, warmup_rounds=sizes.warmup
    )
    assert read == request
    measured("fetch_request", unit="partitions", count=PARTITIONS, bytes=len(body))


def bench_fetch_response(benchmark: Any, measured: Callable[..., None], sizes: Sizes) -> None:
    def work() -> tuple[list[Any], int]:
        topics = [
            FetchedTopicData(
                topic_id=topic,
                partitions=[FetchedPartitionData(7, 0, 123_999, 123_999, 100, records=RECORDS)],
            )
            for topic in TOPICS
        ]
        return FetchResponseData(responses=topics).encode_segments(17)

    parts, size = benchmark.pedantic(work, rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    assert sum(part is RECORDS for part in parts) == PARTITIONS
    measured("fetch_response", unit="partitions", count=PARTITIONS, bytes=size)


def bench_produce_request(benchmark: Any, measured: Callable[..., None], sizes: Sizes) -> None:
    partition = PartitionProduceData(7, RECORDS)
    topics = [TopicProduceData(topic_id=topic, partition_data=[partition]) for topic in TOPICS]
    request = ProduceRequestData(None, -1, 30_000, topics)
    body = request.encode(13)
    read = benchmark.pedantic(
        ProduceRequestData.decode, (body, 13), rounds=sizes.rounds, warmup_rounds=sizes.warmup
    )
    assert read == request
    measured("produce_request", unit="partitions", count=PARTITIONS, bytes=len(body))
