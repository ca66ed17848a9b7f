"""Random changes of states: the machines of both eras do what a slow twin does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.zookeeper import znodes
from kraft.zookeeper.elections import ElectionStrategy
from kraft.zookeeper.port import CreateZnode, SetZnode
from kraft.zookeeper.settings import ZkEra
from kraft.zookeeper.states import StateChangeError, ZkPartitionState, ZkReplicaState
from kraft.zookeeper.znodes import PartitionStateZnode, TopicZnode
from tests.reference.zk_machines_twin import Key, MachinesTwin, RefusedError, StateTwin
from tests.unit.zookeeper.simulated import SimulatedZkCluster

BROKERS = (1, 2, 3, 4)
ASSIGNMENT: dict[Key, tuple[int, ...]] = {
    ("a", 0): (1, 2, 3), ("a", 1): (2, 3), ("b", 0): (3, 4, 1), ("b", 1): (4,),
}  # fmt: skip
KEYS = tuple(ASSIGNMENT)

brokers = st.sampled_from(BROKERS)
keys = st.sampled_from(KEYS)
some_keys = st.lists(keys, min_size=1, unique=True)
some_brokers = st.lists(brokers, min_size=1, unique=True)
steps = st.one_of(
    st.tuples(st.just("broker"), brokers),
    st.tuples(st.just("stopping"), brokers),
    st.tuples(st.just("directory"), brokers, keys),
    st.tuples(st.just("isr"), keys, some_brokers),
    st.tuples(st.just("later controller"), keys),
    st.tuples(st.just("wanted"), keys, some_brokers),
    st.tuples(st.just("raise"), keys),
    # Most changes are those of the usual ways.
    *(
        st.tuples(
            st.just("partitions"),
            some_keys,
            st.sampled_from((*ZkPartitionState, *[ZkPartitionState.ONLINE] * 6)),
            st.sampled_from(ElectionStrategy),
        )
        for _ in range(3)
    ),
    *(
        st.tuples(
            st.just("replicas"),
            st.lists(st.tuples(brokers, keys), min_size=1, unique=True).map(sorted),
            st.sampled_from((*ZkReplicaState, *[ZkReplicaState.OFFLINE] * 3)),
        )
        for _ in range(2)
    ),
)


class Both:
    """A controller's machines and their twin. No broker answers, and no event is processed."""

    def __init__(self, era: ZkEra, unclean: tuple[bool, bool], led: list[Key]) -> None:
        self.cluster = SimulatedZkCluster(brokers=len(BROKERS), era=era)
        self.cluster.run()
        self.controller = self.cluster.active
        self.context, self.machines = self.controller.context, self.controller.machines
        by_topic = dict(zip("ab", unclean, strict=True))
        self.twin = MachinesTwin(
            era == ZkEra.V0_8, self.context.epoch, by_topic, dict(ASSIGNMENT),
            replicas=dict(ASSIGNMENT),
        )  # fmt: skip
        for topic in "ab":
            of_topic = {key[1]: ids for key, ids in ASSIGNMENT.items() if key[0] == topic}
            self.context.add_partitions(topic, of_topic)
            config = {"unclean.leader.election.enable": str(by_topic[topic]).lower()}
            written = self.cluster.admin.run(
                [
                    CreateZnode(znodes.topic_path(topic), TopicZnode(of_topic).encode()),
                    CreateZnode(znodes.config_path("topics", topic), znodes.encode_config(config)),
                ]
            )
            assert all(one.is_ok for one in written)
        for broker in BROKERS:
            self.step(("broker", broker))
        # As in a creation; partitions that are not led are new, as without a live replica.
        for target, changed in ((ZkPartitionState.NEW, list(KEYS)), (ZkPartitionState.ONLINE, led)):
            replicas = sorted((broker, key) for key in changed for broker in ASSIGNMENT[key])
            self.step(("partitions", changed, target, ElectionStrategy.OFFLINE))
            self.step(("replicas", replicas, ZkReplicaState[target.name]))
        assert set(self.twin.znodes) == set(led)

    def step(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        method: Callable[..., None] = getattr(self, f"_{name.replace(' ', '_')}")
        method(*arguments)
        self.compare()

    def _broker(self, broker: int) -> None:
        if broker in self.twin.live:
            self.twin.live.discard(broker)
            del self.context.brokers[broker]
        else:
            self.twin.live.add(broker)
            self.context.brokers[broker] = self.cluster.brokers[broker].znode

    def _stopping(self, broker: int) -> None:
        self.twin.stopping ^= {broker}
        self.context.shutting_down ^= {broker}

    def _directory(self, broker: int, key: Key) -> None:
        self.twin.failed_directories ^= {(broker, key)}
        failed = self.context.offline_directories.setdefault(broker, set())
        failed ^= {key}

    def _isr(self, key: Key, isr: list[int]) -> None:
        """A leader writes an ISR."""
        old = self.twin.znodes.get(key)
        chosen = tuple(one for one in isr if one in self.twin.replicas[key])
        if old is not None and chosen:
            self._write(key, StateTwin(old.leader, old.leader_epoch, chosen, 1))

    def _later_controller(self, key: Key) -> None:
        old = self.twin.znodes.get(key)
        if old is not None:
            later = StateTwin(old.leader, old.leader_epoch + 1, old.isr, self.twin.epoch + 1)
            self._write(key, later)

    def _write(self, key: Key, state: StateTwin) -> None:
        self.twin.znodes[key] = state
        data = PartitionStateZnode(
            state.leader, state.leader_epoch, state.isr, state.controller_epoch
        ).encode()
        assert self.cluster.admin.run([SetZnode(znodes.state_path(*key), data)])[0].is_ok

    def _wanted(self, key: Key, wanted: list[int]) -> None:
        self.twin.wanted[key] = self.context.reassigned[key] = tuple(wanted)

    def _raise(self, key: Key) -> None:
        is_raised = self.machines.raise_leader_epoch(key) is not None
        assert is_raised == self.twin.raise_leader_epoch(key)

    def _partitions(
        self, changed: list[Key], target: ZkPartitionState, strategy: ElectionStrategy
    ) -> None:
        if strategy == ElectionStrategy.REASSIGN:
            changed = [key for key in changed if key in self.twin.wanted]
        expected = self.twin.change_partitions(changed, target.name, strategy.value)
        check_failures(self.machines.change_partitions(changed, target, strategy), expected)

    def _replicas(self, replicas: list[tuple[int, Key]], target: ZkReplicaState) -> None:
        changed = [(key, broker) for broker, key in replicas]
        expected = self.twin.change_replicas(changed, target.name)
        check_failures(self.machines.change_replicas(changed, target), expected)

    def compare(self) -> None:
        context, twin = self.context, self.twin
        for key in KEYS:
            state = twin.partition_states.get(key, "NON_EXISTENT")
            assert context.partition_state(key).name == state, key
            assert context.assignment(key) == twin.replicas[key], key
            for broker in BROKERS:
                state = twin.replica_states.get((key, broker), "NON_EXISTENT")
                assert context.replica_state((key, broker)).name == state, (key, broker)
            known, expected = context.leadership(key), twin.known.get(key)
            assert (known is None) == (expected is None), key
            if known is not None and expected is not None:
                # The columns have no place for what is no replica any more.
                isr = tuple(one for one in expected.isr if one in twin.replicas[key])
                seen = (known.leader, known.leader_epoch, known.isr)
                assert seen == (expected.leader, expected.leader_epoch, isr), key
            written = twin.znodes.get(key)
            assert self.cluster.exists(znodes.state_path(*key)) == (written is not None), key
            if written is not None:
                found = self.cluster.state(*key)
                assert written == StateTwin(
                    found.leader, found.leader_epoch, found.isr, found.controller_epoch
                ), key


def check_failures(found: dict[Any, StateChangeError], expected: dict[Any, RefusedError]) -> None:
    """Check that the same changes failed; those that are illegal name both states."""
    assert set(found) == set(expected)
    for key, refused in expected.items():
        if refused.states:
            state, target = refused.states
            assert f"cannot go from {state} to {target}" in str(found[key])


@pytest.mark.parametrize("era", ZkEra)
@settings(max_examples=200)
@given(
    unclean=st.tuples(st.booleans(), st.booleans()),
    led=st.lists(keys, unique=True),
    history=st.lists(steps, min_size=5, max_size=30),
)
def test_machines_do_what_the_twin_does(
    era: ZkEra, unclean: tuple[bool, bool], led: list[Key], history: list[tuple[Any, ...]]
) -> None:
    both = Both(era, unclean, led)
    for step in history:
        both.step(step)
