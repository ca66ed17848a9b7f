"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords in their versions, with authorization."""

from __future__ import annotations

from pathlib import Path

from kraft.errors import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequestData,
    DeleteRecordsResponseData,
    DeleteRecordsTopic,
)
from kraft.protocol.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequestData,
    ListOffsetsResponseData,
    ListOffsetsTopic,
)
from kraft.protocol.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequestData,
    OffsetForLeaderEpochResponseData,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraft.security.controller_apis import CLUSTER_NAME
from kraft.server.driver import now_ms
from tests.harness.data_brokers import DataBroker, DataCluster
from tests.harness.data_requests import (
    ALICE,
    allowing,
    batch,
    list_offset,
    produce,
    run,
)

LATEST, EARLIEST, LARGEST_TIME = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6


# -- ListOffsets


def test_offsets_in_every_version(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("t", [1])
        start_ms = int(now_ms()) - 10_000
        for number in range(3):
            await produce(broker, "t", batch(time_ms=start_ms + 100 * number), version=12)
        for version in range(LIST_OFFSETS.lowest, LIST_OFFSETS.highest + 1):
            for timestamp, offset, found_ms in (
                (LATEST, 3, -1),
                (EARLIEST, 0, -1),
                (start_ms + 1, 1, start_ms + 100),
                (start_ms + 200, 2, start_ms + 200),
                (start_ms + 201, -1, -1),
            ):
                listed = await list_offset(broker, "t", timestamp, version=version)
                assert (listed.error_code, listed.offset) == (NONE, offset)
                assert listed.timestamp == found_ms
                known = version >= 4 and offset >= 0
                assert listed.leader_epoch == (0 if known else -1)

    run(tmp_path, scenario)


def test_timestamps_with_a_meaning_have_a_first_version(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("t", [1])
        await produce(broker, "t", version=12)
        for timestamp, first, offset in (
            (LARGEST_TIME, 7, 0),
            (EARLIEST_LOCAL, 8, 0),
            (LATEST_TIERED, 9, -1),
            (EARLIEST_PENDING_UPLOAD, 11, -1),
        ):
            before = await list_offset(broker, "t", timestamp, version=first - 1)
            assert before.error_code == UNSUPPORTED_VERSION
            listed = await list_offset(broker, "t", timestamp, version=first)
            assert (listed.error_code, listed.offset) == (NONE, offset)
        listed = await list_offset(broker, "t", -7)
        assert listed.error_code == UNSUPPORTED_VERSION

    run(tmp_path, scenario)


def test_consumers_see_the_high_watermark_and_followers_the_end(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        await cluster.create("t", [1, 2])
        cluster.links.cut.add((2, 1))
        await produce(cluster[1], "t", acks=1, version=12)
        assert (await list_offset(cluster[1], "t", LATEST)).offset == 0
        assert (await list_offset(cluster[1], "t", LATEST, replica=2)).offset == 1
        listed = await list_offset(cluster[2], "t", LATEST)
        assert listed.error_code == NOT_LEADER_OR_FOLLOWER

    run(tmp_path, scenario, 1, 2)


def test_a_new_leader_does_not_know_the_end_yet(tmp_path: Path) -> None:
    """KIP-207; clients before version 5 do not know the error."""

    async def scenario(cluster: DataCluster) -> None:
        await cluster.create("t", [1, 2, 3])
        cluster.links.cut |= {(2, 1), (3, 1), (1, 2), (1, 3), (2, 3), (3, 2)}
        for broker in (2, 3):
            log = next(iter(cluster[broker].manager.partitions.values())).local_log
            # The record arrived, and its leader went away before it said so.
            log.append_as_follower(_stored(batch()))
        cluster.fence(1)
        await cluster.settle()
        id = next(iter(cluster[1].manager.partitions))
        leader = cluster[cluster.state_of(id)["leader"]]
        listed = await list_offset(leader, "t", LATEST)
        assert listed.error_code == OFFSET_NOT_AVAILABLE
        listed = await list_offset(leader, "t", LATEST, version=4)
        assert listed.error_code == LEADER_NOT_AVAILABLE
        assert (await list_offset(leader, "t", EARLIEST)).error_code == NONE

    run(tmp_path, scenario, 1, 2, 3)


def _stored(data: bytes) -> bytes:
    """Return a batch as the log of a leader of epoch 0 has it at offset 0."""
    stored = bytearray(data)
    stored[12:16] = bytes(4)
    return bytes(stored)


def test_requests_for_wrong_partitions(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("t", [1])
        listed = await list_offset(broker, "nowhere", LATEST)
        assert listed.error_code == UNKNOWN_TOPIC_OR_PARTITION
        listed = await list_offset(broker, "t", LATEST, partition=4)
        assert listed.error_code == UNKNOWN_TOPIC_OR_PARTITION
        listed = await list_offset(broker, "t", LATEST, epoch=3)
        assert listed.error_code == UNKNOWN_LEADER_EPOCH
        twice = [ListOffsetsPartition(0, timestamp=LATEST)] * 2
        request = ListOffsetsRequestData(-1, topics=[ListOffsetsTopic("t", twice)])
        response = await broker.ask(LIST_OFFSETS, request, ListOffsetsResponseData)
        assert [each.error_code for each in response.topics[0].partitions] == [INVALID_REQUEST] * 2

    run(tmp_path, scenario)


def test_listing_needs_describe(tmp_path: Path) -> None:
    # READ implies DESCRIBE.
    authorizer = allowing((AclOperation.READ, ResourceType.TOPIC, "mine"))

    async def scenario(cluster: DataCluster) -> None:
        for name, error in (
            ("mine", NONE),
            ("other", TOPIC_AUTHORIZATION_FAILED),
            ("nowhere", TOPIC_AUTHORIZATION_FAILED),
        ):
            if name != "nowhere":
                await cluster.create(name, [1])
            listed = await list_offset(cluster[1], name, LATEST, principal=ALICE)
            assert listed.error_code == error

    run(tmp_path, scenario, authorizer=authorizer)


# -- OffsetForLeaderEpoch


async def epoch_end(
    broker: DataBroker, name: str, epoch: int, current: int = -1, version: int = 4, **sender: object
) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(0, current, epoch)
    request = OffsetForLeaderEpochRequestData(-1, [OffsetForLeaderTopic(name, [asked])])
    if version < 3:
        request.replica_id = -2
    response = await broker.ask(
        OFFSET_FOR_LEADER_EPOCH,
        request,
        OffsetForLeaderEpochResponseData,
        version,
        **sender,
    )
    ((end,),) = ([*topic.partitions] for topic in response.topics)
    return end.error_code, end.leader_epoch, end.end_offset


def test_ends_of_epochs(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await cluster.create("t", [1])
        await produce(broker, "t", version=12)
        cluster.fence(1)
        cluster.beat(1)
        await cluster.settle()
        await produce(broker, "t", version=12)
        epoch = broker.partition(next(iter(broker.manager.partitions))).leader_epoch
        assert epoch > 0
        for version in (2, 3, 4):
            assert await epoch_end(broker, "t", 0, version=version) == (NONE, 0, 1)
            assert await epoch_end(broker, "t", epoch, epoch, version) == (NONE, epoch, 2)
        assert await epoch_end(broker, "t", epoch + 1) == (NONE, -1, -1)
        assert (await epoch_end(broker, "t", 0, 0))[0] == FENCED_LEADER_EPOCH
        assert (await epoch_end(broker, "nowhere", 0))[0] == UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_ends_of_epochs_need_describe_or_cluster_action(tmp_path: Path) -> None:
    rules = (
        (AclOperation.DESCRIBE, ResourceType.TOPIC, "mine"),
        (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME),
    )
    for number, rule in enumerate(rules):

        async def scenario(cluster: DataCluster, *, is_broker: bool = bool(number)) -> None:
            for name in ("mine", "other"):
                await cluster.create(name, [1])
                allowed = is_broker or name == "mine"
                end = await epoch_end(cluster[1], name, 0, principal=ALICE)
                assert end[0] == (NONE if allowed else TOPIC_AUTHORIZATION_FAILED)

        run(tmp_path / str(number), scenario, authorizer=allowing(rule))


# -- DeleteRecords


async def delete(
    broker: DataBroker, name: str, offset: int, version: int = 2, **sender: object
) -> tuple[int, int]:
    topic = DeleteRecordsTopic(name, [DeleteRecordsPartition(0, offset)])
    response = await broker.ask(
        DELETE_RECORDS,
        DeleteRecordsRequestData([topic], 5_000),
        DeleteRecordsResponseData,
        version,
        **sender,
    )
    (result,) = response.topics[0].partitions
    return result.error_code, result.low_watermark


def test_records_are_deleted_on_all_replicas(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        await cluster.create("t", [1, 2])
        for _ in range(4):
            await produce(cluster[1], "t", version=12)
        for version, offset in ((0, 1), (1, 2), (2, 3)):
            assert await delete(cluster[1], "t", offset, version) == (NONE, offset)
            for broker in (1, 2):
                (partition,) = cluster[broker].manager.partitions.values()
                assert partition.local_log.start_offset == offset
        assert await delete(cluster[1], "t", 9) == (OFFSET_OUT_OF_RANGE, -1)
        assert (await delete(cluster[2], "t", 4))[0] == NOT_LEADER_OR_FOLLOWER
        assert await delete(cluster[1], "t", -1) == (NONE, 4)
        assert (await list_offset(cluster[1], "t", EARLIEST)).offset == 4

    run(tmp_path, scenario, 1, 2)


def test_records_that_may_not_be_deleted(tmp_path: Path) -> None:
    authorizer = allowing(
        *(
            (AclOperation.DELETE, ResourceType.TOPIC, name)
            for name in ("compacted", "__consumer_offsets", "nowhere")
        )
    )

    async def scenario(cluster: DataCluster) -> None:
        await cluster.create("compacted", [1], configs={"cleanup.policy": "compact"})
        await cluster.create("__consumer_offsets", [1])
        await cluster.create("other", [1])
        for name, error in (
            ("compacted", POLICY_VIOLATION),
            ("__consumer_offsets", INVALID_TOPIC_EXCEPTION),
            ("other", TOPIC_AUTHORIZATION_FAILED),
            ("nowhere", UNKNOWN_TOPIC_OR_PARTITION),
        ):
            assert await delete(cluster[1], name, 0, principal=ALICE) == (error, -1)

    run(tmp_path, scenario, authorizer=authorizer)
