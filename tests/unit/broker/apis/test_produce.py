"""Produce: versions, errors of partitions and records, acks, authorization, leaders (KIP-951)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kraft._core.bytes.batch_records import iterate
from kraft.broker.apis import produce as produce_module
from kraft.errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TIMESTAMP,
    INVALID_TOPIC_EXCEPTION,
    INVALID_TXN_STATE,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequestData,
    ProduceResponseData,
    TopicProduceData,
)
from kraft.records import Uuid
from tests.harness.data_brokers import DataCluster, until
from tests.harness.data_requests import ALICE, allowing, batch, produce, run
from tests.harness.produced_batches import HOUR_MS, NOW_MS, TRANSACTIONAL

VERSIONS = range(PRODUCE.lowest, PRODUCE.highest + 1)


def test_every_version_appends(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        topic_id = await cluster.create("t", [1])
        for base, version in enumerate(VERSIONS):
            answer = await produce(broker, "t", topic_id=topic_id, version=version)
            assert (answer.error_code, answer.base_offset) == (NONE, base)
            assert answer.log_append_time_ms == -1
            assert answer.log_start_offset == (0 if version >= 5 else -1)
        (id,) = broker.manager.partitions
        assert [each.base_offset for each in iterate(broker.content(id))] == list(
            range(len(VERSIONS))
        )

    run(tmp_path, scenario)


@pytest.mark.parametrize("codec", range(5))
def test_large_batches_of_every_codec_are_checked_beside_the_loop(
    tmp_path: Path, codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_module, "PLAIN_BYTES_INLINE", 100)
    monkeypatch.setattr(produce_module, "COMPRESSED_BYTES_INLINE", 50)

    async def scenario(cluster: DataCluster) -> None:
        await cluster.create("t", [1])
        values = [b"%d " % each * 100 for each in range(200)]
        answer = await produce(cluster[1], "t", batch(*values, codec=codec), version=7)
        assert (answer.error_code, answer.base_offset) == (NONE, 0)
        (id,) = cluster[1].manager.partitions
        (stored,) = iterate(cluster[1].content(id))
        assert [record.value for record in stored] == values

    run(tmp_path, scenario)


def test_topics_and_partitions_that_do_not_exist(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        topic_id = await cluster.create("t", [1])
        for version in (3, 8, 12):
            answer = await produce(broker, "nowhere", version=version)
            assert answer.error_code == UNKNOWN_TOPIC_OR_PARTITION
            assert answer.base_offset == -1
            answer = await produce(broker, "t", partition=7, version=version)
            assert answer.error_code == UNKNOWN_TOPIC_OR_PARTITION
        answer = await produce(broker, "t", topic_id=Uuid(b"x" * 16))
        assert answer.error_code == UNKNOWN_TOPIC_ID
        answer = await produce(broker, "", topic_id=topic_id, partition=7)
        assert answer.error_code == UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_a_partition_without_a_valid_batch_has_its_own_error(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1], [1], [1])
        damaged = bytearray(batch())
        damaged[-1] ^= 1
        partitions = [
            PartitionProduceData(0, batch()),
            PartitionProduceData(1, bytes(damaged)),
            PartitionProduceData(2, None),
        ]
        request = ProduceRequestData(None, -1, 1_000, [TopicProduceData("t", topic_id, partitions)])
        response = await cluster[1].ask(PRODUCE, request, ProduceResponseData)
        (topic,) = response.responses
        assert [each.index for each in topic.partition_responses] == [0, 1, 2]
        assert [each.error_code for each in topic.partition_responses] == [
            NONE,
            CORRUPT_MESSAGE,
            INVALID_RECORD,
        ]
        # As in Kafka a damaged batch is no failure of the broker.
        traffic = cluster[1].replicas.traffic
        assert (traffic.produces, traffic.failed_produces) == (3, 1)

    run(tmp_path, scenario)


def test_wrong_records_are_named(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("compacted", [1], configs={"cleanup.policy": "compact"})
        for version in (7, 8, 12):
            answer = await produce(broker, "compacted", batch(b"1", b"2"), version=version)
            assert answer.error_code == INVALID_RECORD
            if version >= 8:
                assert [each.batch_index for each in answer.record_errors] == [0, 1]
                assert answer.error_message
            else:
                assert answer.record_errors == []
        answer = await produce(broker, "compacted", batch(b"1", key=b"k"), version=12)
        assert answer.error_code == NONE

    run(tmp_path, scenario)


def test_the_settings_of_the_topic_decide(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("small", [1], configs={"max.message.bytes": "100"})
        await cluster.create("now", [1], configs={"message.timestamp.type": "LogAppendTime"})
        await cluster.create("old", [1], configs={"message.timestamp.before.max.ms": "1000"})
        answer = await produce(broker, "small", batch(bytes(200)), version=12)
        assert answer.error_code == MESSAGE_TOO_LARGE
        answer = await produce(broker, "now", batch(time_ms=NOW_MS), version=12)
        assert answer.error_code == NONE
        assert answer.log_append_time_ms > NOW_MS + HOUR_MS
        answer = await produce(broker, "old", batch(time_ms=NOW_MS), version=12)
        assert answer.error_code == INVALID_TIMESTAMP

    run(tmp_path, scenario)


def test_an_idempotent_producer(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("t", [1])

        def numbered(sequence: int, **raw: Any) -> bytes:
            return batch(producer_id=7, producer_epoch=0, base_sequence=sequence, **raw)

        assert (await produce(broker, "t", numbered(0), version=12)).base_offset == 0
        assert (await produce(broker, "t", numbered(1), version=12)).base_offset == 1
        repeated = await produce(broker, "t", numbered(0), version=12)
        assert (repeated.error_code, repeated.base_offset) == (NONE, 0)
        answer = await produce(broker, "t", numbered(5), version=12)
        assert answer.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        answer = await produce(broker, "t", numbered(2, attributes=TRANSACTIONAL), version=12)
        assert answer.error_code == INVALID_TXN_STATE
        (id,) = broker.manager.partitions
        assert broker.partition(id).local_log.end_offset == 2

    run(tmp_path, scenario)


def test_a_repeated_batch_has_the_time_of_the_first_one(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        await cluster.create("now", [1], configs={"message.timestamp.type": "LogAppendTime"})
        numbered = batch(producer_id=7, producer_epoch=0, base_sequence=0)
        first = await produce(cluster[1], "now", numbered, version=12)
        await asyncio.sleep(0.005)
        repeated = await produce(cluster[1], "now", numbered, version=12)
        assert repeated.base_offset == 0
        assert repeated.log_append_time_ms == first.log_append_time_ms > 0

    run(tmp_path, scenario)


def test_acks(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("t", [1])
        for acks in (2, -2):
            answer = await produce(broker, "t", acks=acks, version=12)
            assert answer.error_code == INVALID_REQUIRED_ACKS
        for acks in (1, -1):
            assert (await produce(broker, "t", acks=acks, version=12)).error_code == NONE
        data = TopicProduceData("t", partition_data=[PartitionProduceData(0, batch())])
        silent = ProduceRequestData(None, 0, 1_000, [data])
        assert await broker.reply(PRODUCE, 12, silent.encode(12)) == b""
        (id,) = broker.manager.partitions
        assert broker.partition(id).local_log.end_offset == 3
        data.name = "nowhere"
        with pytest.raises(KraftError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await broker.reply(PRODUCE, 12, silent.encode(12))

    run(tmp_path, scenario)


def test_internal_topics_are_not_for_clients(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("__consumer_offsets", [1])
        answer = await produce(broker, "__consumer_offsets", version=12)
        assert answer.error_code == INVALID_TOPIC_EXCEPTION
        answer = await produce(broker, "__consumer_offsets", version=12, client_id="__admin_client")
        assert answer.error_code == NONE

    run(tmp_path, scenario)


def test_writing_needs_write(tmp_path: Path) -> None:
    authorizer = allowing((AclOperation.WRITE, ResourceType.TOPIC, "mine"))

    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        mine = await cluster.create("mine", [1])
        other = await cluster.create("other", [1])
        for version in (12, 13):
            for name, topic_id, error in (
                ("mine", mine, NONE),
                ("other", other, TOPIC_AUTHORIZATION_FAILED),
            ):
                answer = await produce(
                    broker, name, topic_id=topic_id, version=version, principal=ALICE
                )
                assert answer.error_code == error
        # Whether a topic exists is not shown.
        answer = await produce(broker, "nowhere", version=12, principal=ALICE)
        assert answer.error_code == TOPIC_AUTHORIZATION_FAILED

    run(tmp_path, scenario, authorizer=authorizer)


def test_a_follower_names_the_leader(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [2, 1])
        data = TopicProduceData("t", topic_id, [PartitionProduceData(0, batch())])
        request = ProduceRequestData(None, 1, 1_000, [data])
        for version in (9, 10, 13):
            response = await cluster[1].ask(PRODUCE, request, ProduceResponseData, version)
            (answer,) = response.responses[0].partition_responses
            assert answer.error_code == NOT_LEADER_OR_FOLLOWER
            if version < 10:
                assert response.node_endpoints == []
                continue
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 0)
            (node,) = response.node_endpoints
            assert (node.node_id, node.host, node.port) == (2, "host-2", 9092)

    run(tmp_path, scenario, 1, 2)


def test_a_leader_that_is_replaced_names_the_new_one_to_waiting_producers(tmp_path: Path) -> None:
    """KafkaApis.getCurrentLeader: the leader of the time of the answer, not of the request."""

    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1, 2])
        cluster.links.silent.add((2, 1))
        data = TopicProduceData("t", topic_id, [PartitionProduceData(0, batch())])
        request = ProduceRequestData(None, -1, 60_000, [data])
        waiting = asyncio.ensure_future(cluster[1].ask(PRODUCE, request, ProduceResponseData))
        await until(lambda: cluster[1].partition(cluster[1].id_of("t")).local_log.end_offset == 1)
        assert not waiting.done()
        cluster.fence(1)
        response = await waiting
        (answer,) = response.responses[0].partition_responses
        assert answer.error_code == NOT_LEADER_OR_FOLLOWER
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
        assert [node.host for node in response.node_endpoints] == ["host-2"]

    run(tmp_path, scenario, 1, 2)
