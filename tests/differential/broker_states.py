"""Random broker sessions, and the next state of a broker after its heartbeat."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from types import MappingProxyType

from kraft import records
from kraft._core.table.table import PartitionTable
from kraft.controller.brokers.sessions import BrokerSessions, Heartbeat
from kraft.image import BrokerRegistration
from kraft.records import Uuid
from kraft.records.batches import encode_records

_LEADER = 1
_IDS = (1, 2, 3, 4)
_OFFSETS = (-1, 0, 5, 10, 11, 12, 20)


@dataclass(frozen=True)
class Case:
    """One case; ``java/BrokerStates.java`` reads ``events``, and the heartbeat is of broker 1."""

    events: tuple[tuple[str, ...], ...]
    offset: int
    wants_fence: bool
    wants_shutdown: bool
    registered_at: int
    leads: bool


def generate(seed: int, count: int) -> list[Case]:
    dice = random.Random(seed)
    return [_case(dice) for _ in range(count)]


def _case(dice: random.Random) -> Case:
    events: list[tuple[str, ...]] = []
    fenced: dict[int, bool] = {}
    for id in _IDS[: dice.randrange(1, 5)]:
        fenced[id] = dice.random() < 0.4
        events.append(("r", str(id), str(int(fenced[id]))))
    for _ in range(dice.randrange(9)):
        id = dice.choice(tuple(fenced))
        kind = dice.choice("rchhhhhsssfu")
        if kind == "u" and id == _LEADER:
            continue
        if kind == "s" and fenced[id]:
            continue
        if kind == "u":
            del fenced[id]
            events.append((kind, str(id)))
        elif kind == "s":
            events.append((kind, str(id), str(dice.choice(_OFFSETS[1:]))))
        elif kind == "f":
            # The record that fences it follows at once.
            fenced[id] = True
            events += [(kind, str(id)), ("c", str(id), "1")]
        else:
            fenced[id] = dice.random() < 0.3
            event = (kind, str(id), str(int(fenced[id])))
            events.append((*event, str(dice.choice(_OFFSETS))) if kind == "h" else event)
    return Case(
        tuple(events),
        dice.choice(_OFFSETS),
        dice.random() < 0.25,
        dice.random() < 0.4,
        dice.choice(_OFFSETS[1:]),
        dice.random() < 0.5,
    )


def question(case: Case) -> str:
    events = ",".join(":".join(event) for event in case.events)
    wants = (case.offset, case.wants_fence, case.wants_shutdown)
    asked = (_LEADER, *wants, case.registered_at, case.leads)
    return f"{events} {':'.join(str(int(part)) for part in asked)}"


class _State:
    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRegistration] = {}


class _Cluster:
    """The part of a cluster that sessions read: registrations and leaders."""

    def __init__(self, table: PartitionTable) -> None:
        self.state = _State()
        self.table = table


def _led_by(leader: int) -> PartitionTable:
    topic_id = Uuid(b"t" * 16)
    table = PartitionTable()
    table.apply(
        encode_records(
            [
                records.Topic(name="topic", topic_id=topic_id),
                records.Partition(
                    partition_id=0,
                    topic_id=topic_id,
                    replicas=[1, 2],
                    isr=[1, 2],
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    version=0,
                ),
            ]
        )
    )
    return table


_LED_BY = {True: _led_by(_LEADER), False: _led_by(2)}
_NOBODY = BrokerRegistration(0, 1, Uuid(b"i" * 16), MappingProxyType({}), MappingProxyType({}))


def answer_here(case: Case) -> str:
    cluster = _Cluster(_LED_BY[case.leads])
    brokers = cluster.state.brokers
    sessions = BrokerSessions()
    for kind, name, *more in case.events:
        id = int(name)
        if kind in "rch":
            before = brokers.get(id, _NOBODY)
            brokers[id] = replace(
                before, id=id, fenced=more[0] == "1", registration_offset=case.registered_at
            )
        if kind == "r":
            sessions.reset_broker(cluster, id)  # type: ignore[arg-type]
        elif kind == "c":
            sessions.note_registration_change(cluster, id)  # type: ignore[arg-type]
        elif kind == "h":
            sessions.note_heartbeat(id, is_fenced=more[0] == "1", metadata_offset=int(more[1]))
        elif kind == "s":
            sessions.note_controlled_shutdown(id, int(more[0]))
        elif kind == "f":
            brokers[id] = replace(brokers[id], fenced=True)
            sessions.fence(id)
        else:
            del brokers[id]
            sessions.reset_broker(cluster, id)  # type: ignore[arg-type]
    heartbeat = Heartbeat(
        _LEADER,
        1,
        case.offset,
        wants_fence=case.wants_fence,
        wants_shutdown=case.wants_shutdown,
    )
    states = sessions.next_states(cluster, heartbeat)  # type: ignore[arg-type]
    return f"{states.current.name} {states.next.name} {sessions.lowest_active_offset()}"
