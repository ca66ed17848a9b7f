"""A cluster of kraft's controllers and brokers under a verified load, with faults from a seed.

After each fault `BrokerChaos.recover` waits until every broker is unfenced, every replica in sync,
and a later record of every producer in every partition acknowledged. `finish` checks all records,
by a consumer and in the logs of all replicas, and that no node has logged an error.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kraft._core.bytes.batch_records import iterate
from kraft.broker.log.checkpoint_files import CLEAN_SHUTDOWN
from kraft.errors import KraftError
from kraft.live.metadata import LiveMetadata
from kraft.testing.cluster import QuorumForTests
from tests.harness.commands import eventually
from tests.harness.confluent_records import QUIET, consumed
from tests.harness.numbered_load import MisdirectedProducerError, NumberedLoad, Partition

CONTROLLERS = BROKERS = 3
SESSION_S = 3.0
OFFSETS_PARTITIONS = 4
#: Far above the time that a busy machine needs after the longest session or lag, with a disk that
#: takes seconds to sync.
RECOVERY_S = 180.0
_LOOK_S = 0.05
#: How often leaders change after one fault for producers that ask the wrong broker.
_MOST_MISDIRECTIONS = 6
SETTINGS = {
    "broker.session.timeout.ms": f"{SESSION_S * 1000:.0f}",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    # Several segments in each partition.
    "log.segment.bytes": str(1024 * 1024),
}
#: By name: the number of partitions, and the configuration.
Topics = Mapping[str, tuple[int, Mapping[str, str]]]
#: The records of the second topic are flushed one by one.
TOPICS: Topics = {"records": (3, {}), "flushed": (3, {"flush.messages": "1"})}
_ERROR = re.compile(r"^.*(?: ERROR | CRITICAL |Traceback ).*(?:\n.*){0,20}", re.MULTILINE)


@dataclass(frozen=True)
class ChaosRound:
    """One fault, and the seconds until the cluster was well again."""

    fault: str
    recovery_s: float

    def __str__(self) -> str:
        return f"{self.fault:40} {self.recovery_s:6.1f} s"


class BrokerChaos:
    """A running cluster under load."""

    def __init__(
        self, cluster: QuorumForTests, live: LiveMetadata, seed: int, topics: Topics = TOPICS
    ) -> None:
        self._cluster = cluster
        self._live = live
        self._dice = random.Random(seed)
        #: The epochs of registrations that brokers had before they ended.
        self._left_epochs: dict[int, int] = {}
        self._topics = {name: count for name, (count, _) in topics.items()}
        self._create_topics(topics)
        self.load = NumberedLoad(cluster.bootstrap_servers, self._topics)
        self.load.start()
        self.recover()

    def _create_topics(self, topics: Topics) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers}, logger=QUIET)
        new = [
            NewTopic(name, count, BROKERS, config=dict(configs))
            for name, (count, configs) in topics.items()
        ]
        for future in admin.create_topics(new).values():
            future.result()

    # -- faults

    def faults(self) -> Iterator[Callable[[], None]]:
        """Yield faults for ever: each of them once in random order, and then again."""
        every = self._kinds()
        while True:
            yield from self._dice.sample(every, len(every))

    def _kinds(self) -> list[Callable[[], None]]:
        return [
            self.broker_killed,
            self.broker_stopped,
            self.broker_paused_within_its_session,
            self.broker_paused_beyond_its_session,
            self.paused_broker_killed,
            self.leading_controller_killed,
            self.leading_controller_killed_while_a_broker_is_paused,
            self.brokers_killed_in_turn,
            self.brokers_stopped_in_turn,
            self.brokers_killed_at_once,
        ]

    def run(self, fault: Callable[[], None]) -> ChaosRound:
        """Cause one fault, and wait until the cluster is well."""
        fault()
        began = time.monotonic()
        self.recover()
        return ChaosRound(fault.__name__.replace("_", " "), time.monotonic() - began)

    def broker_killed(self) -> None:
        id = self._any_broker()
        self._kill(id)
        self._last(0, 1.5 * SESSION_S)
        self._cluster.start(id)

    def broker_stopped(self) -> None:
        id = self._any_broker()
        self._stop(id)
        self._last(0, SESSION_S)
        self._cluster.start(id)

    def broker_paused_within_its_session(self) -> None:
        id = self._any_broker()
        self._cluster.pause(id)
        self._last(0.1, 0.6 * SESSION_S)
        self._cluster.resume(id)

    def broker_paused_beyond_its_session(self) -> None:
        id = self._any_broker()
        self._cluster.pause(id)
        self._last(1.2 * SESSION_S, 2 * SESSION_S)
        self._cluster.resume(id)

    def paused_broker_killed(self) -> None:
        id = self._any_broker()
        self._cluster.pause(id)
        self._last(0, 2 * SESSION_S)
        self._kill(id)
        self._cluster.start(id)

    def leading_controller_killed(self) -> None:
        leader = self._cluster.wait_for_leader()
        self._kill(leader)
        self._last(0, SESSION_S)
        self._cluster.start(leader)

    def leading_controller_killed_while_a_broker_is_paused(self) -> None:
        id = self._any_broker()
        self._cluster.pause(id)
        leader = self._cluster.wait_for_leader()
        self._kill(leader)
        self._last(0, 2 * SESSION_S)
        self._cluster.resume(id)
        self._cluster.start(leader)

    def brokers_killed_in_turn(self) -> None:
        """Kill each broker as soon as the one before it has started, long before it is in sync."""
        for id in self._dice.sample(self._cluster.broker_ids, BROKERS):
            self._kill(id)
            self._cluster.start(id)
            self._last(0, 0.5 * SESSION_S)

    def brokers_stopped_in_turn(self) -> None:
        """A rolling restart: the next broker stops when all replicas are in sync."""
        for id in self._dice.sample(self._cluster.broker_ids, BROKERS):
            self._stop(id)
            self._cluster.start(id)
            self.recover()

    def brokers_killed_at_once(self) -> None:
        for id in self._cluster.broker_ids:
            self._kill(id)
        self._last(0, 1.5 * SESSION_S)
        for id in self._dice.sample(self._cluster.broker_ids, BROKERS):
            self._cluster.start(id)

    def _any_broker(self) -> int:
        return self._dice.choice(self._cluster.broker_ids)

    def _note_epochs(self, ids: Iterable[int]) -> None:
        """Note the registrations of nodes that end now: they are well only with later ones."""
        for id in set(ids) & set(self._cluster.broker_ids):
            self._left_epochs[id] = self._live.brokers[id].epoch

    def _kill(self, id: int) -> None:
        self._note_epochs([id])
        self._cluster.kill(id)

    def _stop(self, id: int) -> None:
        self._note_epochs([id])
        self._cluster.stop(id)
        self._check_clean_stop(id)

    def _check_clean_stop(self, id: int) -> None:
        assert (self._cluster.metadata_directory(id) / CLEAN_SHUTDOWN).exists(), (
            f"broker {id} did not stop cleanly: its log ends\n{self._log(id)[-3000:]}"
        )

    def _last(self, least_s: float, most_s: float) -> None:
        """Let the fault last."""
        time.sleep(self._dice.uniform(least_s, most_s))

    # -- between faults

    def recover(self) -> None:
        """Wait until the cluster is well, and the producers make progress."""
        deadline = time.monotonic() + RECOVERY_S
        while problem := problem_of(self._cluster, self._live, self._left_epochs):
            self.load.check()
            assert time.monotonic() < deadline, f"{problem} after {RECOVERY_S:.0f} s"
            time.sleep(_LOOK_S)
        self.await_progress()

    def await_progress(self) -> None:
        """Wait until the producers make progress in all partitions.

        A partition that a producer of librdkafka asks the wrong broker for gets another leader.
        """
        for _ in range(_MOST_MISDIRECTIONS):
            try:
                self.load.await_progress()
            except MisdirectedProducerError as error:
                print(error)
                first = error.found[0]
                self._replace_leader(first.partition, first.leader)
            else:
                return
        self.load.await_progress()

    def _replace_leader(self, partition: Partition, leader: int) -> None:
        """Pause a partition's leader until another broker leads, or none."""

        def is_leader() -> bool:
            # No controller may lead at present.
            with suppress(KraftError):
                self._live.poll()
            return self._live.partitions.find(*partition).leader == leader

        if is_leader():
            self._cluster.pause(leader)
            try:
                eventually(is_leader, until=lambda leads: not leads)
            finally:
                self._cluster.resume(leader)

    # -- the end

    def finish(self) -> int:
        """Stop the load and all nodes, and check all records; return their number."""
        self.load.stop()
        found: dict[Partition, list[tuple[int, bytes]]] = {}
        for topic, count in self._topics.items():
            read = consumed(self._cluster.bootstrap_servers, topic, count)
            found |= {(topic, id): records for id, records in read.items()}
        for id in self._cluster.broker_ids:
            self._cluster.stop(id)
            self._check_clean_stop(id)
        for id in set(self._cluster.controller_ids) - set(self._cluster.broker_ids):
            self._cluster.stop(id)
        for partition, count in self.load.counts().items():
            log = self._check_replicas(partition)
            starts = _epoch_starts(log)
            again = self.load.check_records(partition, found[partition], starts)
            end = count + again
            assert len(found[partition]) == end, f"{partition}: {len(found[partition])} records"
            *_, last = iterate(memoryview(log))
            assert last.last_offset == end - 1, f"{partition} ends at {last.last_offset}"
            if starts:
                print(f"{partition}: producers began {len(starts)} epochs, {again} records again")
        check_node_logs(self._cluster)
        return self.load.acknowledged_count

    def _check_replicas(self, partition: Partition) -> bytes:
        """Check that the logs of all replicas have the same bytes; return them."""
        topic, id = partition
        logs = {
            broker: log_bytes(self._partition_directory(broker, f"{topic}-{id}"))
            for broker in self._cluster.broker_ids
        }
        sizes = {broker: len(log) for broker, log in logs.items()}
        first, *others = logs.values()
        assert all(first == other for other in others), f"{topic}-{id} differs: bytes {sizes}"
        return first

    def _partition_directory(self, broker: int, name: str) -> Path:
        (found,) = (
            directory / name
            for directory in self._log_directories(broker)
            if (directory / name).is_dir()
        )
        return found

    def _log_directories(self, id: int) -> tuple[Path, ...]:
        return (self._cluster.metadata_directory(id),)

    def _log(self, id: int) -> str:
        return node_log(self._cluster, id)


