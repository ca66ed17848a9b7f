"""Who leads a partition: the election strategies of the controllers, as pure functions.

Each returns the new leader and ISR, or None if no replica may lead, and says which brokers have to
know. Rules: ``PartitionLeaderElectionAlgorithms`` and ``leaderFor…`` of Kafka 1.1.1,
``PartitionLeaderSelector.scala`` of 0.8.2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import NamedTuple


class ElectionStrategy(Enum):
    """Why a leader is elected."""

    #: The leader is dead. With unclean election any live replica may lead.
    OFFLINE = "offline"
    #: The leader is not among the replicas that a reassignment wants.
    REASSIGN = "reassign"
    #: Only the first replica.
    PREFERRED = "preferred"
    #: The leader's broker shuts down.
    CONTROLLED_SHUTDOWN = "controlled shutdown"


class Elected(NamedTuple):
    """The new leader and ISR."""

    leader: int
    isr: tuple[int, ...]


def elect_offline(
    replicas: Sequence[int], isr: Sequence[int], online: Collection[int], *, unclean: bool
) -> Elected | None:
    """Elect the first online replica in the ISR; with ``unclean`` else the first online one.

    The new ISR are the online members of the old one, or the unclean leader alone.
    """
    for replica in replicas:
        if replica in online and replica in isr:
            return Elected(replica, tuple(one for one in isr if one in online))
    if unclean:
        for replica in replicas:
            if replica in online:
                return Elected(replica, (replica,))
    return None


def elect_reassigned(
    wanted: Sequence[int], isr: Sequence[int], online: Collection[int]
) -> Elected | None:
    """Elect the first of the wanted replicas that is online and in the ISR, which stays."""
    return _first(wanted, isr, lambda one: one in online)


def elect_preferred(
    replicas: Sequence[int], isr: Sequence[int], online: Collection[int]
) -> Elected | None:
    """Elect the first replica if it is online and in the ISR, which stays."""
    return _first(replicas[:1], isr, lambda one: one in online)


def elect_for_shutdown(
    replicas: Sequence[int],
    isr: Sequence[int],
    online: Collection[int],
    shutting_down: Collection[int],
) -> Elected | None:
    """Elect the first online replica in the ISR that does not shut down.

    Brokers that shut down leave the ISR.
    """
    found = _first(replicas, isr, lambda one: one in online and one not in shutting_down)
    if found is None:
        return None
    return Elected(found.leader, tuple(one for one in isr if one not in shutting_down))


def elect_for_shutdown_0_8(isr: Sequence[int], shutting_down: Collection[int]) -> Elected | None:
    """Elect the first of the ISR that does not shut down, as Kafka 0.8: alive or not."""
    remaining = tuple(one for one in isr if one not in shutting_down)
    return Elected(remaining[0], remaining) if remaining else None


def _first(
    replicas: Sequence[int], isr: Sequence[int], may_lead: Callable[[int], bool]
) -> Elected | None:
    for replica in replicas:
        if replica in isr and may_lead(replica):
            return Elected(replica, tuple(isr))
    return None
