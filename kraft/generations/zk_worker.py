"""A process with light brokers of the ZooKeeper era.

``python -m kraft.generations.zk_worker FILE`` runs the `ZkWorkerPlan` of a JSON file. It reads
commands from standard input and writes replies to standard output, a JSON object a line;
`light_processes` is the other side. It ends when its input closes, however its parent ends. Killed,
its brokers are brokers that crashed: their sessions time out.

Commands (``do``): ``start`` and ``stop`` (controlled) brokers, ``end`` them with their sessions,
and ``await`` a `Knowledge` of all running brokers. Times are those of the monotonic clock, which
all processes of a machine share.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kraft.collector import collect_rarely
from kraft.errors import KraftError
from kraft.server.descriptors import raise_soft_limit
from kraft.zookeeper.light_broker import RequestDecoder, ZkLightBroker
from kraft.zookeeper.server import ZooKeeperAddress


@dataclass(frozen=True, slots=True)
class ZkWorkerPlan:
    """The brokers of one process as (id, rack), as its JSON file has them.

    ``is_0_8``: they are brokers of Kafka 0.8.
    """

    zookeeper: str
    session_timeout_ms: int
    is_0_8: bool
    brokers: list[tuple[int, str]]

    def encode(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a broker's metadata must show: at least so many partitions, no leader among ``absent``
    (-1: no partition without a leader), no live broker among ``gone``, a topic, and with
    ``in_sync`` every replica in sync, as far as it leads the partition. ``told_in_sync``: also
    as the controller told it; that of 0.8 tells only what it wrote itself.
    """

    partitions: int = 0
    absent: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    topic: str = ""
    in_sync: bool = False
    told_in_sync: bool = False

    def holds_at(self, broker: ZkLightBroker) -> bool:
        """Return whether the broker's metadata shows it."""
        return (
            len(broker.metadata) >= self.partitions
            and not any(broker.leader_counts[id] for id in self.absent)
            and broker.live_brokers.isdisjoint(self.gone)
            and (not self.topic or (self.topic, 0) in broker.metadata)
            and (not self.told_in_sync or broker.out_of_sync_count == 0)
            and (not self.in_sync or not broker.leads_out_of_sync())
        )


class ZkWorker:
    """The brokers of this process, and what is awaited of them. ``say`` writes one reply."""

    def __init__(self, plan: ZkWorkerPlan, say: Callable[[dict[str, Any]], None]) -> None:
        address, decode = ZooKeeperAddress.parse(plan.zookeeper), RequestDecoder()
        self._say = say
        self._lock = threading.Lock()
        #: Token -> the knowledge, and when each broker had it.
        self._awaited: dict[int, tuple[Knowledge, dict[int, float]]] = {}
        self.brokers: dict[int, ZkLightBroker] = {}
        for id, rack in plan.brokers:
            broker = ZkLightBroker(
                id,
                address,
                rack=rack,
                session_timeout_ms=plan.session_timeout_ms,
                decode=decode,
                shutdown_version=0 if plan.is_0_8 else 1,
            )
            broker.on_metadata = self._look
            broker.on_expired = self._expired
            self.brokers[id] = broker

    def carry_out(self, command: dict[str, Any]) -> None:
        """Carry out a command; its end is a reply."""
        match command["do"]:
            case "start":
                self._each(command, "started", lambda broker: broker.start())
            case "stop":
                self._each(command, "stopped", self._stop)
            case "end":
                self._each(command, "ended", lambda broker: broker.kill())
            case "await":
                with self._lock:
                    knowledge = Knowledge(**command["knowledge"])
                    self._awaited[command["token"]] = knowledge, {}
                for broker in self._running():
                    self._look(broker)

    def _each(
        self, command: dict[str, Any], done: str, change: Callable[[ZkLightBroker], None]
    ) -> None:
        """Change brokers, each in a thread: a controlled shutdown waits for the controller."""

        def run(broker: ZkLightBroker) -> None:
            try:
                change(broker)
            except (KraftError, OSError) as error:
                self._say({"failed": f"broker {broker.id} was not {done}: {error}"})
                return
            self._say({done: broker.id, "at": time.monotonic()})

        for id in command["brokers"]:
            threading.Thread(target=run, args=(self.brokers[id],), daemon=True).start()

    def _stop(self, broker: ZkLightBroker) -> None:
        """Stop a broker; one whose controller does not answer in time ends all the same."""
        try:
            broker.stop()
        except (KraftError, OSError) as error:
            broker.kill()
            self._say({"unanswered": broker.id, "why": str(error)})

    def _running(self) -> Iterable[ZkLightBroker]:
        return [broker for broker in self.brokers.values() if broker.is_running]

    def _look(self, broker: ZkLightBroker) -> None:
        """Note what a broker knows now; report what all running ones know."""
        now = time.monotonic()
        with self._lock:
            for token, (knowledge, known) in list(self._awaited.items()):
                if broker.id not in known and knowledge.holds_at(broker):
                    known[broker.id] = now
                if all(each.id in known for each in self._running()):
                    del self._awaited[token]
                    self._say({"known": token, "at": max(known.values(), default=now)})

    def _expired(self, broker: ZkLightBroker) -> None:
        self._say(
            {
                "failed": f"ZooKeeper ended the session of broker {broker.id}: its process had no "
                "CPU time for longer than the session timeout (--session-timeout-ms)"
            }
        )


def main() -> None:
    """Run the plan of the file until the input ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    raise_soft_limit()
    lock = threading.Lock()

    def say(line: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    worker = ZkWorker(ZkWorkerPlan(**json.loads(Path(sys.argv[1]).read_text())), say)
    collect_rarely()
    say({"ready": len(worker.brokers)})
    for line in sys.stdin:
        worker.carry_out(json.loads(line))
    for broker in worker.brokers.values():
        broker.kill()


if __name__ == "__main__":
    main()
