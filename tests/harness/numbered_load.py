"""Idempotent producers that number their records, and the check that a topic has each once.

Each producer numbers the records of each partition from 0 on. No delivery may fail: then the
partitions must have all numbers, each once and in order, and the acknowledged ones at the offsets
that were acknowledged.

One exception is Kafka's: a broker that restarts knows only the last batch of each producer before
its latest snapshot. An earlier batch that is sent again is out of sequence then. After this error
librdkafka sends all records without an acknowledgement again, in a new epoch of the producer.

librdkafka may send the records of a partition to a broker that does not lead it, for ever, although
it knows the leader: if the leader changes, and changes back before the partition has left the
first broker (its issue 4976, its pull request 5593; in 2.16 and before). Its statistics name both
brokers. `MisdirectedProducerError` reports such partitions; they go on when their leader changes.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from tests.harness.commands import eventually
from tests.harness.confluent_records import QUIET

Partition = tuple[str, int]
#: Above the time of all faults of one round, after which everything is written.
_DELIVERY_TIMEOUT_MS = 300_000
_VALUE_SIZE = 200
_MOST_WAITING = 20_000
_EVERY_S = 0.01
#: Of a record whose answer was lost: a later one was acknowledged, which cannot be without it.
UNKNOWN_OFFSET = -1


class Misdirection(NamedTuple):
    """A partition whose records ``producer`` sends to ``broker``, and the leader that it knows."""

    producer: int
    partition: Partition
    broker: int
    leader: int


class MisdirectedProducerError(AssertionError):
    """A producer sends records to a broker of which it knows that it does not lead."""

    def __init__(self, found: Collection[Misdirection]) -> None:
        super().__init__(f"librdkafka sends records to other brokers than the leaders: {found}")
        self.found = sorted(found)


class NumberedLoad:
    """Producers on a thread of their own, which write to every partition of ``topics``."""

    def __init__(self, servers: str, topics: Mapping[str, int], producers: int = 2) -> None:
        """``topics``: the number of partitions of each topic."""
        self._partitions = [(name, id) for name, count in topics.items() for id in range(count)]
        config = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
            "queue.buffering.max.messages": _MOST_WAITING,
            "linger.ms": 2,
            # Below the segments of all tests, also after a pause with thousands of records.
            "batch.size": 40_000,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.max.ms": 500,
            "statistics.interval.ms": 5000,
        }
        #: The latest statistics of each producer, as JSON.
        self._statistics = [""] * producers
        #: By producer: what its latest statistics show, and what the last two of them show.
        self._misdirected: list[set[Misdirection]] = [set() for _ in range(producers)]
        self._stays_misdirected: list[set[Misdirection]] = [set() for _ in range(producers)]
        self._producers = [
            Producer(config | {"stats_cb": partial(self._note, number)}, logger=QUIET)
            for number in range(producers)
        ]
        #: Numbers given out, by producer and partition.
        self._given: Counter[tuple[int, Partition]] = Counter()
        #: The offset of each number, by producer and partition, or `UNKNOWN_OFFSET`.
        self.acknowledged: defaultdict[tuple[int, Partition], dict[int, int]]
        self.acknowledged = defaultdict(dict)
        self._failed: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def acknowledged_count(self) -> int:
        return sum(len(offsets) for offsets in list(self.acknowledged.values()))

    def acknowledged_ends(self) -> dict[Partition, int]:
        """Return by partition the offset after the last acknowledged record."""
        return {
            partition: max(
                (
                    max(offsets.values()) + 1
                    for (_, of), offsets in list(self.acknowledged.items())
                    if of == partition and offsets
                ),
                default=0,
            )
            for partition in self._partitions
        }

    def await_progress(self) -> None:
        """Wait until each producer has an acknowledgement in each partition for a later record.

        Raises MisdirectedProducerError if a producer waits for itself.
        """
        before = dict(self._given)

        def late() -> dict[tuple[int, Partition], str]:
            self.check()
            self._check_directions()
            last = {key: max(self.acknowledged[key], default=-1) for key in before}
            return {
                key: f"{last[key]} of {number}"
                for key, number in before.items()
                if last[key] < number
            }

        try:
            eventually(late, until=lambda found: not found)
        except MisdirectedProducerError:
            raise
        except AssertionError as error:
            states = [_state(text) for text in self._statistics]
            raise AssertionError(f"no progress: {late()}; the producers: {states}") from error

    def _note(self, number: int, statistics: str) -> None:
        self._statistics[number] = statistics
        found = misdirected(number, statistics)
        self._stays_misdirected[number] = found & self._misdirected[number]
        self._misdirected[number] = found

    def _check_directions(self) -> None:
        """Report partitions that two statistics in turn show at another broker than the leader."""
        found = set().union(*self._stays_misdirected)
        if found:
            for shown in (*self._misdirected, *self._stays_misdirected):
                shown.clear()
            raise MisdirectedProducerError(found)

    def check(self) -> None:
        """Fail if a delivery failed."""
        assert not self._failed, self._failed[:10]
        assert self._thread.is_alive() or self._is_over.is_set(), "the producers' thread has ended"

    def stop(self) -> None:
        """Write no more, and wait for the acknowledgement of every record."""
        self._is_over.set()
        self._thread.join()
        for producer in self._producers:
            left = producer.flush(_DELIVERY_TIMEOUT_MS / 1000)
            assert left == 0, f"{left} records are not acknowledged"
        self.check()
        assert self.acknowledged_count == self._given.total()

    def _run(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            for number, producer in enumerate(self._producers):
                for partition in self._partitions:
                    self._produce(number, producer, partition)
                producer.poll(0)

    def _produce(self, index: int, producer: Producer, partition: Partition) -> None:
        key = (index, partition)
        number = self._given[key]

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None:
                self._failed.append(f"record {number} of {key}: {error}")
            else:
                self.acknowledged[key][number] = UNKNOWN_OFFSET if offset is None else offset

        value = f"{index} {number} ".encode().ljust(_VALUE_SIZE, b".")
        try:
            producer.produce(partition[0], value, partition=partition[1], on_delivery=delivered)
        except BufferError:
            return
        self._given[key] += 1

    def check_records(
        self,
        partition: Partition,
        records: Sequence[tuple[int, bytes]],
        epoch_starts: Collection[int] = (),
    ) -> int:
        """Check the records of a partition, from its first one on, against what was written.

        ``epoch_starts`` are the offsets of the first records of a later epoch of a producer. From
        there on the last records of that producer may be repeated, unless they were acknowledged
        before. Return how many were.
        """
        found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for offset, value in records:
            producer, digits, _ = value.split(b" ", 2)
            found[int(producer)].append((int(digits), offset))
        repeated = 0
        for index in range(len(self._producers)):
            key = (index, partition)
            offsets = dict(found[index])
            wrong = [
                (each, offset, offsets.get(each))
                for each, offset in self.acknowledged[key].items()
                if each not in offsets or offset not in (UNKNOWN_OFFSET, offsets[each])
            ]
            assert not wrong, f"{key}: (number, acknowledged offset, found at) {wrong[:10]}"
            expected = 0
            for at, (number, offset) in enumerate(found[index]):
                if number < expected and offset in epoch_starts:
                    repeated += expected - number
                else:
                    assert number == expected, (
                        f"{key}: at {expected} are (number, offset) {found[index][at:][:10]}"
                    )
                expected = number + 1
        return repeated

    def counts(self) -> dict[Partition, int]:
        """Return the number of records of each partition."""
        return {
            partition: sum(self._given[index, partition] for index in range(len(self._producers)))
            for partition in self._partitions
        }


def misdirected(producer: int, statistics: str) -> set[Misdirection]:
    """Return the partitions that statistics of librdkafka show at another broker than the leader.

    A partition that moves to a new leader is among them for a moment.
    """
    return {
        Misdirection(producer, (topic, partition["partition"]), broker, leader)
        for topic, state in json.loads(statistics)["topics"].items()
        for partition in state["partitions"].values()
        if (broker := partition["broker"]) >= 0
        and (leader := partition["leader"]) >= 0
        and broker != leader
    }


def _state(statistics: str) -> dict[str, object]:
    """Return of librdkafka's statistics why a producer may wait."""
    if not statistics:
        return {}
    found = json.loads(statistics)
    names = "state", "outbuf_msg_cnt", "waitresp_cnt", "waitresp_msg_cnt", "req_timeouts", "tx"
    return {
        "idempotence": found.get("eos"),
        "messages": found["msg_cnt"],
        "brokers": {
            broker["name"]: {name: broker.get(name) for name in names}
            for broker in found["brokers"].values()
        },
    }
