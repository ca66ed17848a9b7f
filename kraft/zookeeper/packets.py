"""Many operations of ZooKeeper in one packet: ``multiRead`` and ``multi``, as requests for kazoo.

kazoo needs more than 200 µs of Python for each request of its own, most of it for futures, queues
and system calls; in a packet an operation costs a few microseconds.

Pure. Requests have what kazoo's connection uses: ``type``, ``serialize`` and ``deserialize``.

    request   for each operation: header | path … ; then the header that ends it
    reply     for each operation: header | result … ; then the header that ends it
    header    int32 type (-1: an error or the end) | bool whether it is the end | int32 error
    path, name, data
              int32 size (-1: none) | bytes

Rules: ``MultiOperationRecord``, ``MultiResponse`` and ``zookeeper.jute`` of ZooKeeper 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kraft.errors import ZooKeeperError
from kraft.zookeeper.port import (
    CheckZnode,
    CreateZnode,
    DeleteZnode,
    GetZnode,
    ListZnodes,
    SetZnode,
    ZkCode,
    ZkResult,
    ZkTransactionPart,
)

ZkRead = GetZnode | ListZnodes

_CREATE, _DELETE, _GET, _SET, _LIST, _CHECK = 1, 2, 4, 5, 8, 13
_ERROR = -1
_HEADER = struct.Struct(">i?i")
_INT = struct.Struct(">i")
#: czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, size, children, pzxid.
_STAT = struct.Struct(">qqqqiiiqiiq")
_END = _HEADER.pack(-1, True, -1)
_HEADERS = {
    type: _HEADER.pack(type, False, -1) for type in (_CREATE, _DELETE, _GET, _SET, _LIST, _CHECK)
}
#: One entry: all rights (31) for everyone.
_OPEN_ACL = _INT.pack(1) + _INT.pack(31) + b"\0\0\0\5world\0\0\0\6anyone"
_NO_WATCH = b"\0"
#: Of the operations of a failed multi before the one with the reason. Those after it have
#: `ZkCode.ROLLED_BACK`.
_NO_ERROR = 0


class MultiRead:
    """Reads without watches, each with its own result. ZooKeeper has it since 3.6."""

    type = 22

    def __init__(self, operations: Sequence[ZkRead], chroot: str) -> None:
        self._operations = operations
        self._chroot = chroot

    def serialize(self) -> bytes:
        """Return the body of the request."""
        parts: list[bytes] = []
        for operation in self._operations:
            path = _path(self._chroot, operation.path)
            head = _HEADERS[_GET if isinstance(operation, GetZnode) else _LIST]
            parts += (head, _INT.pack(len(path)), path, _NO_WATCH)
        parts.append(_END)
        return b"".join(parts)

    @staticmethod
    def deserialize(reply: bytes, position: int) -> list[ZkResult]:
        """Return the results in the order of the operations.

        Raises ZooKeeperError for an unexpected error of one of them.
        """
        return _results(reply, position)


class Multi:
    """Writes and checks as one transaction: all, or none if one fails."""

    type = 14

    def __init__(self, operations: Sequence[ZkTransactionPart], chroot: str) -> None:
        self._operations = operations
        self._chroot = chroot

    def serialize(self) -> bytes:
        """Return the body of the request."""
        parts: list[bytes] = []
        for operation in self._operations:
            path = _path(self._chroot, operation.path)
            sized = _INT.pack(len(path)), path
            match operation:
                case CreateZnode(_, data, is_ephemeral, is_sequential):
                    flags = _INT.pack(is_ephemeral + 2 * is_sequential)
                    parts += (_HEADERS[_CREATE], *sized, _INT.pack(len(data)), data)
                    parts += (_OPEN_ACL, flags)
                case SetZnode(_, data, version):
                    parts += (_HEADERS[_SET], *sized, _INT.pack(len(data)), data)
                    parts.append(_INT.pack(version))
                case DeleteZnode(_, version):
                    parts += (_HEADERS[_DELETE], *sized, _INT.pack(version))
                case CheckZnode(_, version):
                    parts += (_HEADERS[_CHECK], *sized, _INT.pack(version))
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, reply: bytes, position: int) -> list[ZkResult]:
        """Return the results in the order of the operations; raises as `MultiRead.deserialize`."""
        return _results(reply, position, self._chroot)


def _path(chroot: str, path: str) -> bytes:
    if not chroot:
        return path.encode()
    return (chroot if path == "/" else chroot + path).encode()


def _results(reply: bytes, position: int, chroot: str = "") -> list[ZkResult]:
    results: list[ZkResult] = []
    header, integer, stat = _HEADER.unpack_from, _INT.unpack_from, _STAT.unpack_from
    while True:
        type, is_end, _ = header(reply, position)
        position += _HEADER.size
        if is_end:
            return results
        if type in (_GET, _SET):
            data = b""
            if type == _GET:
                data, position = _sized(reply, position)
            czxid, _, _, _, version, _, _, owner, *_ = stat(reply, position)
            position += _STAT.size
            results.append(ZkResult(ZkCode.OK, data, version, czxid, owner))
        elif type == _CREATE:
            path, position = _sized(reply, position)
            results.append(ZkResult(ZkCode.OK, path=path.decode()[len(chroot) :]))
        elif type == _LIST:
            (count,) = integer(reply, position)
            position += 4
            children = []
            for _ in range(count):
                name, position = _sized(reply, position)
                children.append(name.decode())
            results.append(ZkResult(ZkCode.OK, children=tuple(sorted(children))))
        elif type == _ERROR:
            (error,) = integer(reply, position)
            position += 4
            results.append(ZkResult(_code(error)))
        else:
            results.append(ZkResult(ZkCode.OK))


def _code(error: int) -> ZkCode:
    if error == _NO_ERROR:
        return ZkCode.ROLLED_BACK
    if error in ZkCode._value2member_map_:
        return ZkCode(error)
    raise ZooKeeperError(f"ZooKeeper refused an operation with error {error}")


def _sized(reply: bytes, position: int) -> tuple[bytes, int]:
    (size,) = _INT.unpack_from(reply, position)
    position += 4
    end = position + max(size, 0)
    return reply[position:end], end
