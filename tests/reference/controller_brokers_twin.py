"""A slow twin of the controller's decisions about brokers: registration, sessions, fencing.

Each function decides one request against a `State` and changes nothing. The caller appends the
records to the state and calls ``applied``. Written from the behaviour of ClusterControlManager,
BrokerHeartbeatManager and ReplicationControlManager (Kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kraft import records
from kraft.records import Record, Uuid
from tests.reference import election_twin
from tests.reference.controller_state_twin import (
    METADATA_VERSION,
    Key,
    RefusedError,
    Sessions,
    State,
    in_java_order,
)
from tests.reference.election_twin import LOST, MIGRATING, UNASSIGNED, Partition, Targets


class Placed(NamedTuple):
    """A Partition record whose replicas the placer has not chosen yet."""

    topic_id: Uuid
    partition: int
    factor: int


def _ignore(end_offset: int) -> None:
    pass


@dataclass
class TwinDecision:
    """Records and response; ``applied`` takes the last offset after the records are applied."""

    records: list[Record | Placed]
    response: Any
    applied: Callable[[int], None] = _ignore
    in_chunks: bool = False
    is_partial: bool = False


# -- partitions, after an event of a broker


def leave_isrs(
    state: State, broker: int, *, and_elr: bool = False, uncleanly: bool = False
) -> list[Record | Placed]:
    return _changed(
        state,
        lambda key, partition: election_twin.broker_leaves(
            state.rules(),
            partition,
            frozenset((broker,)),
            and_elr=and_elr,
            uncleanly=uncleanly,
            allows_unclean=state.allows_unclean(key),
            min_isr=state.min_isr(key),
        ),
    )


def lead_leaderless(state: State, broker: int) -> list[Record | Placed]:
    return _changed(
        state,
        lambda key, partition: election_twin.broker_returns(
            state.rules(),
            partition,
            broker,
            allows_unclean=state.allows_unclean(key),
            min_isr=state.min_isr(key),
        ),
    )


def _directory_gone(state: State, broker: int, directory: Uuid) -> list[Record | Placed]:
    return _changed(
        state,
        lambda key, partition: election_twin.directory_goes(
            state.rules(),
            partition,
            broker,
            directory,
            allows_unclean=state.allows_unclean(key),
            min_isr=state.min_isr(key),
        ),
    )


def _changed(
    state: State, change: Callable[[Key, Partition], records.PartitionChange | None]
) -> list[Record | Placed]:
    """Decide all changes against the same state."""
    made = (change(key, partition) for key, partition in state.partitions())
    return [record for record in made if record is not None]


def fence(state: State, broker: int) -> list[Record | Placed]:
    registered = state.brokers[broker]
    change = records.BrokerRegistrationChange(
        broker_id=broker, broker_epoch=registered["epoch"], fenced=1
    )
    return [*leave_isrs(state, broker), change]


# -- registration


@dataclass(frozen=True)
class Registration:
    """The registration of a broker; ``record`` is its record."""

    record: records.RegisterBroker
    previous_epoch: int = -1


def register_broker(
    state: State, sessions: Sessions, asked: Registration, now_ms: float, next_offset: int
) -> TwinDecision:
    said = asked.record
    known = state.brokers.get(said.broker_id)
    is_amended = known is not None and known["incarnation"] == said.incarnation_id
    is_alive = known is not None and sessions.is_alive(said.broker_id, known["epoch"], now_ms)
    if is_alive and not is_amended:
        raise RefusedError(101)
    if state.level >= 17:
        _check_directories(state, said)
    supported = {each.name: each for each in said.features}
    finalized = {"kraft.version": 0} | state.rest["feature"]
    for name in supported:
        if not (
            supported[name].min_supported_version
            <= finalized.get(name, 0)
            <= supported[name].max_supported_version
        ):
            raise RefusedError(35)
    if METADATA_VERSION not in supported:
        raise RefusedError(119)
    if any(level > 0 and name not in supported for name, level in finalized.items()):
        raise RefusedError(35)
    made: list[Record | Placed] = []
    record = replace_record(said, log_dirs=list(said.log_dirs) if state.level >= 17 else [])
    if known is not None and is_amended:
        record.broker_epoch = known["epoch"]
        record.fenced = known["fenced"]
        record.in_controlled_shutdown = known["in_controlled_shutdown"]
    else:
        is_clean = known is not None and asked.previous_epoch == known["epoch"]
        made += leave_isrs(state, said.broker_id, uncleanly=state.is_elr_enabled and not is_clean)
        record.broker_epoch = next_offset
        record.fenced = True
        record.in_controlled_shutdown = False
    is_fenced = record.fenced
    return TwinDecision(
        [*made, record],
        record.broker_epoch,
        lambda end_offset: sessions.begin(said.broker_id, is_fenced),
    )


def replace_record(said: records.RegisterBroker, **fields: Any) -> records.RegisterBroker:
    given: dict[str, Any] = {
        "broker_id": said.broker_id,
        "incarnation_id": said.incarnation_id,
        "end_points": said.end_points,
        "features": said.features,
        "rack": said.rack,
    }
    return records.RegisterBroker(**(given | fields))


def _check_directories(state: State, said: records.RegisterBroker) -> None:
    named = list(said.log_dirs)
    if not named or len(set(named)) < len(named):
        raise RefusedError(119)
    if any(directory in (MIGRATING, UNASSIGNED, LOST) for directory in named):
        raise RefusedError(119)
    for other, registered in state.brokers.items():
        if other != said.broker_id and set(named) & registered["log_dirs"]:
            raise RefusedError(119)


def unregister_broker(state: State, sessions: Sessions, broker: int) -> TwinDecision:
    if broker not in state.brokers:
        raise RefusedError(102)
    made = leave_isrs(state, broker, and_elr=True)

    def applied(end_offset: int) -> None:
        sessions.brokers.pop(broker, None)

    epoch = state.brokers[broker]["epoch"]
    return TwinDecision(
        [*made, records.UnregisterBroker(broker_id=broker, broker_epoch=epoch)],
        None,
        applied,
    )


# -- heartbeats and sessions


@dataclass(frozen=True)
class TwinHeartbeat:
    broker: int
    epoch: int
    offset: int
    wants_fence: bool = False
    wants_shutdown: bool = False
    offline: tuple[Uuid, ...] = ()
    cordoned: tuple[Uuid, ...] | None = None


def next_state(state: State, sessions: Sessions, beat: TwinHeartbeat) -> tuple[str, str]:
    broker = sessions.brokers[beat.broker]
    leads = any(partition.leader == beat.broker for _, partition in state.partitions())
    if broker["shutdown"] >= 0:
        if not leads and broker["shutdown"] <= sessions.lowest_active_offset():
            return "CONTROLLED_SHUTDOWN", "SHUTDOWN_NOW"
        return "CONTROLLED_SHUTDOWN", "CONTROLLED_SHUTDOWN"
    if broker["fenced"]:
        if beat.wants_shutdown:
            return "FENCED", "SHUTDOWN_NOW"
        is_ready = not beat.wants_fence and is_caught_up(state, beat)
        return "FENCED", "UNFENCED" if is_ready else "FENCED"
    if beat.wants_fence:
        return "UNFENCED", "SHUTDOWN_NOW" if beat.wants_shutdown else "FENCED"
    if beat.wants_shutdown:
        return "UNFENCED", "CONTROLLED_SHUTDOWN" if leads else "SHUTDOWN_NOW"
    return "UNFENCED", "UNFENCED"


def is_caught_up(state: State, beat: TwinHeartbeat) -> bool:
    return bool(beat.offset >= state.brokers[beat.broker]["offset"])


def broker_heartbeat(state: State, sessions: Sessions, beat: TwinHeartbeat) -> TwinDecision:
    registered = state.broker(beat.broker, beat.epoch)
    current, following = next_state(state, sessions, beat)
    made: list[Record | Placed] = []
    is_change = False
    if current != following and following in ("FENCED", "SHUTDOWN_NOW"):
        made += fence(state, beat.broker)
        is_change = True
    elif current != following and following == "CONTROLLED_SHUTDOWN":
        if not registered["in_controlled_shutdown"]:
            made.append(_change(beat, in_controlled_shutdown=1))
            is_change = True
        made += leave_isrs(state, beat.broker)
    elif current != following:
        made.append(_change(beat, fenced=-1))
        made += lead_leaderless(state, beat.broker)
        is_change = True
    gone = [each for each in in_java_order(registered["log_dirs"]) if each in beat.offline]
    if gone and state.level >= 17:
        for directory in gone:
            made += _directory_gone(state, beat.broker, directory)
        left = [each for each in in_java_order(registered["log_dirs"]) if each not in gone]
        made.append(_change(beat, log_dirs=left))
        is_change = True
    if beat.cordoned is not None and state.level >= 30:
        before = registered["cordoned"]
        if before is None or set(before) != set(beat.cordoned):
            made.append(_change(beat, cordoned_log_dirs=list(beat.cordoned)))
            is_change = True

    def applied(end_offset: int) -> None:
        is_fenced = following in ("FENCED", "SHUTDOWN_NOW")
        sessions.set_state(beat.broker, fenced=is_fenced, offset=beat.offset)
        if is_change:
            # After any change of its registration a broker must report its offset again, except
            # if this heartbeat fenced or unfenced it: the heartbeat has reported the offset.
            sessions.set_state(beat.broker, fenced=is_fenced, offset=-1)
        broker = sessions.brokers[beat.broker]
        if following == "CONTROLLED_SHUTDOWN" and broker["shutdown"] < 0:
            broker["shutdown"] = end_offset

    return TwinDecision(made, (following, is_caught_up(state, beat), is_change), applied)


def _change(beat: TwinHeartbeat, **fields: Any) -> records.BrokerRegistrationChange:
    return records.BrokerRegistrationChange(
        broker_id=beat.broker, broker_epoch=beat.epoch, **fields
    )


def fence_stale(state: State, sessions: Sessions, now_ms: float) -> TwinDecision:
    contact = sessions.expired(now_ms)
    if contact is None:
        return TwinDecision([], False)
    del sessions.contacts[contact]
    broker, epoch = contact
    if broker not in state.brokers or state.brokers[broker]["epoch"] != epoch:
        return TwinDecision([], True)
    made = fence(state, broker)
    sessions.set_state(broker, fenced=True, offset=-1)
    return TwinDecision(made, True)


# -- other requests of brokers


def allocate_producer_ids(state: State, broker: int, epoch: int) -> TwinDecision:
    state.broker(broker, epoch)
    first = max(state.rest["producer"].get("next", 0), 0)
    record = records.ProducerIds(
        broker_id=broker, broker_epoch=epoch, next_producer_id=first + 1000
    )
    return TwinDecision([record], (first, 1000))


def assign_replicas_to_dirs(
    state: State, broker: int, epoch: int, directory: Uuid, topic_id: Uuid, ids: list[int]
) -> TwinDecision:
    """Assign replicas of one topic to a directory of their broker."""
    if state.level < 17:
        raise RefusedError(35)
    registered = state.broker(broker, epoch)
    name = state.topic_named(topic_id)
    if name is None:
        return TwinDecision([], [[100] * len(ids)])
    is_online = directory in (MIGRATING, UNASSIGNED) or (
        directory != LOST and (not registered["log_dirs"] or directory in registered["log_dirs"])
    )
    codes, made, failed = [], list[Record | Placed](), set[Key]()
    for partition_id in ids:
        key = name, partition_id
        if key not in state.table.partitions:
            codes.append(3)
            continue
        partition = state.partition(key)
        if broker not in partition.replicas:
            codes.append(6)
            continue
        codes.append(0)
        record = _assigned_to_directory(state, key, broker, directory)
        if record is not None:
            made.append(record)
        if not is_online:
            failed.add(key)
    rules = state.rules()
    for key, partition in state.partitions():
        if key in failed:
            targets = Targets(
                isr=[member for member in partition.isr if member != broker],
                election="unclean" if state.allows_unclean(key) else "online",
            )
            may_lead = rules.may_lead(partition, removed=(broker,))
            change = rules.change(partition, targets, may_lead, state.min_isr(key))
            if change is not None:
                made.append(change)
    return TwinDecision(made, [codes])


def _assigned_to_directory(
    state: State, key: Key, broker: int, directory: Uuid
) -> records.PartitionChange | None:
    """Return the record that assigns a replica to a directory, with an election if one is due."""
    partition, rules = state.partition(key), state.rules()
    record = rules.change(partition, Targets(), rules.may_lead(partition), state.min_isr(key))
    if record is None:
        record = records.PartitionChange(
            partition_id=partition.partition_id, topic_id=partition.topic_id
        )
        before, replicas = partition.directories, partition.replicas
    else:
        before = tuple(record.directories or partition.directories)
        replicas = tuple(record.replicas or partition.replicas)
    homes = [
        directory if replica == broker else home
        for replica, home in zip(replicas, before, strict=True)
    ]
    record.directories = None if homes == list(partition.directories) else homes
    same = records.PartitionChange(partition_id=partition.partition_id, topic_id=partition.topic_id)
    return None if record == same else record
