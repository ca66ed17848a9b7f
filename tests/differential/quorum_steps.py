"""What steps the sequences for whole controllers are made of, drawn with an eye on this side.

Owns how requests, the passing of time, commits and changes of leadership follow each other, and
what is left out since Kafka's behaviour hangs on something that is not in the log (see
``docs/differential.md``).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from itertools import count
from typing import Any

from tests.differential.operation import Request
from tests.differential.quorum_large import (
    LARGE,
    TRANSACTIONS_SINCE,
    many_acls,
    transaction,
)
from tests.differential.quorum_world import OTHER_NODE, QuorumWorld
from tests.differential.registry import OPERATIONS, SUBJECTS

Step = dict[str, Any]

#: Kafka finds the tokens that publishers were told of, here those of the log count at once.
_NEED_COMMITTED = ("renew_token", "expire_token")
_MAX_BATCH = 40


class Steps:
    """Draws the steps of one sequence."""

    def __init__(self, dice: random.Random, world: QuorumWorld, only: Collection[str]) -> None:
        self._dice = dice
        self._world = world
        self._only = sorted(only)
        self._tokens = count(1)
        self._subject = [one for one in dice.choice(SUBJECTS) if isinstance(one, Request)]
        self._is_first = True

    def begin(self) -> Iterator[Step]:
        """A cluster that another process has written, or a log that begins with the bootstrap."""
        dice, setup = self._dice, self._world.setup
        content = setup["content"]
        if dice.random() < 0.5:
            yield self.lead(OTHER_NODE)
            yield self._content([*setup["bootstrap"], *content])
            yield self.lead(dice.choice(setup["nodes"]))
        else:
            yield self.lead(dice.choice(setup["nodes"]))
            yield self.commit_all()
            if dice.random() < 0.7:
                yield self.lead(OTHER_NODE)
                yield self._content(content)
                yield self.lead(dice.choice(setup["nodes"]))
        yield self.commit_all()

    def go_on(self) -> Iterator[Step]:
        """The next few steps."""
        dice, world = self._dice, self._world
        drawn = dice.random()
        if world.active is None and drawn < 0.8:
            yield from self._change_leader()
        elif drawn < 0.62:
            yield from self._requests(1)
            if dice.random() < 0.6:
                yield self._commit()
        elif drawn < 0.72:
            yield from self._pass_time(dice.choice((1, 100, 500, 1_126, 2_100, 5_000)))
        elif drawn < 0.74:
            yield from self._pass_time(9_001)
        elif drawn < 0.75:
            yield from self._pass_time(dice.choice((31_000, 300_020, 3_600_020)))
        elif drawn < 0.82:
            yield from self._beats()
        elif drawn < 0.88:
            yield self.commit_all()
        elif drawn < 0.93:
            yield from self._change_leader()
        elif drawn < 0.95:
            yield from self._depose()
        elif drawn < 0.97:
            yield from self._wait_in_queue()
        elif drawn < 0.985:
            yield self.commit_all()
            yield {"op": "snapshot"}
        else:
            yield from self._restart()

    # -- requests

    def _request(self, kind: Request, **fields: Any) -> Step | None:
        arguments = kind.arguments(self._dice, self._world)
        if arguments is None or not _is_told_apart(kind.name, arguments):
            return None
        return {"op": kind.name, **arguments, **fields, "token": next(self._tokens)}

    def _requests(self, number: int, **fields: Any) -> Iterator[Step]:
        while number:
            (kind,) = self._dice.choices(self._subject, [one.weight for one in self._subject])
            if self._only and self._dice.random() < 0.5:
                named = OPERATIONS[self._dice.choice(self._only)]
                kind = named if isinstance(named, Request) else kind
            if kind.name in _NEED_COMMITTED:
                yield self.commit_all()
            step = self._request(kind, **fields)
            if step is not None:
                number -= 1
                yield step

    def _beats(self) -> Iterator[Step]:
        """Every broker is heard, and wants to be unfenced."""
        for broker in self._world.brokers():
            yield self._beat(broker)

    def _beat(self, broker: int) -> Step:
        world = self._world
        registration = world.cluster.state.brokers[broker]
        return {
            "op": "heartbeat",
            "version": 1,
            "request": {
                "brokerId": broker,
                "brokerEpoch": registration.epoch,
                "currentMetadataOffset": world.cluster.next_offset - 1,
                "wantFence": False,
                "wantShutDown": registration.in_controlled_shutdown,
                "offlineLogDirs": [],
            },
            "token": next(self._tokens),
        }

    # -- time

    def _pass_time(self, ms: int) -> Iterator[Step]:
        """Of the sessions that run out one is left: which of several comes first is Kafka's hash
        table's to say.
        """
        world = self._world
        sessions = world.sessions
        late = _late(world, ms)
        if late and all(_is_registered(world, *session) for session in late):
            late.remove(self._dice.choice(late))
        if ms > sessions.session_timeout_ms and late:
            # All of them would, whenever they are heard.
            ms = self._dice.choice((100, 500, 1_126))
        for broker, epoch in late:
            if _is_registered(world, broker, epoch):
                yield self._beat(broker)
        if world.has_tokens:
            # Kafka would remove once more what is removed and not committed.
            yield self.commit_all()
        yield {"op": "advance", "ms": ms}

    def _wait_in_queue(self) -> Iterator[Step]:
        """Requests fill the queue of a busy controller, and some wait for longer than they may."""
        world, dice = self._world, self._dice
        if world.active is None:
            return
        yield {"op": "hold"}
        # New partitions need to know what the reassignments before them have made of the old ones.
        left_out = {"heartbeat", "create_partitions", *_NEED_COMMITTED}
        kinds = [one for one in self._subject if one.name not in left_out]
        # Each is different: of two that are equal Kafka's queue lets one wait a nanosecond longer.
        timeouts = dice.sample((0, 3, 50, 150, 250, 350, 700, 800), 4)
        for timeout_ms in timeouts:
            (kind,) = dice.choices(kinds, [one.weight for one in kinds])
            step = self._request(kind)
            if step is not None:
                if dice.random() < 0.5:
                    step["timeout_ms"] = timeout_ms
                yield step
        yield {"op": "advance", "ms": dice.choice((1, 100, 600))}
        yield {"op": "release"}

    # -- the log and its leaders

    def commit_all(self) -> Step:
        return {"op": "commit", "to": self._world.end_offset}

    def _commit(self) -> Step:
        ends = self._world.batch_ends
        if not ends or self._dice.random() < 0.7:
            return self.commit_all()
        return {"op": "commit", "to": self._dice.choice(ends)}

    def lead(self, node: int) -> Step:
        world = self._world
        is_first = world.end_offset == 0
        return {
            "op": "lead",
            "node": node,
            "epoch": world.epoch + 1,
            "control_records": 1 + (is_first and world.setup["kraft_version"]),
            "kraft_version": world.setup["kraft_version"],
        }

    def _content(self, values: list[str]) -> Step:
        batches = [values[at : at + _MAX_BATCH] for at in range(0, len(values), _MAX_BATCH)]
        return {"op": "write", "batches": batches, "is_content": True}

    def _change_leader(self) -> Iterator[Step]:
        world, dice = self._world, self._dice
        if world.active is not None and _is_leaving(world):
            return
        if _meet(world):
            yield self.commit_all()
        if dice.random() < 0.3:
            yield self.lead(-1)
            yield from self._requests(dice.randrange(2))
        if dice.random() < 0.3:
            yield self.lead(OTHER_NODE)
            yield from self._requests(dice.randrange(2))
            if world.level >= TRANSACTIONS_SINCE:
                is_open = dice.random() < 0.4
                for batch in transaction(dice, world, is_open=is_open):
                    yield {"op": "write", "batches": [batch]}
        yield self.lead(dice.choice(world.setup["nodes"]))

    def _depose(self) -> Iterator[Step]:
        world = self._world
        if world.active is None or _is_leaving(world) or _meet(world):
            return
        yield {"op": "depose", "epoch": world.epoch + 1}
        yield from self._requests(self._dice.randrange(3))
        yield self.lead(self._dice.choice(world.setup["nodes"]))

    def _restart(self) -> Iterator[Step]:
        world = self._world
        if world.is_one_behind_snapshot:
            # Kafka's node would forget that record at its next loss of leadership.
            return
        idle = [id for id, node in world.nodes.items() if not node.controller.is_active]
        yield {"op": "restart", "node": self._dice.choice(idle)}


def _is_leaving(world: QuorumWorld) -> bool:
    """Whether a broker shuts down, which the next controller of Kafka would not know."""
    brokers = (*world.cluster.state.brokers.values(), *world.committed_brokers)
    return any(one.in_controlled_shutdown and not one.fenced for one in brokers)


def _meet(world: QuorumWorld) -> bool:
    """Whether brokers share a bucket of Kafka's hash map of registrations.

    A node of Kafka that reverts a change of one puts it behind the others, and places replicas in
    another order from then on, when it leads again.
    """
    brokers = world.cluster.state.brokers
    return len({broker % 16 for broker in brokers}) < len(brokers)


def _late(world: QuorumWorld, ms: int) -> list[tuple[int, int]]:
    """The sessions that run out within so many milliseconds."""
    sessions = world.sessions
    return [
        session
        for session, heard_ms in sessions._contacts.items()
        if heard_ms + sessions.session_timeout_ms <= world.now_ms + ms
    ]


def _is_registered(world: QuorumWorld, broker: int, epoch: int) -> bool:
    registration = world.cluster.state.brokers.get(broker)
    return registration is not None and registration.epoch == epoch


def is_left_out(world: QuorumWorld, step: Step) -> bool:
    """Whether this step is never drawn here; a sequence that is made small may come to it."""
    name = step["op"]
    if name in ("lead", "depose"):
        is_reverted = name == "depose" or bool(world.batch_ends)
        return world.active is not None and (_is_leaving(world) or (is_reverted and _meet(world)))
    if name == "advance":
        is_due = world.has_tokens and bool(world.batch_ends)
        late = _late(world, step["ms"])
        return is_due or (
            len(late) > 1 and any(_is_registered(world, *session) for session in late)
        )
    if name == "restart":
        return world.is_one_behind_snapshot
    return name in _NEED_COMMITTED and bool(world.batch_ends)


def _is_told_apart(name: str, arguments: Step) -> bool:
    """Whether the raft layer of a sequence has what it takes."""
    if name == "alter_scram_credentials":
        # Kafka answers an empty one without a look at the queue, a standby too.
        return any(arguments["request"].values())
    if name in ("register_broker", "register_controller"):
        # The sequences for managers have ids that only Kafka takes.
        asked = arguments["request"]
        return asked.get("brokerId", asked.get("controllerId")) >= 0
    return name != "update_features" or "kraft.version" not in arguments["updates"]


def _end_large(steps: Steps, dice: random.Random, world: QuorumWorld) -> Iterator[Step]:
    """A request of many records, and its commit."""
    since, arguments = LARGE[name := dice.choice(sorted(LARGE))]
    if world.level < since:
        return
    yield steps.commit_all()
    if name == "delete_acls":
        if world.active is not None and _is_leaving(world):
            return
        yield steps.lead(OTHER_NODE)
        yield {"op": "write", "batches": [many_acls(dice)]}
    if name == "delete_acls" or world.active is None:
        yield steps.lead(dice.choice(world.setup["nodes"]))
        yield steps.commit_all()
    step = {"op": name, **arguments(dice, world), "token": 1_000_000, "is_large": True}
    yield step
    # Both to their own end.
    yield {"op": "commit", "to": 1 << 40}


def drawn_steps(
    dice: random.Random, world: QuorumWorld, rounds: int, only: Collection[str] = ()
) -> Iterator[Step]:
    """The steps of one sequence; each is to be taken before the next is drawn."""
    steps = Steps(dice, world, only)
    yield from steps.begin()
    for _ in range(rounds):
        yield from steps.go_on()
    if dice.random() < 0.08:
        yield from _end_large(steps, dice, world)
