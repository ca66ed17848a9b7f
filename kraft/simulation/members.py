"""Voters and observers of a seed: their ids, directories, addresses and settings.

`draw_members` draws them in the same order for every scenario, as a seed is replayed by the order
of its draws. The scenarios draw what only they vary, and create the storage of each machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from kraft.raft.config import RaftSettings
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Uuid
from kraft.simulation.machine import Machine, new_directory
from kraft.simulation.storage import Storage

CLUSTER_ID = "simulated-cluster"
LISTENER = "CONTROLLER"
#: Base of the ports at which a node is reachable wherever it has moved to.
BOOTSTRAP_PORT = 8000


@dataclass(frozen=True, slots=True)
class Members:
    """The voters and observers of a new cluster."""

    ids: range
    #: Whether the voters are in the log, as with kraft.version 1, or fixed in the settings.
    is_dynamic: bool
    directories: dict[int, Uuid]
    endpoints: dict[int, Endpoint]
    #: Whether a node is a controller, which may become a voter; the others are brokers.
    may_vote: dict[int, bool]
    voters: VoterSet

    @property
    def kraft_version(self) -> int:
        return 1 if self.is_dynamic else 0

    def settings_of(self, id: int, *, has_bootstrap: bool, **settings: Any) -> RaftSettings:
        """Return the settings of one node, with ``settings`` of the scenario added.

        ``has_bootstrap``: whether it knows the other controllers as bootstrap servers.
        """
        return RaftSettings(
            node_id=id,
            directory_id=self.directories[id],
            cluster_id=CLUSTER_ID,
            listener=LISTENER,
            endpoints=(self.endpoints[id],) if self.may_vote[id] else (),
            static_voters=VoterSet() if self.is_dynamic else self.voters,
            bootstrap_servers=tuple(
                Endpoint(LISTENER, f"bootstrap{other}", BOOTSTRAP_PORT + other)
                for other in self.ids
                if has_bootstrap and self.may_vote[other] and other != id
            ),
            can_vote=self.may_vote[id],
            **settings,
        )


def draw_members(
    random: Random, voter_count: int, observer_count: int, max_nodes: int | None
) -> Members:
    """Draw the members of a cluster; ``max_nodes``: only the first nodes, with the same draws."""
    is_dynamic = random.random() < 0.65
    ids = range(1, voter_count + observer_count + 1)
    directories = {id: new_directory(random) for id in ids}
    endpoints = {id: Endpoint(LISTENER, f"n{id}", 9000 + id) for id in ids}
    may_vote = {id: id <= voter_count or random.random() < 0.7 for id in ids}
    if max_nodes is not None:
        ids = ids[:max_nodes]
    voters = VoterSet(
        VoterNode(
            ReplicaKey(id, directories[id] if is_dynamic else None),
            (endpoints[id],),
            KRaftVersionRange(0, 1 if is_dynamic else 0),
        )
        for id in ids
        if id <= voter_count
    )
    return Members(ids, is_dynamic, directories, endpoints, may_vote, voters)


def new_machine(
    random: Random, config: RaftSettings, storage: Storage, *, is_skewed: bool
) -> Machine:
    """Return a machine whose clock starts at a random time, and runs at a random rate if skewed."""
    machine = Machine(config, storage)
    machine.clock_base += random.random() * 600_000.0
    if is_skewed:
        machine.clock_rate = 0.96 + random.random() * 0.08
    return machine
