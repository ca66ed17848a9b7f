"""Requests that come together are answered as if each had come alone at the same time."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kraft.raft.interface import RequestReceived, RequestsReceived, Role, SendResponse
from kraft.raft.rpc import FetchRequest, FetchSnapshotRequest, OffsetAndEpoch, Request
from tests.harness.raft_nodes import EPOCH, MAKERS, Driver, fetched_by, key

WAIT_MS = 300
#: The number of the first request.
FIRST = 1000


def some_requests(seed: int) -> list[Request]:
    """Return fetches of 20 observers: with and without news, of other epochs, of other logs."""
    draw = random.Random(seed)
    requests: list[Request] = []
    for id in range(10, 30):
        epoch = draw.choices((EPOCH, EPOCH - 1, EPOCH + 1), (18, 2, 1))[0]
        if draw.random() < 0.1:
            at = OffsetAndEpoch(draw.randrange(8), EPOCH)
            requests.append(FetchSnapshotRequest("cluster", key(id), epoch, at, 0, 100))
            continue
        offset, last_epoch = draw.choice(((7, EPOCH), (6, 2), (4, 1), (0, 0), (9, 2), (7, 2)))
        requests.append(
            FetchRequest("cluster", key(id), epoch, offset, last_epoch, WAIT_MS, 100, 7)
        )
    return requests


def answers_of(node: Driver, requests: Sequence[Request], *, together: bool) -> dict[int, object]:
    """Return the responses by the number of the request, also those that had to wait."""
    received = [RequestReceived(request, at) for at, request in enumerate(requests, FIRST)]
    events = [RequestsReceived(received)] if together else received
    sent = []
    for event in events:
        sent += node.step(event).sent
    sent += node.append().sent
    if node.role is Role.LEADER:
        fetched_by(node, 2)
        sent += node.sent
    sent += node.wait(WAIT_MS).sent
    return {
        each.reply_to: each.response
        for each in sent
        if isinstance(each, SendResponse) and each.reply_to >= FIRST
    }


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("seed", range(10))
def test_requests_that_come_together_are_answered_as_alone(role: Role, seed: int) -> None:
    requests = some_requests(seed)
    alone = answers_of(MAKERS[role](), requests, together=False)
    together = answers_of(MAKERS[role](), requests, together=True)
    assert together == alone
    assert len(alone) > 3
