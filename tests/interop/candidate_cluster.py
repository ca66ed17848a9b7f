"""Clusters of the ZooKeeper era in this process: kraft's candidates and light brokers.

`Actors` notes who acted, from the requests that brokers get and from the logs of the controllers.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from kraft.errors import ZooKeeperError
from kraft.zookeeper.administration import ZkAdmin
from kraft.zookeeper.broker_requests import BrokerRequest, LeaderAndIsr
from kraft.zookeeper.controller_node import ZkControllerNode
from kraft.zookeeper.controller_rpcs import decode_request
from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.light_broker import ZkLightBroker
from kraft.zookeeper.server import ZooKeeperAddress
from kraft.zookeeper.settings import ZkControllerSettings, ZkEra
from kraft.zookeeper.states import PartitionKey
from tests.harness.commands import eventually

#: Longer than any pause of this machine: sessions end only where a test says so.
SESSION_MS = 30_000
FIRST_CANDIDATE = 1001


class Actors(logging.Handler):
    """Who acted in a cluster; a context manager that reads the logs of its candidates ``ids``."""

    def __init__(self, ids: Iterable[int]) -> None:
        super().__init__(logging.INFO)
        self.ids = frozenset(ids)
        #: Epoch -> the candidates that say they are active in it.
        self.elected: dict[int, list[int]] = defaultdict(list)
        #: Epoch -> the controllers whose requests a broker got.
        self.senders: dict[int, set[int]] = defaultdict(set)
        #: Partition and leader epoch -> the leaders that brokers were told.
        self.leaders: dict[tuple[PartitionKey, int], set[int]] = defaultdict(set)
        #: What controllers and sessions of this process logged, of other clusters too.
        self.lines: list[str] = []
        self._requests = threading.Lock()
        self._logger = logging.getLogger("kraft.zookeeper")

    def __enter__(self) -> Self:
        self._level = self._logger.level
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        match record.args:
            case (int(id), int(epoch)) if "is active in epoch" in record.msg and id in self.ids:
                self.elected[epoch].append(id)

    def decode(self, key: int, version: int, body: memoryview) -> BrokerRequest:
        """Decode a request for a broker, and note it."""
        request = decode_request(key, version, body)
        with self._requests:
            self.senders[request.controller_epoch].add(request.controller_id)
            if isinstance(request, LeaderAndIsr):
                for partition, update in request.partitions.items():
                    told = update.leadership
                    self.leaders[partition, told.leader_epoch].add(told.leader)
        return request

    def check(self) -> None:
        """Check that each epoch had one controller, and each leader epoch one leader."""
        with self._requests:
            assert {epoch: ids for epoch, ids in self.elected.items() if len(ids) > 1} == {}
            assert {epoch: ids for epoch, ids in self.senders.items() if len(ids) > 1} == {}
            for epoch, senders in self.senders.items():
                assert senders <= set(self.elected[epoch]), epoch
            assert {at: ids for at, ids in self.leaders.items() if len(ids) > 1} == {}


class ZkCluster:
    """Candidates and light brokers (from 1 on) in a chroot of their own; a context manager.

    ``servers`` is the address of ZooKeeper; candidates in ``reach`` have another one, such as a
    proxy's. The ids of candidates begin at ``first``. ``session_ms`` is that of brokers and of
    ``admin``, up to what ZooKeeper grants.
    """

    def __init__(
        self,
        servers: str,
        chroot: str,
        controllers: int,
        brokers: int,
        era: ZkEra = ZkEra.V2018,
        *,
        first: int = FIRST_CANDIDATE,
        reach: Mapping[int, str] | None = None,
        candidate_session_ms: int = SESSION_MS,
        session_ms: int = SESSION_MS,
    ) -> None:
        self.era = era
        self._session_ms = session_ms
        self.address = ZooKeeperAddress.parse(f"{servers}/{chroot}")
        ids = range(first, first + controllers)
        self.actors = Actors(ids)
        self.controllers = [
            ZkControllerNode(
                id,
                ZooKeeperAddress.parse(f"{(reach or {}).get(id, servers)}/{chroot}"),
                era=era,
                settings=ZkControllerSettings(),
                session_timeout_ms=candidate_session_ms,
            )
            for id in ids
        ]
        self.brokers = {
            id: ZkLightBroker(
                id, self.address, session_timeout_ms=session_ms, decode=self.actors.decode
            )
            for id in range(1, brokers + 1)
        }
        self.port: KazooPort

    def __enter__(self) -> Self:
        self.actors.__enter__()
        for node in self.controllers:
            eventually(lambda node=node: _has_started(node))  # type: ignore[misc]
            eventually(lambda: any(one.is_active for one in self.controllers))
        self.port = KazooPort(self.address, session_timeout_ms=self._session_ms)
        self.admin = ZkAdmin(self.port)
        for broker in self.brokers.values():
            broker.start()
        eventually(lambda: self.known() == set(self.brokers))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for broker in self.brokers.values():
            broker.kill()
        for node in self.controllers:
            node.stop()
        self.port.close()
        self.actors.__exit__(kind, error, traceback)

    def active(self) -> ZkControllerNode:
        return eventually(lambda: [one for one in self.controllers if one.is_active])[0]

    def acting(self) -> list[tuple[ZkControllerNode, int]]:
        """Return the controller that has raised the epoch to the last one, and this epoch, if it
        is there already.
        """
        epoch = self.admin.controller().epoch
        return [
            (node, epoch)
            for node in self.controllers
            if (controller := node.controller) is not None
            and node.is_active
            and controller.context.epoch == epoch
        ]

    def known(self) -> set[int]:
        controller = self.active().controller
        return set(controller.context.brokers) if controller is not None else set()

    def await_isr(self, isr: set[int], *topics: str) -> None:
        """Wait until every partition has this ISR, and its leader is in it."""

        def settled() -> bool:
            partitions = [one for some in self.admin.describe(topics).values() for one in some]
            return all(
                one.state is not None and set(one.state.isr) == isr and one.state.leader in isr
                for one in partitions
            )

        eventually(settled)


def _has_started(node: ZkControllerNode) -> bool:
    """Start a node; a short session may end while it is opened, on a machine that stands still."""
    with suppress(ZooKeeperError):
        node.start()
    return node.is_running
