"""Produce and consume with each client: one interface; Kafka's own clients and kcat behind it.

A `DataClient` sends text values, each with itself as the key, and returns after all are
acknowledged. It reads a topic to its end, or starts a `Member` of a group, which collects what it
receives until it leaves. Values are numbered, so that `check_complete` sees a record that is lost,
repeated or out of order. `python_data_clients` has the clients of Python.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, NamedTuple, Protocol

from tests.harness.commands import eventually
from tests.harness.kcat import kcat_command
from tests.harness.line_process import JsonRequests

#: The values of each partition, in the order of its log.
Values = dict[int, list[str]]
#: The protocols of groups.
CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
TIMEOUT_S = 60
_KCAT_BLOCK = 4096


class Batch(NamedTuple):
    """The values of one transaction."""

    values: Sequence[str]
    is_committed: bool = True


class Member(Protocol):
    """A running member of a consumer group or share group."""

    def assigned(self) -> set[int]:
        """Return its partitions. Raises the error that ended it."""

    def values(self) -> Values:
        """Return the values received so far. Raises the error that ended it."""

    def leave(self) -> None:
        """Commit what it has received, leave the group and close the connections."""


class DataClient(Protocol):
    """A kind of client."""

    name: str

    def produce(self, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        """Send the values and wait for the acknowledgements: acks=1, or idempotent and all."""

    def transact(self, topic: str, batches: Iterable[Batch], transactional_id: str) -> None:
        """Run one transaction for each batch."""

    def join(self, topic: str, group: str, protocol: str = CLASSIC) -> Member:
        """Start a member that reads committed records from the beginning of the topic."""


def numbered(prefix: str, count: int, first: int = 0) -> list[str]:
    return [f"{prefix}-{number:06}" for number in range(first, first + count)]


def check_complete(found: Values, sent: Sequence[str]) -> None:
    """Check that the partitions hold each sent value once, and in the order of sending."""
    received = sorted(value for values in found.values() for value in values)
    assert received == sorted(sent), _difference(received, sent)
    order = {value: number for number, value in enumerate(sent)}
    for partition, values in found.items():
        numbers = [order[value] for value in values]
        assert numbers == sorted(numbers), f"partition {partition} is out of order: {values[:20]}"


def _difference(received: list[str], sent: Sequence[str]) -> str:
    repeated = sorted({value for value in received if received.count(value) > 1})
    missing, unknown = set(sent) - set(received), set(received) - set(sent)
    return (
        f"missing {sorted(missing)[:9]}, repeated {repeated[:9]}, unknown {sorted(unknown)[:9]}; "
        f"{len(received)} received, {len(sent)} sent"
    )


def joined(*parts: Values) -> Values:
    """Return the values of several members; no two may have values of one partition."""
    together: Values = {}
    for part in parts:
        assert not together.keys() & part.keys(), "two members received the same partition"
        together |= part
    return together


class JavaMember:
    """A consumer or share consumer of `java/DataClients.java`."""

    def __init__(self, ask: JsonRequests, name: str) -> None:
        self._ask, self._name = ask, name

    def _received(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("received", name=self._name)
        if found["failure"]:
            raise AssertionError(f"{self._name}: {found['failure']}")
        return found

    def assigned(self) -> set[int]:
        return set(self._received()["assigned"])

    def values(self) -> Values:
        return {int(partition): each for partition, each in self._received()["values"].items()}

    def leave(self) -> None:
        self._ask("leave", name=self._name)


class Java:
    """Kafka's own clients."""

    name = "java"

    _members = itertools.count()

    def __init__(self, ask: JsonRequests, config: dict[str, str]) -> None:
        self._ask, self._config = ask, config

    def with_config(self, config: dict[str, str]) -> Java:
        """Return clients with more settings, in the same JVM."""
        return Java(self._ask, self._config | config)

    def __call__(self, verb: str, config: dict[str, str] | None = None, **fields: Any) -> Any:
        """Ask for any verb of `DataClients.java`; ``config`` is added to the client's."""
        return self._ask(verb, config=self._config | (config or {}), **fields)

    def produce(self, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        kind = {"enable.idempotence": "true", "acks": "all"}
        plain = {"enable.idempotence": "false", "acks": "1"}
        self("produce", kind if is_idempotent else plain, topic=topic, values=values)

    def transact(self, topic: str, batches: Iterable[Batch], transactional_id: str) -> None:
        wanted = [batch._asdict() for batch in batches]
        self("transact", {"transactional.id": transactional_id}, topic=topic, batches=wanted)

    def read(self, topic: str, isolation: str = "read_committed") -> Values:
        """Read all partitions to their ends, without a group."""
        found = self("read", {"isolation.level": isolation}, topic=topic)["values"]
        return {int(partition): values for partition, values in found.items()}

    def join(self, topic: str, group: str, protocol: str = CLASSIC, **config: str) -> JavaMember:
        wanted = {
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        more = {name.replace("__", "."): value for name, value in config.items()}
        return self._joined("join", wanted | more, topic=topic)

    def join_share(self, topic: str, group: str, *, is_releasing: bool = False) -> JavaMember:
        """Start a member of a share group; it may release each record once before it accepts it."""
        config = {"group.id": group}
        return self._joined("join_share", config, topic=topic, is_releasing=is_releasing)

    def _joined(self, verb: str, config: dict[str, str], **fields: Any) -> JavaMember:
        name = f"{config['group.id']}-{next(self._members)}"
        self(verb, config, name=name, **fields)
        return JavaMember(self._ask, name)


class ThreadMember:
    """A consumer of a Python client in a thread: ``run`` polls until `is_leaving`."""

    def __init__(self, run: Callable[[ThreadMember], None]) -> None:
        self.is_leaving = False
        self._failure: BaseException | None = None
        self._partitions: set[int] = set()
        self._values: Values = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[ThreadMember], None]) -> None:
        try:
            run(self)
        except BaseException as error:
            self._failure = error

    def note(self, partition: int | None, value: bytes | None) -> None:
        assert partition is not None
        assert value is not None
        with self._lock:
            self._values.setdefault(partition, []).append(value.decode())

    def note_assigned(self, partitions: Iterable[int]) -> None:
        self._partitions = set(partitions)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def assigned(self) -> set[int]:
        self._check()
        return self._partitions

    def values(self) -> Values:
        self._check()
        with self._lock:
            return {partition: list(values) for partition, values in self._values.items()}

    def leave(self) -> None:
        self.is_leaving = True
        self._thread.join(TIMEOUT_S)
        self._check()
        assert not self._thread.is_alive(), "a consumer does not close"


