"""A slow twin of the controller's decisions about topics and partitions.

Where a placer chooses replicas, the twin leaves them open (``Placed``); once they are known, it
checks them and returns their record. Written from the behaviour of ReplicationControlManager and
ControllerApis (Kafka 4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kraft import records
from kraft.records import Record, Uuid
from tests.reference import controller_rest_twin as rest
from tests.reference import election_twin
from tests.reference.controller_brokers_twin import Placed, TwinDecision
from tests.reference.controller_state_twin import MIN_ISR, TOPIC, Key, RefusedError, State

NO_ID = Uuid(bytes(16))


@dataclass(frozen=True)
class Wanted:
    """A topic to create."""

    name: str
    topic_id: Uuid
    count: int = -1
    factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """The maximum number of records in a batch.

    Larger requests are transactions, if the metadata.version supports them.
    """

    records: int
    max_name: int = 249


def placed_record(
    state: State, placed: Placed, replicas: Sequence[int], *, by_placer: bool
) -> records.Partition:
    """Return the record of a new partition with these replicas; raise for an invalid assignment."""
    if by_placer:
        usable = state.usable()
        assert len(set(replicas)) == len(replicas) == placed.factor
        assert set(replicas) <= set(usable)
        assert not state.brokers[replicas[0]]["fenced"], "a fenced broker was placed first"
    isr = [replica for replica in replicas if state.is_active(replica)]
    rules = state.rules()
    homes = [rules.default_directory(replica) for replica in replicas]
    return records.Partition(
        partition_id=placed.partition,
        topic_id=placed.topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_recovery_state=0,
        leader_epoch=0,
        partition_epoch=0,
        directories=homes if state.level >= 17 else [],
    )


# -- creation


def create_topics(
    state: State, wanted: Sequence[Wanted], limits: Limits, *, validate_only: bool
) -> TwinDecision:
    others = sum(1 + len(topic.configs) for topic in wanted)
    in_chunks = _partition_count(wanted) + others > limits.records and state.level >= 13
    names = [topic.name for topic in wanted]
    response: dict[str, Any] = {}
    admitted = []
    for topic in wanted:
        if names.count(topic.name) > 1 or topic.name == "__cluster_metadata":
            response[topic.name] = RefusedError(42)
        else:
            admitted.append(topic)
    if _partition_count(admitted) > limits.records and not in_chunks:
        raise RefusedError(44)
    made: list[Record | Placed] = []
    seen: list[str] = []
    for topic in admitted:
        try:
            records_of_topic, factor = _created(state, topic, seen, limits)
        except RefusedError as error:
            response[topic.name] = error
            continue
        seen.append(topic.name)
        count = sum(isinstance(each, Placed | records.Partition) for each in records_of_topic)
        response[topic.name] = (topic.name, topic.topic_id, count, factor)
        made += records_of_topic
    if len(made) > limits.records and not in_chunks:
        raise RefusedError(44)
    return TwinDecision([] if validate_only else made, response, in_chunks=in_chunks)


def _partition_count(wanted: Sequence[Wanted]) -> int:
    total = 0
    for topic in wanted:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.count == -1:
            total += 1
        elif topic.count > 0:
            total += topic.count
    return total


def _created(
    state: State, topic: Wanted, seen: list[str], limits: Limits
) -> tuple[list[Record | Placed], int]:
    name = topic.name
    if name in state.table.topics:
        raise RefusedError(36)
    if name in ("", ".", "..") or len(name) > limits.max_name:
        raise RefusedError(17)
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", name):
        raise RefusedError(17)
    # The twin is as strict within one request as against existing topics.
    for other in (*state.table.topics, *seen):
        if other.replace(".", "_") == name.replace(".", "_"):
            raise RefusedError(17)
    made: list[Record | Placed] = [records.Topic(name=name, topic_id=topic.topic_id)]
    if None in topic.configs.values():
        raise RefusedError(40)
    for config, value in topic.configs.items():
        rest.check_topic_value(config, value)
        made.append(records.Config(TOPIC, name, config, value))
    if MIN_ISR in topic.configs and state.is_elr_enabled:
        made.append(records.ClearElr(topic_name=name))
    if topic.assignments:
        return made + _assigned(state, topic), len(next(iter(topic.assignments.values())))
    if topic.factor < -1 or topic.factor == 0:
        raise RefusedError(38)
    if topic.count < -1 or topic.count == 0:
        raise RefusedError(37)
    factor, count = abs(topic.factor), abs(topic.count)
    _check_factor(state, factor)
    return [*made, *(Placed(topic.topic_id, number, factor) for number in range(count))], factor


def _check_factor(state: State, factor: int) -> None:
    usable = state.usable()
    if factor > len(usable) or all(state.brokers[each]["fenced"] for each in usable):
        raise RefusedError(38)


def _assigned(state: State, topic: Wanted) -> list[Record | Placed]:
    if topic.factor != -1 or topic.count != -1:
        raise RefusedError(42)
    factor = None
    for replicas in topic.assignments.values():
        check_assignment(state, replicas, factor)
        factor = len(replicas)
        if not any(state.is_active(broker) for broker in replicas):
            raise RefusedError(39)
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise RefusedError(39)
    return [
        placed_record(
            state, Placed(topic.topic_id, number, len(replicas)), replicas, by_placer=False
        )
        for number, replicas in sorted(topic.assignments.items())
    ]


def check_assignment(state: State, replicas: Sequence[int], factor: int | None = None) -> None:
    if not replicas or len(set(replicas)) < len(replicas):
        raise RefusedError(39)
    if any(broker not in state.brokers for broker in replicas):
        raise RefusedError(39)
    if factor is not None and len(replicas) != factor:
        raise RefusedError(39)


# -- new partitions


@dataclass(frozen=True)
class NewPartitionCount:
    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


def create_partitions(
    state: State, wanted: Sequence[NewPartitionCount], limits: Limits, *, validate_only: bool
) -> TwinDecision:
    asked = sum(topic.count for topic in wanted if topic.count > 0)
    in_chunks = asked > limits.records and state.level >= 13
    names = [topic.name for topic in wanted]
    response: dict[str, Any] = {}
    made: list[Record | Placed] = []
    for topic in wanted:
        if names.count(topic.name) > 1:
            response[topic.name] = RefusedError(42)
            continue
        try:
            grown = _new_partitions(state, topic)
        except RefusedError as error:
            response[topic.name] = error
            continue
        response[topic.name] = len(grown)
        made += grown
        if len(made) > limits.records and not in_chunks:
            raise RefusedError(44)
    return TwinDecision([] if validate_only else made, response, in_chunks=in_chunks)


def _new_partitions(state: State, topic: NewPartitionCount) -> list[Record | Placed]:
    if topic.name not in state.table.topics:
        raise RefusedError(3)
    topic_id = Uuid(state.table.topics[topic.name])
    present = state.size(topic.name)
    if topic.count <= present:
        raise RefusedError(37)
    ids = range(present, topic.count)
    factor = len(state.table.partitions[topic.name, 0]["replicas"])
    if topic.assignments is None:
        _check_factor(state, factor)
        return [Placed(topic_id, number, factor) for number in ids]
    if len(topic.assignments) != len(ids):
        raise RefusedError(39)
    for replicas in topic.assignments:
        check_assignment(state, replicas, factor)
        if not any(state.is_active(broker) for broker in replicas):
            raise RefusedError(39)
    return [
        placed_record(state, Placed(topic_id, number, factor), replicas, by_placer=False)
        for number, replicas in zip(ids, topic.assignments, strict=True)
    ]


# -- deletion


def delete_topics(
    state: State, wanted: Sequence[tuple[str | None, Uuid | None]], limits: Limits
) -> TwinDecision:
    """Delete topics; the response is a set of (name, id, error), because its order has no
    meaning.
    """
    asked = len(wanted)
    for name, topic_id in wanted:
        found = name if name is not None else state.topic_named(topic_id or NO_ID)
        asked += state.size(found) if found in state.table.topics else 0
    in_chunks = asked > limits.records and state.level >= 13
    response: list[Any] = []
    ids = [topic_id for name, topic_id in wanted if name is None and topic_id]
    names = [name for name, topic_id in wanted if name is not None and not topic_id]
    response += [
        (name, topic_id, 42) for name, topic_id in wanted if (name is None) == (topic_id is None)
    ]
    chosen: dict[str, Uuid] = {}
    for topic_id in dict.fromkeys(ids):
        found = state.topic_named(topic_id)
        if ids.count(topic_id) > 1:
            response.append((None, topic_id, 42))
        elif found is None:
            response.append((None, topic_id, 100))
        else:
            chosen[found] = topic_id
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            response.append((name, None, 42))
        elif name not in state.table.topics:
            response.append((name, None, 3))
        elif name in chosen or ids.count(Uuid(state.table.topics[name])) > 1:
            chosen.pop(name, None)
            response.append((name, Uuid(state.table.topics[name]), 42))
        else:
            chosen[name] = Uuid(state.table.topics[name])
    if len(chosen) > limits.records and not in_chunks:
        raise RefusedError(44)
    response += [(name, topic_id, 0) for name, topic_id in chosen.items()]
    made: list[Record | Placed] = [
        records.RemoveTopic(topic_id=topic_id) for topic_id in chosen.values()
    ]
    return TwinDecision(made, response, in_chunks=in_chunks)


# -- ISRs


@dataclass(frozen=True)
class WantedIsr:
    topic_id: Uuid
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
    recovering: bool = False


def alter_partition(
    state: State, broker: int, epoch: int, wishes: Sequence[WantedIsr]
) -> TwinDecision:
    state.broker(broker, epoch)
    made: list[Record | Placed] = []
    response: dict[tuple[Uuid, int], Any] = {}
    for wish in wishes:
        try:
            record, answer = _isr_changed(state, broker, wish)
        except RefusedError as error:
            response[wish.topic_id, wish.partition] = error
            continue
        response[wish.topic_id, wish.partition] = answer
        if record is not None:
            made.append(record)
    return TwinDecision(made, response)


def _isr_changed(
    state: State, broker: int, wish: WantedIsr
) -> tuple[records.PartitionChange | None, Any]:
    name = state.topic_named(wish.topic_id)
    if name is None:
        raise RefusedError(100)
    key = name, wish.partition
    if key not in state.table.partitions:
        raise RefusedError(3)
    now = state.partition(key)
    if wish.leader_epoch > now.leader_epoch or wish.partition_epoch > now.partition_epoch:
        raise RefusedError(41)
    if wish.leader_epoch < now.leader_epoch:
        raise RefusedError(74)
    if broker != now.leader:
        raise RefusedError(42)
    if wish.partition_epoch < now.partition_epoch:
        raise RefusedError(95)
    if not set(wish.isr) <= set(now.replicas) or broker not in wish.isr:
        raise RefusedError(42)
    if wish.recovering and (len(wish.isr) > 1 or not now.recovering):
        raise RefusedError(42)
    for member, member_epoch in wish.isr.items():
        if not state.is_active(member):
            raise RefusedError(107)
        if member_epoch not in (-1, state.brokers[member]["epoch"]):
            raise RefusedError(107)
    record = election_twin.leader_alters(
        state.rules(),
        now,
        list(wish.isr),
        recovering=wish.recovering,
        allows_unclean=state.allows_unclean(key),
        min_isr=state.min_isr(key),
    )
    after = now if record is None else now.after(record)
    answer: Any = (
        after.leader,
        after.leader_epoch,
        after.partition_epoch,
        after.isr,
        int(after.recovering),
    )
    if after.leader != broker:
        answer = RefusedError(108)
    return record, answer


# -- elections


class Election:
    """An ElectLeaders request that is decided ``at_a_time`` partitions at a time."""

    def __init__(self, kind: str, asked: Mapping[str, Sequence[int]] | None, at_a_time: int):
        self.kind = kind
        self.asked = asked
        self.at_a_time = at_a_time
        self.waiting: list[tuple[bytes, Key]] | None = None
        self.results: dict[Key, int] = {}

    def _is_needed(self, state: State, key: Key) -> bool:
        partition = state.partition(key)
        if self.kind == "preferred":
            return partition.leader != partition.replicas[0]
        return partition.leader == -1

    def decide(self, state: State) -> TwinDecision:
        is_first = self.waiting is None
        if self.waiting is None:
            keys = list(state.table.partitions)
            if self.asked is None:
                keys = [key for key in keys if self._is_needed(state, key)]
            else:
                keys = [(name, each) for name, ids in self.asked.items() for each in ids]
            self.waiting = []
            for key in keys:
                self.results[key] = 0
                if key not in state.table.partitions:
                    self.results[key] = 3
                elif not self._is_needed(state, key):
                    self.results[key] = 84
                else:
                    self.waiting.append((state.table.topics[key[0]], key))
        now, self.waiting = self.waiting[: self.at_a_time], self.waiting[self.at_a_time :]
        made: list[Record | Placed] = []
        for topic_id, key in now:
            if not is_first:
                # Topics may be deleted and created again with the same name; leaders may be
                # elected.
                is_there = state.table.topics.get(key[0]) == topic_id
                if not is_there or not self._is_needed(state, key):
                    self.results[key] = 84
                    continue
            record = election_twin.election_wanted(
                state.rules(), state.partition(key), self.kind, state.min_isr(key)
            )
            if record is None:
                self.results[key] = 80 if self.kind == "preferred" else 83
            else:
                made.append(record)
        is_partial = bool(self.waiting)
        response = None if is_partial else [(*key, code) for key, code in self.results.items()]
        return TwinDecision(made, response, is_partial=is_partial)


def balance_leaders(state: State, kind: str, limit: int) -> TwinDecision:
    """Decide the controller's periodic elections."""
    made: list[Record | Placed] = []
    for key, partition in state.partitions():
        if len(made) == limit:
            break
        if kind == "unclean" and not state.allows_unclean(key):
            continue
        record = election_twin.election_wanted(state.rules(), partition, kind, state.min_isr(key))
        if record is not None:
            made.append(record)
    return TwinDecision(made, len(made) >= limit)


