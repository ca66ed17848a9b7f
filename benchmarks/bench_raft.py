"""The quorum's state machine alone: the lives of four nodes, told again to fresh ones.

``raft_steps``           every event of the leader, of a follower that never led, and of a newcomer
                         that began with a snapshot, by three fresh nodes after each other
``raft_steps_leader``, ``raft_steps_follower``  the same for one of them

The trace (`quorum_trace`) is mixed: an election, appends, fetches, a snapshot downloaded, a voter
added and removed, lost messages, a leader that steps down; nine tenths are appends that are
fetched, written and committed, as in life. Each append is one record of 120 bytes in a batch of its
own (linger 0), which the leader builds and a follower checks with its CRC. One core, one thread; no
disk and no network. Left out: the codecs of the messages. There is no peer: Kafka's state machine
is not separable from its threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.conftest import Sizes
from benchmarks.quorum_trace import NEWCOMER, Life, record, replay
from kraft.raft.ready import Role


@pytest.fixture(scope="module")
def lives(sizes: Sizes) -> dict[str, Life]:
    recorded = record(sizes.quorum_appends)
    voters = [recorded[id] for id in recorded if id != NEWCOMER]
    voters.sort(key=lambda life: len(life.told))
    follower, _, leader = voters
    return {"leader": leader, "follower": follower, "newcomer": recorded[NEWCOMER]}


def replay_all(lives: list[Life]) -> list[object]:
    return [replay(life) for life in lives]


@pytest.mark.parametrize("who", ["all", "leader", "follower"])
def bench_raft_steps(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, lives: dict[str, Life], who: str
) -> None:
    chosen = list(lives.values()) if who == "all" else [lives[who]]
    ends = benchmark.pedantic(
        replay_all, args=(chosen,), rounds=sizes.rounds // 2 + 1, warmup_rounds=1
    )
    assert ends == [life.end for life in chosen]
    assert lives["leader"].end is not None
    assert lives["leader"].end.role is Role.FOLLOWER, "it stepped down in the end"
    work = "raft_steps" if who == "all" else f"raft_steps_{who}"
    measured(work, unit="steps", count=sum(len(life.told) for life in chosen))
