"""Fetch: versions, sessions, authorization, followers, errors, limits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kraft._core.bytes.batch_records import iterate
from kraft.broker.apis.fetch import FetchApi
from kraft.broker.config import BrokerSettings
from kraft.broker.log_upkeep import LogUpkeep
from kraft.controller.runtime import requests
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import (
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.fetch import (
    FETCH,
    FetchedPartitionData,
    FetchRequestData,
    FetchResponseData,
)
from kraft.records import Uuid
from kraft.security.controller_apis import CLUSTER_NAME
from tests.harness.data_brokers import DataBroker, DataCluster, until
from tests.harness.data_requests import (
    ALICE,
    allowing,
    batch,
    fetch,
    fetch_request,
    produce,
    run,
)

VERSIONS = range(FETCH.lowest, FETCH.highest + 1)


def values(fetched: FetchedPartitionData) -> list[bytes | None]:
    assert isinstance(fetched.records, memoryview)
    return [record.value for each in iterate(fetched.records) for record in each]


async def ask(
    broker: DataBroker, request: FetchRequestData, version: int = FETCH.highest
) -> FetchResponseData:
    return await broker.ask(FETCH, request, FetchResponseData, version)


def test_every_version_reads(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        topic_id = await cluster.create("t", [1])
        for value in (b"a", b"b", b"c"):
            await produce(broker, "t", batch(value), version=12)
        for version in VERSIONS:
            fetched = await fetch(broker, "t", 1, topic_id=topic_id, version=version)
            assert values(fetched) == [b"b", b"c"]
            assert fetched.high_watermark == fetched.last_stable_offset == 3
            assert fetched.log_start_offset == (0 if version >= 5 else -1)
            assert fetched.aborted_transactions is None
        committed = await fetch(broker, "t", 1, topic_id=topic_id, isolation_level=1)
        assert committed.aborted_transactions == []
        at_end = await fetch(broker, "t", 3, topic_id=topic_id)
        assert (at_end.error_code, at_end.records) == (NONE, b"")

    run(tmp_path, scenario)


def test_what_does_not_exist(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        topic_id = await cluster.create("t", [1])
        for version in (4, 12):
            fetched = await fetch(broker, "nowhere", version=version)
            assert fetched.error_code == UNKNOWN_TOPIC_OR_PARTITION
            assert (fetched.high_watermark, fetched.records) == (-1, b"")
        assert (await fetch(broker, "t", partition=5, version=12)).error_code == (
            UNKNOWN_TOPIC_OR_PARTITION
        )
        unknown = await fetch(broker, "", topic_id=Uuid(b"x" * 16))
        assert unknown.error_code == UNKNOWN_TOPIC_ID
        beyond = await fetch(broker, "t", 7, topic_id=topic_id)
        assert (beyond.error_code, beyond.high_watermark) == (OFFSET_OUT_OF_RANGE, -1)
        fenced = await fetch(broker, "t", topic_id=topic_id, epoch=-2)
        assert fenced.error_code == FENCED_LEADER_EPOCH

    run(tmp_path, scenario)


def test_the_limits_of_a_request(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        topic_id = await cluster.create("t", [1])
        for _ in range(4):
            await produce(broker, "t", batch(bytes(1000)), version=12)
        small = await fetch(broker, "t", topic_id=topic_id, partition_max_bytes=10)
        assert len(values(small)) == 1
        some = await fetch(broker, "t", topic_id=topic_id, max_bytes=2_500)
        assert len(values(some)) == 2
        broker.apis[FETCH.key] = FetchApi(broker, max_bytes=2_500)
        assert len(values(await fetch(broker, "t", topic_id=topic_id))) == 2

    run(tmp_path, scenario)


def test_a_request_waits_for_min_bytes(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        topic_id = await cluster.create("t", [1])
        waiting = asyncio.ensure_future(
            fetch(broker, "t", topic_id=topic_id, max_wait_ms=10_000, min_bytes=200)
        )
        for expected in (1, 2):
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await produce(broker, "t", batch(bytes(60)), version=12)
            assert len(broker.content(next(iter(broker.manager.partitions)))) > 100 * expected
        assert len(values(await waiting)) == 2

    run(tmp_path, scenario)


def test_a_session_names_only_what_changed(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        topic_id = await cluster.create("t", [1])
        for end, version in enumerate((7, 12, 13, 18)):
            begin = fetch_request("t", end, topic_id=topic_id, version=version, session_epoch=0)
            first = await ask(broker, begin, version)
            assert first.session_id > 0
            more = FetchRequestData(session_id=first.session_id, session_epoch=1)
            assert (await ask(broker, more, version)).responses == []
            await produce(broker, "t", version=12)
            more.session_epoch = 2
            (topic,) = (await ask(broker, more, version)).responses
            assert (topic.topic, topic.topic_id) == (
                ("t", topic.topic_id) if version < 13 else ("", topic_id)
            )
            assert values(topic.partitions[0])[-1] == b"value"
            more.session_epoch = 7
            assert (await ask(broker, more, version)).error_code != NONE
            more.session_id = 12345
            assert (await ask(broker, more, version)).error_code == FETCH_SESSION_ID_NOT_FOUND

    run(tmp_path, scenario)


def test_a_session_tells_the_log_start_that_retention_has_raised(tmp_path: Path) -> None:
    settings = BrokerSettings(log_retention_check_interval_ms=10, log_cleaner_enable=False)
    configs = {"segment.bytes": "1048576", "retention.bytes": "1048576"}

    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        driver = broker.driver
        topic_id = await cluster.create("t", [1], configs=configs)
        for _ in range(4):
            await produce(broker, "t", batch(bytes(600_000)), topic_id=topic_id)
        begin = fetch_request("t", 4, topic_id=topic_id, session_epoch=0)
        first = await ask(broker, begin)
        assert first.responses[0].partitions[0].log_start_offset == 0
        more = FetchRequestData(session_id=first.session_id, session_epoch=1)
        assert (await ask(broker, more)).responses == []
        upkeep = LogUpkeep(
            broker.logs, settings, driver.note_high_watermarks, driver.start_offsets_changed
        )
        upkeep.start()
        found: list[int] = []
        while not found:
            await asyncio.sleep(0.01)
            more.session_epoch += 1
            for topic in (await ask(broker, more)).responses:
                found.append(topic.partitions[0].log_start_offset)
        assert found[0] > 0
        await upkeep.close()

    run(tmp_path, scenario)


def test_an_unknown_name_ends_the_session(tmp_path: Path) -> None:
    """It has no id, so the session could not tell when the topic is there."""

    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("t", [1])
        begin = fetch_request("t", version=12, session_epoch=0)
        first = await ask(broker, begin, 12)
        more = fetch_request("nowhere", version=12, session_id=first.session_id, session_epoch=1)
        response = await ask(broker, more, 12)
        assert response.session_id == 0
        (topic,) = response.responses
        assert (topic.topic, topic.partitions[0].error_code) == (
            "nowhere",
            UNKNOWN_TOPIC_OR_PARTITION,
        )
        more.session_epoch = 2
        assert (await ask(broker, more, 12)).error_code == NONE

    run(tmp_path, scenario)


def test_a_deleted_topic_in_a_session(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        topic_id = await cluster.create("t", [1])
        by_name = await ask(broker, fetch_request("t", version=12, session_epoch=0), 12)
        by_id = await ask(broker, fetch_request("", topic_id=topic_id, session_epoch=0))
        cluster.ask(requests.delete_topics([TopicToDelete("t")]))
        await cluster.settle()
        more = FetchRequestData(session_id=by_name.session_id, session_epoch=1)
        assert (await ask(broker, more, 12)).error_code == FETCH_SESSION_ID_NOT_FOUND
        more = FetchRequestData(session_id=by_id.session_id, session_epoch=1)
        (topic,) = (await ask(broker, more)).responses
        assert topic.partitions[0].error_code == UNKNOWN_TOPIC_ID

    run(tmp_path, scenario)


def test_reading_needs_read(tmp_path: Path) -> None:
    authorizer = allowing((AclOperation.READ, ResourceType.TOPIC, "mine"))

    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        ids = {name: await cluster.create(name, [1]) for name in ("mine", "other")}
        sender = {"principal": ALICE}
        for version in (4, 12, 13, 18):
            for name, error in (("mine", NONE), ("other", TOPIC_AUTHORIZATION_FAILED)):
                fetched = await fetch(
                    broker, name, topic_id=ids[name], version=version, sender=sender
                )
                assert fetched.error_code == error
        unknown = await fetch(broker, "nowhere", version=12, sender=sender)
        assert unknown.error_code == TOPIC_AUTHORIZATION_FAILED

    run(tmp_path, scenario, authorizer=authorizer)


def test_a_session_is_checked_in_every_request(tmp_path: Path) -> None:
    authorizer = allowing((AclOperation.READ, ResourceType.TOPIC, "t"))

    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        topic_id = await cluster.create("t", [1])
        request = fetch_request("t", topic_id=topic_id, session_epoch=0)
        first = await broker.ask(FETCH, request, FetchResponseData, principal=ALICE)
        assert first.responses[0].partitions[0].error_code == NONE
        authorizer.set_acl(Uuid(bytes(16)), None)
        more = FetchRequestData(session_id=first.session_id, session_epoch=1)
        second = await broker.ask(FETCH, more, FetchResponseData, principal=ALICE)
        assert second.responses[0].partitions[0].error_code == TOPIC_AUTHORIZATION_FAILED

    run(tmp_path, scenario, authorizer=authorizer)


def test_followers_need_cluster_action(tmp_path: Path) -> None:
    authorizer = allowing(
        (AclOperation.WRITE, ResourceType.TOPIC, "t"),
        (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME),
    )

    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        topic_id = await cluster.create("t", [1, 2])
        cluster.links.cut.add((2, 1))
        await produce(broker, "t", acks=1, topic_id=topic_id, principal=ALICE)
        fields: dict[str, Any] = {"topic_id": topic_id, "replica": 2, "epoch": 0}
        for version in (14, 15, 18):
            fetched = await fetch(
                broker, "t", version=version, sender={"principal": ALICE}, **fields
            )
            assert (fetched.error_code, fetched.high_watermark) == (NONE, 0)
            assert values(fetched) == [b"value"]
        authorizer.set_acl(Uuid(bytes([1] * 16)), None)
        denied = await fetch(broker, "t", sender={"principal": ALICE}, **fields)
        assert denied.error_code == TOPIC_AUTHORIZATION_FAILED

    run(tmp_path, scenario, 1, 2, authorizer=authorizer)


def test_a_leader_that_is_replaced_names_the_new_one_to_waiting_consumers(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1, 2])
        request = fetch_request("t", topic_id=topic_id, epoch=0, max_wait_ms=60_000)
        waiting = asyncio.ensure_future(ask(cluster[1], request))
        await until(lambda: cluster[1].manager.fetches.waiting.count > 0)
        cluster.fence(1)
        response = await waiting
        (fetched,) = response.responses[0].partitions
        assert fetched.error_code == FENCED_LEADER_EPOCH
        assert (fetched.current_leader.leader_id, fetched.current_leader.leader_epoch) == (2, 1)
        assert [node.host for node in response.node_endpoints] == ["host-2"]

    run(tmp_path, scenario, 1, 2)


def test_a_wrong_broker_names_the_leader(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [2])
        for version in (11, 12, 15, 16, 18):
            request = fetch_request("t", topic_id=topic_id, version=version)
            response = await ask(cluster[1], request, version)
            (fetched,) = response.responses[0].partitions
            assert fetched.error_code == NOT_LEADER_OR_FOLLOWER
            assert fetched.current_leader.leader_id == (2 if version >= 16 else -1)
            assert [node.host for node in response.node_endpoints] == (
                ["host-2"] if version >= 16 else []
            )

    run(tmp_path, scenario, 1, 2)
