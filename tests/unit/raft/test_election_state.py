"""``quorum-state`` byte by byte as Kafka 4.3.1's FileQuorumStateStore writes it."""

from contextlib import suppress

import pytest

from kraft.errors import CorruptRecordError, UnsupportedVersionError
from kraft.raft.election_state import ElectionState
from kraft.raft.voters import ReplicaKey
from kraft.records import Uuid

DIRECTORY = Uuid.parse("0BABAAAAAAAAAAAAAAAAAA")
VOTERS = '"appliedOffset":0,"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}]'
NONE = "AAAAAAAAAAAAAAAAAAAAAA"

#: A state, and the files that Kafka writes for it with kraft.version 0 and 1.
WRITTEN = [
    (
        ElectionState(7),
        f'{{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":-1,{VOTERS},"data_version":0}}',
        f'{{"leaderId":-1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"{NONE}",'
        '"data_version":1}',
    ),
    (
        ElectionState(7, 2),
        f'{{"clusterId":"","leaderId":2,"leaderEpoch":7,"votedId":-1,{VOTERS},"data_version":0}}',
        f'{{"leaderId":2,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"{NONE}",'
        '"data_version":1}',
    ),
    (
        ElectionState(7, 2, ReplicaKey(3, DIRECTORY)),
        f'{{"clusterId":"","leaderId":2,"leaderEpoch":7,"votedId":3,{VOTERS},"data_version":0}}',
        '{"leaderId":2,"leaderEpoch":7,"votedId":3,"votedDirectoryId":"0BABAAAAAAAAAAAAAAAAAA",'
        '"data_version":1}',
    ),
    (
        ElectionState(7, -1, ReplicaKey(3, DIRECTORY)),
        f'{{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":3,{VOTERS},"data_version":0}}',
        '{"leaderId":-1,"leaderEpoch":7,"votedId":3,"votedDirectoryId":"0BABAAAAAAAAAAAAAAAAAA",'
        '"data_version":1}',
    ),
    (
        ElectionState(7, -1, ReplicaKey(3)),
        f'{{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":3,{VOTERS},"data_version":0}}',
        f'{{"leaderId":-1,"leaderEpoch":7,"votedId":3,"votedDirectoryId":"{NONE}",'
        '"data_version":1}',
    ),
]


@pytest.mark.parametrize(("state", "version_0", "version_1"), WRITTEN)
def test_the_bytes_equal_kafkas(state: ElectionState, version_0: str, version_1: str) -> None:
    assert state.to_bytes(0, {3, 1, 2}).decode() == version_0
    assert state.to_bytes(1, {3, 1, 2}).decode() == version_1


@pytest.mark.parametrize(("state", "version_0", "version_1"), WRITTEN)
def test_files_of_kafka_are_read(state: ElectionState, version_0: str, version_1: str) -> None:
    assert ElectionState.from_bytes(version_1.encode()) == state
    # Version 0 has no field for the voted directory.
    voted = None if state.voted is None else ReplicaKey(state.voted.id)
    without_directory = ElectionState(state.epoch, state.leader_id, voted)
    assert ElectionState.from_bytes(version_0.encode()) == without_directory


def test_unknown_fields_are_ignored() -> None:
    content = WRITTEN[0][2].replace('"data', '"more":[1],"data').encode()
    assert ElectionState.from_bytes(content) == ElectionState(7)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "7",
        "null",
        "\x00" * 80,
        "[" * 100_000,
        WRITTEN[0][1][:-1],
        WRITTEN[0][1].replace('"data_version":0', '"data_version":true'),
        WRITTEN[0][1].replace(',"data_version":0', ""),
        WRITTEN[0][1].replace('"leaderEpoch":7', '"leaderEpoch":-7'),
        WRITTEN[0][1].replace('"leaderEpoch":7', '"leaderEpoch":"7"'),
        WRITTEN[0][1].replace('"leaderEpoch":7', '"leaderEpoch":7.5'),
        WRITTEN[0][1].replace('"leaderEpoch":7', '"leaderEpoch":2147483648'),
        WRITTEN[0][1].replace('"leaderId":-1', '"leaderId":-2'),
        WRITTEN[0][1].replace('"leaderId":-1', '"leaderId":2147483648'),
        WRITTEN[0][1].replace(',"votedId":-1', ""),
        WRITTEN[0][2].replace(f',"votedDirectoryId":"{NONE}"', ""),
        WRITTEN[0][2].replace(NONE, "short"),
        WRITTEN[0][2].replace(f'"{NONE}"', "7"),
        WRITTEN[2][2].replace('"votedId":3', '"votedId":-1'),
    ],
)
def test_malformed_files_are_rejected(content: str) -> None:
    with pytest.raises(CorruptRecordError, match="malformed quorum-state"):
        ElectionState.from_bytes(content.encode(), path="quorum-state")


def test_a_file_of_a_newer_version_is_not_taken_for_a_damaged_one() -> None:
    content = WRITTEN[0][1].replace('"data_version":0', '"data_version":2')
    with pytest.raises(UnsupportedVersionError, match="data_version 2, supported are 0 and 1"):
        ElectionState.from_bytes(content.encode(), path="quorum-state")


def test_every_flipped_bit_is_rejected_or_yields_another_state() -> None:
    """With one of two errors the node does not start, and reports them."""
    content = bytearray(WRITTEN[2][2].encode())
    for position in range(len(content)):
        for bit in range(8):
            content[position] ^= 1 << bit
            with suppress(CorruptRecordError, UnsupportedVersionError):
                ElectionState.from_bytes(bytes(content))
            content[position] ^= 1 << bit
