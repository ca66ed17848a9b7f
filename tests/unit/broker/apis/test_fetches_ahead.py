"""Fetches that the data loop answers ahead == fetches that the broker answers, byte by byte.

A client's connection and the API beside it are asked the same, while records come, segments are
rolled and removed, records are deleted, topics end and leaders change. A client with a session has
a twin with another session, which asks the API alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest

from kraft._core.bytes.batch_records import iterate
from kraft.broker.log.partition_log import PartitionLog
from kraft.controller.runtime import requests
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
)
from kraft.network.data_connection import DataConnection
from kraft.network.data_loop import data_listener_type
from kraft.network.handler import HandlerAnswer
from kraft.network.listener import Limits, Listener
from kraft.network.server_connection import accept_connection
from kraft.network.throttled_log import ThrottledLog
from kraft.network.traffic import Traffic
from kraft.protocol.api_versions import NodeFeatures
from kraft.protocol.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequestData,
    DeleteRecordsResponseData,
    DeleteRecordsTopic,
)
from kraft.protocol.fetch import (
    FETCH,
    FetchPartitionData,
    FetchRequestData,
    FetchResponseData,
    FetchTopicData,
)
from kraft.protocol.headers import read_response_header, request_frame
from kraft.raft.voters import Endpoint
from kraft.records import Uuid
from kraft.security.authorizer import Authorizer, AuthorizerSettings
from kraft.server.apis.api import handler_of
from kraft.server.driver import now_ms
from tests.harness.data_brokers import LISTENER, DataBroker, DataCluster, until
from tests.harness.data_requests import batch, fetch_request, produce, run

pytestmark = pytest.mark.skipif(data_listener_type() is None, reason="needs a data loop")


class Consumer:
    """A client's connection to a broker; each response must be the one of the API itself."""

    def __init__(
        self,
        broker: DataBroker,
        listener: Listener,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.broker = broker
        self.listener = listener
        self._reader, self._writer = reader, writer
        self.sent = 0
        self.record_bytes = 0
        #: How many requests have reached the handler.
        self.asked = 0

    def close(self) -> None:
        self._writer.close()

    async def fetch(
        self, request: FetchRequestData, version: int = FETCH.highest, *, is_compared: bool = True
    ) -> FetchResponseData:
        """Fetch from the connection; check that the API answers the same."""
        frame, body_at = await self._ask(request, version)
        if is_compared:
            assert frame[body_at:] == await self.broker.reply(
                FETCH, version, request.encode(version)
            )
        return self._decoded(frame, version, body_at)

    async def fetch_in_session(
        self, request: FetchRequestData, version: int, twin_id: int
    ) -> tuple[FetchResponseData, int]:
        """Fetch in a session; check that the API answers the twin, with this id, the same.

        Return the response, and the id of the twin's session.
        """
        frame, body_at = await self._ask(request, version)
        of_twin = FetchRequestData.decode(request.encode(version), version)
        of_twin.session_id = twin_id
        body = await self.broker.reply(FETCH, version, of_twin.encode(version))
        response = FetchResponseData.decode(body, version)
        twin_id = response.session_id
        found = self._decoded(frame, version, body_at)
        response.session_id = found.session_id
        assert frame[body_at:] == response.encode(version)
        return found, twin_id

    async def _ask(self, request: FetchRequestData, version: int) -> tuple[bytes, int]:
        """Return the response, and the position of its body."""
        self.sent += 1
        body = request.encode(version)
        self._writer.write(request_frame(FETCH, version, self.sent, "client", body))
        frame = await self._reader.readexactly(
            int.from_bytes(await self._reader.readexactly(4), "big")
        )
        correlation, body_at = read_response_header(frame, FETCH, version)
        assert correlation == self.sent
        return frame, body_at

    def _decoded(self, frame: bytes, version: int, body_at: int) -> FetchResponseData:
        response = FetchResponseData.decode(frame, version, body_at)
        for topic in response.responses:
            self.record_bytes += sum(len(each.records or b"") for each in topic.partitions)
        return response

    def count(self) -> int:
        """Return how many requests are counted, those that the loop answered too."""
        for one in list(self.listener.connections):
            assert isinstance(one, DataConnection)
            one.check_time(asyncio.get_running_loop().time())
        return self.listener.traffic.listeners[LISTENER].requests


@asynccontextmanager
async def consuming(cluster: DataCluster) -> AsyncIterator[Consumer]:
    """Serve broker 1 at a port; yield a client."""
    broker = cluster[1]
    traffic = Traffic()
    handler = handler_of(broker.apis[FETCH.key], cluster.authorizer, None, traffic.errors)
    client: Consumer

    async def counted(*request: Any) -> HandlerAnswer:
        client.asked += 1
        return await handler.answer(*request)

    listener = Listener(
        accept_connection,
        Limits(),
        lambda: NodeFeatures({}, {}, 0),
        {FETCH.key: handler._replace(answer=counted)},
        ThrottledLog(logging.getLogger(__name__), monotonic),
        {},
        traffic,
        data_listener=data_listener_type(),
    )
    (bound,) = await listener.start((Endpoint(LISTENER, "127.0.0.1", 0),))
    # A run ends at the second check of the connection's time.
    assert listener._sweep is not None
    listener._sweep.cancel()
    client = Consumer(broker, listener, *await asyncio.open_connection("127.0.0.1", bound.port))
    try:
        yield client
    finally:
        client.close()
        await listener.close()
        assert len(broker.manager.fetches.ahead) == 0


class Reading:
    """A consumer that reads a topic with one partition, small responses one after the other."""

    def __init__(self, consumer: Consumer, topic_id: Uuid, version: int = FETCH.highest) -> None:
        self.consumer = consumer
        self.topic_id = topic_id
        self.version = version
        self.position = 0

    async def once(self, **fields: Any) -> int:
        """Fetch and move on; return the error of the partition."""
        request = fetch_request(
            *("t", self.position),
            topic_id=self.topic_id,
            version=self.version,
            partition_max_bytes=1,
            **fields,
        )
        (topic,) = (await self.consumer.fetch(request, self.version)).responses
        (fetched,) = topic.partitions
        if fetched.records:
            assert isinstance(fetched.records, memoryview)
            self.position = [each.last_offset for each in iterate(fetched.records)][-1] + 1
        return fetched.error_code

    async def times(self, count: int) -> None:
        for _ in range(count):
            assert await self.once() == NONE


class SessionReading(Reading):
    """A reader in a session: as Java's consumer it names the partition where it has moved on."""

    session_id = twin_id = epoch = 0
    #: The position that the broker knows.
    _known = -1

    def next_request(self, **fields: Any) -> FetchRequestData:
        request = fetch_request(
            *("t", self.position),
            topic_id=self.topic_id,
            version=self.version,
            partition_max_bytes=1,
            session_id=self.session_id,
            session_epoch=self.epoch,
            **fields,
        )
        if self.epoch and self.position == self._known:
            request.topics = []
        self._known = self.position
        return request

    async def once(self, **fields: Any) -> int:
        response, self.twin_id = await self.consumer.fetch_in_session(
            self.next_request(**fields), self.version, self.twin_id
        )
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        if response.error_code:
            self.session_id = self.twin_id = self.epoch = 0
            return response.error_code
        for topic in response.responses:
            for fetched in topic.partitions:
                if fetched.error_code:
                    return fetched.error_code
                if fetched.records:
                    assert isinstance(fetched.records, memoryview)
                    last = [each.last_offset for each in iterate(fetched.records)][-1]
                    self.position = last + 1
        return NONE


class World:
    """What happens to the topic of a broker."""

    def __init__(self, cluster: DataCluster, consumer: Consumer, dice: Random) -> None:
        self.cluster = cluster
        self.broker = cluster[1]
        self.consumer = consumer
        self.dice = dice
        self.reading: Reading
        self.log: PartitionLog

    async def begin_topic(self) -> None:
        configs = {"retention.bytes": "20000"}
        topic_id = await self.cluster.create("t", [1], configs=configs)
        version = self.dice.choice((4, 7, 11, 12, 13, 18))
        kind = self.dice.choice((Reading, SessionReading)) if version >= 7 else Reading
        self.reading = kind(self.consumer, topic_id, version)
        log = self.broker.partition(self.broker.id_of("t")).local_log
        assert isinstance(log, PartitionLog)
        self.log = log
        await self.produce()

    async def read(self) -> None:
        fields = {"isolation_level": self.dice.choice((0, 0, 0, 1))}
        for _ in range(self.dice.randrange(1, 15)):
            error = await self.reading.once(**fields)
            if error:
                assert error == OFFSET_OUT_OF_RANGE
                self.reading.position = self.log.start_offset

    async def read_anywhere(self) -> None:
        self.reading.position = self.dice.choice(
            (self.log.start_offset, self.dice.randrange(self.log.end_offset + 2))
        )

    async def produce(self) -> None:
        for _ in range(self.dice.randrange(20, 80)):
            values = [bytes(self.dice.randrange(200))] * self.dice.randrange(1, 4)
            await produce(self.broker, "t", batch(*values), topic_id=self.reading.topic_id)

    async def roll(self) -> None:
        self.log.roll()

    async def remove_segments(self) -> None:
        self.broker.driver.note_high_watermarks()
        self.log.apply_retention(int(now_ms()))
        self.broker.driver.start_offsets_changed()

    async def delete_records(self) -> None:
        start, end = self.log.start_offset, self.log.end_offset
        offset = min(end, start + self.dice.randrange(20))
        asked = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])
        request = DeleteRecordsRequestData([asked], 5_000)
        await self.broker.ask(DELETE_RECORDS, request, DeleteRecordsResponseData)

    async def replace_topic(self) -> None:
        self.cluster.ask(requests.delete_topics([TopicToDelete("t")]))
        await self.cluster.settle()
        gone = self.reading
        version = 13 if gone.version < 13 else gone.version
        await Reading(self.consumer, gone.topic_id, version).once()
        await self.begin_topic()


