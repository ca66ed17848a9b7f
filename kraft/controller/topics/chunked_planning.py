"""Plan a large request about topics in chunks of a few milliseconds.

The request is checked and planned in full before its first record is written, so that every error
comes before the first record. Between two chunks other events run. Called by `topic_creation`,
`partition_creation` and `topic_deletion`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kraft.controller.decision import NO_RECORDS, Records

#: Entries of a request that are counted in one chunk.
ENTRIES_PER_CHUNK = 5_000
#: Cost of planning per chunk, in partitions, and the cost of one topic.
_COST_PER_CHUNK = 10_000
_COST_OF_TOPIC = 40


class TopicPlan(Protocol):
    """The plan of one topic; ``replicas`` holds the partitions that are already placed."""

    @property
    def replicas(self) -> NDArray[np.int32]: ...


Topic = TypeVar("Topic")
Topic_contra = TypeVar("Topic_contra", contravariant=True)
AnyPlan = TypeVar("AnyPlan", bound=TopicPlan)
AnyPlan_co = TypeVar("AnyPlan_co", bound=TopicPlan, covariant=True)


class Counting(Protocol[Topic_contra]):
    """A request that rejects entries that name the same topic twice."""

    def count(self, topics: Sequence[Topic_contra], /) -> None: ...


class Planning(Counting[Topic_contra], Protocol[Topic_contra, AnyPlan_co]):
    """A request whose topics are checked and planned one by one."""

    def admits(self, topic: Topic_contra, /) -> bool: ...
    def plan(self, topic: Topic_contra, /) -> AnyPlan_co | None: ...


def count_in_chunks(
    request: Counting[Topic], topics: Sequence[Topic]
) -> Generator[Records, None, None]:
    """Pass all topics to ``request.count``; yields empty records."""
    for start in range(0, len(topics), ENTRIES_PER_CHUNK):
        if start:
            yield NO_RECORDS
        request.count(topics[start : start + ENTRIES_PER_CHUNK])


def plan_in_chunks(
    request: Planning[Topic, AnyPlan], topics: Sequence[Topic]
) -> Generator[Records, None, deque[AnyPlan]]:
    """Return the plans of the accepted topics; yields empty records.

    The caller pops each plan when it carries it out: freeing all of them at the end would take
    long.
    """
    yield from count_in_chunks(request, topics)
    plans: deque[AnyPlan] = deque()
    cost = 0
    for topic in topics:
        plan = request.plan(topic) if request.admits(topic) else None
        cost += _COST_OF_TOPIC
        if plan is not None:
            plans.append(plan)
            cost += len(plan.replicas)
        if cost > _COST_PER_CHUNK:
            yield NO_RECORDS
            cost = 0
    return plans
