"""Creation of ``__consumer_offsets`` by the first client that looks for a coordinator.

One request is on its way at a time; a client that gets COORDINATOR_NOT_AVAILABLE meanwhile asks
again, and so the creation is repeated until it succeeds. Called by ``group_driver``.
Source: ``DefaultAutoTopicCreationManager`` (4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.errors import TOPIC_ALREADY_EXISTS, KraftError, error_name
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.headers import Api

logger = logging.getLogger(__name__)

#: request.timeout.ms of a broker, the time that Kafka gives the controller.
_TIMEOUT_MS = 30_000

Answer = TypeVar("Answer", bound=Message)


class CreationChannel(Protocol):
    """A connection to the active controller; `ControllerChannel` is one."""

    async def call(
        self, api: Api, request: Message, answer: type[Answer], *, timeout_ms: float
    ) -> Answer:
        """Return the response. Raises RequestTimedOutError and UnsupportedVersionError."""


class OffsetsTopicCreation:
    """Asks the controller to create a topic. Create it on the event loop."""

    def __init__(self, topic: CreatableTopic, controller: CreationChannel) -> None:
        self._topic = topic
        self._controller = controller
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Send the request, unless one is on its way."""
        if self._task is None:
            self._task = self._loop.create_task(self._create())
            self._task.add_done_callback(self._ended)

    def close(self) -> None:
        """Wait for no response any more."""
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None

    async def _create(self) -> None:
        name = self._topic.name
        request = CreateTopicsRequestData([self._topic], timeout_ms=_TIMEOUT_MS)
        try:
            response = await self._controller.call(
                CREATE_TOPICS, request, CreateTopicsResponseData, timeout_ms=_TIMEOUT_MS
            )
        except KraftError as error:
            logger.warning("cannot create topic %s: %s", name, error)
            return
        for topic in response.topics:
            if topic.error_code == 0:
                logger.info("created topic %s for the group coordinators", name)
            elif topic.error_code != TOPIC_ALREADY_EXISTS:
                logger.warning(
                    "cannot create topic %s: %s: %s",
                    *(name, error_name(topic.error_code), topic.error_message),
                )
