"""The placement kernel and its twin place the same replicas, draw for draw, on any cluster."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft._core.decide.java_hash import hash_map_order
from kraft._core.decide.placement import JavaRandom
from tests.reference import placement_twin as twin
from tests.reference.placement_cases import Answer, Case, Replicas, answer_of_kernel

SEEDS = st.integers(-(2**63), 2**63 - 1)
RACKS = st.none() | st.sampled_from(["a", "q", "A", "Q", "Aa", "BB", ""]) | st.text(max_size=3)


def answer_of_twin(case: Case) -> Answer:
    generator = twin.Random(case.seed)
    placed: list[Replicas] = []
    for partition_count, replication_factor in case.requests:
        try:
            placed.append(twin.place(generator, case.brokers, partition_count, replication_factor))
        except twin.RefusedError:
            placed.append(None)
    return Answer(placed, generator.any_int())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    racks = draw(st.lists(RACKS, min_size=1, max_size=30, unique=True))
    ids = draw(st.lists(st.integers(0, 2**31 - 1), max_size=25, unique=True))
    brokers = [(id, draw(st.sampled_from(racks)), draw(st.booleans())) for id in ids]
    requests = draw(
        st.lists(
            st.tuples(st.integers(0, 80), st.integers(-1, len(ids) + 1)), min_size=1, max_size=4
        )
    )
    return Case(draw(SEEDS), brokers, requests)


@given(cases())
@settings(max_examples=300, deadline=None)
def test_the_kernel_equals_its_twin(case: Case) -> None:
    assert answer_of_kernel(case) == answer_of_twin(case)


@given(SEEDS, st.lists(st.integers(0, 2**31 - 1), max_size=50))
def test_the_draws_equal_those_of_the_twin(seed: int, bounds: list[int]) -> None:
    kernel, slow = JavaRandom(seed), twin.Random(seed)
    for bound in bounds:
        expected = slow.below(bound) if bound else slow.any_int()
        assert kernel.next_int(bound or None) == expected


@given(SEEDS, st.lists(st.integers(), max_size=100))
def test_shuffles_equal_those_of_the_twin(seed: int, values: list[int]) -> None:
    shuffled, expected = list(values), list(values)
    JavaRandom(seed).shuffle(shuffled)
    twin.Random(seed).shuffle(expected)
    assert shuffled == expected


@given(st.lists(st.none() | st.text("AaBbQq\U0001f600", max_size=5), max_size=120, unique=True))
def test_racks_are_ordered_as_in_buckets(racks: list[str | None]) -> None:
    buckets = twin.HashMap()
    for rack in racks:
        buckets.add(rack)
    assert hash_map_order(racks) == buckets.racks()
