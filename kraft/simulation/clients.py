"""Simulated clients: create and delete topics, create partitions, change configurations, read.

`Histories` records the operations and their outcomes by key, and checks that they are linearizable
(`histories_are_linearizable`) and that acknowledged changes are in the committed log
(`no_acknowledged_operation_is_lost`). Some clients create large topics only, one after the other,
through changes of the controller (the test plan of KIP-868). A client sends one operation at a
time, through the network of `whole_cluster`, to the machine that it believes to be the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any

from kraft.controller.configs.config_changes import ConfigChange, ConfigOperation
from kraft.controller.decision import Decision, Records
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import DecisionContext, Operation, OperationResult
from kraft.controller.topics.elections import ElectionType
from kraft.controller.topics.partition_creation import NewPartitions
from kraft.controller.topics.topic_creation import CreatedTopic, NewTopic
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import (
    InvalidPartitionsError,
    KraftError,
    NotControllerError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kraft.image.configs import BROKER
from kraft.records import Uuid
from kraft.simulation.batch_tree import Violation
from kraft.simulation.environment import ControllerApi, Environment, Finder, OnAnswer
from kraft.simulation.linearizability import (
    Call,
    Step,
    is_linearizable,
    topic_step,
    value_step,
    without_unread_sets,
)

#: After so many operations a topic name is replaced by a new one.
CALLS_PER_KEY = 12
NAMES_AT_A_TIME = 5
SETTINGS = ("log.retention.ms", "message.max.bytes", "log.segment.bytes", "background.threads")
TIMEOUT_MS = 5_000.0
#: Errors of unknown outcome: the operation may have happened, or may still happen.
_UNKNOWN = (NotControllerError, RequestTimedOutError)

Key = tuple[str, str]


class Histories:
    """The operations on each key and their outcomes."""

    def __init__(self, cluster: Environment) -> None:
        self.cluster = cluster
        self.calls: dict[Key, list[Call]] = {}
        #: Keys without further operations.
        self._retired: set[Key] = set()
        self.names = [self._new_name() for _ in range(NAMES_AT_A_TIME)]

    def _new_name(self) -> str:
        self.cluster.counts["topic_names"] += 1
        return f"topic-{self.cluster.counts['topic_names']}"

    def begin(self, key: Key, kind: str, given: Hashable) -> Call:
        call = Call(kind, given, self.cluster.now)
        calls = self.calls.setdefault(key, [])
        calls.append(call)
        if key[0] == "topic" and len(calls) >= CALLS_PER_KEY and key[1] in self.names:
            self.names[self.names.index(key[1])] = self._new_name()
            self._retired.add(key)
        return call

    def forget(self, key: Key, call: Call) -> None:
        """Remove an operation that has not happened."""
        self.calls[key] = [other for other in self.calls[key] if other is not call]

    def check(self) -> None:
        """Check each key; the committed state of the key counts as one more read."""
        ledger = self.cluster.ledger
        for key, calls in list(self.calls.items()):
            now: Any
            if key[0] == "topic":
                topic = ledger.topics.get(key[1])
                now = None if topic is None else (topic.id, len(topic.partitions))
                step: Step = topic_step
            else:
                now = ledger.configs.get((BROKER, ""), {}).get(key[1])
                step = value_step
            moment = self.cluster.now
            last = Call("read", None, moment, moment, ("read", now))
            whole = [*calls, last]
            if key[0] == "config":
                whole = without_unread_sets(whole)
            if not is_linearizable(whole, step, None):
                if is_linearizable([call for call in whole if call is not last], step, None):
                    self._fail("no_acknowledged_operation_is_lost", key, [*calls, last])
                self._fail("histories_are_linearizable", key, calls)
            self.cluster.counts["checked_histories"] += 1
            if key in self._retired and all(call.end < moment for call in calls):
                del self.calls[key]
                self._retired.discard(key)
            elif key[0] == "config":
                self._cut(key, calls, now)

    def _cut(self, key: Key, calls: list[Call], now: Hashable) -> None:
        """Replace the ended operations on a configuration by one set of its present value."""
        moment = self.cluster.now
        pending = [call for call in calls if not call.is_known]
        if len(calls) > CALLS_PER_KEY and all(
            call.is_known and call.end < moment for call in calls if call not in pending
        ):
            # Operations of unknown outcome may still happen.
            first = Call("set", now, moment, moment, "done")
            self.calls[key] = [first, *pending[-8:]]

    def _fail(self, invariant: str, key: Key, calls: list[Call]) -> None:
        operations = "; ".join(
            f"{call.kind} {_abbreviate(call.given)} [{call.start:.1f}, {call.end:.1f}] -> "
            f"{_abbreviate(call.outcome)}"
            for call in sorted(calls, key=lambda call: call.start)
        )
        raise Violation(invariant, f"{key[0]} {key[1]}: {operations}")


class Client:
    """A client with one operation at a time; ``is_large``: it creates large topics only."""

    def __init__(
        self,
        cluster: Environment,
        histories: Histories,
        id: int,
        finder: Finder,
        broker_ids: Collection[int],
        *,
        is_large: bool,
    ) -> None:
        self.cluster = cluster
        self.histories = histories
        self.id = id
        self.finder = finder
        self._broker_ids = broker_ids
        self.is_large = is_large
        self._number = 0

    def act(self, number: int | None = None, _b: None = None, _c: None = None) -> None:
        """Begin the next operation, unless a response has begun it already."""
        if number is not None and number != self._number:
            return
        self._number += 1
        cluster, random = self.cluster, self.cluster.random
        cluster.at(cluster.now + TIMEOUT_MS, self.act, self._number)
        draw = cluster.draw()
        if not self.is_large and draw < 0.35:
            self._alter_config()
        elif not self.is_large and draw < 0.42:
            self._elect_or_reassign()
        else:
            name = random.choice(self.histories.names)
            chosen = random.choices(
                (self._create, self._delete, self._create_partitions, self._read),
                (5, 3, 2, 0) if self.is_large else (5, 2, 2, 3),
            )[0]
            chosen(name)

    def _go_on(self, number: int) -> None:
        if number == self._number:
            self._number += 1
            wait_ms = self.cluster.conditions.append_interval_ms * (0.5 + self.cluster.draw())
            self.cluster.at(self.cluster.now + wait_ms, self.act, self._number)

    def _ask(
        self,
        key: Key | None,
        kind: str,
        given: Hashable,
        operation: Operation,
        outcome_of: Callable[[Any], Hashable | None],
    ) -> None:
        """Send an operation; ``outcome_of`` a response is None if nothing has happened."""
        cluster, number = self.cluster, self._number
        call = None if key is None else self.histories.begin(key, kind, given)

        def submit(runner: ControllerApi, on_answer: OnAnswer) -> None:
            runner.submit(operation, on_answer, TIMEOUT_MS)

        def answered(response: Any, error: KraftError | None, epoch: int) -> None:
            if isinstance(error, NotControllerError) and number == self._number:
                self.finder.try_next()
            if call is not None and key is not None:
                outcome = None if error is not None else outcome_of(response)
                is_reading = outcome is not None and _is_read_only(outcome)
                if is_reading and not cluster.is_newest_controller(epoch):
                    # An old controller answered: it has no lease, as in Kafka.
                    cluster.counts["stale_refusals"] += 1
                    outcome = None
                if outcome is not None:
                    call.end, call.outcome = cluster.now, outcome
                    cluster.counts[f"client_{kind}_{_name(outcome)}"] += 1
                elif not isinstance(error, _UNKNOWN):
                    self.histories.forget(key, call)
                    cluster.counts[f"client_{kind}_refused"] += 1
                else:
                    cluster.counts[f"client_{kind}_unknown"] += 1
            self._go_on(number)

        cluster.call(self.id, self.finder.target, submit, answered)

    # -- topics

    def _create(self, name: str) -> None:
        random = self.cluster.random
        topic_id = Uuid(b"\6" + random.randbytes(15))
        count = random.randint(40, 160) if self.is_large else random.randint(1, 6)
        topic = NewTopic(name, topic_id, count, random.choice((1, 2, 3, 3)))

        def outcome(response: Any) -> Hashable | None:
            result = response[name]
            if isinstance(result, CreatedTopic):
                return "done"
            return "exists" if isinstance(result, TopicAlreadyExistsError) else None

        key = ("topic", name)
        self._ask(key, "create", (bytes(topic_id), count), requests.create_topics([topic]), outcome)

    def _delete(self, name: str) -> None:
        def outcome(response: Any) -> Hashable | None:
            error = response[0].error
            if error is None:
                return "done"
            return "absent" if isinstance(error, UnknownTopicOrPartitionError) else None

        operation = requests.delete_topics([TopicToDelete(name)])
        self._ask(("topic", name), "delete", None, operation, outcome)

    def _create_partitions(self, name: str) -> None:
        random = self.cluster.random
        count = random.randint(40, 200) if self.is_large else random.randint(2, 12)

        def outcome(response: Any) -> Hashable | None:
            result = response[name]
            if isinstance(result, int):
                return "done"
            if isinstance(result, UnknownTopicOrPartitionError):
                return "absent"
            return "few" if isinstance(result, InvalidPartitionsError) else None

        operation = requests.create_partitions([NewPartitions(name, count)])
        self._ask(("topic", name), "grow", count, operation, outcome)

    def _read(self, name: str) -> None:
        def decide(context: DecisionContext) -> OperationResult:
            table = context.cluster.table
            number = table.topic_number(name)
            found = None
            if number >= 0:
                found = (table.topic_id_of(number), len(table.topic_rows(number)))
            return Decision(_no_records(), ("read", found))

        self._ask(("topic", name), "read", None, Operation("read topic", decide), lambda read: read)

    # -- configurations

    def _alter_config(self) -> None:
        random = self.cluster.random
        name = random.choice(SETTINGS)
        key, resource = ("config", name), (BROKER, "")
        draw = self.cluster.draw()
        if draw < 0.4:

            def decide(context: DecisionContext) -> OperationResult:
                value = context.cluster.state.configs.get(resource, {}).get(name)
                return Decision(_no_records(), ("read", value))

            self._ask(key, "read", None, Operation("read config", decide), lambda read: read)
            return
        value = None if draw < 0.5 else str(random.randint(1_100_000, 9_000_000))
        if name == "background.threads" and value is not None:
            value = str(1 + int(value) % 200)
        act = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        operation = requests.incremental_alter_configs(
            [(resource, [ConfigChange(name, value, act)])]
        )
        self._ask(
            key,
            "set",
            value,
            operation,
            lambda response: "done" if response[resource] is None else None,
        )

    def _elect_or_reassign(self) -> None:
        """Elect leaders or reassign partitions; no history records it."""
        random = self.cluster.random
        name = random.choice(self.histories.names)
        brokers = list(self._broker_ids)
        if self.cluster.draw() < 0.5:
            operation = requests.elect_leaders(ElectionType.PREFERRED)
        else:
            target = random.sample(brokers, min(len(brokers), random.randint(1, 3)))
            chosen = None if self.cluster.draw() < 0.2 else target
            operation = requests.alter_partition_reassignments(
                {(name, random.randrange(3)): chosen}
            )
        self._ask(None, "", None, operation, lambda response: None)


def _no_records() -> Records:
    return Records(memoryview(b""), 0)


def _is_read_only(outcome: Hashable) -> bool:
    """Return whether an outcome only reports the state: no record was written."""
    return outcome in ("exists", "absent", "few") or isinstance(outcome, tuple)


def _name(outcome: Hashable) -> str:
    return outcome[0] if isinstance(outcome, tuple) else str(outcome)


def _abbreviate(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()[2:8]
    if isinstance(value, tuple):
        return "(" + ", ".join(_abbreviate(each) for each in value) + ")"
    return str(value)