STEPS = (
    *(World.read,) * 8,
    *(World.read_anywhere, World.produce, World.produce, World.roll),
    *(World.remove_segments, World.delete_records, World.replace_topic),
)


@pytest.mark.parametrize("seed", range(int(os.environ.get("FETCH_AHEAD_RUNS", "4"))))
def test_fetches_are_answered_as_without_answers_ahead(tmp_path: Path, seed: int) -> None:
    async def scenario(cluster: DataCluster) -> None:
        async with consuming(cluster) as consumer:
            world = World(cluster, consumer, Random(seed))
            await world.begin_topic()
            for _ in range(60):
                await world.dice.choice(STEPS)(world)
            assert consumer.count() == consumer.sent
            # Else nothing was tested.
            assert consumer.asked < 0.8 * consumer.sent

    run(tmp_path, scenario)


async def filled(cluster: DataCluster, count: int, *replicas: int) -> Uuid:
    """Return a topic with so many batches of a record."""
    topic_id = await cluster.create("t", list(replicas or (1,)))
    for _ in range(count):
        await produce(cluster[1], "t", batch(b"value"), topic_id=topic_id)
    return topic_id


def test_most_fetches_of_a_reader_do_not_reach_the_handler(tmp_path: Path) -> None:
    """They count in all figures as if they had."""

    async def scenario(cluster: DataCluster) -> None:
        topic_id = await filled(cluster, 200)
        broker = cluster[1]
        traffic = broker.manager.traffic
        async with consuming(cluster) as consumer:
            before = traffic.fetches, traffic.bytes_out
            await Reading(consumer, topic_id).times(199)
            # Runs of 2, 4, 8, 16 and 32 answers, and a request before each.
            assert consumer.asked <= 12
            assert consumer.count() == 199
            assert consumer.listener.traffic.errors == {("Fetch", NONE): 199}
            api = consumer.listener.traffic.apis["Fetch"]
            assert api.by_version == {FETCH.highest: 199}
            # Each of them was asked of the API itself as well.
            fetches, sent = traffic.fetches - before[0], traffic.bytes_out - before[1]
            assert (fetches, sent) == (2 * 199, 2 * consumer.record_bytes)

    run(tmp_path, scenario)


