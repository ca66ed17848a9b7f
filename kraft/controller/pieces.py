"""Looking at a request of any size, a few milliseconds at a time.

Owns how much of a large request about topics is looked at before others have their turn; what is
found is planned first and written later, so that all that can be refused is refused by then. Fed by
`topics`, `growth` and `deletion`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kraft.controller.decision import NO_RECORDS, Records

#: Entries of a request that are only counted, at a time.
LOOKS_AT_A_TIME = 5_000
#: What planning may cost at a time, in partitions; a topic costs as much as some.
_COST_OF_PIECE = 10_000
_COST_OF_TOPIC = 40


class Plan(Protocol):
    """What will become of one topic; ``replicas`` are those that are placed already."""

    @property
    def replicas(self) -> NDArray[np.int32]: ...


Topic = TypeVar("Topic")
Topic_contra = TypeVar("Topic_contra", contravariant=True)
APlan = TypeVar("APlan", bound=Plan)
APlan_co = TypeVar("APlan_co", bound=Plan, covariant=True)


class Counting(Protocol[Topic_contra]):
    """A request in which what is named twice is refused."""

    def count(self, topics: Sequence[Topic_contra], /) -> None: ...


class Planning(Counting[Topic_contra], Protocol[Topic_contra, APlan_co]):
    """A request whose topics are checked and planned one by one."""

    def admits(self, topic: Topic_contra, /) -> bool: ...
    def plan(self, topic: Topic_contra, /) -> APlan_co | None: ...


def count_in_pieces(
    request: Counting[Topic], topics: Sequence[Topic]
) -> Generator[Records, None, None]:
    """Has the request count all its topics; what it gives is empty."""
    for start in range(0, len(topics), LOOKS_AT_A_TIME):
        if start:
            yield NO_RECORDS
        request.count(topics[start : start + LOOKS_AT_A_TIME])


def plan_in_pieces(
    request: Planning[Topic, APlan], topics: Sequence[Topic]
) -> Generator[Records, None, deque[APlan]]:
    """The plans of what is admitted and can be; what it gives until then is empty.

    Each plan is to be given up once it is carried out: giving up all at the end would take long.
    """
    yield from count_in_pieces(request, topics)
    plans: deque[APlan] = deque()
    cost = 0
    for topic in topics:
        plan = request.plan(topic) if request.admits(topic) else None
        cost += _COST_OF_TOPIC
        if plan is not None:
            plans.append(plan)
            cost += len(plan.replicas)
        if cost > _COST_OF_PIECE:
            yield NO_RECORDS
            cost = 0
    return plans
