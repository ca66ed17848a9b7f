"""DescribeLogDirs, DescribeProducers and InitProducerId: versions, errors, authorization."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kraft.broker.apis import init_producer_id
from kraft.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
    StorageError,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequestData,
    DescribeLogDirsResponseData,
)
from kraft.protocol.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequestData,
    DescribeProducersResponseData,
    DescribeProducersTopic,
)
from kraft.protocol.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequestData,
    InitProducerIdResponseData,
)
from kraft.security.controller_apis import CLUSTER_NAME
from tests.harness.data_brokers import CONTROLLER, DataBroker, DataCluster, until
from tests.harness.data_requests import ALICE, allowing, batch, produce, run

# -- DescribeLogDirs


async def log_dirs(
    broker: DataBroker, topics: list[DescribableLogDirTopic] | None = None, version: int = 5
) -> DescribeLogDirsResponseData:
    request = DescribeLogDirsRequestData(topics)
    return await broker.ask(DESCRIBE_LOG_DIRS, request, DescribeLogDirsResponseData, version)


def test_log_directories_and_the_sizes_of_partitions(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("a", [1], [1])
        await cluster.create("b", [1])
        await produce(broker, "b", version=12)
        for version in range(DESCRIBE_LOG_DIRS.lowest, DESCRIBE_LOG_DIRS.highest + 1):
            response = await log_dirs(broker, version=version)
            assert len(response.results) == 2
            found = {
                (topic.name, each.partition_index): (each.partition_size, each.offset_lag)
                for result in response.results
                for topic in result.topics
                for each in topic.partitions
            }
            size = len(broker.content(broker.id_of("b")))
            assert found == {("a", 0): (0, 0), ("a", 1): (0, 0), ("b", 0): (size, 0)}
            for result in response.results:
                assert result.error_code == NONE
                assert (result.total_bytes > result.usable_bytes > 0) == (version >= 4)
        some = await log_dirs(broker, [DescribableLogDirTopic("a", [1, 7])])
        assert [
            (topic.name, [each.partition_index for each in topic.partitions])
            for result in some.results
            for topic in result.topics
        ] == [("a", [1])]

    run(tmp_path, scenario, directories=2)


def test_a_failed_directory_is_described_as_failed(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("a", [1], [1])
        failed = broker.logs.directories[0]
        failed.fail(StorageError("a failing disk"))
        response = await log_dirs(broker)
        assert [result.error_code for result in response.results] == [KAFKA_STORAGE_ERROR, NONE]
        assert response.results[0].topics == []
        # The replicas in it are offline, the others serve on.
        await until(lambda: any(each.log is None for each in broker.manager.partitions.values()))
        answers = [(await produce(broker, "a", partition=each, version=12)) for each in (0, 1)]
        assert sorted(each.error_code for each in answers) == [NONE, KAFKA_STORAGE_ERROR]

    run(tmp_path, scenario, directories=2)


def test_log_directories_need_describe_on_the_cluster(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        for version, error in ((2, NONE), (3, CLUSTER_AUTHORIZATION_FAILED)):
            response = await log_dirs(cluster[1], version=version)
            assert (response.error_code, response.results) == (error, [])

    run(tmp_path, scenario, authorizer=allowing())


# -- DescribeProducers


async def producers(broker: DataBroker, name: str, **sender: Any) -> tuple[int, list[Any]]:
    request = DescribeProducersRequestData([DescribeProducersTopic(name, [0])])
    response = await broker.ask(
        DESCRIBE_PRODUCERS, request, DescribeProducersResponseData, **sender
    )
    (described,) = response.topics[0].partitions
    return described.error_code, described.active_producers


def test_the_producers_of_a_partition(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        await cluster.create("t", [1, 2])
        numbered = batch(b"1", b"2", producer_id=7, producer_epoch=3, base_sequence=0)
        await produce(cluster[1], "t", numbered, version=12)
        error, active = await producers(cluster[1], "t")
        (one,) = active
        assert (error, one.producer_id, one.producer_epoch, one.last_sequence) == (NONE, 7, 3, 1)
        assert one.last_timestamp > 0
        assert one.current_txn_start_offset == -1
        assert await producers(cluster[2], "t") == (NOT_LEADER_OR_FOLLOWER, [])
        assert await producers(cluster[1], "nowhere") == (UNKNOWN_TOPIC_OR_PARTITION, [])

    run(tmp_path, scenario, 1, 2)


def test_producers_need_read(tmp_path: Path) -> None:
    authorizer = allowing((AclOperation.READ, ResourceType.TOPIC, "mine"))

    async def scenario(cluster: DataCluster) -> None:
        for name, error in (("mine", NONE), ("other", TOPIC_AUTHORIZATION_FAILED)):
            await cluster.create(name, [1])
            assert await producers(cluster[1], name, principal=ALICE) == (error, [])

    run(tmp_path, scenario, authorizer=authorizer)


# -- InitProducerId


async def init(
    broker: DataBroker, version: int = 5, sender: dict[str, Any] | None = None, **fields: Any
) -> InitProducerIdResponseData:
    request = InitProducerIdRequestData(
        fields.pop("transactional_id", None), transaction_timeout_ms=60_000, **fields
    )
    return await broker.ask(
        INIT_PRODUCER_ID, request, InitProducerIdResponseData, version, **(sender or {})
    )


def test_ids_are_given_once(tmp_path: Path) -> None:
    """Blocks have 1000 ids; the next one is asked for ahead."""

    async def scenario(cluster: DataCluster) -> None:
        asked = {broker: (broker, CONTROLLER, "AllocateProducerIds") for broker in (1, 2)}
        ids = [(await init(cluster[1], version)).producer_id for version in range(6)]
        ids += [(await init(cluster[2])).producer_id]
        assert cluster.links.carried.count(asked[1]) == 1
        for _ in range(893):
            ids.append((await init(cluster[1])).producer_id)
        assert cluster.links.carried.count(asked[1]) == 1
        ids += [(await init(cluster[1])).producer_id for _ in range(2)]
        await until(lambda: cluster.links.carried.count(asked[1]) == 2)
        many = await asyncio.gather(*(init(cluster[1]) for _ in range(1500)))
        ids += [each.producer_id for each in many]
        assert {each.error_code for each in many} == {NONE}
        assert len(set(ids)) == len(ids)

    run(tmp_path, scenario, 1, 2)


def test_a_producer_gets_a_new_id_whatever_it_had(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        response = await init(cluster[1], producer_id=77, producer_epoch=3)
        assert (response.error_code, response.producer_epoch) == (NONE, 0)
        assert response.producer_id != 77
        response = await init(cluster[1], producer_id=77)
        assert (response.error_code, response.producer_id) == (INVALID_REQUEST, -1)

    run(tmp_path, scenario)


def test_there_are_no_transactions(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        response = await init(cluster[1], transactional_id="mine")
        assert (response.error_code, response.producer_id) == (UNSUPPORTED_VERSION, -1)

    run(tmp_path, scenario)


def test_without_a_controller_the_client_asks_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(init_producer_id, "MAX_WAIT_MS", 20.0)

    async def scenario(cluster: DataCluster) -> None:
        cluster.links.cut.add((1, CONTROLLER))
        assert (await init(cluster[1])).error_code == COORDINATOR_LOAD_IN_PROGRESS
        cluster.links.cut.clear()
        monkeypatch.setattr(init_producer_id, "MAX_WAIT_MS", 5_000.0)
        assert (await init(cluster[1])).error_code == NONE

    run(tmp_path, scenario)


def test_idempotent_producers_may_write_idempotently_or_to_any_topic(tmp_path: Path) -> None:
    write = (AclOperation.WRITE, ResourceType.TOPIC, "some")
    idempotent = (AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    for number, (rules, error) in enumerate(
        (((write,), NONE), ((idempotent,), NONE), ((), CLUSTER_AUTHORIZATION_FAILED))
    ):

        async def scenario(cluster: DataCluster, expected: int = error) -> None:
            response = await init(cluster[1], sender={"principal": ALICE})
            assert response.error_code == expected

        run(tmp_path / str(number), scenario, authorizer=allowing(*rules))
