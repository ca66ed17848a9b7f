"""Apache Kafka's controllers, asked and changed by our client and our transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from typer.testing import CliRunner

from kraft._core.batch import scan
from kraft.cli import app
from kraft.cli.quorum import status_fields
from kraft.raft import messages as m
from kraft.raft.ready import Event, RequestFailed, ResponseReceived, SendRequest
from kraft.raft.voters import Endpoint, ReplicaKey, VersionRange
from kraft.records import Uuid
from kraft.server.network.quorum_client import QuorumClient, QuorumRefusedError
from kraft.server.network.transport import Transport, TransportConfig
from tests.interop.cluster import HOST, Cluster, Node, wait_for
from tests.interop.kafka_jars import KAFKA_4, kafka

pytestmark = pytest.mark.interop

LISTENER = "CONTROLLER"
Ask = Callable[[m.Request], Awaitable[m.Response]]
LEADER, JOINER = 101, 102


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A controller that is a quorum by itself, and one that only observes."""
    directory = tmp_path_factory.mktemp("quorum")
    cluster = Cluster(kafka(KAFKA_4), directory, "dGhlIHF1b3J1bSB3ZSBhcw")
    cluster.reserve_controllers(LEADER, JOINER)
    cluster.settings["metadata.log.max.record.bytes.between.snapshots"] = "200"
    try:
        cluster.add_controller(LEADER).format(cluster.cluster_id, "--standalone")
        cluster.add_controller(JOINER).format(cluster.cluster_id, "--no-initial-controllers")
        for node in cluster.nodes.values():
            node.start()
        for node in cluster.nodes.values():
            node.wait_until_listening()
        yield cluster
    finally:
        cluster.kill()


def key_of(node: Node) -> ReplicaKey:
    return ReplicaKey(node.id, Uuid.parse(node.directory_id()))


def endpoints_of(node: Node) -> tuple[Endpoint, ...]:
    return (Endpoint(LISTENER, HOST, node.port),)


def test_voters_come_and_go(cluster: Cluster) -> None:
    """Asked through the observer, which names the leader."""
    leader, joiner = cluster.nodes[LEADER], cluster.nodes[JOINER]
    with QuorumClient([(HOST, joiner.port)]) as client:

        def has_caught_up() -> m.DescribeQuorumResponse | None:
            quorum = client.describe_quorum()
            ends = {state.key: state.log_end_offset for state in quorum.observers}
            return quorum if ends.get(key_of(joiner), -1) >= quorum.high_watermark > 0 else None

        quorum = wait_for("the observer to catch up", has_caught_up)
        assert (quorum.leader_id, quorum.leader_endpoints) == (LEADER, endpoints_of(leader))
        assert [state.key for state in quorum.voters] == [key_of(leader)]
        assert client.describe_cluster().cluster_id == cluster.cluster_id
        assert status_fields(cluster.cluster_id, quorum)["MaxFollowerLag"] == 0
        assert client.api_versions().supported["kraft.version"] == VersionRange(0, 1)

        # What Kafka does as a voter asks of a configuration is what we read from it.
        follower = ("--bootstrap-controller", joiner.address)
        words = ("quorum", "add-controller", "-c", str(joiner.properties), *follower)
        added = CliRunner().invoke(app, words)
        assert added.exit_code == 0, added.stderr
        assert added.stdout == (
            f"Added controller {JOINER} with directory id {joiner.directory_id()} and "
            f"endpoints: CONTROLLER://{joiner.address}\n"
        )
        voters = {state.key for state in client.describe_quorum().voters}
        assert voters == {key_of(leader), key_of(joiner)}
        with pytest.raises(QuorumRefusedError, match="DUPLICATE_VOTER"):
            client.add_voter(key_of(joiner), endpoints_of(joiner))

        stranger = ReplicaKey(JOINER, Uuid(b"\x11" * 16))
        with pytest.raises(QuorumRefusedError, match="VOTER_NOT_FOUND"):
            client.remove_voter(stranger)
        client.remove_voter(key_of(joiner))
        assert [state.key for state in client.describe_quorum().voters] == [key_of(leader)]
        with pytest.raises(QuorumRefusedError) as refused:
            client.update_kraft_version(0)
        assert refused.value.kafka_code == m.INVALID_UPDATE_VERSION


