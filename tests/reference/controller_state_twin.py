"""The state of the slow controller twin: the log, replayed from its first record after each revert.

Partitions and the other state are the plain twins of replay (``table_twin``,
``cluster_state_twin``). This module adds metadata transactions, the resolution of configurations,
and the broker sessions. It uses nothing of ``kraft.controller``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from kraft import records
from kraft.records import Record, Uuid
from tests.reference import cluster_state_twin
from tests.reference.election_twin import Broker, Partition, Rules
from tests.reference.table_twin import TableTwin

TOPIC, BROKER = 2, 4
METADATA_VERSION = "metadata.version"
ELR = "eligible.leader.replicas.version"
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
Key = tuple[str, int]


class RefusedError(Exception):
    """A rejection with this error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class State:
    """The state after a log: ``log`` holds (offset, record), without control records.

    A node that began with a snapshot up to ``snapshot_end`` has no earlier offset.
    """

    def __init__(self, snapshot_end: int = 0) -> None:
        self._first_offset = snapshot_end - 1
        self.log: list[tuple[int, Record]] = []
        self._begin()

    def _begin(self) -> None:
        self.table = TableTwin()
        self.rest = cluster_state_twin.replayed([])
        self.transaction_start: int | None = None
        self._before_transaction: Any = None

    def append(self, offset: int, record: Record) -> None:
        self.log.append((offset, record))
        self._replay(offset, record)

    def revert(self, offset: int) -> None:
        """Drop all records from ``offset`` on."""
        log = [entry for entry in self.log if entry[0] < offset]
        self.log = []
        self._begin()
        for at, record in log:
            self.append(at, record)

    def _replay(self, offset: int, record: Record) -> None:
        match record:
            case records.BeginTransaction():
                assert self.transaction_start is None
                self.transaction_start = offset
                self._before_transaction = copy.deepcopy((self.table, self.rest))
            case records.EndTransaction():
                assert self.transaction_start is not None
                self.transaction_start = None
            case records.AbortTransaction():
                assert self.transaction_start is not None
                self.transaction_start = None
                self.table, self.rest = self._before_transaction
            case records.NoOp():
                pass
            case records.RemoveTopic():
                name = self.topic_named(record.topic_id)
                self.table.apply(record)
                configs = self.rest["config"]
                for key in [key for key in configs if key[:2] == (TOPIC, name)]:
                    del configs[key]
            case (
                records.Topic()
                | records.Partition()
                | records.PartitionChange()
                | records.ClearElr()
            ):
                self.table.apply(record)
            case _:
                cluster_state_twin.step(self.rest, record, max(offset, self._first_offset))

    # -- queries

    @property
    def level(self) -> int:
        level: int = self.rest["feature"][METADATA_VERSION]
        return level

    @property
    def is_elr_enabled(self) -> bool:
        return bool(self.rest["feature"].get(ELR, 0) >= 1)

    @property
    def brokers(self) -> dict[int, dict[str, Any]]:
        return self.rest["broker"]

    def broker(self, broker_id: int, epoch: int) -> dict[str, Any]:
        registered = self.brokers.get(broker_id)
        if registered is None or registered["epoch"] != epoch:
            raise RefusedError(77)
        return registered

    def is_active(self, broker_id: int) -> bool:
        registered = self.brokers.get(broker_id)
        return registered is not None and not (
            registered["fenced"] or registered["in_controlled_shutdown"]
        )

    def usable(self) -> list[int]:
        """Return the brokers that may get new replicas."""
        found = []
        for broker_id, registered in self.brokers.items():
            is_leaving = registered["in_controlled_shutdown"] and not registered["fenced"]
            cordoned = registered["cordoned"]
            if not is_leaving and not (cordoned and registered["log_dirs"] <= set(cordoned)):
                found.append(broker_id)
        return found

    def rules(self) -> Rules:
        brokers = {
            broker_id: Broker(
                broker_id,
                registered["fenced"],
                registered["in_controlled_shutdown"],
                in_java_order(registered["log_dirs"]),
                registered["epoch"],
            )
            for broker_id, registered in self.brokers.items()
        }
        return Rules(brokers, self.level, self.is_elr_enabled)

    def partition(self, key: Key) -> Partition:
        state = self.table.partitions[key]
        return Partition(
            replicas=tuple(state["replicas"]),
            isr=tuple(state["isr"]),
            leader=state["leader"],
            directories=tuple(Uuid(each) for each in state["directories"]),
            removing=tuple(state["removing_replicas"]),
            adding=tuple(state["adding_replicas"]),
            elr=tuple(state["elr"]),
            last_known_elr=tuple(state["last_known_elr"]),
            leader_epoch=state["leader_epoch"],
            partition_epoch=state["partition_epoch"],
            recovering=state["leader_recovery_state"] == 1,
            topic_id=Uuid(self.table.topics[key[0]]),
            partition_id=key[1],
        )

    def partitions(self) -> Iterator[tuple[Key, Partition]]:
        """Yield partitions in the order of their creation."""
        for key in self.table.partitions:
            yield key, self.partition(key)

    def size(self, topic: str) -> int:
        return sum(name == topic for name, _ in self.table.partitions)

    def topic_named(self, topic_id: bytes) -> str | None:
        for name, known in self.table.topics.items():
            if known == topic_id:
                return name
        return None

    def config(self, topic: str, name: str, static: str) -> str:
        """Return the topic's own value, else the cluster's, else that of the properties file."""
        configs = self.rest["config"]
        for key in ((TOPIC, topic, name), (BROKER, "", name)):
            if key in configs:
                return str(configs[key])
        return static

    def min_isr(self, key: Key) -> int:
        """Return min.insync.replicas, at most the replication factor of the topic's first
        partition.
        """
        wanted = int(self.config(key[0], MIN_ISR, "1"))
        return min(wanted, len(self.table.partitions[key[0], 0]["replicas"]))

    def allows_unclean(self, key: Key) -> bool:
        return self.config(key[0], UNCLEAN, "false") == "true"


