"""Brokers of one process with group coordinators, on real logs and replica drivers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kraft.broker.apis.find_coordinator import find_coordinator_api
from kraft.broker.apis.forwarding import AdminForwarding
from kraft.broker.apis.groups import group_apis
from kraft.broker.apis.topic_creation import NewTopicSettings, TopicCreation
from kraft.broker.group_driver import GroupDriver
from kraft.broker.group_settings import GroupSettings
from kraft.broker.groups import OFFSETS_TOPIC
from kraft.errors import error_name
from kraft.image.publishing import Phase
from kraft.protocol.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequestData,
    FindCoordinatorResponseData,
)
from kraft.protocol.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequestData,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponseData,
)
from kraft.protocol.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequestData,
    OffsetFetchRequestGroup,
    OffsetFetchResponseData,
)
from tests.harness.data_brokers import CONTROLLER, DataBroker, DataCluster, LocalChannel

SETTINGS = GroupSettings(
    group_initial_rebalance_delay_ms=0,
    group_min_session_timeout_ms=1,
    offsets_commit_timeout_ms=500,
)
#: Errors after which a client looks for the coordinator, and asks again.
RETRIED = {
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "REQUEST_TIMED_OUT",
}


def code_of(response: Any) -> int:
    if isinstance(response, OffsetCommitResponseData):
        return response.topics[0].partitions[0].error_code
    if isinstance(response, OffsetFetchResponseData):
        return response.groups[0].error_code
    code: int = response.error_code
    return code


class GroupCluster:
    """Brokers with group coordinators; requests go to the coordinator that is found."""

    def __init__(self, path: Path, *ids: int, **named: Any) -> None:
        self.data = DataCluster(path, *ids, **named)
        self.groups: dict[int, GroupDriver] = {}

    async def start(self) -> None:
        await self.data.start()
        for broker in self.data.brokers.values():
            self.attach(broker)

    def attach(self, broker: DataBroker) -> None:
        """Give a started broker its group coordinators."""
        channel = LocalChannel(self.data.links, broker.id, CONTROLLER)
        topic = SETTINGS.offsets_topic
        creation = TopicCreation(
            AdminForwarding(channel, lambda listener, principal: b""),
            lambda: NewTopicSettings(internal={topic.name: topic}),
        )
        groups = self.groups[broker.id] = GroupDriver(
            broker.driver, SETTINGS, lambda: creation.create((OFFSETS_TOPIC,))
        )
        services = GroupApiServices(broker, groups)
        for api in (*group_apis(services), find_coordinator_api(services)):
            broker.apis[api.api.key] = api
        broker.images.register(groups, Phase.COORDINATORS)
        broker.images.publish(broker._state.next_offset)

    def stop(self, id: int, *, is_clean: bool) -> None:
        self.groups.pop(id).close()
        self.data[id].stop(is_clean=is_clean)

    async def restart(self, id: int) -> None:
        await self.data[id].start()
        self.attach(self.data[id])

    def close(self) -> None:
        for groups in self.groups.values():
            groups.close()
        self.data.close()

    async def ask(self, group: str, api: Any, request: Any, answer: Any) -> Any:
        """Find the coordinator, as a client: ask again until there is an answer of one."""
        while True:
            up = [one for one in self.data.brokers.values() if one.is_up]
            found = await up[0].ask(
                FIND_COORDINATOR,
                FindCoordinatorRequestData(key_type=0, coordinator_keys=[group]),
                FindCoordinatorResponseData,
            )
            id = found.coordinators[0].node_id
            if id in self.groups:
                response = await self.data[id].ask(api, request(), answer)
                if error_name(code_of(response)) not in RETRIED:
                    return response
            await asyncio.sleep(0.01)
            self.data.beat_all()

    async def commit(
        self, offset: int, group: str = "g", member: tuple[str, int] | None = None
    ) -> int:
        member_id, generation = member or ("", -1)

        def request() -> OffsetCommitRequestData:
            partitions = [OffsetCommitRequestPartition(0, offset)]
            topics = [OffsetCommitRequestTopic(topic_id=self.topic_id, partitions=partitions)]
            return OffsetCommitRequestData(group, generation, member_id, topics=topics)

        response = await self.ask(group, OFFSET_COMMIT, request, OffsetCommitResponseData)
        code: int = code_of(response)
        return code

    async def offset(self, group: str = "g") -> int:
        def request() -> OffsetFetchRequestData:
            groups = [OffsetFetchRequestGroup(group)]
            return OffsetFetchRequestData(topics=[], groups=groups, require_stable=True)

        response = await self.ask(group, OFFSET_FETCH, request, OffsetFetchResponseData)
        topics = response.groups[0].topics
        return topics[0].partitions[0].committed_offset if topics else -1

    async def create(self, count: int = 2) -> None:
        """Create ``__consumer_offsets``, and a topic u whose offsets `commit` commits."""
        self.topic_id = await self.data.create("u", list(self.data.brokers))
        ids = list(self.data.brokers)
        self.offsets_id = await self.data.create(
            OFFSETS_TOPIC,
            *([*ids[number % len(ids) :], *ids[: number % len(ids)]] for number in range(count)),
            configs={"cleanup.policy": "compact"},
        )


class GroupApiServices:
    """What the APIs of groups need of a broker."""

    def __init__(self, broker: DataBroker, groups: GroupDriver) -> None:
        self.groups = groups
        self.image = broker.image
