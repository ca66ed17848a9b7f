"""Placement: random numbers as in Java, striping as in Kafka, and rejected requests."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from kraft._core.decide.java_hash import hash_map_order
from kraft._core.decide.placement import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    JavaRandom,
    PlacementSpec,
    ReplicaPlacer,
    StripedPlacer,
    UsableBroker,
    UsableBrokers,
    default_directories,
    default_directory,
)
from kraft.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidRequestError,
)
from tests.reference.placement_cases import answer_of_kernel, read_corpus


def test_placements_equal_those_of_kafka_in_the_corpus() -> None:
    pairs = read_corpus()
    answers = [placed for _, answer in pairs for placed in answer.placed]
    assert sum(placed is None for placed in answers) > 20
    assert sum(bool(placed) for placed in answers) > 200
    for case, answer in pairs:
        assert answer_of_kernel(case) == answer


def test_java_random_gives_the_numbers_that_java_gives() -> None:
    # The first numbers of Java's new Random(0), and of new Random(42) for each kind of bound.
    generator = JavaRandom(0)
    assert [generator.next_int() for _ in range(3)] == [-1155484576, -723955400, 1033096058]
    assert [JavaRandom(42).next_int(bound) for bound in (1, 10, 16)] == [0, 0, 11]


def test_java_random_draws_again_where_java_does_and_shuffles_like_java() -> None:
    # Java's new Random(42), printed by tests/interop: with this bound Java redraws half of them.
    generator = JavaRandom(42)
    drawn = [generator.next_int(2**30 + 1) for _ in range(4)]
    assert drawn == [117392763, 102948884, 662969970, 595021505]
    values = list(range(10))
    JavaRandom(42).shuffle(values)
    assert values == [4, 6, 2, 1, 7, 9, 8, 5, 3, 0]


def test_java_random_takes_any_seed_and_keeps_its_low_48_bits() -> None:
    assert JavaRandom(-1).next_int() == JavaRandom(2**48 - 1).next_int() == 1155099827


@pytest.mark.parametrize("bound", [0, -1, 2**31])
def test_java_random_rejects_a_bound_that_java_rejects(bound: int) -> None:
    with pytest.raises(ValueError, match="bound must be between 1 and 2147483647"):
        JavaRandom(0).next_int(bound)


def test_racks_come_in_the_order_of_a_java_hash_map() -> None:
    # "a" (97) and "q" (113) share bucket 1 of 16, in order of insertion; None is in bucket 0.
    assert hash_map_order(["q", "b", "a", None]) == [None, "q", "a", "b"]
    # The thirteenth entry doubles the table to 32 buckets: "q" is in bucket 17, "a" in 1.
    letters = list("qbacdefghijkl")
    assert hash_map_order(letters) == [*"abcdefghijkl", "q"]


def test_nine_racks_in_one_bucket_double_a_small_table() -> None:
    # Nine names have one hash code; "a" and "q" share a bucket of 16 buckets, but not of 32.
    four = ["AaAa", "AaBB", "BBAa", "BBBB"]
    same_hash = [first + second for first in four for second in four][:9]
    assert hash_map_order(["q", "a"]) == ["q", "a"]
    ordered = hash_map_order(["q", "a", *same_hash])
    assert [name for name in ordered if name in ("q", "a")] == ["a", "q"]
    assert [name for name in ordered if name in same_hash] == same_hash


def test_partitions_are_striped_over_racks_and_brokers() -> None:
    cluster = [UsableBroker(id, f"rack-{id % 3}") for id in range(30)]
    replicas = StripedPlacer(JavaRandom(7)).place(PlacementSpec(0, 3000, 3), cluster)
    assert replicas.dtype == np.int32
    assert replicas.shape == (3000, 3)
    assert (np.sort(replicas % 3, axis=1) == [0, 1, 2]).all()
    assert (np.bincount(replicas.ravel()) == 300).all()
    assert (np.bincount(replicas[:, 0]) == 100).all()


def test_fenced_brokers_never_lead_and_are_taken_last_within_their_rack() -> None:
    cluster = [UsableBroker(id, "only", fenced=id < 4) for id in range(8)]
    placer = StripedPlacer(JavaRandom(3))
    replicas = placer.place(PlacementSpec(0, 500, 4), cluster)
    assert (replicas >= 4).all()
    replicas = placer.place(PlacementSpec(0, 500, 6), cluster)
    assert (replicas[:, :4] >= 4).all()
    assert (replicas[:, 4:] < 4).all()


def test_usable_brokers_give_the_same_as_a_plain_list() -> None:
    cluster = [UsableBroker(id, str(id % 5), id % 7 == 0) for id in range(40)]
    prepared = UsableBrokers(cluster)
    plain = StripedPlacer(JavaRandom(1))
    quick = StripedPlacer(JavaRandom(1))
    for spec in (PlacementSpec(0, 10, 3), PlacementSpec(10, 200, 3), PlacementSpec(0, 1, 40)):
        np.testing.assert_array_equal(plain.place(spec, cluster), quick.place(spec, prepared))
    assert list(prepared) == cluster
    assert (len(prepared), prepared.unfenced_count, prepared[3]) == (40, 34, cluster[3])


def test_a_rejected_request_says_what_to_do_and_advances_the_generator_as_in_kafka() -> None:
    cluster = [UsableBroker(1, "a"), UsableBroker(2, "b", fenced=True)]
    placer = StripedPlacer(JavaRandom(5))
    with pytest.raises(InvalidReplicationFactorError, match="ask for at most 2, or start more"):
        placer.place(PlacementSpec(0, 1, 3), cluster)
    # The rejected request draws three numbers: one for each rack's list, one for the racks.
    twin = JavaRandom(5)
    for bound in (1, 1, 2):
        twin.next_int(bound)
    assert placer.random.next_int() == twin.next_int()


def test_invalid_placements_are_rejected() -> None:
    placer = StripedPlacer(JavaRandom(0))
    alive = [UsableBroker(1), UsableBroker(2)]
    with pytest.raises(InvalidReplicationFactorError, match="not positive: ask for at least 1"):
        placer.place(PlacementSpec(0, 1, 0), alive)
    with pytest.raises(InvalidReplicationFactorError, match="none of the 1 usable broker"):
        placer.place(PlacementSpec(0, 1, 1), [UsableBroker(1, fenced=True)])
    with pytest.raises(InvalidReplicationFactorError, match="none of the 0 usable broker"):
        placer.place(PlacementSpec(0, 1, 1), [])
    with pytest.raises(InvalidPartitionsError, match="-1 partitions"):
        placer.place(PlacementSpec(0, -1, 1), alive)
    with pytest.raises(InvalidRequestError, match="broker 1 is listed twice"):
        placer.place(PlacementSpec(0, 1, 1), [UsableBroker(1), UsableBroker(1, "b")])
    with pytest.raises(InvalidRequestError, match="broker id -1"):
        UsableBrokers([UsableBroker(-1)])
    assert placer.place(PlacementSpec(0, 0, 2), alive).shape == (0, 2)


def test_the_default_directory_is_the_only_one_or_left_to_the_broker() -> None:
    one, other = b"1" * 16, b"2" * 16
    assert default_directory((one,)) == one
    assert default_directory((one, other)) == UNASSIGNED_DIRECTORY
    assert default_directory(()) == MIGRATING_DIRECTORY


def test_default_directories_of_a_placement_are_indexes_into_a_few_ids() -> None:
    one, other = b"1" * 16, b"2" * 16
    cluster = [
        UsableBroker(0, directories=(one,)),
        UsableBroker(5, directories=(one, other)),
        UsableBroker(2**31 - 1, directories=(other,)),
        UsableBroker(65536),
    ]
    replicas = np.array([[0, 5], [2**31 - 1, 65536], [8, -1]], dtype=np.int32)
    uuids, index = default_directories(replicas, cluster)
    assert uuids[0] == UNASSIGNED_DIRECTORY
    assert index.dtype == np.int32
    assert [[uuids[number] for number in row] for row in index.tolist()] == [
        [one, UNASSIGNED_DIRECTORY],
        [other, MIGRATING_DIRECTORY],
        [UNASSIGNED_DIRECTORY, UNASSIGNED_DIRECTORY],
    ]


def test_any_object_with_place_is_a_placer() -> None:
    class FirstBrokers:
        def place(self, placement: PlacementSpec, cluster: object) -> np.ndarray:
            row = np.arange(placement.replication_factor, dtype=np.int32)
            return np.tile(row, (placement.num_partitions, 1))

    assert isinstance(FirstBrokers(), ReplicaPlacer)
    assert isinstance(StripedPlacer(JavaRandom(0)), ReplicaPlacer)
    assert not isinstance(JavaRandom(0), ReplicaPlacer)


def test_threads_may_share_usable_brokers_each_with_its_own_generator() -> None:
    cluster = UsableBrokers([UsableBroker(id, f"r{id % 4}") for id in range(50)])
    spec = PlacementSpec(0, 20_000, 3)
    placed: dict[int, np.ndarray] = {}

    def work(seed: int) -> None:
        placed[seed] = StripedPlacer(JavaRandom(seed)).place(spec, cluster)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, replicas in placed.items():
        alone = StripedPlacer(JavaRandom(seed)).place(spec, cluster)
        np.testing.assert_array_equal(replicas, alone)


def test_constructors_need_all_arguments() -> None:
    for kind in (JavaRandom, UsableBrokers, StripedPlacer):
        with pytest.raises(TypeError):
            kind.__new__(kind)
    with pytest.raises(TypeError):
        StripedPlacer(None)  # type: ignore[arg-type]
