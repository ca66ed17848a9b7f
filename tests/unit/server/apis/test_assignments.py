"""The memory of a request that places every partition itself."""

from __future__ import annotations

import gc
import tracemalloc

from kraft.protocol.create_topics import (
    CreatableAssignment,
    CreatableTopic,
    CreateTopicsRequestData,
)
from kraft.server.apis.topics import _new_topic

COUNT = 20_000


def test_a_manual_assignment_is_in_memory_once() -> None:
    assignments = [CreatableAssignment(id, [1, 2, 3]) for id in range(COUNT)]
    request = CreateTopicsRequestData([CreatableTopic("t", -1, -1, assignments)], 30_000)
    body = request.encode(7)
    gc.collect()
    tracemalloc.start()
    try:
        decoded = CreateTopicsRequestData.decode(body, 7)
        topic = _new_topic(decoded.topics[0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # 176 bytes; the decoded objects beside the pairs took 340.
    assert peak / COUNT < 220
    assert list(topic.assignments) == [(id, [1, 2, 3]) for id in range(COUNT)]