# -- reassignments


def alter_partition_reassignments(
    state: State, targets: Mapping[Key, Sequence[int] | None], *, may_change_factor: bool
) -> TwinDecision:
    made: list[Record | Placed] = []
    response: dict[Key, Any] = {}
    for key, target in targets.items():
        response[key] = None
        try:
            record = _reassigned(state, key, target, may_change_factor)
        except RefusedError as error:
            response[key] = error
            continue
        if record is not None:
            made.append(record)
    return TwinDecision(made, response)


def _reassigned(
    state: State, key: Key, target: Sequence[int] | None, may_change_factor: bool
) -> records.PartitionChange | None:
    if key not in state.table.partitions:
        raise RefusedError(3)
    partition = state.partition(key)
    if target is None:
        if not partition.adding and not partition.removing:
            raise RefusedError(85)
        try:
            return election_twin.reassignment_cancelled(
                state.rules(),
                partition,
                allows_unclean=state.allows_unclean(key),
                min_isr=state.min_isr(key),
            )
        except ValueError:
            raise RefusedError(39) from None
    check_assignment(state, target)
    staying = {*partition.replicas, *partition.adding} - {*partition.removing}
    if not may_change_factor and len(target) != len(staying):
        raise RefusedError(38)
    return election_twin.reassigned(state.rules(), partition, target, state.min_isr(key))