def problem_of(cluster: QuorumForTests, live: LiveMetadata, left_epochs: Mapping[int, int]) -> str:
    """Return what the cluster lacks: brokers that are unfenced, replicas in sync; "" if nothing.

    ``left_epochs`` has the epochs of earlier registrations, which do not count.
    """
    # No controller may lead at present.
    with suppress(KraftError):
        live.poll()
    brokers, partitions = live.brokers, live.partitions
    for id in cluster.broker_ids:
        if id not in brokers or brokers[id].epoch == left_epochs.get(id):
            return f"broker {id} is not registered again"
        if brokers[id].fenced:
            return f"broker {id} is fenced"
    missing = np.flatnonzero(partitions.isr_size() != partitions.replica_count())
    if missing.size:
        return f"not all replicas are in sync: {partitions.row(int(missing[0]))}"
    return ""


def _epoch_starts(log: bytes) -> set[int]:
    """Return the offsets at which a producer began a later epoch of its id."""
    epochs: dict[int, int] = {}
    starts = set()
    for batch in iterate(memoryview(log)):
        if batch.producer_epoch > epochs.setdefault(batch.producer_id, batch.producer_epoch):
            starts.add(batch.base_offset)
            epochs[batch.producer_id] = batch.producer_epoch
    return starts


def log_bytes(directory: Path) -> bytes:
    """Return the batches of a partition; replicas may begin their segments at other offsets."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def node_log(cluster: QuorumForTests, id: int) -> str:
    """Return what a node has logged in all its lives."""
    (path,) = cluster.metadata_directory(id).parent.glob("*.log")
    return path.read_text()


def check_node_logs(cluster: QuorumForTests) -> None:
    """Fail if a node has logged an error or a traceback."""
    for id in (*cluster.controller_ids, *cluster.broker_ids):
        found = _ERROR.search(node_log(cluster, id))
        assert found is None, f"node {id} logged:\n{found[0]}"


@contextmanager
def broker_chaos(directory: Path, seed: int, *, combined: bool = False) -> Iterator[BrokerChaos]:
    """Start a cluster under load; its processes are killed at the end.

    With ``combined`` each process is a controller and a broker.
    """
    cluster = QuorumForTests(
        directory, CONTROLLERS, brokers=BROKERS, combined=combined, settings=SETTINGS
    )
    with cluster, cluster.follow() as live:
        yield BrokerChaos(cluster, live, seed)
