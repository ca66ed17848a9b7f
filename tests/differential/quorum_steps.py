"""Steps of sequences for whole controllers, drawn with a view of this side's state.

Draws requests, time, commits and changes of leadership. Leaves out steps for which Kafka's
behaviour depends on state that is not in the log (see ``docs/differential.md``).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from itertools import count
from typing import Any

from kraft.controller.features import UpgradeType
from kraft.image.features import KRAFT_VERSION
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

#: Kafka finds tokens once publishers were notified of them; here tokens of the log count at once.
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
        """Begin with a cluster that another process has written, or with the bootstrap."""
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
        """Yield the next few steps."""
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
        elif drawn < 0.98:
            yield from self._make_snapshot()
        elif drawn < 0.988:
            yield from self._pause()
        elif drawn < 0.991:
            yield {"op": "fail_publisher"}
        elif drawn < 0.994:
            yield self._upgrade()
        else:
            yield from self._restart()

    # -- requests

    def _request(self, kind: Request, **fields: Any) -> Step | None:
        arguments = kind.arguments(self._dice, self._world)
        if arguments is None or not _is_distinguished(kind.name, arguments):
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

    def _upgrade(self) -> Step:
        """Upgrade kraft.version through the raft layer."""
        return {
            "op": "update_features",
            "updates": {KRAFT_VERSION: [1, UpgradeType.UPGRADE]},
            "validate_only": self._dice.random() < 0.3,
            "token": next(self._tokens),
        }

    def _beats(self) -> Iterator[Step]:
        """Every broker sends a heartbeat and wants to be unfenced."""
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
        """Advance the clock. At most one session expires: Kafka's hash table decides the order of
        several.
        """
        world = self._world
        sessions = world.sessions
        late = _late(world, ms)
        if late and all(_is_registered(world, *session) for session in late):
            late.remove(self._dice.choice(late))
        if ms > sessions.session_timeout_ms and late:
            # More than a session timeout would expire all sessions, even those just renewed.
            ms = self._dice.choice((100, 500, 1_126))
        for broker, epoch in late:
            if _is_registered(world, broker, epoch):
                yield self._beat(broker)
        if world.has_tokens:
            # Kafka would remove tokens again whose removal is not committed.
            yield self.commit_all()
        yield {"op": "advance", "ms": ms}

    def _wait_in_queue(self) -> Iterator[Step]:
        """Requests fill the queue of a busy controller, and some expire in it.

        At times the controller is deposed meanwhile.
        """
        world, dice = self._world, self._dice
        if world.active is None:
            return
        advance_ms = dice.choice((1, 100, 600))
        is_disk = dice.random() < 0.4
        # Arguments of new partitions depend on the reassignments queued before them.
        left_out = {"heartbeat", "create_partitions", *_NEED_COMMITTED}
        kinds = [one for one in self._subject if one.name not in left_out]
        yield {"op": "hold", "is_disk": is_disk}
        if is_disk:
            # Here heartbeats come before due tasks, in Kafka after them: no task may be due.
            wait_ms = world.active.controller.queue.wake_at_ms() - world.now_ms
            advance_ms = int(min(advance_ms, max(wait_ms - 1, 0)))
            if world.brokers():
                yield self._changing_beat(dice.choice(world.brokers()))
        # Each deadline is different: of two equal ones Kafka's queue extends one by a nanosecond.
        timeouts = dice.sample((0, 3, 50, 150, 250, 350, 700, 800), 4)
        for timeout_ms in timeouts:
            (kind,) = dice.choices(kinds, [one.weight for one in kinds])
            step = self._request(kind)
            if step is not None:
                if dice.random() < 0.5:
                    step["timeout_ms"] = timeout_ms
                yield step
        yield {"op": "advance", "ms": advance_ms}
        is_deposed = dice.random() < 0.25 and not _is_leaving(world) and not _meet(world)
        if is_deposed:
            yield {"op": "depose", "epoch": world.epoch + 1}
        yield {"op": "release"}
        if is_deposed:
            yield self.lead(dice.choice(world.setup["nodes"]))

    def _changing_beat(self, broker: int) -> Step:
        """A heartbeat that may fence or unfence its broker, so that it writes records."""
        step = self._beat(broker)
        step["request"]["wantFence"] = self._dice.random() < 0.5
        return step

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

    def _make_snapshot(self) -> Iterator[Step]:
        """Make a snapshot; the log grows while it is written."""
        yield self.commit_all()
        yield {"op": "snapshot"}
        yield from self._some_commits(self._dice.randrange(3))
        yield {"op": "snapshot_end"}

    def _some_commits(self, number: int) -> Iterator[Step]:
        for _ in range(number):
            yield from self._requests(1)
            yield self._commit()

    def _pause(self) -> Iterator[Step]:
        """Disconnect a standby; at its return the log mostly begins with a snapshot."""
        dice, node = self._dice, self._some_standby()
        yield {"op": "pause", "node": node}
        yield from self._some_commits(dice.randrange(1, 4))
        if dice.random() < 0.2:
            yield self._upgrade()
        if dice.random() < 0.7:
            yield from self._make_snapshot()
        yield from self._some_commits(dice.randrange(2))
        yield {"op": "resume", "node": node}

    def _restart(self) -> Iterator[Step]:
        yield {"op": "restart", "node": self._some_standby()}

    def _some_standby(self) -> int:
        nodes = self._world.nodes
        return self._dice.choice(
            [id for id, node in nodes.items() if not node.controller.is_active]
        )


def _is_leaving(world: QuorumWorld) -> bool:
    """Return whether a broker shuts down: Kafka's next controller would not know of that."""
    brokers = (*world.cluster.state.brokers.values(), *world.committed_brokers)
    return any(one.in_controlled_shutdown and not one.fenced for one in brokers)


