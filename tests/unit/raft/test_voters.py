"""Voter sets: membership, majorities, the setting of static voters, the control record."""

import pytest

from kraft.errors import InvalidConfigError
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import control
from tests.harness.raft_nodes import LISTENER, directory, dynamic, endpoint, key, static, voter


def test_a_dynamic_voter_has_a_directory_id() -> None:
    assert static(1, 2).is_voter(key(1))
    assert static(1, 2).is_voter(ReplicaKey(1))
    assert dynamic(1, 2).is_voter(key(1))
    assert not dynamic(1, 2).is_voter(key(1, 7))
    assert not dynamic(1, 2).is_voter(ReplicaKey(1))
    assert not static(1, 2).is_voter(key(3))


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_majority_is_more_than_half_of_the_voters(size: int, majority: int) -> None:
    assert dynamic(*range(size)).majority == majority


def test_changes_make_a_new_voter_set() -> None:
    three = dynamic(1, 2, 3)
    assert three.with_voter(voter(4)) == dynamic(1, 2, 3, 4)
    assert three.without(2) == dynamic(1, 3)
    assert three == dynamic(1, 2, 3)
    moved = VoterNode(key(2), (endpoint(22),), KRaftVersionRange(1, 1))
    assert three.with_voter(moved).get(2) == moved
    assert len(three.with_voter(moved)) == 3


@pytest.mark.parametrize(
    ("one", "other", "overlaps"),
    [
        ((1, 2, 3), (1, 2, 3), True),
        ((1, 2, 3), (1, 2, 3, 4), True),
        ((1, 2, 3), (1, 2), True),
        ((1, 2, 3), (1, 2, 4), True),
        ((1, 2, 3), (1, 2, 3, 4, 5), False),
        ((1, 2, 3, 4, 5), (1, 2, 3), False),
        ((1, 2, 3), (1, 4, 5), False),
    ],
)
def test_majorities_overlap_after_one_change(
    one: tuple[int, ...], other: tuple[int, ...], overlaps: bool
) -> None:
    assert dynamic(*one).has_overlapping_majority(dynamic(*other)) is overlaps
    assert dynamic(*other).has_overlapping_majority(dynamic(*one)) is overlaps


def test_voters_survive_their_control_record() -> None:
    voters = VoterSet(
        [
            VoterNode(key(3), (endpoint(3), Endpoint("OTHER", "h", 1)), KRaftVersionRange(0, 1)),
            VoterNode(key(1), (endpoint(1),), KRaftVersionRange(1, 1)),
        ]
    )
    record = voters.to_record()
    assert [entry.voter_id for entry in record.voters] == [1, 3]
    assert VoterSet.from_record(record) == voters
    encoded = control.encode_control(record)
    decoded = control.decode_control(6, encoded)
    assert isinstance(decoded, control.KRaftVoters)
    assert VoterSet.from_record(decoded) == voters


def test_the_setting_of_static_voters_is_parsed() -> None:
    voters = VoterSet.parse("1@host1:9001, 2@[::1]:9002,", LISTENER)
    assert voters.ids == {1, 2}
    second = voters.get(2)
    assert second is not None
    assert second.endpoint(LISTENER) == Endpoint(LISTENER, "::1", 9002)
    assert second.key == ReplicaKey(2)
    assert len(VoterSet.parse("", LISTENER)) == 0


@pytest.mark.parametrize(
    "setting", ["1", "1@host", "1@host:", "1@:x", "x@host:1", "@h:1", "1@h:65536", "1@h:1,1@i:2"]
)
def test_a_malformed_setting_is_rejected(setting: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"controller\.quorum\.voters"):
        VoterSet.parse(setting, LISTENER)


def test_endpoints_have_no_order() -> None:
    """Kafka writes endpoints in the order of a hash map: another order is no change."""
    other = Endpoint("OTHER", "host", 1)
    one = VoterNode(key(1), (endpoint(1), other), KRaftVersionRange(0, 1))
    assert one.is_equivalent(VoterNode(key(1), (other, endpoint(1)), KRaftVersionRange(0, 1)))
    assert not one.is_equivalent(VoterNode(key(1), (endpoint(1),), KRaftVersionRange(0, 1)))
    assert not one.is_equivalent(VoterNode(key(1, 7), one.endpoints, KRaftVersionRange(0, 1)))
    assert not one.is_equivalent(VoterNode(key(1), one.endpoints, KRaftVersionRange(0, 2)))


def test_replica_keys_include_the_directory() -> None:
    assert key(1) != key(1, 7)
    assert key(1) == ReplicaKey(1, directory(1))
