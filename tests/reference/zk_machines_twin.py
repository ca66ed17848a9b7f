"""The state machines of the ZooKeeper era, one partition after the other, over plain dicts.

Written from ``PartitionStateMachine.scala`` and ``ReplicaStateMachine.scala`` of Kafka 1.1.1 and
0.8.2.2, and ``PartitionLeaderSelector.scala`` of the latter. States are names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

Key = tuple[str, int]

#: State -> the states that may follow it.
LEGAL_FOR_PARTITIONS = {
    "NON_EXISTENT": ("NEW",),
    "NEW": ("ONLINE", "OFFLINE"),
    "ONLINE": ("ONLINE", "OFFLINE"),
    "OFFLINE": ("ONLINE", "OFFLINE", "NON_EXISTENT"),
}
LEGAL_FOR_REPLICAS = {
    "NON_EXISTENT": ("NEW",),
    "NEW": ("ONLINE", "OFFLINE"),
    "ONLINE": ("ONLINE", "OFFLINE"),
    "OFFLINE": ("ONLINE", "OFFLINE", "DELETION_STARTED"),
    "DELETION_STARTED": ("DELETION_SUCCESSFUL", "DELETION_INELIGIBLE"),
    "DELETION_SUCCESSFUL": ("NON_EXISTENT",),
    "DELETION_INELIGIBLE": ("ONLINE", "OFFLINE"),
}


@dataclass(frozen=True)
class StateTwin:
    """The znode of a partition's leader and ISR."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class RefusedError(Exception):
    """A change is illegal or fails; ``states`` are the names that the message must have."""

    def __init__(self, *states: str) -> None:
        super().__init__(*states)
        self.states = states


@dataclass
class MachinesTwin:
    """What the controller of an era and ZooKeeper know; ``unclean`` are topics by their config."""

    is_0_8: bool
    epoch: int
    unclean: dict[str, bool]
    #: In ZooKeeper: the replicas of partitions, and their leaders.
    topics: dict[Key, tuple[int, ...]]
    znodes: dict[Key, StateTwin] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    stopping: set[int] = field(default_factory=set)
    failed_directories: set[tuple[int, Key]] = field(default_factory=set)
    wanted: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    replicas: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    known: dict[Key, StateTwin] = field(default_factory=dict)
    partition_states: dict[Key, str] = field(default_factory=dict)
    replica_states: dict[tuple[Key, int], str] = field(default_factory=dict)

    def _may_serve(self, broker: int, key: Key) -> bool:
        is_live = broker in self.live and broker not in self.stopping
        # 0.8 knows nothing of failed directories.
        return is_live and (self.is_0_8 or (broker, key) not in self.failed_directories)

    # -- partitions

    def change_partitions(
        self, keys: Iterable[Key], target: str, strategy: str
    ) -> dict[Key, RefusedError]:
        failures = {}
        for key in keys:
            try:
                self._change_partition(key, target, strategy)
            except RefusedError as error:
                failures[key] = error
        return failures

    def _change_partition(self, key: Key, target: str, strategy: str) -> None:
        state = self.partition_states.get(key, "NON_EXISTENT")
        if target not in LEGAL_FOR_PARTITIONS[state]:
            raise RefusedError(state, target)
        if target == "NEW" and self.is_0_8:
            self.replicas[key] = self.topics[key]
        if target == "ONLINE":
            if state == "NEW":
                self._first_leader(key)
            else:
                self._elect(key, strategy)
        self.partition_states[key] = target

    def _first_leader(self, key: Key) -> None:
        isr = tuple(one for one in self.replicas[key] if self._may_serve(one, key))
        if not isr or key in self.znodes:
            raise RefusedError("NEW", "ONLINE")
        self._write(key, StateTwin(isr[0], 0, isr, self.epoch))

    def _elect(self, key: Key, strategy: str) -> None:
        if self.is_0_8 and strategy == "preferred" and key in self.known:
            first = self.replicas[key][:1]
            if first == (self.known[key].leader,):
                return
        state = self._read(key)
        if strategy == "offline":
            leader, isr = self._elect_offline(key, state)
        elif strategy == "controlled shutdown":
            leader, isr = self._elect_for_shutdown(key, state)
        else:
            among = self.wanted[key] if strategy == "reassign" else self.replicas[key][:1]
            leader = self._first(among, key, state.isr)
            isr = state.isr
        self._write(key, StateTwin(leader, state.leader_epoch + 1, isr, self.epoch))

    def _elect_offline(self, key: Key, state: StateTwin) -> tuple[int, tuple[int, ...]]:
        in_sync = tuple(one for one in state.isr if self._may_serve(one, key))
        if not in_sync and self.unclean[key[0]]:
            for one in self.replicas[key]:
                if self._may_serve(one, key):
                    return one, (one,)
        return self._first(self.replicas[key], key, state.isr), in_sync

    def _elect_for_shutdown(self, key: Key, state: StateTwin) -> tuple[int, tuple[int, ...]]:
        left = tuple(one for one in state.isr if one not in self.stopping)
        if self.is_0_8:
            if not left:
                raise RefusedError
            return left[0], left
        return self._first(self.replicas[key], key, left), left

    def _first(self, among: Iterable[int], key: Key, isr: tuple[int, ...]) -> int:
        for one in among:
            if one in isr and self._may_serve(one, key):
                return one
        raise RefusedError

    def raise_leader_epoch(self, key: Key) -> bool:
        try:
            state = self._read(key)
        except RefusedError:
            return False
        raised = replace(state, leader_epoch=state.leader_epoch + 1, controller_epoch=self.epoch)
        self._write(key, raised)
        return True

    def _read(self, key: Key) -> StateTwin:
        state = self.znodes.get(key)
        if state is None or state.controller_epoch > self.epoch:
            raise RefusedError
        return state

    def _write(self, key: Key, state: StateTwin) -> None:
        self.znodes[key] = self.known[key] = state

    # -- replicas

    def change_replicas(
        self, replicas: Iterable[tuple[Key, int]], target: str
    ) -> dict[tuple[Key, int], RefusedError]:
        failures = {}
        for key, broker in replicas:
            try:
                self._change_replica(key, broker, target)
            except RefusedError as error:
                failures[key, broker] = error
        return failures

    def _change_replica(self, key: Key, broker: int, target: str) -> None:
        state = self.replica_states.get((key, broker), "NON_EXISTENT")
        if target not in LEGAL_FOR_REPLICAS[state]:
            raise RefusedError(state, target)
        if target == "NEW":
            # 0.8 looks into ZooKeeper.
            led = (self.znodes if self.is_0_8 else self.known).get(key)
            if led is not None and led.leader == broker:
                raise RefusedError("NON_EXISTENT", "NEW")
        elif target == "ONLINE" and state == "NEW":
            if broker not in self.replicas[key]:
                self.replicas[key] += (broker,)
        elif target == "OFFLINE":
            self._leave_isr(key, broker)
        elif target == "NON_EXISTENT":
            self.replicas[key] = tuple(one for one in self.replicas[key] if one != broker)
        self.replica_states[key, broker] = target

    def _leave_isr(self, key: Key, broker: int) -> None:
        if key not in self.known:
            return
        state = self._read(key)
        if broker not in state.isr:
            self.known[key] = state
            return
        isr = tuple(one for one in state.isr if one != broker)
        if not isr and not (self.is_0_8 and self.unclean[key[0]]):
            isr = state.isr
        leader = -1 if state.leader == broker else state.leader
        self._write(key, StateTwin(leader, state.leader_epoch + 1, isr, self.epoch))
