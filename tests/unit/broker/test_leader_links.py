"""The connections of a follower's fetches to leaders that do not answer."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import pytest

from kraft._core.codec.metadata_codec import Message
from kraft.broker.leader_links import LeaderLinks
from kraft.broker.replication.messages import BrokerFetchRequest
from kraft.broker.replication.replica_fetching import FetchToSend
from kraft.protocol.headers import Api

Answer = TypeVar("Answer", bound=Message)


class DeadChannel:
    """A connection to a broker that does not run."""

    async def call(
        self, api: Api, request: Message, answer: type[Answer], *, timeout_ms: float
    ) -> Answer:
        raise ConnectionError("refused")

    def close(self) -> None:
        pass


def test_each_dead_leader_is_logged_once_and_not_at_each_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    links = LeaderLinks(lambda leader_id: DeadChannel(), 1, {}, 1000)

    async def scenario() -> None:
        for number in range(20):
            for leader_id in (2, 3):
                fetch = FetchToSend(leader_id, number, BrokerFetchRequest(()))
                assert await links.fetch(fetch) is None

    asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "broker 2 did not answer a follower: refused",
        "broker 3 did not answer a follower: refused",
    ]
