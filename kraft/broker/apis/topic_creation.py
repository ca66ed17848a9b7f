"""Create topics that clients ask for and that do not exist, by the active controller.

A Metadata request creates topics in the name of its client (``auto.create.topics.enable``): the
controller checks whether the client may. The broker itself creates the topics of coordinators. The
request that caused a creation does not wait for it: its client asks again, and meanwhile a topic in
flight is not created a second time. Called by ``kraft.broker.apis.metadata`` and the coordinators.
Source: Kafka's ``DefaultAutoTopicCreationManager`` (4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kraft.broker.apis.forwarding import AdminForwarding
from kraft.broker.request_channels import ActiveControllerChannel
from kraft.errors import NONE, TOPIC_ALREADY_EXISTS, KraftError, error_name
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.headers import newest_common_version
from kraft.server.apis.api import CallContext

logger = logging.getLogger(__name__)


class NewTopicSettings(NamedTuple):
    """``num.partitions``, ``default.replication.factor`` and ``request.timeout.ms`` of a broker.

    ``internal`` has the topics of coordinators, by name.
    """

    num_partitions: int = 1
    default_replication_factor: int = 1
    request_timeout_ms: int = 30_000
    internal: Mapping[str, CreatableTopic] = MappingProxyType({})


class TopicCreation:
    """Creates missing topics; ``inflight`` are those whose creation has no result yet.

    ``settings`` returns the present settings. Create it on the event loop.
    """

    def __init__(
        self, forwarding: AdminForwarding, settings: Callable[[], NewTopicSettings]
    ) -> None:
        self._forwarding = forwarding
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()
        self.inflight: set[str] = set()

    def create(self, names: Iterable[str], client: CallContext | None = None) -> None:
        """Begin to create the topics that are not in flight, in the name of ``client``.

        The names are valid. Without a client the broker itself asks.
        """
        new = [name for name in dict.fromkeys(names) if name not in self.inflight]
        if not new:
            return
        self.inflight.update(new)
        task = asyncio.get_running_loop().create_task(self._create(new, client))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            # Also of a task that is cancelled before its first step.
            self._tasks.discard(task)
            self.inflight.difference_update(new)

        task.add_done_callback(ended)

    def close(self) -> None:
        """Forget the creations in flight; the controller may still do them."""
        for task in self._tasks:
            task.cancel()

    async def _create(self, names: list[str], client: CallContext | None) -> None:
        try:
            response = await self._ask(names, client)
        except KraftError as error:
            logger.warning("topics %s could not be created: %s", names, error)
        else:
            for topic in response.topics:
                if topic.error_code not in (NONE, TOPIC_ALREADY_EXISTS):
                    logger.warning(
                        "topic %r could not be created: %s (%s)",
                        topic.name,
                        error_name(topic.error_code),
                        topic.error_message,
                    )

    async def _ask(self, names: list[str], client: CallContext | None) -> CreateTopicsResponseData:
        settings = self._settings()
        request = CreateTopicsRequestData(
            [_topic(name, settings) for name in names], settings.request_timeout_ms
        )
        controller = self._forwarding.controller
        if client is None:
            return await controller.call(
                CREATE_TOPICS,
                request,
                CreateTopicsResponseData,
                timeout_ms=self._forwarding.timeout_ms,
            )
        version = _version(controller)
        context = client._replace(version=version, api_name=CREATE_TOPICS.name)
        body = await self._forwarding.forward(CREATE_TOPICS, request.encode(version), context)
        return CreateTopicsResponseData.decode(body, version)


def _version(controller: ActiveControllerChannel) -> int:
    """Return the newest version that the controller has; ours while none is known."""
    peer = controller.versions
    version = None if peer is None else newest_common_version(CREATE_TOPICS, peer.ranges)
    return CREATE_TOPICS.highest if version is None else version


def _topic(name: str, settings: NewTopicSettings) -> CreatableTopic:
    internal = settings.internal.get(name)
    if internal is not None:
        return internal
    return CreatableTopic(name, settings.num_partitions, settings.default_replication_factor)
