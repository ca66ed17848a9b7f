"""A stand-in for ZooKeeper in memory: sessions, ephemerals, versions, one-shot watches, multi.

Pure and deterministic: an operation is carried out at once, its watches are reported inside of it,
and sessions end only by `MemoryZooKeeper.expire`. Generated histories compare it with the real
server (`tests/interop/test_zookeeper_histories.py`). It has no ACLs, quotas or containers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kraft.zookeeper.port import (
    ANY_VERSION,
    CheckZnode,
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


@dataclass(slots=True)
class _Node:
    data: bytes
    created_zxid: int
    owner: int = 0
    version: int = 0
    #: The number of children that were ever created: the next number of a sequential one.
    created_children: int = 0
    children: set[str] = field(default_factory=set)


class MemoryZooKeeper:
    """The tree and the sessions of one ensemble. Not thread-safe."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {"/": _Node(b"", 0)}
        self._sessions: dict[int, MemorySession] = {}
        self._zxid = 0
        self._last_session = 0
        # Path -> sessions in the order in which they set the watch.
        self._data_watches: dict[str, dict[int, None]] = {}
        self._child_watches: dict[str, dict[int, None]] = {}

    def connect(self) -> MemorySession:
        """Open a session."""
        return MemorySession(self)

    def paths(self) -> list[str]:
        """Return the paths of all znodes, ascending, without the root."""
        return sorted(path for path in self._nodes if path != "/")

    def data(self, path: str) -> bytes:
        """Return the content of a znode. KeyError: it does not exist."""
        return self._nodes[path].data

    def expire(self, session_id: int) -> None:
        """End a session as after its timeout: delete its ephemeral znodes, then report it to it."""
        session = self._sessions[session_id]
        self._end(session_id)
        session.on_expired()

    # -- for the sessions

    def open_session(self, session: MemorySession) -> int:
        """Register a session; return its id."""
        self._last_session += 1
        self._sessions[self._last_session] = session
        return self._last_session

    def is_open(self, session_id: int) -> bool:
        """Return whether the session has not ended."""
        return session_id in self._sessions

    def _end(self, session_id: int) -> None:
        del self._sessions[session_id]
        for watches in (self._data_watches, self._child_watches):
            for sessions in watches.values():
                sessions.pop(session_id, None)
        for path in [path for path, node in self._nodes.items() if node.owner == session_id]:
            self._write(DeleteZnode(path), session_id)

    def close_session(self, session_id: int) -> None:
        """End a session at its own wish."""
        if session_id in self._sessions:
            self._end(session_id)

    def run(self, operation: ZkOperation, session_id: int) -> ZkResult:
        """Carry out one operation and report the watches that it triggers."""
        match operation:
            case GetZnode(path, watch) | FindZnode(path, watch):
                return self._read(operation, path, watch, session_id)
            case ListZnodes(path, watch):
                node = self._nodes.get(path)
                if node is None:
                    return ZkResult(ZkCode.NO_NODE)
                if watch:
                    self._child_watches.setdefault(path, {})[session_id] = None
                return ZkResult(ZkCode.OK, children=tuple(sorted(node.children)))
            case _:
                return self._write(operation, session_id)

    def _read(
        self, operation: GetZnode | FindZnode, path: str, watch: bool, session_id: int
    ) -> ZkResult:
        node = self._nodes.get(path)
        # A watch for the creation is left by FindZnode alone.
        if watch and (node is not None or isinstance(operation, FindZnode)):
            self._data_watches.setdefault(path, {})[session_id] = None
        if node is None:
            return ZkResult(ZkCode.NO_NODE)
        data = node.data if isinstance(operation, GetZnode) else b""
        return ZkResult(ZkCode.OK, data, node.version, node.created_zxid, node.owner)

    def _write(self, operation: ZkTransactionPart, session_id: int) -> ZkResult:
        (result,) = self.multi([operation], session_id)
        return result

    def multi(self, operations: Sequence[ZkTransactionPart], session_id: int) -> list[ZkResult]:
        """Carry out all operations, or none; report the watches after the last."""
        self._zxid += 1
        undo: list[Callable[[], None]] = []
        events: list[ZkEvent] = []
        results: list[ZkResult] = []
        for operation in operations:
            result = self._apply(operation, session_id, undo, events)
            results.append(result)
            if not result.is_ok:
                for step in reversed(undo):
                    step()
                rolled_back = ZkResult(ZkCode.ROLLED_BACK)
                before, after = len(results) - 1, len(operations) - len(results)
                return [rolled_back] * before + [result] + [rolled_back] * after
        for event in events:
            self._report(event)
        return results

    def _apply(
        self,
        operation: ZkTransactionPart,
        session_id: int,
        undo: list[Callable[[], None]],
        events: list[ZkEvent],
    ) -> ZkResult:
        if isinstance(operation, CreateZnode):
            return self._create(operation, session_id, undo, events)
        node = self._nodes.get(operation.path)
        if node is None:
            return ZkResult(ZkCode.NO_NODE)
        # The server looks for children before it compares versions.
        if isinstance(operation, DeleteZnode) and node.children:
            code = (
                ZkCode.NOT_EMPTY
                if operation.version in (ANY_VERSION, node.version)
                else ZkCode.BAD_VERSION
            )
            return ZkResult(code)
        if operation.version not in (ANY_VERSION, node.version):
            return ZkResult(ZkCode.BAD_VERSION)
        match operation:
            case SetZnode(path, data):
                old = node.data
                node.data, node.version = data, node.version + 1

                def restore() -> None:
                    node.data, node.version = old, node.version - 1

                undo.append(restore)
                events.append(ZkEvent(ZkChange.CHANGED, path))
                return ZkResult(ZkCode.OK, b"", node.version, node.created_zxid, node.owner)
            case DeleteZnode(path):
                parent_path, name = _split(path)
                parent = self._nodes[parent_path]
                parent.children.discard(name)
                del self._nodes[path]

                def put_back() -> None:
                    self._nodes[path] = node
                    parent.children.add(name)

                undo.append(put_back)
                events.append(ZkEvent(ZkChange.DELETED, path))
                events.append(ZkEvent(ZkChange.CHILDREN, parent_path))
        return ZkResult(ZkCode.OK)

    def _create(
        self,
        operation: CreateZnode,
        session_id: int,
        undo: list[Callable[[], None]],
        events: list[ZkEvent],
    ) -> ZkResult:
        parent_path, name = _split(operation.path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            return ZkResult(ZkCode.NO_NODE)
        path = operation.path
        if operation.is_sequential:
            number = f"{parent.created_children:010d}"
            path, name = path + number, name + number
        if path in self._nodes:
            return ZkResult(ZkCode.NODE_EXISTS)
        if parent.owner:
            return ZkResult(ZkCode.NO_CHILDREN_FOR_EPHEMERALS)
        owner = session_id if operation.is_ephemeral else 0
        self._nodes[path] = _Node(operation.data, self._zxid, owner)
        parent.children.add(name)
        parent.created_children += 1

        def remove() -> None:
            del self._nodes[path]
            parent.children.discard(name)
            parent.created_children -= 1

        undo.append(remove)
        events.append(ZkEvent(ZkChange.CREATED, path))
        events.append(ZkEvent(ZkChange.CHILDREN, parent_path))
        return ZkResult(ZkCode.OK, path=path)

    def _report(self, event: ZkEvent) -> None:
        watches = [self._data_watches]
        if event.change == ZkChange.CHILDREN:
            watches = [self._child_watches]
        elif event.change == ZkChange.DELETED:
            # Once for each kind of watch, as kazoo does.
            watches.append(self._child_watches)
        for sessions in [kind.pop(event.path, {}) for kind in watches]:
            for session_id in sessions:
                session = self._sessions.get(session_id)
                if session is not None:
                    session.on_event(event)


class MemorySession:
    """One session of a `MemoryZooKeeper`; implements `port.ZooKeeperPort`.

    ``before_run`` is called before each call of `run` and `multi`: tests raise errors there.
    """

    def __init__(self, server: MemoryZooKeeper) -> None:
        self.on_event: Callable[[ZkEvent], None] = lambda event: None
        self.on_expired: Callable[[], None] = lambda: None
        self.before_run: Callable[[Sequence[ZkOperation | CheckZnode]], None] = lambda some: None
        self._server = server
        self._id = server.open_session(self)

    @property
    def session_id(self) -> int:
        return self._id

    def run(self, operations: Sequence[ZkOperation]) -> list[ZkResult]:
        self.before_run(operations)
        results = []
        for operation in operations:
            self._ensure_open()
            results.append(self._server.run(operation, self._id))
        return results

    def multi(self, operations: Sequence[ZkTransactionPart]) -> list[ZkResult]:
        self.before_run(operations)
        self._ensure_open()
        return self._server.multi(operations, self._id)

    def renew(self) -> None:
        self._server.close_session(self._id)
        self._id = self._server.open_session(self)

    def close(self) -> None:
        self._server.close_session(self._id)

    def _ensure_open(self) -> None:
        if not self._server.is_open(self._id):
            raise ZkSessionExpiredError(f"session {self._id} has expired")


def _split(path: str) -> tuple[str, str]:
    """Return the parent's path and the name."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name