class Kcat:
    """kcat, as Debian builds it. Raises MissingToolError."""

    name = "kcat"

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._program = kcat_command()

    def _command(self, *words: str, **settings: str) -> list[str]:
        options = [f"-X{name.replace('__', '.')}={value}" for name, value in settings.items()]
        return [*self._program, "-b", self._servers, *options, *words]

    def _send(self, topic: str, values: Sequence[str], **settings: str) -> None:
        lines = "".join(f"{value}:{value}\n" for value in values)
        command = self._command("-P", "-t", topic, "-K:", **settings)
        done = subprocess.run(
            command, input=lines, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr

    def produce(self, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        is_so = str(is_idempotent).lower()
        self._send(topic, values, enable__idempotence=is_so, acks="all" if is_idempotent else "1")

    def transact(self, topic: str, batches: Iterable[Batch], transactional_id: str) -> None:
        """Run one process for each transaction; the process after an interrupted one aborts it."""
        for batch in batches:
            settings = {"transactional__id": transactional_id}
            if batch.is_committed:
                self._send(topic, batch.values, **settings)
            else:
                self._interrupt(topic, batch.values, **settings)

    def _interrupt(self, topic: str, values: Sequence[str], **settings: str) -> None:
        command = self._command("-P", "-t", topic, "-K:", **settings)
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        process.stdin.writelines(f"{value}:{value}\n" for value in values)
        # It reads whole blocks: without more input it would not see the last values.
        process.stdin.write("x" * _KCAT_BLOCK)
        process.stdin.flush()
        eventually(lambda: set(values) <= set(self._uncommitted(topic)))
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode != 0

    def _uncommitted(self, topic: str) -> list[str]:
        command = self._command("-C", "-t", topic, "-e", "-q", isolation__level="read_uncommitted")
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        ).stdout.splitlines()

    def join(self, topic: str, group: str, protocol: str = CLASSIC) -> ThreadMember:
        assert protocol == CLASSIC
        command = self._command(
            *("-G", group, topic, "-u", "-f", "%p %s\n"),
            auto__offset__reset="earliest",
            isolation__level="read_committed",
        )

        def run(member: ThreadMember) -> None:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            lines = threading.Thread(target=_note_lines, args=(member, process.stdout))
            assigned = threading.Thread(target=_note_rebalances, args=(member, process.stderr))
            for thread in (lines, assigned):
                thread.start()
            while not member.is_leaving and process.poll() is None:
                time.sleep(0.05)
            process.terminate()
            process.wait(TIMEOUT_S)
            for thread in (lines, assigned):
                thread.join(TIMEOUT_S)

        return ThreadMember(run)


def _note_lines(member: ThreadMember, lines: IO[str]) -> None:
    for line in lines:
        partition, _, value = line.rstrip("\n").partition(" ")
        member.note(int(partition), value.encode())


def _note_rebalances(member: ThreadMember, lines: IO[str]) -> None:
    for line in lines:
        if found := re.search(r"rebalanced .*: (assigned|revoked): (.*)", line):
            member.note_assigned(
                map(int, re.findall(r"\[(\d+)\]", found[2])) if found[1] == "assigned" else ()
            )
