"""``LightBroker``: one broker as its controllers see it, without a partition's records.

Sends what a broker of Apache Kafka sends to its controllers, over connections of its own:

- Fetch, and FetchSnapshot where the leader's log begins later, as an observer of the metadata log
  (KIP-595, KIP-630), with the broker's id and directory, from its own offset;
- BrokerRegistration of each incarnation, and BrokerHeartbeat by the state machine of a broker,
  ``kraft.broker.lifecycle.LifecycleState``;
- requests of its partitions (`call`), such as AlterPartition, one at a time for each purpose.

Kafka's intervals and waits apply. Invariants: at most one Fetch and one heartbeat are in flight; a
heartbeat names the offset that this broker's own fetches have reached. Created by ``worker``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kraft._core.bytes.checksum import crc32c
from kraft._core.codec.metadata_codec import Message
from kraft.broker.lifecycle import BrokerState, LifecycleState
from kraft.errors import (
    FENCED_LEADER_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    POSITION_OUT_OF_RANGE,
    SNAPSHOT_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
    KraftError,
    error_name,
)
from kraft.fleet.broker_context import BrokerContext
from kraft.fleet.log_position import LogPosition
from kraft.fleet.shared_metadata import LogPiece, SnapshotLoading
from kraft.metadata.identifiers import random_uuid
from kraft.network.connections import Peer, PeerCall
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.broker_heartbeat import BROKER_HEARTBEAT, BrokerHeartbeatResponseData
from kraft.protocol.broker_registration import (
    BROKER_REGISTRATION,
    BrokerRegistrationRequestData,
    BrokerRegistrationResponseData,
)
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.protocol.headers import Api
from kraft.raft.interface import Event, ResponseReceived
from kraft.raft.rpc import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogSlice,
    OffsetAndEpoch,
    SnapshotSlice,
)
from kraft.raft.voters import Endpoint, ReplicaKey
from kraft.records import Uuid
from kraft.records.versions import SUPPORTED_FEATURES, MetadataVersion

R = TypeVar("R", bound=Message)

#: Kafka's: how long the leader keeps a fetch that finds nothing, and the bytes of one response.
FETCH_WAIT_MS = 500
FETCH_BYTES = 8 << 20
SNAPSHOT_BYTES = 1 << 20
#: controller.quorum.request.timeout.ms and controller.quorum.retry.backoff.ms.
REQUEST_TIMEOUT_S = 2.0
RETRY_S = 0.02
#: As Kafka's brokers before 4.0, half a session; later ones wait for one heartbeat interval.
CALL_TIMEOUT_S = 4.5
#: controller.socket.timeout.ms: a leader does not send an AlterPartition of many partitions again
#: while the controller works on it.
_PARTITIONS_TIMEOUT_S = 30.0
#: Longer than Kafka's: a thousand brokers of one machine that register at once would otherwise
#: send their registrations again and again, each one a record that all of them fetch.
_REGISTRATION_TIMEOUT_S = 30.0
#: How often a broker looks for a leader that it does not know.
_LEADER_WAIT_S = 0.05
#: A thousand brokers with two connections each would keep 128 MB in buffers of the usual size.
BUFFER_SIZE = 4096
_PORT = 9092
_NEVER = float("inf")
_LEADER_CHANGED = frozenset({NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH})
_SNAPSHOT_GONE = frozenset({SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE})


@dataclass(slots=True)
class _Download:
    """A snapshot that a broker downloads; ``loading`` is None where the state is known already."""

    snapshot_id: OffsetAndEpoch
    loading: SnapshotLoading | None
    position: int = 0
    crc: int = 0


class LightBroker:
    """A broker of the fleet; `start` and `die` may alternate any number of times.

    Without a session it only fetches: it sends no registration and no heartbeat.
    """

    def __init__(
        self,
        id: int,
        rack: str | None,
        directories: Sequence[Uuid],
        context: BrokerContext,
        *,
        has_session: bool = True,
    ) -> None:
        self.id = id
        self.rack = rack
        self.directories = list(directories)
        self.position = LogPosition()
        self.session = LifecycleState(context.heartbeat_interval_ms)
        self.is_up = False
        #: Whether it waits for `release` before it asks to be unfenced.
        self.is_held = False
        #: Delay before each Fetch, for slow observers.
        self.fetch_delay_s = 0.0
        self._context = context
        self._has_session = has_session
        self._incarnation_id = random_uuid()
        #: The epoch before the last clean shutdown, -1 for none.
        self._previous_epoch = -1
        self._key = ReplicaKey(id, self.directories[0])
        self._leader_epoch = 0
        self._leader: Endpoint | None = None
        self._bootstrap_at = id % len(context.bootstrap)
        self._peers: dict[str, Peer] = {}
        self._correlation = 0
        #: Pieces that are fetched, and of which a part is not committed yet.
        self._pieces: deque[LogPiece] = deque()
        self._download: _Download | None = None
        self._fetch_timer: asyncio.TimerHandle | None = None
        self._session_timer: asyncio.TimerHandle | None = None
        self._is_asking = False
        #: When the request became due that has no response without an error yet; else infinity.
        self._due_ms = _NEVER
        self._is_unfenced = False
        #: Called with the committed offset when it grows.
        self.on_applied: Callable[[LightBroker, int], None] | None = None

    def __repr__(self) -> str:
        return f"LightBroker({self.id}, {self.session.state.name}, end={self.position.end_offset})"

    @property
    def applied_offset(self) -> int:
        """The end (exclusive) of the metadata that this broker has applied in this run."""
        return self.session.offset

    @property
    def leader_port(self) -> int | None:
        """The port of the active controller, as far as this broker knows it."""
        return None if self._leader is None else self._leader.port

    @property
    def is_starting(self) -> bool:
        """Whether the broker is up and waits until the active controller unfences it."""
        return self.is_up and self.session.state in (BrokerState.STARTING, BrokerState.RECOVERY)

    @property
    def is_running(self) -> bool:
        """Whether the active controller has unfenced this incarnation, and it is not stopping."""
        return self.is_up and self.session.state is BrokerState.RUNNING

    # -- life and death

    def start(self, *, is_held: bool = False) -> None:
        """Start a process of this broker: a new incarnation with the log of the one before.

        A held one stays fenced until `release`, as a broker that loads its partitions for long.
        """
        assert not self.is_up, self
        self.is_up = True
        self.is_held = is_held
        self._incarnation_id = random_uuid()
        self.session = LifecycleState(self._context.heartbeat_interval_ms)
        self._is_asking = self._is_unfenced = False
        self._due_ms = _NEVER
        self.position.restart()
        # As in quorum-state: a replica knows the epochs of its records.
        self._leader_epoch = max(self._leader_epoch, self.position.last_epoch)
        self._fetch()
        self._schedule()

    def release(self) -> None:
        """Let a held broker ask to be unfenced, at once if it has caught up."""
        self.is_held = False
        if self.is_up and self.session.state is BrokerState.RECOVERY:
            self.session.loaded()
            self._schedule()

    def die(self) -> None:
        """Stop at once, as a killed process: its connections close and nothing is said."""
        self._previous_epoch = -1
        self._down()

    def stop(self) -> None:
        """Begin a controlled shutdown; the broker is down once the controller lets it go."""
        if not self.is_up:
            return
        if self.session.begin_controlled_shutdown():
            self._schedule()
        else:
            self._stopped()

    def note_clean_stop(self, epoch: int) -> None:
        """Let the next registration name the epoch whose process closed its logs in order, as
        Kafka's brokers do: the controllers keep the broker in the ELRs.
        """
        self._previous_epoch = epoch

    def note_fenced(self) -> None:
        """Note that the controller has fenced this broker, which may run: its session ended.

        The next heartbeat that finds it unfenced reports that.
        """
        self._is_unfenced = False

    def _stopped(self) -> None:
        self._previous_epoch = self.session.epoch
        self._context.report("broker_stopped", self.id, None)
        self._down()

    def _down(self) -> None:
        self.is_up = False
        self._correlation += 1
        for timer in (self._fetch_timer, self._session_timer):
            if timer is not None:
                timer.cancel()
        self._fetch_timer = self._session_timer = None
        if self._download is not None and self._download.loading is not None:
            self._context.shared.abandon_snapshot()
        self._download = None
        self._drop_pieces()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _drop_pieces(self) -> None:
        """Forget fetched records that are not applied, so that they are fetched again.

        A restarted broker has them on disk; here their bytes belong to the process.
        """
        if self._pieces:
            self.position.cut(self._pieces[0].base_offset)
            self._pieces.clear()

    def check_time(self, now: float) -> None:
        """Give up requests that have no response in time; call it a few times a second."""
        for peer in list(self._peers.values()):
            peer.check_time(now)

    # -- the observer

    def _peer(self, purpose: str, endpoint: Endpoint) -> Peer:
        peer = self._peers.get(purpose)
        if peer is not None and peer.endpoint == endpoint:
            return peer
        if peer is not None:
            peer.close()
        context = self._context
        if purpose == "raft":
            client_id, deliver = f"raft-client-{self.id}", self._delivered
        else:
            client_id, deliver = str(self.id), _no_event
        peer = self._peers[purpose] = Peer(
            *(context.loop, endpoint, client_id, deliver, context.warnings, context.security),
            *(BUFFER_SIZE, context.last_response.decode),
        )
        return peer

    def _fetch(self) -> None:
        """Send the next Fetch or FetchSnapshot."""
        self._fetch_timer = None
        if not self.is_up:
            return
        context, position = self._context, self.position
        endpoint = self._leader or context.bootstrap[self._bootstrap_at]
        request: FetchRequest | FetchSnapshotRequest
        if self._download is not None:
            request = FetchSnapshotRequest(
                context.cluster_id,
                self._key,
                self._leader_epoch,
                self._download.snapshot_id,
                self._download.position,
                SNAPSHOT_BYTES,
            )
        else:
            request = FetchRequest(
                context.cluster_id,
                self._key,
                self._leader_epoch,
                position.end_offset,
                position.last_epoch,
                FETCH_WAIT_MS,
                FETCH_BYTES,
                position.high_watermark,
            )
        self._correlation += 1
        self._peer("raft", endpoint).send(request, self._correlation, REQUEST_TIMEOUT_S)

    def _fetch_later(self, delay_s: float) -> None:
        if self.is_up and self._fetch_timer is None:
            self._fetch_timer = self._context.loop.call_later(delay_s, self._fetch)

    def _delivered(self, event: Event) -> None:
        correlation = getattr(event, "correlation", -1)
        if not self.is_up or correlation != self._correlation:
            return
        response = event.response if isinstance(event, ResponseReceived) else None
        if isinstance(response, (FetchResponse, FetchSnapshotResponse)):
            self._note_leader(response)
            if response.error == NONE:
                self._context.shared.counts.fetches += 1
                try:
                    if isinstance(response, FetchResponse):
                        self._fetched(response)
                    else:
                        self._downloaded(response)
                except KraftError as error:
                    # The connection would take it for a malformed response, and close.
                    self._context.broken(self.id, error)
                    return
                if self.fetch_delay_s:
                    self._fetch_later(self.fetch_delay_s)
                elif self._fetch_timer is None:
                    self._fetch()
                return
            if response.error in _SNAPSHOT_GONE:
                self._drop_download()
            elif response.error not in _LEADER_CHANGED:
                self._context.report(f"fetch_{error_name(response.error)}", self.id, None)
            if self._leader is None:
                self._try_next()
        else:
            # The connection failed, or there was no response in time.
            self._leader = None
            self._try_next()
        self._fetch_later(RETRY_S)

    def _try_next(self) -> None:
        self._bootstrap_at = (self._bootstrap_at + 1) % len(self._context.bootstrap)

    def _note_leader(self, response: FetchResponse | FetchSnapshotResponse) -> None:
        """Follow the leader that a response names, unless its epoch is over."""
        if response.epoch > self._leader_epoch:
            self._leader_epoch, self._leader = response.epoch, None
        if response.epoch < self._leader_epoch:
            return
        if response.error == NONE:
            asked = self._peers["raft"].endpoint
            if self._leader != asked:
                self._leader = asked
                self._schedule()
        elif response.leader_endpoints and response.leader_id >= 0:
            self._leader = response.leader_endpoints[0]
            self._schedule()
        elif response.error in _LEADER_CHANGED:
            self._leader = None

    def _fetched(self, response: FetchResponse) -> None:
        position, shared = self.position, self._context.shared
        if response.diverging_epoch is not None:
            position.truncate(response.diverging_epoch)
            while self._pieces and self._pieces[-1].end_offset > position.end_offset:
                # A piece that is cut through is fetched again from its begin.
                position.cut(self._pieces.pop().base_offset)
            return
        if response.snapshot_id is not None:
            self._begin_download(response.snapshot_id)
            return
        if response.records:
            assert not isinstance(response.records, LogSlice)
            piece = shared.receive(position.end_offset, response.records)
            position.append(piece.end_offset, piece.epochs)
            self._pieces.append(piece)
        is_news = position.commit(response.high_watermark)
        if is_news or self._pieces or self.session.offset < position.committed_offset:
            self._apply()

    def _apply(self) -> None:
        """Apply what is committed of the fetched pieces, and tell the session."""
        committed, shared = self.position.committed_offset, self._context.shared
        while self._pieces:
            piece = self._pieces[0]
            shared.commit(piece, committed)
            if piece.end_offset > committed:
                break
            self._pieces.popleft()
        applied = shared.stable_at(committed)
        if applied > self.session.offset:
            self.session.applied(applied)
            if self.session.due_ms == 0.0:
                self._schedule()
            if self.on_applied is not None:
                self.on_applied(self, applied)

    # -- snapshots

    def _begin_download(self, snapshot_id: OffsetAndEpoch) -> None:
        shared = self._context.shared
        loading = None
        if shared.next_offset < snapshot_id.offset:
            if shared.is_loading:
                # Another broker of the process loads one: its state is this broker's as well.
                self._fetch_later(0.1)
                return
            loading = shared.begin_snapshot(snapshot_id)
        self._drop_pieces()
        self._download = _Download(snapshot_id, loading)

    def _downloaded(self, response: FetchSnapshotResponse) -> None:
        download, shared = self._download, self._context.shared
        assert download is not None
        data = response.data
        assert not isinstance(data, SnapshotSlice)
        if (response.snapshot_id, response.position) != (download.snapshot_id, download.position):
            self._drop_download()
            return
        download.crc = crc32c(data, download.crc)
        download.position += len(data)
        shared.counts.snapshot_bytes += len(data)
        if download.loading is not None:
            shared.counts.decoded_snapshot_bytes += len(data)
            download.loading.add(data, response.size)
        if download.position < response.size:
            return
        self._download = None
        shared.check_snapshot(download.snapshot_id, download.crc)
        if download.loading is not None:
            shared.finish_snapshot(download.loading)
        self.position.begin_at(*download.snapshot_id)
        self._apply()

    def _drop_download(self) -> None:
        if self._download is not None and self._download.loading is not None:
            self._context.shared.abandon_snapshot()
        self._download = None

    # -- the session

    def _schedule(self) -> None:
        """Send the next heartbeat when it is due."""
        if not self.is_up or self._is_asking or not self._has_session:
            return
        if self._session_timer is not None:
            self._session_timer.cancel()
        now_ms = self._context.loop.time() * 1000
        next_ms = max(self.session.due_ms, now_ms)
        if next_ms == _NEVER:
            self._session_timer = None
            return
        self._due_ms = min(self._due_ms, next_ms)
        self._session_timer = self._context.loop.call_later((next_ms - now_ms) / 1000, self._ask)

    def _ask(self) -> None:
        """Register, or send a heartbeat."""
        self._session_timer = None
        if not self.is_up or self._is_asking:
            return
        if self._leader is None:
            self._session_timer = self._context.loop.call_later(_LEADER_WAIT_S, self._ask)
            return
        self._is_asking = True
        level = self._context.shared.state.state.metadata_version
        # No directory is cordoned; controllers that know the field expect that to be said.
        self.session.set_cordoned([] if level >= MetadataVersion.IBP_4_3_IV0 else None)
        self.session.sent()
        if self.session.epoch < 0:
            self._send(
                "heartbeat",
                BROKER_REGISTRATION,
                self._registration(),
                BrokerRegistrationResponseData,
                self._registered,
                _REGISTRATION_TIMEOUT_S,
            )
        else:
            self._send(
                "heartbeat",
                BROKER_HEARTBEAT,
                self.session.heartbeat(self.id),
                BrokerHeartbeatResponseData,
                self._beaten,
            )

    def _registration(self) -> BrokerRegistrationRequestData:
        return BrokerRegistrationRequestData(
            self.id,
            self._context.cluster_id,
            self._incarnation_id,
            [AdvertisedListener("PLAINTEXT", "127.0.0.1", _PORT, 0)],
            [SupportedFeatureRange(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            self.rack,
            log_dirs=self.directories,
            previous_broker_epoch=self._previous_epoch,
        )

    def _registered(self, response: BrokerRegistrationResponseData | None) -> None:
        now_ms = self._context.loop.time() * 1000
        self._is_asking = False
        if response is not None and response.error_code == NONE:
            self._due_ms = _NEVER
            self.session.registered(response.broker_epoch)
            self._context.report("broker_registered", self.id, None)
        else:
            self._failed("registration", response)
            self.session.failed(now_ms)
        self._schedule()

    def _beaten(self, response: BrokerHeartbeatResponseData | None) -> None:
        now_ms = self._context.loop.time() * 1000
        self._is_asking = False
        if response is None or response.error_code != NONE:
            self._failed("heartbeat", response)
            self.session.failed(now_ms)
            self._schedule()
            return
        late_ms = now_ms - self._due_ms
        self._due_ms = _NEVER
        if late_ms > self._context.heartbeat_interval_ms:
            self._context.report("heartbeat_late", self.id, late_ms)
        self._context.shared.counts.heartbeats += 1
        session = self.session
        was_starting = session.state is BrokerState.STARTING
        was_recovering = session.state is BrokerState.RECOVERY
        session.beaten(response, now_ms)
        if was_starting and session.state is not BrokerState.STARTING:
            self._context.report("broker_caught_up", self.id, None)
        if session.state is BrokerState.SHUTTING_DOWN:
            self._stopped()
            return
        if was_recovering and not session.is_loaded and not self.is_held:
            # A light broker has no log to load; one of Kafka sends a heartbeat while it loads its.
            session.loaded()
        if session.state is BrokerState.RUNNING and not self._is_unfenced:
            self._is_unfenced = True
            self._context.report("broker_unfenced", self.id, None)
        self._schedule()

    def _failed(self, what: str, response: Any) -> None:
        reason = "NO_RESPONSE" if response is None else error_name(response.error_code)
        self._context.report(f"{what}_{reason}", self.id, None)

    # -- requests

    @property
    def controller_versions(self) -> PeerVersions | None:
        """The ApiVersions response on the connection of the heartbeats."""
        peer = self._peers.get("heartbeat")
        return None if peer is None else peer.versions

    def call(
        self,
        purpose: str,
        api: Api,
        request: Message,
        answer: type[R],
        answered: Callable[[R | None], None],
    ) -> bool:
        """Send a request to the active controller; ``answered`` gets None without a response.

        Requests of one ``purpose`` have one connection. Returns False without a known leader.
        """
        if not self.is_up or self._leader is None:
            return False
        self._send(purpose, api, request, answer, answered, _PARTITIONS_TIMEOUT_S)
        return True

    def _send(
        self,
        purpose: str,
        api: Api,
        request: Message,
        answer: type[R],
        answered: Callable[[R | None], None],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        assert self._leader is not None
        life = self._incarnation_id

        def heard(response: R | None) -> None:
            if self.is_up and self._incarnation_id is life:
                answered(response)

        self._peer(purpose, self._leader).call(
            PeerCall(api, request.encode, answer.decode, heard, lambda is_unsupported: heard(None)),
            timeout_s,
        )


def _no_event(event: Event) -> None:
    """Take the events of a raft node, of which these connections have none."""
