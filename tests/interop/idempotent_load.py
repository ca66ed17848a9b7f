"""A load of acknowledged records by an idempotent producer of librdkafka, and leaders that move."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.interop.client_cluster import ClientCluster
from tests.interop.cluster import wait_for
from tests.interop.data_clients import numbered

LOAD_BATCH = 50


class Load(threading.Thread):
    """One idempotent producer of librdkafka, until the end of the block.

    Each leader continues the sequence numbers that the one before has replicated.
    """

    def __init__(self, clients: ClientCluster, topic: str, name: str = "load") -> None:
        super().__init__(daemon=True)
        from tests.interop.python_data_clients import Confluent

        self._client = Confluent(clients.servers)
        self._topic = topic
        #: The beginning of each value.
        self._name = name
        self._is_ending = threading.Event()
        self._failure: BaseException | None = None
        #: The acknowledged values.
        self.values: list[str] = []

    def run(self) -> None:
        try:
            producer = self._client.producer(is_idempotent=True)
            while not self._is_ending.is_set():
                batch = numbered(self._name, LOAD_BATCH, len(self.values))
                self._client.send(producer, self._topic, batch)
                self.values += batch
        except BaseException as error:
            self._failure = error

    def wait_for_more(self) -> None:
        """Wait until records are acknowledged that were sent from now on."""
        seen = len(self.values)
        wait_for(
            "records of the load", lambda: self._failure or len(self.values) > seen + LOAD_BATCH, 60
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_ending.set()
        self.join(60)
        if error is None:
            assert self._failure is None, self._failure


def lead(clients: ClientCluster, topic: str, broker: int) -> None:
    """Let the broker lead all partitions of a topic with three replicas."""
    others = [each for each in (1, 2, 3) if each != broker]
    partitions = range(len(clients.stage.partitions(topic)))
    moves = {topic: {str(partition): [broker, *others] for partition in partitions}}
    clients.ask("reassign", partitions=moves)
    clients.stage.wait_until_moved()

    def leads() -> bool:
        # The election of a leader that leads already is an error.
        with suppress(Exception):
            wanted = {topic: list(partitions)}
            clients.ask("elect", type="PREFERRED", partitions=wanted)
        return all(one["leader"] == broker for one in clients.stage.partitions(topic))

    wait_for(f"broker {broker} to lead {topic}", leads)
