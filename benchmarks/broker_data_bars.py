"""The rows of the suites `broker_data`, kraft's broker beside Apache Kafka's, and `up`."""

from __future__ import annotations

from benchmarks.conditions import (
    Condition,
    Row,
    at_least,
    at_most_s,
    at_most_times,
    no_more_cpu,
    no_worse_p99,
    share_of,
    share_of_bytes,
)

_WORKS = "broker_"


def _beside_kafka(
    title: str, work: str, *conditions: Condition, floor: str | None = None, note: str = ""
) -> Row:
    return Row(title, _WORKS + work, f"kafka_{_WORKS}{work}", conditions, floor=floor, note=note)


BROKER_DATA_ROWS = (
    _beside_kafka(
        "produce 16 KiB batches, acks=1, one partition",
        "produce_16KiB",
        at_least(0.7),
        no_more_cpu(),
        floor="broker_write",
    ),
    _beside_kafka(
        "produce 128 KiB batches, acks=1, one partition",
        "produce_128KiB",
        at_least(0.7),
        no_more_cpu(),
        floor="broker_write",
    ),
    _beside_kafka(
        "fetch 1 MiB of a broker from the page cache, one connection",
        "fetch",
        share_of("sendfile_broker_fetch", 0.80),
        floor="sendfile_broker_fetch",
    ),
    _beside_kafka(
        "acks=all on 3 nodes, 100 producers of 1 KiB batches",
        "replicated",
        at_least(0.5),
        no_worse_p99(1.5),
    ),
    _beside_kafka(
        "small batches to all of 10,000 partitions, 100 a request", "partitions", at_least(0.5)
    ),
    _beside_kafka(
        "start with 15,000 partitions after a controlled shutdown, until RUNNING",
        "start",
        at_most_times(0.3, "kafka_broker_start"),
    ),
    Row("the same with 100,000", "broker_start_100k", None, (), floor=None),
    _beside_kafka(
        "memory a partition of a broker",
        "memory",
        share_of_bytes("kafka_broker_memory", 1 / 4),
        note="kraft: resident memory; Kafka: the heap after a full collection",
    ),
    Row(
        "kraft up of one combined node, until a produced message is consumed",
        "up_combined",
        None,
        (at_most_s(3),),
        floor=None,
    ),
    Row("the same of 3 controllers and 3 brokers", "up_six", None, (at_most_s(6),), floor=None),
)
