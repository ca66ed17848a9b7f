"""Brokers with group drivers over real replica managers, whose fetches a test carries by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from typing_extensions import Buffer

from kraft import records
from kraft._core.codec.message_schema import Uuid
from kraft._core.codec.metadata_codec import Message
from kraft.broker.apis.find_coordinator import find_coordinator_api
from kraft.broker.apis.forwarding import AdminForwarding
from kraft.broker.apis.groups import group_apis
from kraft.broker.apis.topic_creation import NewTopicSettings, TopicCreation
from kraft.broker.group_driver import GroupDriver
from kraft.broker.group_settings import GroupSettings
from kraft.broker.groups import OFFSETS_TOPIC
from kraft.broker.replication.messages import PartitionId, ProducedPartition
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.image.publishing import Image, Phase
from kraft.image.security import AclOperation, PatternType, PermissionType, ResourceType
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.create_topics import CreatedTopicData, CreateTopicsResponseData
from kraft.protocol.headers import Api
from kraft.records import Record
from kraft.security.authorizer import Authorizer
from kraft.security.principals import ANONYMOUS, KafkaPrincipal
from kraft.server.apis.api import AnyApi, CallContext
from kraft.simulation.replica_log import ReplicaLog
from tests.harness.joined_brokers import DIRECTORY, JoinedBroker, JoinedBrokers

OFFSETS_ID = Uuid(b"o" * 16)
LISTENER = "PLAINTEXT"
#: Short times, so that tests wait for real timers.
QUICK = {
    "group_min_session_timeout_ms": 1,
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 2,
}
Answer = TypeVar("Answer", bound=Message)


class SteppedReplicas:
    """The replicas of one broker: calls the manager, and carries its answers out."""

    def __init__(self, broker: JoinedBroker) -> None:
        self._broker = broker
        self.after_step: list[Any] = []
        #: A test clears it while the metadata wait to be applied.
        self.is_settled = asyncio.Event()
        self.is_settled.set()

    @property
    def manager(self) -> ReplicaManager:
        return self._broker.manager

    def produce(
        self, batches: Mapping[PartitionId, Buffer], acks: int, timeout_ms: float
    ) -> asyncio.Future[dict[PartitionId, ProducedPartition]]:
        answer: asyncio.Future[dict[PartitionId, ProducedPartition]]
        answer = asyncio.get_running_loop().create_future()
        self.manager.produce(answer, batches, acks, timeout_ms, self._broker.now)
        self.step()
        return answer

    def step(self) -> None:
        """Carry out what the manager has answered."""
        self._broker.take()
        answers = self._broker.answers
        for token in [token for token in answers if isinstance(token, asyncio.Future)]:
            token.set_result(answers.pop(token))
        for call in self.after_step:
            call()

    async def settled(self) -> None:
        await self.is_settled.wait()


class Controller:
    """Takes CreateTopics requests, and answers them with ``code`` when `answer` is set."""

    def __init__(self, code: int = 0) -> None:
        self.requests: list[Message] = []
        self.code = code
        self.answer = asyncio.Event()
        self.waiting = 0
        self.versions: PeerVersions | None = None

    async def call(
        self, api: Api, request: Message, answer: type[Answer], *, timeout_ms: float
    ) -> Answer:
        # The body is what a controller would read.
        self.requests.append(type(request).decode(request.encode(api.highest), api.highest))
        self.waiting += 1
        try:
            await self.answer.wait()
        finally:
            self.waiting -= 1
        response = CreateTopicsResponseData(
            topics=[CreatedTopicData(OFFSETS_TOPIC, error_code=self.code)]
        )
        assert isinstance(response, answer)
        return response


class OffsetsBroker:
    """One broker: replicas, group driver, and the APIs of groups by key."""

    def __init__(
        self, brokers: JoinedBrokers, id: int, settings: GroupSettings, *, authorizes: bool
    ) -> None:
        self.id = id
        self.joined = brokers[id]
        self.replicas = SteppedReplicas(self.joined)
        self.controller = Controller()
        topic = settings.offsets_topic
        self.creation = TopicCreation(
            AdminForwarding(self.controller, lambda listener, principal: b""),
            lambda: NewTopicSettings(internal={topic.name: topic}),
        )
        self.groups = GroupDriver(
            self.replicas, settings, lambda: self.creation.create((OFFSETS_TOPIC,))
        )
        self.authorizer = Authorizer() if authorizes else None
        images = self.joined.images
        images.register(self.groups, Phase.COORDINATORS)
        if self.authorizer is not None:
            images.register(self.authorizer, Phase.OTHERS)
        apis: list[AnyApi] = [*group_apis(self), find_coordinator_api(self)]
        self.apis = {api.api.key: api for api in apis}

    def image(self) -> Image:
        image = self.joined.images.image
        assert image is not None
        return image

    async def ask(
        self,
        api: Api,
        request: Message,
        answer: type[Answer],
        version: int | None = None,
        user: str | None = None,
    ) -> Answer:
        """Send the bytes of a request in a version, the newest by default; decode the response."""
        version = api.highest if version is None else version
        context = CallContext(
            version,
            api.name,
            KafkaPrincipal("User", user) if user else ANONYMOUS,
            "127.0.0.1",
            "c",
            LISTENER,
            authorizer=self.authorizer,
        )
        reply = await self.apis[api.key].reply(context, request.encode(version))
        return answer.decode(reply.body, version)

    def log(self, partition: int = 0) -> ReplicaLog:
        return self.joined.log(PartitionId(bytes(OFFSETS_ID), partition))

    async def loaded(self) -> None:
        """Wait until all partitions that the broker leads are loaded."""
        while self.groups._loading is not None or self.groups._following is not None:
            await asyncio.sleep(0.001)


class OffsetsBrokers:
    """Brokers whose metadata have ``__consumer_offsets``, once it is created, and a topic t."""

    def __init__(
        self, *ids: int, min_isr: int = 1, authorizes: bool = False, **settings: Any
    ) -> None:
        self.ids = ids
        self.joined = JoinedBrokers(*ids, min_isr=min_isr)
        values = QUICK | settings
        self.partition_count: int = values["offsets_topic_num_partitions"]
        self.brokers = {
            id: OffsetsBroker(self.joined, id, GroupSettings(**values), authorizes=authorizes)
            for id in ids
        }
        self.append(*(self._registration(id) for id in ids))

    def __getitem__(self, id: int) -> OffsetsBroker:
        return self.brokers[id]

    @staticmethod
    def _registration(id: int) -> Record:
        return records.RegisterBroker(
            broker_id=id,
            broker_epoch=id,
            incarnation_id=Uuid(bytes([id]) * 16),
            fenced=False,
            end_points=[
                records.EndpointData(
                    name=LISTENER, host=f"host-{id}", port=9000 + id, security_protocol=0
                )
            ],
            log_dirs=[DIRECTORY],
        )

    def append(self, *changes: Record) -> None:
        """Append records to the metadata, and let all brokers have them."""
        self.joined.append(*changes)
        for broker in self.brokers.values():
            broker.replicas.step()

    def create_topic(self, name: str, topic_id: Uuid, partitions: int = 1) -> None:
        """Create a topic that the first broker leads alone."""
        self.append(
            records.Topic(name=name, topic_id=topic_id),
            *(
                records.Partition(
                    partition_id=partition,
                    topic_id=topic_id,
                    replicas=[self.ids[0]],
                    isr=[self.ids[0]],
                    leader=self.ids[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[DIRECTORY],
                )
                for partition in range(partitions)
            ),
        )

    async def create_offsets_topic(self, leader: int, isr: list[int] | None = None) -> None:
        """Create ``__consumer_offsets`` with all brokers as replicas, and wait until it loads."""
        ids = list(self.ids)
        self.append(
            records.Topic(name=OFFSETS_TOPIC, topic_id=OFFSETS_ID),
            *(
                records.Partition(
                    partition_id=partition,
                    topic_id=OFFSETS_ID,
                    replicas=ids,
                    isr=ids if isr is None else isr,
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[DIRECTORY] * len(ids),
                )
                for partition in range(self.partition_count)
            ),
        )
        await self[leader].loaded()

    async def lead(self, leader: int, isr: list[int] | None = None) -> None:
        """Make a broker the leader of all partitions of the topic, and wait until it loads."""
        self.change(leader=leader, isr=isr)
        for broker in self.brokers.values():
            await broker.loaded()

    def change(self, **fields: Any) -> None:
        """Change all partitions of the topic."""
        given = {name: value for name, value in fields.items() if value is not None}
        self.append(
            *(
                records.PartitionChange(partition_id=partition, topic_id=OFFSETS_ID, **given)
                for partition in range(self.partition_count)
            )
        )

    def replicate(self, follower: int) -> None:
        """Let a follower fetch all, and the leaders know it."""
        self.joined.replicate(follower, rounds=3)
        for broker in self.brokers.values():
            broker.replicas.step()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.groups.close()
            broker.creation.close()


def acl(number: int, user: str, operation: AclOperation, kind: ResourceType, name: str) -> Record:
    """Return an ACL that allows a user an operation."""
    return records.AccessControlEntry(
        id=Uuid(bytes([number]) * 16),
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=PermissionType.ALLOW,
    )
