"""The quorum's state machine alone: recorded events of four nodes, replayed to fresh ones.

``raft_steps``           every event of the leader, of a follower that never led, and of a newcomer
                         that began with a snapshot, by three fresh nodes one after another
``raft_steps_leader``, ``raft_steps_follower``  the same for one of them

The trace (`quorum_trace`) is mixed: an election, appends, fetches, a snapshot download, a voter
added and removed, lost messages, a leader that resigns. Nine tenths are appends that are fetched,
written and committed, as in production. Each append is one record of 120 bytes in its own batch
(linger 0), which the leader builds and a follower checks with its CRC. One core, one thread; no
disk and no network. Not included: the codecs of the messages. There is no peer: Kafka's state
machine cannot run without its threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.conftest import Sizes
from benchmarks.quorum_trace import NEWCOMER, RecordedNode, record, replay
from kraft.raft.interface import Role


@pytest.fixture(scope="module")
def recorded(sizes: Sizes) -> dict[str, RecordedNode]:
    recorded = record(sizes.quorum_appends)
    voters = [recorded[id] for id in recorded if id != NEWCOMER]
    voters.sort(key=lambda node: len(node.events))
    follower, _, leader = voters
    return {"leader": leader, "follower": follower, "newcomer": recorded[NEWCOMER]}


def replay_all(recorded: list[RecordedNode]) -> list[object]:
    return [replay(node) for node in recorded]


@pytest.mark.parametrize("who", ["all", "leader", "follower"])
def bench_raft_steps(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    recorded: dict[str, RecordedNode],
    who: str,
) -> None:
    chosen = list(recorded.values()) if who == "all" else [recorded[who]]
    ends = benchmark.pedantic(
        replay_all, args=(chosen,), rounds=sizes.rounds // 2 + 1, warmup_rounds=1
    )
    assert ends == [node.end for node in chosen]
    assert recorded["leader"].end is not None
    assert recorded["leader"].end.role is Role.FOLLOWER, "the leader resigned at the end"
    work = "raft_steps" if who == "all" else f"raft_steps_{who}"
    measured(work, unit="steps", count=sum(len(node.events) for node in chosen))
