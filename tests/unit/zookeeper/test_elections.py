"""The election strategies, compared with their definition on random partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft.zookeeper.elections import (
    Elected,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
)

BROKERS = st.integers(1, 6)
REPLICAS = st.lists(BROKERS, min_size=1, max_size=5, unique=True)
SETS = st.sets(BROKERS)


def first(some: list[int]) -> int | None:
    return some[0] if some else None


@given(REPLICAS, st.lists(BROKERS, max_size=5, unique=True), SETS, st.booleans())
def test_offline(replicas: list[int], isr: list[int], online: set[int], unclean: bool) -> None:
    clean = first([one for one in replicas if one in online and one in isr])
    dirty = first([one for one in replicas if one in online]) if unclean else None
    elected = elect_offline(replicas, isr, online, unclean=unclean)
    if clean is not None:
        assert elected == Elected(clean, tuple(one for one in isr if one in online))
    elif dirty is not None:
        assert elected == Elected(dirty, (dirty,))
    else:
        assert elected is None


@given(REPLICAS, st.lists(BROKERS, max_size=5, unique=True), SETS)
def test_preferred_and_reassigned(replicas: list[int], isr: list[int], online: set[int]) -> None:
    may = [one for one in replicas if one in online and one in isr]
    wanted = None if not may else Elected(may[0], tuple(isr))
    assert elect_reassigned(replicas, isr, online) == wanted
    preferred = Elected(replicas[0], tuple(isr)) if replicas[0] in may else None
    assert elect_preferred(replicas, isr, online) == preferred


@given(REPLICAS, st.lists(BROKERS, max_size=5, unique=True), SETS, SETS)
def test_controlled_shutdown(
    replicas: list[int], isr: list[int], online: set[int], stopping: set[int]
) -> None:
    leader = first([one for one in replicas if one in (online & set(isr)) - stopping])
    elected = elect_for_shutdown(replicas, isr, online, stopping)
    if leader is None:
        assert elected is None
    else:
        assert elected == Elected(leader, tuple(one for one in isr if one not in stopping))
