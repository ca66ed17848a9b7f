"""Clients that change topics and configurations over the network, and record the history.

Each `AdminClient` is a thread with a `QuorumClient`, kraft's own client, which finds the leader and
sends a request again when its connection fails. Every attempt is an operation of the history: one
without a response may take effect at any later moment, also after the client has moved on.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from kraft._core.codec.metadata_codec import Message
from kraft.errors import (
    INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR,
    NONE,
    NOT_CONTROLLER,
    REQUEST_TIMED_OUT,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
    error_name,
)
from kraft.network.controller_connection import Address
from kraft.network.quorum_client import QuorumClient
from kraft.protocol.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequestData,
    CreatePartitionsResponseData,
    CreatePartitionsTopic,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
    DeleteTopicState,
)
from kraft.protocol.headers import Api
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)
from tests.harness.linearizability import Operation

REPLICATION_FACTOR = 3
#: The client gives up after this time; its next request begins with another controller.
TIMEOUT_S = 4.0
_TIMEOUT_MS = int(TIMEOUT_S * 1000)
TOPIC, SET = 2, 0
KEY = "retention.ms"
_PAUSE_S = 0.02
Answer = TypeVar("Answer", bound=Message)
#: ("topic", name) or ("config", name): one object of the history.
Object = tuple[str, str]


class History:
    """The operations of all clients, by object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.operations: defaultdict[Object, list[Operation]] = defaultdict(list)
        self.acknowledged = 0
        self.without_response = 0
        #: Responses of errors that change nothing, by name.
        self.rejected: Counter[str] = Counter()
        self._last_written = (0.0, 0.0)
        self._first_after: float | None = None
        self._asked_after = float("inf")

    def begin_waiting(self, asked_after: float) -> None:
        """Look for the first accepted write whose request was sent after this moment."""
        with self._lock:
            self._asked_after, self._first_after = asked_after, None

    def first_accepted(self) -> float | None:
        """Return when the write of `begin_waiting` was accepted; None until then."""
        with self._lock:
            return self._first_after

    def add(self, about: Object, operation: Operation, *, is_write: bool = False) -> None:
        with self._lock:
            self.operations[about].append(operation)
            if operation.is_open:
                self.without_response += 1
            elif is_write:
                self.acknowledged += 1
                if self._first_after is None and operation.invoked >= self._asked_after:
                    self._first_after = operation.responded

    def reject(self, code: int) -> None:
        with self._lock:
            self.rejected[error_name(code)] += 1

    def take(self) -> dict[Object, list[Operation]]:
        """Return the operations, and forget them."""
        with self._lock:
            taken, self.operations = dict(self.operations), defaultdict(list)
            return taken


class Names:
    """Names of topics, shared by all clients.

    A name whose history has an operation without a response is replaced by a new one: the search
    for an order takes time exponential in the number of such operations.
    """

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix = prefix
        self._lock = threading.Lock()
        self._made = 0
        self._names = [self._make() for _ in range(count)]

    def _make(self) -> str:
        self._made += 1
        return f"{self._prefix}-{self._made}"

    def draw(self, draw: random.Random) -> str:
        with self._lock:
            return draw.choice(self._names)

    def retire(self, name: str) -> None:
        with self._lock:
            if name in self._names:
                self._names[self._names.index(name)] = self._make()


class _Attempts:
    """A request that notes when it is encoded: once for each attempt to send it."""

    def __init__(self, request: Message) -> None:
        self._request = request
        self.times: list[float] = []

    def encode(self, version: int) -> bytes:
        self.times.append(time.monotonic())
        return self._request.encode(version)


