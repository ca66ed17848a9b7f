"""The clients of Python behind `DataClient`: confluent-kafka (librdkafka), kafka-python, aiokafka.

kafka-python parses 300 schemas when it is imported, with a warning each: import this module late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka import KafkaError, KafkaException

from tests.interop.data_clients import CLASSIC, TIMEOUT_S, Batch, DataClient, ThreadMember


class Confluent:
    """confluent-kafka (librdkafka)."""

    name = "confluent-kafka"

    def __init__(self, servers: str) -> None:
        self._config: dict[str, Any] = {"bootstrap.servers": servers}

    def send(self, producer: Any, topic: str, values: Sequence[str]) -> None:
        """Send the values by this producer, and wait for the acknowledgements."""
        refused: list[KafkaError] = []
        acknowledged: list[str] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                refused.append(error)
            else:
                acknowledged.append(message.value().decode())

        for value in values:
            producer.produce(topic, value, value, on_delivery=delivered)
        producer.flush(TIMEOUT_S)
        if refused:
            raise KafkaException(refused[0])
        assert sorted(acknowledged) == sorted(values)

    def produce(self, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        self.send(self.producer(is_idempotent=is_idempotent), topic, values)

    def producer(self, *, is_idempotent: bool) -> Any:
        kind = {"enable.idempotence": is_idempotent, "acks": "all" if is_idempotent else "1"}
        return confluent_kafka.Producer(self._config | kind)

    def transact(self, topic: str, batches: Iterable[Batch], transactional_id: str) -> None:
        producer = confluent_kafka.Producer(self._config | {"transactional.id": transactional_id})
        producer.init_transactions(TIMEOUT_S)
        for batch in batches:
            producer.begin_transaction()
            self.send(producer, topic, batch.values)
            if batch.is_committed:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)

    def join(self, topic: str, group: str, protocol: str = CLASSIC) -> ThreadMember:
        config = self._config | {
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }

        def run(member: ThreadMember) -> None:
            consumer = confluent_kafka.Consumer(config)
            consumer.subscribe([topic])
            while not member.is_leaving:
                for message in consumer.consume(500, 0.1):
                    if message.error():
                        raise KafkaException(message.error())
                    member.note(message.partition(), message.value())
                member.note_assigned(one.partition for one in consumer.assignment())
            consumer.close()

        return ThreadMember(run)

    def join_share(self, topic: str, group: str) -> ThreadMember:
        """Start a member of a share group, which accepts each record."""

        def run(member: ThreadMember) -> None:
            consumer = confluent_kafka.ShareConsumer(self._config | {"group.id": group})
            consumer.subscribe([topic])
            while not member.is_leaving:
                for message in consumer.poll(0.1):
                    if message.error():
                        raise KafkaException(message.error())
                    member.note(message.partition(), message.value())
            consumer.close()

        return ThreadMember(run)


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"

    def __init__(self, servers: str) -> None:
        self._config: dict[str, Any] = {"bootstrap_servers": servers}

    def _send(self, producer: Any, topic: str, values: Sequence[str]) -> None:
        sent = [producer.send(topic, value.encode(), value.encode()) for value in values]
        for one in sent:
            one.get(TIMEOUT_S)

    def produce(self, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        acks = "all" if is_idempotent else 1
        producer = kafka.KafkaProducer(enable_idempotence=is_idempotent, acks=acks, **self._config)
        try:
            self._send(producer, topic, values)
        finally:
            producer.close()

    def transact(self, topic: str, batches: Iterable[Batch], transactional_id: str) -> None:
        producer = kafka.KafkaProducer(transactional_id=transactional_id, **self._config)
        try:
            producer.init_transactions()
            for batch in batches:
                producer.begin_transaction()
                self._send(producer, topic, batch.values)
                if batch.is_committed:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
        finally:
            producer.close()

    def join(self, topic: str, group: str, protocol: str = CLASSIC) -> ThreadMember:
        assert protocol == CLASSIC

        def run(member: ThreadMember) -> None:
            consumer = kafka.KafkaConsumer(
                group_id=group,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                metadata_max_age_ms=1000,
                **self._config,
            )
            # One that leads its group before its broker knows the new topic assigns nothing.
            while not consumer.partitions_for_topic(topic):
                time.sleep(0.1)
            consumer.subscribe([topic])
            while not member.is_leaving:
                for records in consumer.poll(100).values():
                    for record in records:
                        member.note(record.partition, record.value)
                member.note_assigned(one.partition for one in consumer.assignment())
            consumer.close()

        return ThreadMember(run)


class AioKafka:
    """aiokafka."""

    name = "aiokafka"

    def __init__(self, servers: str) -> None:
        self._config: dict[str, Any] = {"bootstrap_servers": servers}

    async def _send(self, producer: Any, topic: str, values: Sequence[str]) -> None:
        sent = [await producer.send(topic, value.encode(), value.encode()) for value in values]
        await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_S)

    def produce(self, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        async def run() -> None:
            acks = "all" if is_idempotent else 1
            async with aiokafka.AIOKafkaProducer(
                enable_idempotence=is_idempotent, acks=acks, **self._config
            ) as producer:
                await self._send(producer, topic, values)

        asyncio.run(run())

    def transact(self, topic: str, batches: Iterable[Batch], transactional_id: str) -> None:
        async def run() -> None:
            async with aiokafka.AIOKafkaProducer(
                transactional_id=transactional_id, **self._config
            ) as producer:
                for batch in batches:
                    await producer.begin_transaction()
                    await self._send(producer, topic, batch.values)
                    if batch.is_committed:
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()

        asyncio.run(run())

    def join(self, topic: str, group: str, protocol: str = CLASSIC) -> ThreadMember:
        assert protocol == CLASSIC

        async def consume(member: ThreadMember) -> None:
            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                group_id=group,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                **self._config,
            )
            async with consumer:
                while not member.is_leaving:
                    for records in (await consumer.getmany(timeout_ms=100)).values():
                        for record in records:
                            member.note(record.partition, record.value)
                    member.note_assigned(one.partition for one in consumer.assignment())

        return ThreadMember(lambda member: asyncio.run(consume(member)))


CLIENTS: dict[str, Callable[[str], DataClient]] = {
    each.name: each for each in (Confluent, KafkaPython, AioKafka)
}