def in_java_order(directories: Any) -> tuple[Uuid, ...]:
    """Sort like java.util.UUID: as two signed halves."""

    def halves(directory: bytes) -> tuple[int, int]:
        return (
            int.from_bytes(directory[:8], "big", signed=True),
            int.from_bytes(directory[8:], "big", signed=True),
        )

    return tuple(sorted(directories, key=halves))


class Sessions:
    """Last contacts and reported offsets of brokers; only the active controller has them."""

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self.clear()

    def clear(self) -> None:
        #: By (broker id, epoch).
        self.contacts: dict[tuple[int, int], float] = {}
        self.brokers: dict[int, dict[str, Any]] = {}

    def activate(self, state: State, now_ms: float) -> None:
        self.clear()
        for broker_id, registered in state.brokers.items():
            self.begin(broker_id, registered["fenced"])
            if not registered["fenced"]:
                self.contacts[broker_id, registered["epoch"]] = now_ms

    def begin(self, broker_id: int, is_fenced: bool) -> None:
        self.brokers[broker_id] = {"fenced": is_fenced, "offset": -1, "shutdown": -1}

    def touch(self, broker_id: int, epoch: int, now_ms: float) -> None:
        self.contacts.pop((broker_id, epoch), None)
        self.contacts[broker_id, epoch] = now_ms

    def is_alive(self, broker_id: int, epoch: int, now_ms: float) -> bool:
        heard_ms = self.contacts.get((broker_id, epoch))
        return heard_ms is not None and now_ms <= heard_ms + self.timeout_ms

    def expired(self, now_ms: float) -> tuple[int, int] | None:
        """Return the expired session with the oldest contact; None if none has expired."""
        for contact, heard_ms in sorted(self.contacts.items(), key=lambda item: item[1]):
            if heard_ms + self.timeout_ms < now_ms:
                return contact
        return None

    def set_state(self, broker_id: int, *, fenced: bool, offset: int) -> None:
        broker = self.brokers[broker_id]
        broker["fenced"], broker["offset"] = fenced, offset
        if fenced:
            broker["shutdown"] = -1

    def lowest_active_offset(self) -> int:
        offsets = [
            broker["offset"]
            for broker in self.brokers.values()
            if not broker["fenced"] and broker["shutdown"] < 0
        ]
        return min(offsets, default=(1 << 63) - 1)