class AdminClient:
    """One client, in a thread; all clients share ``names`` and ``configured``."""

    def __init__(
        self,
        servers: Sequence[Address],
        history: History,
        number: int,
        seed: int,
    ) -> None:
        self._servers = servers
        self._history = history
        self._number = number
        self._draw = random.Random(seed * 1000 + number)
        self._count = 0
        self._stopping = threading.Event()
        self.names: Names | None = None
        self.configured: Sequence[str] = ()
        #: Why the thread ended by itself.
        self.failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, names: Names, configured: Sequence[str]) -> None:
        self.names, self.configured = names, configured
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        """Wait for the end of the request in progress."""
        if self._thread is not None:
            self._thread.join(10 * TIMEOUT_S)
            assert not self._thread.is_alive(), f"client {self._number} hangs"

    def _run(self) -> None:
        try:
            with QuorumClient(
                self._servers, timeout_s=TIMEOUT_S, client_id=f"admin-{self._number}"
            ) as client:
                while not self._stopping.is_set():
                    self._one(client)
                    self._stopping.wait(_PAUSE_S * self._draw.random() * 2)
        except BaseException as failure:
            self.failure = failure
            raise

    def _one(self, client: QuorumClient) -> None:
        self._count += 1
        assert self.names is not None
        name = self.names.draw(self._draw)
        drawn = self._draw.random()
        if drawn < 0.4:
            self._create(client, name)
        elif drawn < 0.65:
            self._delete(client, name)
        elif drawn < 0.8:
            self._extend(client, name)
        else:
            self._configure(client, self._draw.choice(self.configured))

    def _create(self, client: QuorumClient, name: str) -> None:
        partitions = self._draw.randint(1, 3)
        placeholder = f"?{self._number}/{self._count}"
        request = CreateTopicsRequestData(
            [CreatableTopic(name, partitions, REPLICATION_FACTOR)], _TIMEOUT_MS
        )

        def result(answer: CreateTopicsResponseData) -> tuple[Any, ...] | None:
            (topic,) = answer.topics
            if topic.error_code == NONE:
                return "ok", str(topic.topic_id)
            return ("exists",) if topic.error_code == TOPIC_ALREADY_EXISTS else None

        self._send(
            client, CREATE_TOPICS, request, CreateTopicsResponseData,
            lambda answer: answer.topics[0].error_code, result,
            ("topic", name), "create", (placeholder, partitions),
        )  # fmt: skip

    def _delete(self, client: QuorumClient, name: str) -> None:
        request = DeleteTopicsRequestData([DeleteTopicState(name)], timeout_ms=_TIMEOUT_MS)

        def result(answer: DeleteTopicsResponseData) -> tuple[Any, ...] | None:
            (topic,) = answer.responses
            if topic.error_code == NONE:
                return "ok", str(topic.topic_id)
            return ("unknown",) if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION else None

        self._send(
            client, DELETE_TOPICS, request, DeleteTopicsResponseData,
            lambda answer: answer.responses[0].error_code, result, ("topic", name), "delete", None,
        )  # fmt: skip

    def _extend(self, client: QuorumClient, name: str) -> None:
        total = self._draw.randint(2, 6)
        request = CreatePartitionsRequestData([CreatePartitionsTopic(name, total)], _TIMEOUT_MS)
        results = {
            NONE: ("ok",),
            INVALID_PARTITIONS: ("invalid",),
            UNKNOWN_TOPIC_OR_PARTITION: ("unknown",),
        }
        self._send(
            client, CREATE_PARTITIONS, request, CreatePartitionsResponseData,
            lambda answer: answer.results[0].error_code,
            lambda answer: results.get(answer.results[0].error_code),
            ("topic", name), "extend", total,
        )  # fmt: skip

    def _configure(self, client: QuorumClient, name: str) -> None:
        """Write a value that no other operation writes."""
        value = str(self._number * 10**9 + self._count)
        request = IncrementalAlterConfigsRequestData(
            [IncrementalAlterConfigsResource(TOPIC, name, [IncrementalConfig(KEY, SET, value)])]
        )
        self._send(
            client, INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponseData,
            lambda answer: answer.responses[0].error_code,
            lambda answer: ("ok",) if answer.responses[0].error_code == NONE else None,
            ("config", name), "write", value,
        )  # fmt: skip

    def _send(
        self,
        client: QuorumClient,
        api: Api,
        request: Message,
        response_type: type[Answer],
        error_of: Callable[[Answer], int],
        result_of: Callable[[Answer], tuple[Any, ...] | None],
        about: Object,
        kind: str,
        argument: Any,
    ) -> None:
        attempts = _Attempts(request)

        def leader_error(answer: Answer) -> int:
            return NOT_CONTROLLER if error_of(answer) == NOT_CONTROLLER else NONE

        lost = 0
        try:
            answered = client.call(api, cast(Message, attempts), response_type, leader_error)
        except (KraftError, OSError):
            lost = len(attempts.times)
        else:
            responded, code = time.monotonic(), error_of(answered.response)
            result = result_of(answered.response)
            lost = len(attempts.times) - (code != REQUEST_TIMED_OUT)
            if result is not None:
                operation = Operation(attempts.times[-1], responded, kind, argument, result)
                self._history.add(about, operation, is_write=result[0] == "ok")
            elif code == INVALID_REPLICATION_FACTOR:
                # Too few brokers are unfenced.
                self._history.reject(code)
            elif code != REQUEST_TIMED_OUT:
                raise AssertionError(f"{api.name} of {about}: {error_name(code)}")
        if lost and about[0] == "topic":
            assert self.names is not None
            self.names.retire(about[1])
        for begin in attempts.times[:lost]:
            self._history.add(about, Operation(begin, 0, kind, argument, None))


def create_topics(servers: Sequence[Address], names: Sequence[str]) -> None:
    """Create topics of one partition, which no other client creates."""
    topics = [CreatableTopic(name, 1, REPLICATION_FACTOR) for name in names]
    request = CreateTopicsRequestData(topics)
    with QuorumClient(servers) as client:
        answered = client.call(CREATE_TOPICS, request, CreateTopicsResponseData, _error_of_all)
    codes = {each.error_code for each in answered.response.topics}
    assert codes <= {NONE} | ({TOPIC_ALREADY_EXISTS} if answered.is_repeated else set()), codes


def _error_of_all(answer: CreateTopicsResponseData) -> int:
    codes = {each.error_code for each in answer.topics}
    return NOT_CONTROLLER if NOT_CONTROLLER in codes else NONE
