"""Nodes in any role, driven step by step, for the tests of the raft state machine.

By default a node is voter 1 of the voters 1, 2, 3. Its disk performs and syncs writes at once,
except while ``is_disk_stalled``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kraft._core.bytes.batch import BatchBuilder
from kraft.raft.candidate import EpochElection, NomineeState
from kraft.raft.config import RaftSettings
from kraft.raft.election_state import ElectionState
from kraft.raft.interface import (
    Append,
    Event,
    RaftReady,
    RequestReceived,
    ResponseReceived,
    Role,
    SendRequest,
    SendResponse,
    Write,
    Written,
)
from kraft.raft.leader import LeaderState
from kraft.raft.log_view import LogView
from kraft.raft.node import Node
from kraft.raft.rpc import (
    FetchRequest,
    FetchResponse,
    OffsetAndEpoch,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Uuid

LISTENER = "CONTROLLER"
EPOCH = 3
#: Epochs and end offsets of the node's log: 4 records of epoch 1, then 2 of epoch 2.
LOG = ((1, 4), (2, 6))


def directory(id: int, name: int = 0) -> Uuid:
    return Uuid(bytes([0xD0, id, name, *[0] * 13]))


def key(id: int, name: int = 0) -> ReplicaKey:
    return ReplicaKey(id, directory(id, name))


def endpoint(id: int) -> Endpoint:
    return Endpoint(LISTENER, f"host{id}", 9000 + id)


def voter(id: int) -> VoterNode:
    return VoterNode(key(id), (endpoint(id),), KRaftVersionRange(0, 1))


def dynamic(*ids: int) -> VoterSet:
    return VoterSet(map(voter, ids))


def static(*ids: int) -> VoterSet:
    return VoterSet(VoterNode(ReplicaKey(id), (endpoint(id),)) for id in ids)


def batch(base_offset: int, epoch: int, *values: bytes) -> bytes:
    builder = BatchBuilder(base_offset, epoch)
    for value in values or (b"value",):
        builder.append(value)
    return bytes(builder.finish())


class Driver:
    """A node with its time and disk; ``sent``, ``written`` and ``ready`` are of its last step.

    ``draw`` is the result of all its random draws.
    """

    def __init__(
        self,
        config: RaftSettings,
        log: LogView,
        election: ElectionState,
        *,
        draw: float = 0.5,
        now_ms: float = 1000.0,
    ) -> None:
        self.config = config
        self.now_ms = now_ms
        self.draw = draw
        self.node = Node(config, log, election, lambda: self.draw, now_ms)
        self.is_disk_stalled = False
        self.sent: list[Any] = []
        self.written: list[Write] = []
        self.ready = RaftReady()
        self._reply_to = 0

    # -- steps

    def step(self, event: Event = None) -> Driver:
        """Perform one step and sync its writes."""
        self.ready = self.node.step(event, self.now_ms)
        self.sent, self.written = list(self.ready.to_send), list(self.ready.to_write)
        if self.written and not self.is_disk_stalled:
            self.sync()
        return self

    def sync(self) -> Driver:
        after = self.node.step(Written(self.ready.write_sequence), self.now_ms)
        self.sent += after.to_send
        self.written += after.to_write
        if after.to_write:
            self.sent += self.node.step(Written(after.write_sequence), self.now_ms).to_send
        return self

    def wait(self, ms: float) -> Driver:
        self.now_ms += ms
        return self.step()

    def ask(self, request: Request) -> Any:
        """Send a request; return the response, or None if it has to wait."""
        self._reply_to += 1
        self.step(RequestReceived(request, self._reply_to))
        return self.answer(self._reply_to)

    def answer(self, reply_to: int) -> Any:
        found = [s.response for s in self.sent if isinstance(s, SendResponse)]
        answers = [
            s.response for s in self.sent if isinstance(s, SendResponse) and s.reply_to == reply_to
        ]
        assert len(answers) <= 1, found
        return answers[0] if answers else None

    def append(self, *values: bytes) -> Driver:
        return self.step(Append(1, self.node.epoch, values=values or (b"value",)))

    def reply(self, send: SendRequest, response: Response) -> Driver:
        return self.step(ResponseReceived(send.correlation, response))

    # -- sent messages

    def requests(self, kind: type | None = None) -> list[SendRequest]:
        return [
            send
            for send in self.sent
            if isinstance(send, SendRequest) and (kind is None or isinstance(send.request, kind))
        ]

    def answer_votes(self, is_granted: bool = True, only: int | None = None) -> Driver:
        """Respond to the vote requests of the last step."""
        for send in self.requests(VoteRequest):
            if only is None or send.destination == only:
                assert isinstance(send.request, VoteRequest)
                self.reply(send, VoteResponse(0, send.request.epoch, is_granted=is_granted))
        return self

    # -- roles

    @property
    def role(self) -> Role:
        return self.node.role

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.node.epoch, self.node.leader_id, self.node.voted)


def driven(
    election: ElectionState | None = None,
    *,
    id: int = 1,
    log: tuple[tuple[int, int], ...] = LOG,
    voters: VoterSet | None = None,
    kraft_version: int = 0,
    draw: float = 0.5,
    start_offset: int = 0,
    **settings: Any,
) -> Driver:
    """Return a node with a log that is on its disk; ``settings`` are those of `RaftSettings`."""
    voters = static(1, 2, 3) if voters is None else voters
    view = LogView(static_voters=voters if kraft_version == 0 else VoterSet())
    if kraft_version:
        view.load_snapshot_voters(voters, kraft_version)
    if start_offset:
        view.begin_at(OffsetAndEpoch(start_offset, 1), 100)
    for epoch, end_offset in log:
        view.append(view.end_offset, end_offset, epoch)
    view.durable_end_offset = view.end_offset
    config = RaftSettings(
        node_id=id,
        directory_id=directory(id),
        cluster_id="cluster",
        endpoints=(endpoint(id),),
        static_voters=view.static_voters,
        append_linger_ms=0,
    )
    return Driver(replace(config, **settings), view, election or ElectionState(2), draw=draw)


def unattached(epoch: int = EPOCH, **given: Any) -> Driver:
    driver = driven(
        ElectionState(epoch, given.pop("leader_id", -1), given.pop("voted", None)), **given
    )
    driver.step()
    assert driver.role is Role.UNATTACHED
    return driver


def prospective(epoch: int = EPOCH, **given: Any) -> Driver:
    driver = unattached(epoch, **given).wait(2000)
    assert driver.role is Role.PROSPECTIVE
    return driver


def candidate(epoch: int = EPOCH, **given: Any) -> Driver:
    driver = prospective(epoch - 1, **given).answer_votes(only=2)
    assert driver.role is Role.CANDIDATE
    assert driver.node.epoch == epoch
    return driver


def leader(epoch: int = EPOCH, **given: Any) -> Driver:
    driver = candidate(epoch, **given).answer_votes(only=2)
    assert driver.role is Role.LEADER
    return driver


def follower(epoch: int = EPOCH, *, has_fetched: bool = False, of: int = 2, **given: Any) -> Driver:
    driver = driven(ElectionState(epoch, of, given.pop("voted", None)), **given)
    driver.step()
    assert driver.role is Role.FOLLOWER
    if has_fetched:
        (fetch,) = driver.requests()
        driver.reply(fetch, FetchResponse(0, epoch, of))
    return driver


def leader_state(driver: Driver) -> LeaderState:
    state = driver.node.role_state
    assert isinstance(state, LeaderState)
    return state


def election_of(driver: Driver) -> EpochElection:
    state = driver.node.role_state
    assert isinstance(state, NomineeState)
    return state.election


def resigned(epoch: int = EPOCH, **given: Any) -> Driver:
    driver = driven(ElectionState(epoch, given.get("id", 1), given.pop("voted", None)), **given)
    driver.step()
    assert driver.role is Role.RESIGNED
    return driver


MAKERS = {
    Role.UNATTACHED: unattached,
    Role.PROSPECTIVE: prospective,
    Role.CANDIDATE: candidate,
    Role.LEADER: leader,
    Role.FOLLOWER: follower,
    Role.RESIGNED: resigned,
}


def fetched_by(
    driver: Driver, id: int, offset: int | None = None, *, max_wait_ms: int = 0, name: int = 0
) -> Any:
    """Fetch as another replica, by default from the end of the log; return the response."""
    log = driver.node.log
    offset = log.end_offset if offset is None else offset
    last_epoch = log.epochs.epoch_at(offset - 1) if offset else 0
    return driver.ask(
        FetchRequest("cluster", key(id, name), driver.node.epoch, offset, last_epoch, max_wait_ms)
    )


# -- a follower that fetches from node 2


def fetch_of(node: Driver) -> SendRequest:
    (send,) = node.requests(FetchRequest)
    return send


def answer(**given: Any) -> FetchResponse:
    return FetchResponse(0, EPOCH, 2, **given)


def fetched(node: Driver, response: FetchResponse) -> Driver:
    return node.reply(fetch_of(node), response)
