"""Apache Kafka's controllers, described and changed by kraft's client and transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from typer.testing import CliRunner

from kraft import errors
from kraft._core.bytes.batch import scan
from kraft.cli.commands import app
from kraft.cli.quorum import status_fields
from kraft.network.quorum_client import QuorumClient, QuorumRefusedError
from kraft.network.transport import Transport, TransportConfig
from kraft.raft import rpc as m
from kraft.raft.interface import Event, RequestFailed, ResponseReceived, SendRequest
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from kraft.records import Uuid
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop.cluster import HOST, Cluster, Node, wait_for

pytestmark = pytest.mark.interop

LISTENER = "CONTROLLER"
Ask = Callable[[m.Request], Awaitable[m.Response]]
LEADER, JOINER = 101, 102


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a controller that is the only voter, and one that only observes."""
    directory = tmp_path_factory.mktemp("quorum")
    cluster = Cluster(kafka(KAFKA_4), directory, "dGhlIHF1b3J1bSB3ZSBhcw")
    cluster.reserve_controllers(LEADER, JOINER)
    cluster.settings["metadata.log.max.record.bytes.between.snapshots"] = "200"
    try:
        cluster.add_controller(LEADER).format(cluster.cluster_id, "--standalone")
        cluster.add_controller(JOINER).format(cluster.cluster_id, "--no-initial-controllers")
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def key_of(node: Node) -> ReplicaKey:
    return ReplicaKey(node.id, Uuid.parse(node.directory_id()))


def endpoints_of(node: Node) -> tuple[Endpoint, ...]:
    return (Endpoint(LISTENER, HOST, node.port),)


def test_voters_are_removed_and_added(cluster: Cluster) -> None:
    """The requests go to the observer, which returns the leader's address."""
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
        assert client.api_versions().supported["kraft.version"] == KRaftVersionRange(0, 1)

        # kraft reads Kafka's configuration file the same way.
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
        addition = m.AddRaftVoterRequest(None, 20_000, key_of(joiner), endpoints_of(joiner))
        with pytest.raises(QuorumRefusedError, match="DUPLICATE_VOTER"):
            client.ask_leader(addition, "adding the joiner")

        stranger = ReplicaKey(JOINER, Uuid(b"\x11" * 16))
        with pytest.raises(QuorumRefusedError, match="VOTER_NOT_FOUND"):
            client.ask_leader(m.RemoveRaftVoterRequest(None, stranger), "removing a stranger")
        client.ask_leader(m.RemoveRaftVoterRequest(None, key_of(joiner)), "removing the joiner")
        assert [state.key for state in client.describe_quorum().voters] == [key_of(leader)]
        with pytest.raises(QuorumRefusedError) as refused:
            client.ask_leader(m.UpdateKRaftVersionRequest(0), "updating kraft.version to 0")
        assert refused.value.kafka_code == errors.INVALID_UPDATE_VERSION


def test_the_log_is_fetched_as_an_observer(cluster: Cluster) -> None:
    """Fetch from offset 0 on, with Kafka's redirects and errors."""
    leader = cluster.nodes[LEADER]
    me = ReplicaKey(999, Uuid(b"\x22" * 16))
    events: asyncio.Queue[Event] = asyncio.Queue()

    async def run() -> None:
        transport = Transport(TransportConfig(999), events.put_nowait, no_slices)
        await transport.start()
        correlation = 0

        async def ask(request: m.Request, node: Node = leader) -> m.Response:
            nonlocal correlation
            correlation += 1
            (endpoint,) = endpoints_of(node)
            transport.send(SendRequest(node.id, endpoint, request, correlation))
            event = await events.get()
            assert isinstance(event, ResponseReceived), event
            assert event.correlation == correlation
            return event.response

        def fetch(cluster_id: str, epoch: int, offset: int, last: int) -> m.FetchRequest:
            return m.FetchRequest(cluster_id, me, epoch, offset, last, max_wait_ms=100)

        refused = await ask(fetch("another", 0, 0, 0))
        assert refused == m.FetchResponse(errors.INCONSISTENT_CLUSTER_ID)
        hint = await ask(fetch(cluster.cluster_id, 0, 0, 0))
        assert isinstance(hint, m.FetchResponse)
        assert hint.error == errors.FENCED_LEADER_EPOCH
        assert (hint.leader_id, hint.leader_endpoints) == (LEADER, endpoints_of(leader))
        elsewhere = await ask(fetch(cluster.cluster_id, hint.epoch, 0, 0), cluster.nodes[JOINER])
        assert isinstance(elsewhere, m.FetchResponse)
        assert elsewhere.error == errors.NOT_LEADER_OR_FOLLOWER
        assert elsewhere.leader_id == LEADER

        start = await ask(fetch(cluster.cluster_id, hint.epoch, 0, 0))
        assert isinstance(start, m.FetchResponse)
        assert start.error == errors.NONE
        assert start.snapshot_id is not None
        offset, last_epoch = start.snapshot_id
        await read_snapshot(ask, start)
        # The first record after the snapshot is at the latest the NoOp of an idle controller.
        read = start
        while not read.records:
            asked = fetch(cluster.cluster_id, hint.epoch, offset, last_epoch)
            answered = await ask(asked)
            assert isinstance(answered, m.FetchResponse)
            read = answered
            assert (read.error, read.epoch, read.leader_id) == (errors.NONE, hint.epoch, LEADER)
        assert read.high_watermark >= offset
        assert not isinstance(read.records, m.LogSlice)
        assert scan(read.records).base_offsets[0] <= offset
        diverged = await ask(fetch(cluster.cluster_id, hint.epoch, 1 << 40, hint.epoch))
        assert isinstance(diverged, m.FetchResponse)
        assert diverged.diverging_epoch is not None

        versions = await ask(m.ApiVersionsRequest())
        assert versions == m.ApiVersionsResponse(0, KRaftVersionRange(0, 1))
        vote = m.VoteRequest(cluster.cluster_id, 0, me, key_of(leader), 0, 0, is_pre_vote=True)
        voted = await ask(vote)
        assert isinstance(voted, m.VoteResponse)
        assert (voted.error, voted.is_granted) == (errors.FENCED_LEADER_EPOCH, False)
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
            assert (chunk.error, chunk.snapshot_id) == (errors.NONE, start.snapshot_id)
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
    raise AssertionError("no node sends requests to this node")


def test_a_request_to_a_stopped_controller_fails(cluster: Cluster) -> None:
    joiner = cluster.nodes[JOINER]
    joiner.stop()
    events: asyncio.Queue[Event] = asyncio.Queue()

    async def run() -> None:
        transport = Transport(TransportConfig(999), events.put_nowait, no_slices)
        await transport.start()
        (endpoint,) = endpoints_of(joiner)
        transport.send(SendRequest(JOINER, endpoint, m.DescribeQuorumRequest(), 1))
        assert await events.get() == RequestFailed(1)
        await transport.close()

    asyncio.run(run())
