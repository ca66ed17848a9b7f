"""The sums of `generate.Expected`, computed from kraft's table; the Java peers compute the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.generate import Expected
from kraft._core.table.table import PartitionTable
from kraft.metadata.partitions import Partitions

Ints = npt.NDArray[np.int32]


def _weighed(members: Ints) -> int:
    weight = np.arange(1, members.shape[1] + 1)
    return int((np.where(members >= 0, members, 0).astype(np.int64) * weight).sum())


def assert_holds(table: PartitionTable, expected: Expected) -> None:
    """Check that the table equals the generator's description, column by column, as sums."""
    assert table.partition_count == expected.partitions
    assert table.topic_count == expected.topics
    assert state_check(table) == expected.state_check
    assert directory_check(table) == expected.directory_check


def state_check(table: PartitionTable) -> int:
    """Return a sum over everything but directories that depends on the order of every list."""
    partitions = Partitions(table)

    def summed(name: str) -> int:
        return int(table.column(name)[partitions.live].sum(dtype=np.int64))

    total = summed("leader") + 3 * summed("leader_epoch") + 5 * summed("partition_epoch")
    total += 7 * _weighed(partitions.replica_matrix()) + 11 * _weighed(partitions.members("isr"))
    total += 13 * _weighed(partitions.members("elr"))
    total += 17 * _weighed(partitions.members("last_known_elr"))
    for row in partitions.irregular_rows:
        state = table.state_of(int(row))
        total += 19 * sum((i + 1) * b for i, b in enumerate(state["adding_replicas"]))
        total += 23 * sum((i + 1) * b for i, b in enumerate(state["removing_replicas"]))
    return total


def directory_check(table: PartitionTable) -> int:
    """Return a sum over both halves of every replica's directory id; 64 bits, wrapping around."""
    partitions = Partitions(table)
    numbers = table.column("directories").astype(np.int64)
    irregular = partitions.irregular_rows
    regular = np.ones(len(numbers), bool)
    regular[irregular] = False
    present = (table.column("replicas") >= 0) & regular[:, None]
    odd = {int(row): table.state_of(int(row))["directories"] for row in irregular}
    last = max([int(numbers[present].max(initial=0)), *(max(each) for each in odd.values())])
    halves = np.array(
        [np.frombuffer(table.directory_id(n), ">u8").astype(np.uint64) for n in range(last + 1)]
    )
    value = halves[:, 0] ^ halves[:, 1]
    total = 0
    for slot in range(numbers.shape[1]):
        chosen = value[numbers[present[:, slot], slot]]
        total += (slot + 1) * int(chosen.sum(dtype=np.uint64))
    for directories in odd.values():
        total += sum((slot + 1) * int(value[number]) for slot, number in enumerate(directories))
    return (total + 2**63) % 2**64 - 2**63
