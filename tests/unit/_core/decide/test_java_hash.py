"""The iteration orders of Java's HashMap and of Kafka's TimelineHashMap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft._core.decide import java_hash
from kraft._core.decide.java_hash import (
    hash_map_order,
    hash_map_order_of_ids,
    java_string_hash,
    timeline_map_order,
)
from kraft.controller.brokers.broker_lifecycle import register_broker
from kraft.controller.brokers.sessions import BrokerSessions
from kraft.controller.state import usable_brokers
from tests.harness.decisions import Lab, registration
from tests.reference.placement_cases import MEETING


def test_a_hash_code_is_javas() -> None:
    assert [java_string_hash(text) for text in ("", "a", "Aa", "BB")] == [0, 97, 2112, 2112]
    assert java_string_hash("\U0001f600") == 0xD83D * 31 + 0xDE00


def test_ids_wrap_around_the_table_and_keep_their_order_within_a_bucket() -> None:
    assert hash_map_order_of_ids([101, 102, 103, 112]) == [112, 101, 102, 103]
    assert hash_map_order_of_ids([501, 101, 4]) == [4, 501, 101]
    # A map that once held 13 entries has 32 buckets: 101 is in bucket 5 and 501 in bucket 21.
    assert hash_map_order_of_ids([501, 101, 4], most=13) == [4, 101, 501]


def test_a_timeline_map_returns_the_last_entry_of_a_slot_first() -> None:
    # A map of two entries has two slots: the slot is the top bit of id * 2**64 / golden ratio.
    assert timeline_map_order([1, 2], 2) == [2, 1]
    assert timeline_map_order([1, 3], 2) == [3, 1]
    assert timeline_map_order([3, 1], 2) == [1, 3]
    assert timeline_map_order(range(6), 6) == [5, 0, 2, 4, 1, 3]


def test_a_bucket_of_many_entries_becomes_a_tree_as_in_java() -> None:
    # The order in which a HashMap of Java 17 iterated over these names, as indexes of MEETING.
    given_by_java = [7, 3, 0, 1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
    order = [MEETING.index(name) for name in map(str, hash_map_order(MEETING[:20]))]
    assert order == given_by_java


@given(
    codes=st.lists(st.integers(0, 63) | st.integers(0, 0xFFFFFFFF), unique=True, max_size=400),
    stride=st.sampled_from([1, 16, 64]),
    most=st.integers(0, 900),
)
def test_the_whole_table_at_once_has_the_order_of_entries_put_in_one_by_one(
    codes: list[int], stride: int, most: int
) -> None:
    wide = [code * stride & 0xFFFFFFFF for code in codes]
    spread = [code ^ code >> 16 for code in wide]
    assert java_hash._positions(wide, most) == java_hash._positions_one_by_one(spread, most)


def test_brokers_are_placed_on_in_the_order_of_kafkas_heartbeat_manager() -> None:
    lab = Lab(0)
    for id in (18, 2, 1):
        request = registration(id)
        lab.do(register_broker(lab.cluster, request, next_offset=lab.cluster.next_offset))
    sessions = BrokerSessions()
    sessions.activate(lab.cluster, 0.0)
    after_activation = [broker.id for broker in usable_brokers(lab.cluster, sessions)]
    assert after_activation == [broker.id for broker in usable_brokers(lab.cluster)]
    assert after_activation[0] == 1
    lab.do(register_broker(lab.cluster, registration(34), next_offset=lab.cluster.next_offset))
    sessions.reset_broker(lab.cluster, 34)
    assert [broker.id for broker in usable_brokers(lab.cluster, sessions)] == [
        *after_activation,
        34,
    ]