def test_the_log_is_fetched_as_an_observer(cluster: Cluster) -> None:
    """From offset 0 on, with Kafka's hints and refusals on the way."""
    leader = cluster.nodes[LEADER]
    me = ReplicaKey(999, Uuid(b"\x22" * 16))
    told: asyncio.Queue[Event] = asyncio.Queue()

    async def run() -> None:
        transport = Transport(TransportConfig(999), told.put_nowait, no_slices)
        await transport.start()
        correlation = 0

        async def ask(request: m.Request, node: Node = leader) -> m.Response:
            nonlocal correlation
            correlation += 1
            (endpoint,) = endpoints_of(node)
            transport.send(SendRequest(node.id, endpoint, request, correlation))
            event = await told.get()
            assert isinstance(event, ResponseReceived), event
            assert event.correlation == correlation
            return event.response

        def fetch(cluster_id: str, epoch: int, offset: int, last: int) -> m.FetchRequest:
            return m.FetchRequest(cluster_id, me, epoch, offset, last, max_wait_ms=100)

        refused = await ask(fetch("another", 0, 0, 0))
        assert refused == m.FetchResponse(m.INCONSISTENT_CLUSTER_ID)
        hint = await ask(fetch(cluster.cluster_id, 0, 0, 0))
        assert isinstance(hint, m.FetchResponse)
        assert hint.error == m.FENCED_LEADER_EPOCH
        assert (hint.leader_id, hint.leader_endpoints) == (LEADER, endpoints_of(leader))
        elsewhere = await ask(fetch(cluster.cluster_id, hint.epoch, 0, 0), cluster.nodes[JOINER])
        assert isinstance(elsewhere, m.FetchResponse)
        assert elsewhere.error == m.NOT_LEADER_OR_FOLLOWER
        assert elsewhere.leader_id == LEADER

        start = await ask(fetch(cluster.cluster_id, hint.epoch, 0, 0))
        assert isinstance(start, m.FetchResponse)
        assert start.error == m.NONE
        assert start.snapshot_id is not None
        offset, last_epoch = start.snapshot_id
        await read_snapshot(ask, start)
        # What follows the snapshot is at the latest the record of an idle controller.
        read = start
        while not read.records:
            asked = fetch(cluster.cluster_id, hint.epoch, offset, last_epoch)
            answered = await ask(asked)
            assert isinstance(answered, m.FetchResponse)
            read = answered
            assert (read.error, read.epoch, read.leader_id) == (m.NONE, hint.epoch, LEADER)
        assert read.high_watermark >= offset
        assert not isinstance(read.records, m.LogSlice)
        assert scan(read.records).base_offsets[0] <= offset
        diverged = await ask(fetch(cluster.cluster_id, hint.epoch, 1 << 40, hint.epoch))
        assert isinstance(diverged, m.FetchResponse)
        assert diverged.diverging_epoch is not None

        versions = await ask(m.ApiVersionsRequest())
        assert versions == m.ApiVersionsResponse(0, VersionRange(0, 1))
        vote = m.VoteRequest(cluster.cluster_id, 0, me, key_of(leader), 0, 0, is_pre_vote=True)
        voted = await ask(vote)
        assert isinstance(voted, m.VoteResponse)
        assert (voted.error, voted.is_granted) == (m.FENCED_LEADER_EPOCH, False)
        assert voted.leader_endpoints == endpoints_of(leader)
        await transport.close()

    async def read_snapshot(ask: Ask, start: m.FetchResponse) -> None:
        assert start.snapshot_id is not None
        found = bytearray()
        size = 1
        while len(found) < size:
            asked = m.FetchSnapshotRequest(
                cluster.cluster_id, me, start.epoch, start.snapshot_id, len(found), 512
            )
            chunk = await ask(asked)
            assert isinstance(chunk, m.FetchSnapshotResponse)
            assert (chunk.error, chunk.snapshot_id) == (m.NONE, start.snapshot_id)
            assert chunk.position == len(found)
            found += chunk.data  # type: ignore[arg-type]
            size = chunk.size
        assert len(scan(found)) > 0
        assert scan(found).tail_reason is None

    def has_snapshot() -> bool:
        log = leader.metadata_directory / "__cluster_metadata-0"
        return any(not path.name.startswith("0" * 20) for path in log.glob("*.checkpoint"))

    wait_for("a snapshot", has_snapshot)
    asyncio.run(run())


def no_slices(slice: m.LogSlice | m.SnapshotSlice) -> memoryview:
    raise AssertionError("nobody asks this node")


def test_a_controller_that_is_down_fails_the_request(cluster: Cluster) -> None:
    joiner = cluster.nodes[JOINER]
    joiner.stop()
    told: asyncio.Queue[Event] = asyncio.Queue()

    async def run() -> None:
        transport = Transport(TransportConfig(999), told.put_nowait, no_slices)
        await transport.start()
        (endpoint,) = endpoints_of(joiner)
        transport.send(SendRequest(JOINER, endpoint, m.DescribeQuorumRequest(), 1))
        assert await told.get() == RequestFailed(1)
        await transport.close()

    asyncio.run(run())
