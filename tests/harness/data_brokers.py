"""Brokers of one process: replica drivers on real logs, joined to each other and to a controller.

Every request is encoded and decoded, in the newest version that both sides support. A test cuts
connections, lets them stay silent, and delays the metadata of a broker. The controller is a
`QuorumController`; its API handlers are those of a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, cast

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.codec.metadata_codec import Message
from kraft._core.log.segment import SegmentPool
from kraft.broker.apis.data_apis import data_apis
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.log_store import PartitionLogStore
from kraft.broker.producer_ids import AllocatedProducerIds
from kraft.broker.replica_driver import ReplicaDriver
from kraft.broker.replication.leader_fetcher import FetcherSettings
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.partition import HostedPartition
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.broker.replication.settings import ReplicationSettings
from kraft.broker.topic_settings import EffectiveTopicSettings
from kraft.controller.features import LocalFeatures
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.controller.topics.topic_creation import NewTopic
from kraft.errors import RequestTimedOutError
from kraft.image import NodeEndpoint
from kraft.image.publishing import Image, ImagePublishing, Phase
from kraft.image.replay import MetadataState
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.headers import Api
from kraft.records import Uuid
from kraft.security.authorizer import Authorizer
from kraft.security.principals import ANONYMOUS, KafkaPrincipal
from kraft.server.apis.api import AnsweringApi, CallContext
from kraft.server.apis.brokers import broker_apis
from kraft.server.controller import ControllerRunner
from kraft.server.driver import now_ms
from tests.harness.controller import LEADER_CHANGE_END, ControllerLog
from tests.harness.decisions import directory, registration

Answer = TypeVar("Answer", bound=Message)
LISTENER = "PLAINTEXT"
CONTROLLER = -1
#: More than broker.session.timeout.ms.
SESSION_MS = 20_000.0
#: The time in which a test's brokers must reach a state.
PATIENCE_S = 60.0
FAST = ReplicationSettings(
    max_lag_ms=400.0, fetcher=FetcherSettings(max_wait_ms=50, backoff_ms=20.0)
)


@dataclass(frozen=True)
class Properties:
    """The properties file of a broker."""

    node_id: int
    given: dict[str, str] = field(default_factory=dict)


class LocalChannel:
    """A connection within the process; the node at the other end is found at each request."""

    def __init__(self, links: Links, source: int, target: int) -> None:
        self._links = links
        self._source, self._target = source, target
        self._closed = asyncio.get_running_loop().create_future()
        #: The versions of the APIs that differ from the newest, for a node of an older release.
        self.newest: dict[int, int] = {}
        self.versions: PeerVersions | None = None

    @property
    def is_closed(self) -> bool:
        return self._closed.done()

    async def call(
        self, api: Api, request: Message, answer: type[Answer], *, timeout_ms: float
    ) -> Answer:
        version = self.newest.get(api.key, api.highest)
        work = asyncio.ensure_future(
            self._links.carry(self._source, self._target, api, version, request.encode(version))
        )
        await asyncio.wait(
            (work, self._closed),
            timeout=timeout_ms / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not work.done() or self.is_closed:
            work.cancel()
            raise self._unanswered(api)
        return answer.decode(work.result(), version)

    def _unanswered(self, api: Api) -> Exception:
        if self._target == CONTROLLER:
            return RequestTimedOutError(f"no controller answered {api.name}")
        return ConnectionError(f"broker {self._target} did not answer {api.name}")

    def close(self) -> None:
        if not self.is_closed:
            self._closed.set_result(None)


class Links:
    """The connections between nodes, and their faults."""

    def __init__(self) -> None:
        self.answer_of: dict[int, Callable[[Api, int, bytes], Any]] = {}
        #: Pairs of (source, target) whose requests fail at once, or are never answered.
        self.cut: set[tuple[int, int]] = set()
        self.silent: set[tuple[int, int]] = set()
        #: (source, target, API) of all requests.
        self.carried: list[tuple[int, int, str]] = []

    async def carry(self, source: int, target: int, api: Api, version: int, body: bytes) -> bytes:
        self.carried.append((source, target, api.name))
        if (source, target) in self.cut or target not in self.answer_of:
            raise ConnectionError(f"there is no way from {source} to {target}")
        answered: bytes = await self.answer_of[target](api, version, body)
        if (source, target) in self.silent:
            await asyncio.get_running_loop().create_future()
        return answered


class _Runner:
    """The controller as its API handlers use it: it commits each operation at once."""

    def __init__(self, cluster: DataCluster) -> None:
        self._cluster = cluster

    async def submit(self, operation: Operation, *, timeout_ms: float | None = None) -> Any:
        return self._cluster.ask(operation)


class DataCluster:
    """A controller and brokers with the given ids, started by `start`.

    ``given`` are the properties of every broker; ``directories`` how many log directories it has.
    """

    def __init__(
        self,
        path: Path,
        *ids: int,
        settings: ReplicationSettings = FAST,
        given: dict[str, str] | None = None,
        directories: int = 1,
        authorizer: Authorizer | None = None,
        **fields: Any,
    ) -> None:
        self.log = ControllerLog(**fields)
        self.log.lead()
        self.links = Links()
        self.settings = settings
        self.given = given or {}
        self.directories = directories
        self.authorizer = authorizer
        self._delivered = 0
        runner = cast(ControllerRunner, _Runner(self))
        local = LocalFeatures(1)
        apis = {each.api.key: each for each in broker_apis(runner, "", local)}

        async def answer(api: Api, version: int, body: bytes) -> bytes:
            reply = await apis[api.key].reply(CallContext(version, api.name), body)
            assert isinstance(reply.body, bytes)
            return reply.body

        self.links.answer_of[CONTROLLER] = answer
        self.brokers = {id: DataBroker(self, id, path / f"broker-{id}") for id in ids}

    def __getitem__(self, id: int) -> DataBroker:
        return self.brokers[id]

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.is_up:
                broker.stop(is_clean=False)

    # -- the controller

    def ask(self, operation: Operation) -> Any:
        """Decide and commit an operation; bring its records to the brokers; return its response."""
        token = self.log.submit(operation)
        self.log.settle()
        self.deliver()
        answer = self.log.answers[token]
        if answer.error is not None:
            raise answer.error
        return answer.response

    def deliver(self) -> None:
        """Bring the metadata to all brokers that run and are not held back."""
        for broker in self.brokers.values():
            if broker.is_up and not broker.is_held_back:
                broker.take_metadata()

    def beat_all(self) -> None:
        """Send a heartbeat of every broker that runs and is registered."""
        for broker in self.brokers.values():
            if broker.is_up and broker.epoch >= 0:
                self.log.heartbeat(broker.id)
        self.log.settle()
        self.deliver()

    def beat(self, broker: int, **fields: Any) -> None:
        self.log.heartbeat(broker, **fields)
        self.log.settle()
        self.deliver()

    def fence(self, broker: int) -> None:
        """Fence a broker; it is alive, and does not know it before its next metadata."""
        self.beat(broker, wants_fence=True)

    async def create(
        self, name: str, *assignments: list[int], configs: dict[str, str] | None = None
    ) -> Uuid:
        """Create a topic with the replicas of each partition; the first one leads."""
        topic_id = self.log.controller.context.random_uuid()
        topic = NewTopic(
            name, topic_id, assignments=dict(enumerate(assignments)), configs=configs or {}
        )
        created = self.ask(requests.create_topics([topic]))
        assert not isinstance(created[name], Exception), created[name]
        await self.settle()
        return topic_id

    async def settle(self) -> None:
        for broker in self.brokers.values():
            if broker.is_up:
                await broker.driver.settled()

    def state_of(self, id: PartitionId) -> dict[str, Any]:
        table = self.log.controller.cluster.table
        return table.state_of(table.row_of(table.topic_number_by_id(id.topic_id), id.partition))

    def isr(self, id: PartitionId) -> set[int]:
        """Return the committed ISR of a partition."""
        return set(self.state_of(id)["isr"])


class DataBroker:
    """One broker; `start` begins a process of it."""

    def __init__(self, cluster: DataCluster, id: int, path: Path) -> None:
        self.cluster = cluster
        self.id = id
        self.path = path
        self.is_up = False
        #: Whether the metadata wait until a test brings them by `take_metadata`.
        self.is_held_back = False
        #: The epoch of the registration of this process, -1 before it.
        self.epoch = -1
        self._taken = 0
        self._incarnations = count(1)
        self.channels: list[LocalChannel] = []

    async def start(self) -> None:
        """Begin a process: open the logs, register, apply the metadata."""
        cluster, id = self.cluster, self.id
        ids = {}
        for number in range(cluster.directories):
            path = self.path / str(number)
            path.mkdir(parents=True, exist_ok=True)
            ids[str(path)] = directory(id, number)
        self.topics = EffectiveTopicSettings(Properties(id, cluster.given))
        pool = SegmentPool(100)
        self.logs = LogManager(
            [
                LogDirectory(
                    path,
                    id=bytes(directory_id),
                    now_ms=lambda: int(now_ms()),
                    pool=pool,
                    on_failure=self._directory_failed,
                )
                for path, directory_id in ids.items()
            ],
            self.topics.log_settings,
        )
        self.logs.load()
        self.topics.attach(self.logs)
        self.store = PartitionLogStore(self.logs)
        sessions = count(1)
        self.manager = ReplicaManager(
            id, self.store, self.topics, lambda: next(sessions), cluster.settings
        )
        self.isr_channel = LocalChannel(cluster.links, id, CONTROLLER)
        self.driver = self.replicas = ReplicaDriver(
            self.manager,
            store=self.store,
            channels=self._channel_to,
            isr_channel=self.isr_channel,
            directory_channel=LocalChannel(cluster.links, id, CONTROLLER),
            broker_id=id,
            request_timeout_ms=1_000.0,
        )
        self.producer_ids = AllocatedProducerIds(
            LocalChannel(cluster.links, id, CONTROLLER), id, lambda: self.epoch
        )
        self.apis: dict[int, AnsweringApi] = {
            each.api.key: each for each in data_apis(self, self.producer_ids)
        }
        self._state = MetadataState(journaling=True)
        self._state.next_offset = LEADER_CHANGE_END
        was_registered = self._taken > 0
        self._taken = 0
        self.images = ImagePublishing(self._state, self._failed)
        self.images.register(self.topics, Phase.REPLICA_MANAGER)
        self.images.register(self.driver, Phase.REPLICA_MANAGER)
        self.is_up = True
        cluster.links.answer_of[id] = self._answer
        self._register(ids, is_new=not was_registered)
        await self.driver.settled()

    def _register(self, ids: dict[str, Uuid], *, is_new: bool) -> None:
        cluster = self.cluster
        request = registration(
            self.id,
            next(self._incarnations),
            endpoints=[NodeEndpoint(LISTENER, f"host-{self.id}", 9092, 0)],
            log_dirs=list(ids.values()),
            previous_broker_epoch=self.logs.clean_broker_epoch,
        )
        if not is_new:
            # The session of an earlier process has to end; the others are alive.
            cluster.log.now_ms += SESSION_MS
        cluster.beat_all()
        self.epoch = cluster.ask(requests.register_broker(request))
        self.driver.begin(self.epoch)
        cluster.beat_all()

    def stop(self, *, is_clean: bool = True) -> None:
        """End the process."""
        self.is_up = False
        self.epoch, epoch = -1, self.epoch
        self.cluster.links.answer_of.pop(self.id, None)
        self.driver.close()
        self.producer_ids.close()
        if is_clean:
            self.driver.note_high_watermarks()
            self.logs.close(epoch)

    def _directory_failed(self, failed: LogDirectory) -> None:
        self.driver.directory_failed(failed.id)

    def _failed(self, name: str, error: Exception) -> None:
        raise AssertionError(f"{name} of broker {self.id} failed") from error

    # -- metadata

    def take_metadata(self) -> None:
        """Apply and publish the committed metadata."""
        batches = self.cluster.log.batches
        for _, batch in batches[self._taken :]:
            self._state.apply(batch)
        self._taken = len(batches)
        self.images.publish(self._state.next_offset)

    def image(self) -> Image:
        assert self.images.image is not None
        return self.images.image

    # -- requests

    def _channel_to(self, target: int) -> LocalChannel | None:
        if target not in self.image().state.brokers:
            return None
        channel = LocalChannel(self.cluster.links, self.id, target)
        self.channels.append(channel)
        return channel

    async def _answer(self, api: Api, version: int, body: bytes) -> bytes:
        return await self.reply(api, version, body)

    async def reply(
        self,
        api: Api,
        version: int,
        body: bytes,
        principal: KafkaPrincipal = ANONYMOUS,
        client_id: str = "test",
    ) -> bytes:
        """Return the body of the response to an encoded request."""
        context = CallContext(
            version,
            api.name,
            principal,
            client_id=client_id,
            listener=LISTENER,
            authorizer=self.cluster.authorizer,
        )
        answered = (await self.apis[api.key].reply(context, body)).body
        if isinstance(answered, bytes):
            return answered
        return b"".join(part.read() if isinstance(part, FileSlice) else part for part in answered)

    async def ask(
        self,
        api: Api,
        request: Message,
        answer: type[Answer],
        version: int | None = None,
        **sender: Any,
    ) -> Answer:
        """Send a request to this broker; return its response."""
        chosen = api.highest if version is None else version
        body = await self.reply(api, chosen, request.encode(chosen), **sender)
        return answer.decode(body, chosen)

    # -- replicas

    def partition(self, id: PartitionId) -> HostedPartition:
        return self.manager.partitions[id]

    def id_of(self, topic: str, partition: int = 0) -> PartitionId:
        """Return the id of a partition of this broker."""
        (id,) = (
            id
            for id, each in self.manager.partitions.items()
            if (each.topic, id.partition) == (topic, partition)
        )
        return id

    def content(self, id: PartitionId) -> bytes:
        """Return the bytes of a partition's log, as far as one segment has them."""
        log = self.partition(id).local_log
        if log.start_offset == log.end_offset:
            return b""
        found = log.read(log.start_offset, 1 << 30, log.end_offset)
        assert isinstance(found, FileSlice)
        return found.read()


async def until(is_reached: Callable[[], bool]) -> None:
    """Wait for a state; fail if it is not reached in `PATIENCE_S`."""
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while not is_reached():
        assert asyncio.get_running_loop().time() < end, "the state was not reached"
        await asyncio.sleep(0.002)


@contextmanager
def running(cluster: DataCluster) -> Iterator[DataCluster]:
    """Close the cluster at the end of a test."""
    try:
        yield cluster
    finally:
        cluster.close()
