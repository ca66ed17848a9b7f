"""Produce requests on connections: the order of responses, quotas, and what closes a connection."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from kraft.broker.apis import produce as produce_module
from kraft.broker.replication.settings import ReplicationSettings
from kraft.controller.quotas.limits import QuotaWindows
from kraft.errors import (
    CORRUPT_MESSAGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.network.data_loop import data_listener_type
from kraft.network.listener import Limits, Listener
from kraft.network.server_connection import accept_connection
from kraft.network.throttled_log import ThrottledLog
from kraft.protocol.api_versions import NodeFeatures
from kraft.protocol.headers import read_response_header, request_frame
from kraft.protocol.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequestData,
    ProduceResponseData,
    TopicProduceData,
)
from kraft.raft.voters import Endpoint
from kraft.records import Uuid
from kraft.server.apis.api import handler_of
from kraft.server.client_quotas import ClientQuotaState
from tests.harness.data_brokers import FAST, LISTENER, DataCluster, until
from tests.harness.data_requests import allowing, batch, run

ALL, LEADER, NOBODY = -1, 1, 0


class ProducerConnection:
    """A client's connection; requests are sent ahead of the responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._sent = 0

    def send(self, topic_id: Uuid, *batches: bytes, acks: int = LEADER) -> int:
        """Send batches to the first partitions of a topic; return the correlation id."""
        data = [PartitionProduceData(number, one) for number, one in enumerate(batches)]
        request = ProduceRequestData(None, acks, 5_000, [TopicProduceData("", topic_id, data)])
        self._sent += 1
        version = PRODUCE.highest
        body = request.encode(version)
        self.writer.write(request_frame(PRODUCE, version, self._sent, "client", body))
        return self._sent

    async def receive(self) -> tuple[int, ProduceResponseData]:
        frame = await self._reader.readexactly(
            int.from_bytes(await self._reader.readexactly(4), "big")
        )
        correlation, body_at = read_response_header(frame, PRODUCE, PRODUCE.highest)
        return correlation, ProduceResponseData.decode(frame, PRODUCE.highest, body_at)

    async def errors(self) -> tuple[int, list[int]]:
        """Receive a response; return its correlation id and the errors of all partitions."""
        correlation, response = await self.receive()
        partitions = [each for topic in response.responses for each in topic.partition_responses]
        return correlation, [each.error_code for each in partitions]

    async def is_closed(self) -> bool:
        return await self._reader.read(1) == b""


@asynccontextmanager
async def listening(
    cluster: DataCluster, quotas: ClientQuotaState | None = None
) -> AsyncIterator[Callable[[], Awaitable[ProducerConnection]]]:
    """Serve broker 1 at a port; yield a function that connects to it."""
    api = cluster[1].apis[PRODUCE.key]
    handlers = {PRODUCE.key: handler_of(api, cluster.authorizer, quotas, Counter())}
    listener = Listener(
        accept_connection,
        Limits(),
        lambda: NodeFeatures({}, {}, 0),
        handlers,
        ThrottledLog(logging.getLogger(__name__), monotonic),
        {},
        data_listener=data_listener_type(),
    )
    (bound,) = await listener.start((Endpoint(LISTENER, "127.0.0.1", 0),))
    clients = []

    async def connected() -> ProducerConnection:
        made = ProducerConnection(*await asyncio.open_connection("127.0.0.1", bound.port))
        clients.append(made)
        return made

    try:
        yield connected
    finally:
        for client in clients:
            client.writer.close()
        await listener.close()
        assert listener.request_count == listener.request_memory == 0


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_quick_request_is_answered_after_one_that_waits_for_followers(
    tmp_path: Path, size: int
) -> None:
    """Kafka answers the requests of a connection in their order (SocketServer)."""

    async def scenario(cluster: DataCluster) -> None:
        slow = await cluster.create("slow", [1, 2])
        quick = await cluster.create("quick", [1])
        async with listening(cluster) as connect:
            client, other = await connect(), await connect()
            cluster.links.cut.add((2, 1))
            records = batch(bytes(size))
            sent = [client.send(slow, records, acks=ALL)]
            sent += [client.send(quick, records) for _ in range(3)]
            sent.append(client.send(slow, records, acks=ALL))
            # Another connection is served meanwhile.
            other.send(quick, records)
            assert await other.errors() == (1, [NONE])
            partition = cluster[1].partition(cluster[1].id_of("slow"))
            await until(lambda: partition.log is not None and partition.log.end_offset == 1)
            first = asyncio.ensure_future(client.errors())
            await asyncio.sleep(0)
            assert not first.done()
            quick_log = cluster[1].partition(cluster[1].id_of("quick")).local_log
            assert quick_log.end_offset == 1
            cluster.links.cut.clear()
            answers = [await first] + [await client.errors() for _ in sent[1:]]
            assert answers == [(correlation, [NONE]) for correlation in sent]
            assert quick_log.end_offset == 4

    # The follower stays in the ISR although it cannot fetch.
    patient = ReplicationSettings(max_lag_ms=60_000.0, fetcher=FAST.fetcher)
    run(tmp_path, scenario, 1, 2, settings=patient)