def test_most_fetches_of_a_session_do_not_reach_the_handler(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await filled(cluster, 200)
        traffic = cluster[1].manager.traffic
        async with consuming(cluster) as consumer:
            before = traffic.fetches, traffic.bytes_out
            reading = SessionReading(consumer, topic_id)
            await reading.times(199)
            assert reading.position == 199
            assert consumer.asked <= 12
            assert consumer.count() == 199
            fetches, sent = traffic.fetches - before[0], traffic.bytes_out - before[1]
            assert (fetches, sent) == (2 * 199, 2 * consumer.record_bytes)
            # It goes on to the end, where nothing changes any more.
            await reading.times(5)
            await produce(cluster[1], "t", batch(b"more"), topic_id=topic_id)
            await reading.times(2)
            assert reading.position == 201

    run(tmp_path, scenario)


def test_another_connection_that_uses_the_session(tmp_path: Path) -> None:
    """The session knows the answers that were given, and no further ones are."""

    async def scenario(cluster: DataCluster) -> None:
        topic_id = await filled(cluster, 50)
        broker = cluster[1]
        async with consuming(cluster) as consumer:
            reading = SessionReading(consumer, topic_id)
            await reading.times(20)
            assert consumer.asked < 10
            assert len(broker.manager.fetches.ahead) == 1
            version = reading.version
            request = reading.next_request()
            request.session_epoch -= 1
            stale = await broker.ask(FETCH, request, FetchResponseData, version)
            request.session_epoch += 1
            assert stale.error_code == INVALID_FETCH_SESSION_EPOCH
            assert len(broker.manager.fetches.ahead) == 0
            again = await broker.ask(FETCH, request, FetchResponseData, version)
            assert again.error_code == NONE
            assert again.responses
            late = await consumer.fetch(request, is_compared=False)
            assert late.error_code == INVALID_FETCH_SESSION_EPOCH

    run(tmp_path, scenario)


def test_a_session_that_ends_withdraws_the_answers(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await filled(cluster, 50)
        broker = cluster[1]
        async with consuming(cluster) as consumer:
            reading = SessionReading(consumer, topic_id)
            await reading.times(20)
            request = reading.next_request()
            closing = FetchRequestData(session_id=request.session_id, session_epoch=-1)
            await broker.ask(FETCH, closing, FetchResponseData)
            assert len(broker.manager.fetches.ahead) == 0
            response = await consumer.fetch(request, is_compared=False)
            assert response.error_code == FETCH_SESSION_ID_NOT_FOUND

    run(tmp_path, scenario)


class TwoPartitions:
    """A reader of a topic with two partitions, in a session."""

    def __init__(self, consumer: Consumer, topic_id: Uuid) -> None:
        self.consumer = consumer
        self.topic_id = topic_id
        self.positions = [0, 0]
        self._changed = [0, 1]
        self._session_id = self._twin_id = self._epoch = 0

    async def once(self, **fields: Any) -> None:
        request = fetch_request(
            "t", session_id=self._session_id, session_epoch=self._epoch, **fields
        )
        self._epoch += 1
        asked = [
            FetchPartitionData(each, -1, self.positions[each], partition_max_bytes=100)
            for each in self._changed
        ]
        request.topics = [FetchTopicData("", self.topic_id, asked)] if asked else []
        response, self._twin_id = await self.consumer.fetch_in_session(
            request, FETCH.highest, self._twin_id
        )
        self._session_id = response.session_id
        self._changed = []
        for topic in response.responses:
            for fetched in topic.partitions:
                if fetched.records:
                    self.positions[fetched.partition_index] += 1
                    self._changed.append(fetched.partition_index)
        self._changed.sort()


def test_another_partition_of_a_session(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1], [1])
        broker = cluster[1]
        for _ in range(60):
            await produce(broker, "t", topic_id=topic_id, partition=1)
        async with consuming(cluster) as consumer:
            reading = TwoPartitions(consumer, topic_id)
            for _ in range(25):
                await reading.once()
            asked = consumer.asked
            assert asked < 10
            # Those of the session, also the one without records.
            assert len(broker.manager.fetches.ahead) == 2
            await produce(broker, "t", topic_id=topic_id, partition=0)
            assert len(broker.manager.fetches.ahead) == 0
            for _ in range(25):
                await reading.once()
            assert reading.positions == [1, 50]
            assert consumer.asked < asked + 15

    run(tmp_path, scenario)


def test_a_session_of_which_one_partition_does_not_fit(tmp_path: Path) -> None:
    """Such a partition is not in the response, and the client does not name it again."""

    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1], [1])
        small, large = batch(bytes(10)), batch(bytes(60))
        for number in range(60):
            for partition in (0, 1):
                data = large if number % 10 == partition else small
                await produce(cluster[1], "t", data, topic_id=topic_id, partition=partition)
        async with consuming(cluster) as consumer:
            reading = TwoPartitions(consumer, topic_id)
            for _ in range(60):
                await reading.once(max_bytes=len(small) + len(large) - 1)
            assert min(reading.positions) < 60
            assert consumer.asked < 50

    run(tmp_path, scenario)


