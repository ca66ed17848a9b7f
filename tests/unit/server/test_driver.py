"""The driver with the state machine, the store and the writer, on real files."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kraft import errors
from kraft.errors import NotControllerError, RecordTooLargeError
from kraft.raft import rpc as m
from kraft.raft.config import RaftSettings
from kraft.raft.interface import (
    RequestReceived,
    ResponseReceived,
    Role,
    RoleChange,
    Send,
    SendRequest,
    SendResponse,
)
from kraft.raft.node import Node
from kraft.raft.rpc import LogSlice, OffsetAndEpoch
from kraft.raft.voters import ReplicaKey, VoterSet
from kraft.records import Uuid
from kraft.records.classes import NoOp
from kraft.records.values import encode_value
from kraft.server.disk.store import MetadataStore
from kraft.server.disk.writer import WriterThread
from kraft.server.driver import Driver, now_ms
from tests.harness.metadata_store import make_snapshot, metadata_dir

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
ALONE = VoterSet.parse("1@localhost:9001", "CONTROLLER")
TWO = VoterSet.parse("1@localhost:9001,2@localhost:9002", "CONTROLLER")
RECORD = encode_value(NoOp())


class RunningNode:
    """Node 1 of the voters; records its messages and callbacks."""

    def __init__(self, path: Path, voters: VoterSet, **settings: Any) -> None:
        self.store = MetadataStore.open(path, static_voters=voters)
        self.sent: list[Send] = []
        self.roles: list[RoleChange] = []
        self.committed: list[int] = []
        self.is_news = asyncio.Event()
        config = RaftSettings(
            1,
            Uuid(b"\1" * 16),
            "cluster",
            static_voters=voters,
            append_linger_ms=0,
            election_timeout_ms=20,
            # A leader keeps its office without fetches for 1.5 times as long.
            fetch_timeout_ms=60_000,
            **settings,
        )
        node = Node(config, self.store.view, self.store.election, random.random, now_ms())
        self.failures: list[BaseException] = []
        self.writer = WriterThread(self.store, self._deliver, on_failure=self.failures.append)
        self.driver = Driver(
            node,
            self.store,
            self.writer,
            self._sent,
            on_committed=self._committed,
            on_role=self._role_changed,
        )
        self.writer.start()
        self.driver.start()

    def _deliver(self, event: Any) -> None:
        self.driver.deliver(event)
        self.is_news.set()

    def _sent(self, send: Send) -> None:
        self.sent.append(send)
        self.is_news.set()

    def _committed(self, high_watermark: int) -> None:
        self.committed.append(high_watermark)

    def _role_changed(self, change: RoleChange) -> None:
        self.roles.append(change)
        self.is_news.set()

    async def until(self, happened: Callable[[], Any]) -> Any:
        async with asyncio.timeout(60):
            while not (found := happened()):
                self.is_news.clear()
                await self.is_news.wait()
        return found

    async def activation(self) -> RoleChange:
        found = await self.until(lambda: [role for role in self.roles if role.is_active])
        assert isinstance(found[0], RoleChange)
        return found[0]

    async def request(self, kind: type) -> SendRequest:
        """Return the next request of this kind that the node sends."""
        found = await self.until(
            lambda: [s for s in self.sent if isinstance(getattr(s, "request", None), kind)]
        )
        self.sent.clear()
        assert isinstance(found[-1], SendRequest)
        return found[-1]

    async def win(self) -> int:
        """Grant every vote until the node leads; return its epoch.

        On a slow machine an election may time out and be repeated.
        """
        while self.driver.node.role is not Role.LEADER:
            asked = await self.request(m.VoteRequest)
            assert isinstance(asked.request, m.VoteRequest)
            answer = m.VoteResponse(errors.NONE, asked.request.epoch, is_granted=True)
            if asked.request.is_pre_vote:
                answer.epoch = asked.request.epoch
            self.driver.deliver(ResponseReceived(asked.correlation, answer))
        return self.driver.node.epoch

    async def stop(self) -> None:
        self.driver.close()
        await self.writer.close()
        self.store.close()
        assert not self.failures


def run(scenario: Callable[[], Awaitable[None]], loop: str = "asyncio") -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())  # type: ignore[arg-type]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_sole_voter_leads_and_commits_appended_records(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        node = RunningNode(tmp_path, ALONE)
        assert (await node.activation()).epoch == 1
        offsets = await asyncio.gather(*[node.driver.append((RECORD,)) for _ in range(300)])
        assert offsets == sorted(offsets)
        assert offsets[-1] == 300
        assert node.committed == sorted(node.committed)
        assert node.committed[-1] == 301
        # The log contains the committed records.
        assert node.store.log.log_end_offset == 301
        await node.stop()
        node = RunningNode(tmp_path, ALONE)
        assert (await node.activation()).epoch == 2
        assert await node.driver.append((RECORD, RECORD)) == 303
        await node.stop()

    run(scenario, loop)


def test_records_appended_in_a_callback_follow_the_committed_ones(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = RunningNode(tmp_path, ALONE)
        made: list[asyncio.Future[int]] = []
        heard = node._committed

        def append_more(high_watermark: int) -> None:
            heard(high_watermark)
            if len(made) < 5:
                made.append(node.driver.append((RECORD,)))

        node.driver._on_committed = append_more
        await node.until(lambda: len(made) == 5)
        assert await asyncio.gather(*made) == [1, 2, 3, 4, 5]
        assert node.committed == sorted(node.committed)
        await node.stop()

    run(scenario)


def test_a_node_that_does_not_lead_rejects_appends(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = RunningNode(tmp_path, TWO)
        with pytest.raises(NotControllerError):
            await node.driver.append((RECORD,))
        await node.stop()

    run(scenario)


def test_records_too_large_for_a_batch_are_rejected(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = RunningNode(tmp_path, ALONE, max_batch_size=1000)
        await node.activation()
        with pytest.raises(RecordTooLargeError):
            await node.driver.append((bytes(2000),))
        assert await node.driver.append((RECORD,)) == 1
        await node.stop()

    run(scenario)


def test_a_deposed_leader_fails_uncommitted_appends(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = RunningNode(tmp_path, TWO)
        epoch = await node.win()
        future = node.driver.append((RECORD,))
        await asyncio.sleep(0)
        assert not future.done()
        end = TWO.get(2)
        assert end is not None
        request = m.BeginQuorumEpochRequest("cluster", epoch + 1, 2, None, end.endpoints)
        node.driver.deliver(RequestReceived(request, 7))
        with pytest.raises(NotControllerError, match="leadership was lost before offset 1"):
            await future
        answer = await node.until(lambda: [s for s in node.sent if isinstance(s, SendResponse)])
        assert answer[0].reply_to == 7
        await node.stop()
        # The epoch was on disk before the node sent it.
        store = MetadataStore.open(tmp_path, static_voters=TWO)
        assert (store.election.epoch, store.election.leader_id) == (epoch + 1, 2)
        store.close()

    run(scenario)


def test_a_majority_commits_and_the_leader_serves_its_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = RunningNode(tmp_path, TWO)
        epoch = await node.win()
        future = node.driver.append((RECORD,))
        other = ReplicaKey(2)
        for reply_to, offset in enumerate((0, 2, 2)):
            fetch = m.FetchRequest("cluster", other, epoch, offset, epoch if offset else 0, 500)
            node.driver.deliver(RequestReceived(fetch, reply_to))
            if not offset:
                found = await node.until(
                    lambda: [s for s in node.sent if isinstance(s, SendResponse)]
                )
                response = found[0].response
                assert isinstance(response, m.FetchResponse)
                assert isinstance(response.records, LogSlice)
                assert len(node.store.read(response.records)) > 0
                await node.until(lambda: node.driver.node.log.durable_end_offset == 2)
        assert await future == 1
        assert node.roles[-1].is_active
        await node.stop()

    run(scenario)


def test_added_and_cleaned_snapshots_reach_the_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = RunningNode(tmp_path, ALONE)
        await node.activation()
        view = node.driver.node.log
        for _ in range(2):
            await node.driver.append((RECORD,))
            id = OffsetAndEpoch(view.high_watermark, 1)
            make_snapshot(node.store, id)
            node.driver.add_snapshot(id)
            await node.until(lambda: view.latest_snapshot == OffsetAndEpoch(view.high_watermark, 1))
        node.driver.clean(0, -1)
        await node.until(lambda: len(view.snapshots) == 1)
        assert view.start_offset == 3
        assert len(list(metadata_dir(tmp_path).glob("*.checkpoint"))) == 1
        await node.stop()

    run(scenario)


def test_a_leader_alone_shuts_down_and_fails_waiting_appends(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = RunningNode(tmp_path, TWO)
        await node.win()
        future = node.driver.append((RECORD,))
        await node.driver.shut_down(timeout_ms=50)
        assert node.roles[-1].role is Role.RESIGNED
        with pytest.raises(NotControllerError):
            await future
        await node.stop()

    run(scenario)


def test_a_stopped_node_fails_waiting_appends(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = RunningNode(tmp_path, TWO)
        await node.win()
        future = node.driver.append((RECORD,))
        await node.stop()
        with pytest.raises(NotControllerError, match="the node stopped"):
            await future

    run(scenario)
