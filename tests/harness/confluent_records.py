"""Records of topics, written and read by confluent-kafka (librdkafka)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.harness.commands import PATIENCE_S

#: librdkafka logs the connections that it loses to its standard error, unless it has a logger.
QUIET = logging.getLogger("confluent_kafka.quiet")
QUIET.setLevel(logging.CRITICAL)


#: Of librdkafka, for listeners with TLS or SASL.
Settings = Mapping[str, str]


def produce(
    servers: str,
    topic: str,
    values: Sequence[bytes],
    partition: int = 0,
    *,
    settings: Settings | None = None,
) -> None:
    """Write values to a partition, each acknowledged by all replicas in sync."""
    refused: list[KafkaError] = []
    acknowledged: list[bytes] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(message.value() or b"")
        else:
            refused.append(error)

    config = {"bootstrap.servers": servers, "enable.idempotence": True, "acks": "all"}
    producer = Producer(config | dict(settings or {}), logger=QUIET)
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    producer.flush(PATIENCE_S)
    assert not refused, refused
    assert acknowledged == list(values)


def consumed(
    servers: str, topic: str, partitions: int = 1, *, settings: Settings | None = None
) -> dict[int, list[tuple[int, bytes]]]:
    """Return the offset and value of each record below the high watermark, by partition."""
    config = {"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(config | dict(settings or {}), logger=QUIET)
    found: dict[int, list[tuple[int, bytes]]] = {id: [] for id in range(partitions)}
    try:
        ends = {
            id: consumer.get_watermark_offsets(TopicPartition(topic, id), PATIENCE_S)[1]
            for id in found
        }
        consumer.assign([TopicPartition(topic, id, 0) for id in found])
        deadline = time.monotonic() + PATIENCE_S
        while any(end and not _reaches(found[id], end) for id, end in ends.items()):
            seen = {id: len(records) for id, records in found.items()}
            assert time.monotonic() < deadline, (
                f"{topic}: {seen} records were read, ends are {ends}"
            )
            for message in consumer.consume(10_000, 0.2):
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                offset, partition = message.offset(), message.partition()
                assert offset is not None
                assert partition is not None
                found[partition].append((offset, message.value() or b""))
    finally:
        consumer.close()
    return found


def _reaches(records: Sequence[tuple[int, bytes]], end: int) -> bool:
    return bool(records) and records[-1][0] >= end - 1


def committed(servers: str, group: str, topic: str, partitions: int = 1) -> set[int | None]:
    """Return the committed offsets of a group, None for a partition without one."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group}, logger=QUIET)
    try:
        asked = [TopicPartition(topic, id) for id in range(partitions)]
        found = consumer.committed(asked, PATIENCE_S)
        return {None if one.offset == OFFSET_INVALID else one.offset for one in found}
    finally:
        consumer.close()