def test_a_session_of_which_one_partition_ends_first(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1], [1])
        for partition, count in enumerate((20, 50)):
            for _ in range(count):
                await produce(cluster[1], "t", topic_id=topic_id, partition=partition)
        async with consuming(cluster) as consumer:
            reading = TwoPartitions(consumer, topic_id)
            for _ in range(55):
                await reading.once()
            assert reading.positions == [20, 50]
            assert consumer.asked < 30

    run(tmp_path, scenario)


def test_a_reader_of_several_partitions(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1], [1], [1])
        for partition, count in enumerate((40, 20, 0)):
            for _ in range(count):
                await produce(cluster[1], "t", topic_id=topic_id, partition=partition)
        async with consuming(cluster) as consumer:
            positions = [0, 0, 0]
            for _ in range(50):
                request = fetch_request("t", topic_id=topic_id)
                request.topics[0].partitions = [
                    FetchPartitionData(each, -1, position, partition_max_bytes=100)
                    for each, position in enumerate(positions)
                ]
                (topic,) = (await consumer.fetch(request)).responses
                for fetched in topic.partitions:
                    positions[fetched.partition_index] += bool(fetched.records)
            assert positions == [40, 20, 0]
            assert consumer.asked < 25

    run(tmp_path, scenario)


def test_a_change_of_the_leader_withdraws_the_answers(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await filled(cluster, 100, 1, 2)
        async with consuming(cluster) as consumer:
            # A version in which only the leader answers.
            reading = Reading(consumer, topic_id, 10)
            await reading.times(20)
            assert len(cluster[1].manager.fetches.ahead) == 1
            cluster.fence(1)
            await cluster.settle()
            assert len(cluster[1].manager.fetches.ahead) == 0
            assert await reading.once() == NOT_LEADER_OR_FOLLOWER
            cluster.beat(1)
            await until(lambda: cluster.isr(cluster[1].id_of("t")) == {1, 2})
            cluster.fence(2)
            await cluster.settle()
            await reading.times(30)

    run(tmp_path, scenario, 1, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"session_epoch": 0},
        {"rack_id": "here"},
        {"min_bytes": 10_000},
        {"replica": 1},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_fetches_that_are_answered_by_the_handler_alone(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await filled(cluster, 10)
        async with consuming(cluster) as consumer:
            for position in range(9):
                request = fetch_request(
                    *("t", position), topic_id=topic_id, partition_max_bytes=1, **fields
                )
                # The API itself would begin another session.
                await consumer.fetch(request, is_compared=False)
                assert len(cluster[1].manager.fetches.ahead) == 0
            assert consumer.asked == 9

    run(tmp_path, scenario)


def test_retention_withdraws_the_answers(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await filled(cluster, 40)
        broker = cluster[1]
        log = broker.partition(broker.id_of("t")).local_log
        assert isinstance(log, PartitionLog)
        log.roll()
        async with consuming(cluster) as consumer:
            reading = Reading(consumer, topic_id)
            await reading.times(10)
            log.change_settings(replace(log.settings, retention_bytes=0))
            broker.driver.note_high_watermarks()
            assert log.apply_retention(int(now_ms())) > 0
            broker.driver.start_offsets_changed()
            assert await reading.once() == OFFSET_OUT_OF_RANGE

    run(tmp_path, scenario)


def test_answers_are_withdrawn_before_a_log_is_replaced(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await filled(cluster, 20)
        async with consuming(cluster) as consumer:
            await Reading(consumer, topic_id).times(3)
            fetches = cluster[1].manager.fetches
            assert len(fetches.ahead) == 1
            fetches.settle_no_more(cluster[1].id_of("t"))
            assert len(fetches.ahead) == 0
            before = consumer.asked
            await Reading(consumer, topic_id).times(1)
            assert consumer.asked == before + 1

    run(tmp_path, scenario)


def test_an_authorizer_checks_each_request(tmp_path: Path) -> None:
    everyone = AuthorizerSettings(frozenset(), is_allowed_without_acls=True)
    authorizer = Authorizer(everyone)
    authorizer.is_ready = True

    async def scenario(cluster: DataCluster) -> None:
        topic_id = await filled(cluster, 10)
        async with consuming(cluster) as consumer:
            await Reading(consumer, topic_id).times(9)
            assert consumer.asked == 9

    run(tmp_path, scenario, authorizer=authorizer)


def test_answers_that_are_not_used_are_withdrawn_in_time(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await filled(cluster, 20)
        async with consuming(cluster) as consumer:
            reading = Reading(consumer, topic_id)
            await reading.times(3)
            assert len(cluster[1].manager.fetches.ahead) == 1
            for _ in range(2):
                consumer.count()
            assert len(cluster[1].manager.fetches.ahead) == 0
            await reading.times(10)

    run(tmp_path, scenario)
