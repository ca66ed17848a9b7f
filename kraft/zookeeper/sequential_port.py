"""A port that sends one operation at a time: each waits for the result of the one before.

Kafka used ZooKeeper so before 1.1. A transaction is one operation already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kraft.zookeeper.port import (
    ZkEvent,
    ZkOperation,
    ZkResult,
    ZkTransactionPart,
    ZooKeeperPort,
)


class SequentialPort:
    """The session of another port; implements `port.ZooKeeperPort`."""

    def __init__(self, port: ZooKeeperPort) -> None:
        self._port = port

    @property
    def on_event(self) -> Callable[[ZkEvent], None]:
        return self._port.on_event

    @on_event.setter
    def on_event(self, call: Callable[[ZkEvent], None]) -> None:
        self._port.on_event = call

    @property
    def on_expired(self) -> Callable[[], None]:
        return self._port.on_expired

    @on_expired.setter
    def on_expired(self, call: Callable[[], None]) -> None:
        self._port.on_expired = call

    @property
    def session_id(self) -> int:
        return self._port.session_id

    def run(self, operations: Sequence[ZkOperation]) -> list[ZkResult]:
        return [result for one in operations for result in self._port.run([one])]

    def multi(self, operations: Sequence[ZkTransactionPart]) -> list[ZkResult]:
        return self._port.multi(operations)

    def renew(self) -> None:
        self._port.renew()

    def close(self) -> None:
        self._port.close()