def test_a_batch_checked_in_a_thread_is_answered_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_module, "COMPRESSED_BYTES_INLINE", 50)
    monkeypatch.setattr(produce_module, "PLAIN_BYTES_INLINE", 1_000)

    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1])
        async with listening(cluster) as connect:
            client = await connect()
            sizes = (20_000, 10, 20_000, 10)
            sent = [client.send(topic_id, batch(bytes(size))) for size in sizes]
            found = [await client.receive() for _ in sent]
            assert [correlation for correlation, _ in found] == sent
            offsets = [each.responses[0].partition_responses[0].base_offset for _, each in found]
            assert offsets == [0, 1, 2, 3]

    run(tmp_path, scenario)


def test_partitions_have_errors_of_their_own(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1], [2], [1])
        broken = bytearray(batch())
        broken[-1] ^= 1
        async with listening(cluster) as connect:
            client = await connect()
            client.send(topic_id, batch(), batch(), bytes(broken), batch())
            wanted = [NONE, NOT_LEADER_OR_FOLLOWER, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION]
            _, response = await client.receive()
            (topic,) = response.responses
            assert [each.error_code for each in topic.partition_responses] == wanted
            assert topic.partition_responses[1].current_leader.leader_id == 2
            assert [node.node_id for node in response.node_endpoints] == [2]
            client.send(Uuid(b"?" * 16), batch())
            assert await client.errors() == (2, [UNKNOWN_TOPIC_ID])

    run(tmp_path, scenario, 1, 2)


def test_a_hundred_partitions_of_a_request_are_answered_in_their_order(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", *[[1]] * 100)
        async with listening(cluster) as connect:
            client = await connect()
            for base in range(3):
                client.send(topic_id, *[batch() for _ in range(100)])
                _, response = await client.receive()
                answered = response.responses[0].partition_responses
                assert [each.index for each in answered] == list(range(100))
                assert {each.base_offset for each in answered} == {base}

    run(tmp_path, scenario)


def test_a_client_over_its_request_quota_is_muted(tmp_path: Path) -> None:
    """Of a quick request too, the response has the time, and the next one is read after it."""
    quotas = ClientQuotaState(QuotaWindows())
    quotas.requests.limits.set((("user", None),), 0.0001)  # type: ignore[attr-defined]

    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1])
        async with listening(cluster, quotas) as connect:
            client = await connect()
            # Not after the response: the client may stand still while its time passes.
            begin = monotonic()
            client.send(topic_id, batch())
            client.send(topic_id, batch())
            _, response = await client.receive()
            assert response.throttle_time_ms > 0
            await client.receive()
            assert monotonic() - begin >= 0.8 * response.throttle_time_ms / 1000

    run(tmp_path, scenario)


def test_topics_that_the_client_may_not_write_are_rejected(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1])
        async with listening(cluster) as connect:
            client = await connect()
            client.send(topic_id, batch())
            assert await client.errors() == (1, [TOPIC_AUTHORIZATION_FAILED])
            log = cluster[1].partition(cluster[1].id_of("t")).local_log
            assert log.end_offset == 0

    # The client is anonymous.
    rule = (AclOperation.WRITE, ResourceType.TOPIC, "t")
    run(tmp_path, scenario, authorizer=allowing(rule))


def test_acks_of_nobody_have_no_response_and_an_error_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1])
        async with listening(cluster) as connect:
            client = await connect()
            client.send(topic_id, batch(), acks=NOBODY)
            sent = client.send(topic_id, batch())
            correlation, response = await client.receive()
            assert correlation == sent
            assert response.responses[0].partition_responses[0].base_offset == 1
            client.send(topic_id, batch(), batch(), acks=NOBODY)
            assert await client.is_closed()

    with caplog.at_level(logging.WARNING):
        run(tmp_path, scenario)
    assert "for a request with acks=0 and 2 partitions" in caplog.text
