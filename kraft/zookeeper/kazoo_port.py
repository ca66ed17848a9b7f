"""The driver of `port.ZooKeeperPort` for real servers, with the client kazoo.

kazoo opens a new session by itself after one expired. A controller that does not know it yet must
not write in the new session: the driver rejects all operations until `KazooPort.renew`, which uses
a new client.

kazoo forgets watches when it loses the connection. The driver reports them as UNKNOWN then, so that
the controller reads the znode again.

Several reads, or several writes, in a row go to the server in packets of many (`packets`).

The driver logs as warnings that the connection is lost, how long it was lost, and that the session
has ended: operations wait for a server meanwhile, for as long as it takes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kraft.errors import ZooKeeperError
from kraft.zookeeper.packets import Multi, MultiRead
from kraft.zookeeper.port import (
    CreateZnode,
    DeleteZnode,
    FindZnode,
    GetZnode,
    ListZnodes,
    SetZnode,
    ZkChange,
    ZkCode,
    ZkEvent,
    ZkOperation,
    ZkResult,
    ZkSessionExpiredError,
    ZkTransactionPart,
)
from kraft.zookeeper.server import (
    DEFAULT_SESSION_TIMEOUT_MS,
    ZooKeeperAddress,
    close_client,
    open_client,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_log = logging.getLogger(__name__)

#: Operations that are sent before the first result is awaited. ZooKeeper answers in order; more
#: only hold memory.
_IN_FLIGHT = 2000
#: Operations and bytes of a packet. Servers refuse requests above 1 MiB, their default of
#: ``jute.maxbuffer``.
_MOST_IN_PACKET = 1000
_LARGEST_PACKET = 256 << 10
#: What an operation has besides path and data, chroot included, at most.
_OVERHEAD = 128
_PACKETS_IN_FLIGHT = 8
#: Failures in a row after which each operation has a packet of its own.
_MOST_SPLITS = 3
_WAIT_S = 0.05
_LOST_CALL_S = 1.0
_CHANGES = {
    "CREATED": ZkChange.CREATED,
    "CHANGED": ZkChange.CHANGED,
    "DELETED": ZkChange.DELETED,
    "CHILD": ZkChange.CHILDREN,
}


class KazooPort:
    """One session at real servers; implements `port.ZooKeeperPort`.

    ``owner`` names it in the log, such as "controller 7". Raises as `server.open_client`.
    """

    def __init__(
        self,
        address: ZooKeeperAddress,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        creates_chroot: bool = False,
        owner: str = "the client",
    ) -> None:
        self._owner = owner
        self.on_event: Callable[[ZkEvent], None] = lambda event: None
        self.on_expired: Callable[[], None] = lambda: None
        self._open = partial(
            open_client,
            address,
            session_timeout_ms=session_timeout_ms,
            creates_chroot=creates_chroot,
        )
        self._closed = threading.Event()
        #: Held while the client is replaced or closed: kazoo fails if two threads close one.
        self._replacing = threading.Lock()
        self._reports: dict[str, Callable[[Any], None]] = {}
        #: False once a server before ZooKeeper 3.6 has refused one, and closed the connection.
        self._has_multi_read = True
        self._client: KazooClient
        self._expired: threading.Event
        self._connect()

    def _connect(self) -> None:
        client, expired = self._open(), threading.Event()
        self._client, self._expired = client, expired

        lost_at_s: list[float] = []

        def listen(state: str) -> None:
            # Called in kazoo's thread, before it opens another session.
            if expired.is_set() or self._closed.is_set():
                return
            session = f"{self._owner}, ZooKeeper's session {self._session_id:#x}"
            if state == "SUSPENDED":
                lost_at_s.append(time.monotonic())
                _log.warning("%s: the connection is lost; it waits for a server", session)
                return
            lost_s = time.monotonic() - lost_at_s.pop() if lost_at_s else 0.0
            if state == "LOST":
                _log.warning("%s has ended, %.1f s after the connection was lost", session, lost_s)
                expired.set()
                self.on_expired()
            else:
                _log.warning("%s goes on: connected again after %.1f s", session, lost_s)

        self._session_id: int = client.client_id[0]
        client.add_listener(listen)
        if client.client_id[0] != self._session_id:
            # It expired before the listener was there, which would have reported it.
            expired.set()
            close_client(client)
            raise ZooKeeperError("ZooKeeper's session ended while it was opened: try again")

    @property
    def session_id(self) -> int:
        return self._session_id

    def run(self, operations: Sequence[ZkOperation]) -> list[ZkResult]:
        results: list[ZkResult] = []
        for kind, group in groupby(operations, _packet_kind):
            some = list(group)
            if kind is MultiRead and len(some) > 1:
                results += self._read(some)
            elif kind is Multi and len(some) > 1:
                results += self._write(some)
            else:
                results += self._run_each(some)
        return results

    def _run_each(self, operations: Sequence[ZkOperation]) -> list[ZkResult]:
        """Run operations in a packet each, pipelined."""
        results: list[ZkResult] = []
        while len(results) < len(operations):
            some = operations[len(results) : len(results) + _IN_FLIGHT]
            self._ensure_open()
            sent = [self._send(operation) for operation in some]
            for operation, pending in zip(some, sent, strict=True):
                result = self._result(operation, pending)
                if result is None:
                    # Without a connection: all later ones have no result either, or are repeated.
                    self._await_connection()
                    break
                results.append(result)
        return results

    def _read(self, operations: Sequence[Any]) -> list[ZkResult]:
        """Run reads without watches in few packets, pipelined."""
        results: list[ZkResult] = []
        while self._has_multi_read and len(results) < len(operations):
            self._ensure_open()
            begins = range(len(results), len(operations), _MOST_IN_PACKET)
            sent = [
                self._call(
                    MultiRead(operations[begin : begin + _MOST_IN_PACKET], self._client.chroot)
                )
                for begin in begins[:_PACKETS_IN_FLIGHT]
            ]
            for pending in sent:
                try:
                    results += self._await(pending)
                except Exception as error:
                    if self._is_connection_loss(error):
                        self._await_connection()
                    elif _is_unimplemented(error):
                        self._has_multi_read = False
                    else:
                        _code(error)
                        raise
                    break
        return results + self._run_each(operations[len(results) :])

    def _write(self, operations: Sequence[Any]) -> list[ZkResult]:
        """Run writes in few transactions, one after the other.

        A transaction with an operation that fails is split there. If many fail, each operation
        gets a packet of its own.
        """
        results: list[ZkResult] = []
        failures = 0
        while len(results) < len(operations) and failures <= _MOST_SPLITS:
            packet = _first_packet(operations, len(results))
            found = self.multi(packet)
            failed = _failed_index(found)
            if failed is None:
                results += found
                failures = 0
                continue
            failures += 1
            before = packet[:failed]
            if before:
                again = self.multi(before)
                results += again if _failed_index(again) is None else self._run_each(before)
            results += self._run_each([packet[failed]])
        return results + self._run_each(operations[len(results) :])

    def multi(self, operations: Sequence[ZkTransactionPart]) -> list[ZkResult]:
        while True:
            self._ensure_open()
            try:
                found: list[ZkResult] = self._await(
                    self._call(Multi(operations, self._client.chroot))
                )
            except Exception as error:
                if self._is_connection_loss(error):
                    self._await_connection()
                    continue
                _code(error)
                raise
            return found

    def _call(self, request: MultiRead | Multi) -> Any:
        """Send a packet; return its asynchronous result."""
        pending = self._client.handler.async_result()
        # The call with which kazoo sends its own requests.
        self._client._call(request, pending)
        return pending

    def renew(self) -> None:
        with self._replacing:
            if self._closed.is_set():
                raise ZkSessionExpiredError("the connection to ZooKeeper was closed")
            close_client(self._client)
            self._connect()

    def close(self) -> None:
        self._closed.set()
        with self._replacing:
            close_client(self._client)

    # -- one operation

    def _send(self, operation: ZkOperation) -> Any:
        client = self._client
        match operation:
            case CreateZnode(path, data, is_ephemeral, is_sequential):
                return client.create_async(
                    path, data, ephemeral=is_ephemeral, sequence=is_sequential
                )
            case SetZnode(path, data, version):
                return client.set_async(path, data, version=version)
            case DeleteZnode(path, version):
                return client.delete_async(path, version=version)
            case GetZnode(path, watch):
                return client.get_async(path, watch=self._watch(path, watch))
            case FindZnode(path, watch):
                return client.exists_async(path, watch=self._watch(path, watch))
            case ListZnodes(path, watch):
                return client.get_children_async(path, watch=self._watch(path, watch))

    def _watch(self, path: str, wanted: bool) -> Callable[[Any], None] | None:
        if not wanted:
            return None
        # kazoo calls each distinct function that waits for the path: the same one is called once.
        if path not in self._reports:
            self._reports[path] = partial(self._report, path)
        return self._reports[path]

    def _report(self, path: str, event: Any) -> None:
        self.on_event(ZkEvent(_CHANGES.get(event.type, ZkChange.UNKNOWN), path))

    def _result(self, operation: ZkOperation, pending: Any) -> ZkResult | None:
        """Return the result, or None if the connection was lost before it came."""
        try:
            found = self._await(pending)
        except Exception as error:
            if self._is_connection_loss(error):
                return None
            return ZkResult(_code(error))
        return self._succeeded(operation, found)

    def _await(self, pending: Any) -> Any:
        """Return the result of an asynchronous call, or raise its error.

        kazoo loses a call that is queued in the moment in which the session expires.
        """
        while not pending.wait(_LOST_CALL_S):
            self._ensure_open()
        return pending.get()

    @staticmethod
    def _succeeded(operation: ZkOperation, found: Any) -> ZkResult:
        match operation:
            case CreateZnode():
                return ZkResult(ZkCode.OK, path=found)
            case SetZnode():
                return _stated(b"", found)
            case GetZnode():
                data, stat = found
                return _stated(data, stat)
            case FindZnode():
                return ZkResult(ZkCode.NO_NODE) if found is None else _stated(b"", found)
            case ListZnodes():
                return ZkResult(ZkCode.OK, children=tuple(sorted(found)))
        return ZkResult(ZkCode.OK)

    # -- connection and session

    def _is_connection_loss(self, error: Exception) -> bool:
        from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, SessionExpiredError

        if isinstance(error, SessionExpiredError | ConnectionClosedError):
            self._ensure_open()
            return True
        return isinstance(error, ConnectionLoss)

    def _await_connection(self) -> None:
        while not self._client.connected:
            self._ensure_open()
            self._expired.wait(_WAIT_S)
        self._ensure_open()

    def _ensure_open(self) -> None:
        if self._expired.is_set() or self._closed.is_set():
            raise ZkSessionExpiredError(f"ZooKeeper's session {self._session_id:#x} has ended")


def _stated(data: bytes, stat: Any) -> ZkResult:
    return ZkResult(ZkCode.OK, data, stat.version, stat.czxid, stat.ephemeralOwner)


def _packet_kind(operation: ZkOperation) -> type[MultiRead] | type[Multi] | None:
    """Return the packet that may hold an operation together with others, None for none.

    Neither packet sets watches, and neither has ``exists``.
    """
    match operation:
        case CreateZnode() | SetZnode() | DeleteZnode():
            return Multi
        case GetZnode(watch=False) | ListZnodes(watch=False):
            return MultiRead
    return None


def _first_packet(operations: Sequence[Any], begin: int) -> Sequence[Any]:
    """Return the operations of one transaction: one at least, then what fits."""
    size = 0
    end = begin
    for end in range(begin, min(begin + _MOST_IN_PACKET, len(operations))):
        operation = operations[end]
        size += len(operation.path) + len(getattr(operation, "data", b"")) + _OVERHEAD
        if size > _LARGEST_PACKET and end > begin:
            return operations[begin:end]
    return operations[begin : end + 1]


def _failed_index(results: Sequence[ZkResult]) -> int | None:
    """Return which operation made a transaction fail; None if it succeeded."""
    reasons = (
        index
        for index, result in enumerate(results)
        if result.code not in (ZkCode.OK, ZkCode.ROLLED_BACK)
    )
    return next(reasons, None)


def _is_unimplemented(error: Exception) -> bool:
    from kazoo.exceptions import UnimplementedError

    return isinstance(error, UnimplementedError)


def _code(error: Exception) -> ZkCode:
    """Return the code of kazoo's exception. Raises ZooKeeperError for unexpected ones."""
    number = getattr(error, "code", None)
    if number is not None and number in ZkCode._value2member_map_:
        return ZkCode(number)
    raise ZooKeeperError(f"ZooKeeper refused an operation: {error!r}") from error