def _meet(world: QuorumWorld) -> bool:
    """Return whether brokers share a bucket of Kafka's hash map of registrations.

    A node of Kafka that reverts a change of one of them moves it behind the others, and when it
    leads again it places replicas in another order.
    """
    brokers = world.cluster.state.brokers
    return len({broker % 16 for broker in brokers}) < len(brokers)


def _late(world: QuorumWorld, ms: int) -> list[tuple[int, int]]:
    """Return the sessions that expire within ``ms`` milliseconds."""
    sessions = world.sessions
    return [
        session
        for session, heard_ms in sessions._contacts.items()
        if heard_ms + sessions.session_timeout_ms <= world.now_ms + ms
    ]


def _is_registered(world: QuorumWorld, broker: int, epoch: int) -> bool:
    registration = world.cluster.state.brokers.get(broker)
    return registration is not None and registration.epoch == epoch


def is_excluded(world: QuorumWorld, step: Step) -> bool:
    """Return whether this step is never drawn here; a minimised sequence may contain it."""
    name = step["op"]
    if name in ("lead", "depose"):
        if any(node.is_paused for node in world.nodes.values()):
            return True
        is_reverted = name == "depose" or bool(world.batch_ends)
        return world.active is not None and (_is_leaving(world) or (is_reverted and _meet(world)))
    if name == "advance":
        is_due = world.has_tokens and bool(world.batch_ends)
        late = _late(world, step["ms"])
        return is_due or (
            len(late) > 1 and any(_is_registered(world, *session) for session in late)
        )
    if name in ("restart", "pause"):
        return world.nodes[step["node"]].controller.is_active
    if name == "snapshot_end":
        return not world.is_making_snapshot
    return name in _NEED_COMMITTED and bool(world.batch_ends)


def _is_distinguished(name: str, arguments: Step) -> bool:
    """Return whether both sides can distinguish such a request from others."""
    if name == "alter_scram_credentials":
        # Kafka answers an empty request without its queue, and on a standby too.
        return any(arguments["request"].values())
    if name in ("register_broker", "register_controller"):
        # The sequences for managers have ids that only Kafka accepts.
        asked = arguments["request"]
        return asked.get("brokerId", asked.get("controllerId")) >= 0
    return True


def _end_large(steps: Steps, dice: random.Random, world: QuorumWorld) -> Iterator[Step]:
    """Yield a large request and its commit."""
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
    is_deposed = dice.random() < 0.2 and world.active is not None and not _is_leaving(world)
    if is_deposed:
        yield {"op": "depose", "epoch": world.epoch + 1}
    yield {"op": name, **arguments(dice, world), "token": 1_000_000, "is_large": True}
    if is_deposed:
        return
    # Each side commits to its own log end.
    yield {"op": "commit", "to": 1 << 40}


def drawn_steps(
    dice: random.Random, world: QuorumWorld, rounds: int, only: Collection[str] = ()
) -> Iterator[Step]:
    """Yield the steps of one sequence; the caller runs each before it draws the next."""
    steps = Steps(dice, world, only)
    yield from steps.begin()
    for _ in range(rounds):
        yield from steps.go_on()
    if dice.random() < 0.08:
        yield from _end_large(steps, dice, world)
