"""The port through which the controllers use ZooKeeper: operations, results, events.

Two drivers implement `ZooKeeperPort`: `memory`, a stand-in for simulations and tests, and
`kazoo_port`, which speaks to real servers. The controllers import only this module.

Rules: ZooKeeper's documentation of the API (ZooKeeper 3.9), ``KeeperException.Code``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

from kraft.errors import ZooKeeperError


class ZkCode(IntEnum):
    """The result codes of ZooKeeper that Kafka's controllers distinguish."""

    OK = 0
    #: An operation of a multi that was not carried out because another one failed.
    ROLLED_BACK = -2
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111


class ZkSessionExpiredError(ZooKeeperError):
    """The session has ended: its ephemeral znodes are gone, and `ZooKeeperPort.renew` opens a new
    one.
    """


#: Any version matches.
ANY_VERSION = -1


@dataclass(frozen=True, slots=True)
class CreateZnode:
    """Create a znode; its parent must exist. ``is_sequential`` appends a number of ten digits."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False
    is_sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetZnode:
    """Replace the content of a znode whose version is ``version``."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class DeleteZnode:
    """Delete a znode without children whose version is ``version``."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class CheckZnode:
    """In a multi: fail unless the znode exists with this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class GetZnode:
    """Read content and version; ``watch`` reports the next change or deletion."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class FindZnode:
    """Return OK if the znode exists; ``watch`` reports the next creation, change or deletion."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class ListZnodes:
    """Read the names of the children; ``watch`` reports the next one that comes or goes."""

    path: str
    watch: bool = False


ZkWrite = CreateZnode | SetZnode | DeleteZnode
ZkOperation = ZkWrite | GetZnode | FindZnode | ListZnodes
ZkTransactionPart = ZkWrite | CheckZnode


@dataclass(frozen=True, slots=True)
class ZkResult:
    """The result of one operation; fields that it does not have keep their defaults."""

    code: ZkCode
    data: bytes = b""
    #: The number of changes of the content.
    version: int = -1
    #: The transaction that created the znode: a broker's epoch.
    created_zxid: int = -1
    #: The session that holds an ephemeral znode, 0 for others.
    owner: int = 0
    #: Ascending.
    children: tuple[str, ...] = ()
    #: The path of a created znode, with its number.
    path: str = ""

    @property
    def is_ok(self) -> bool:
        return self.code == ZkCode.OK


class ZkChange(Enum):
    """What a watch reports."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"
    #: The connection was lost and with it the watch: the znode may have changed.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ZkEvent:
    """A watch was triggered, and is gone."""

    change: ZkChange
    path: str


class ZooKeeperPort(Protocol):
    """One session with ZooKeeper. Methods are called by one thread, callbacks come from any."""

    #: Called with each triggered watch.
    on_event: Callable[[ZkEvent], None]
    #: Called once when the session has expired.
    on_expired: Callable[[], None]

    @property
    def session_id(self) -> int: ...

    def run(self, operations: Sequence[ZkOperation]) -> list[ZkResult]:
        """Run operations in their order, each independent of the others; return their results.

        They are pipelined. Waits while there is no connection, and repeats the operations without
        a result: a repeated create or conditional write may find its own effect. Raises
        ZkSessionExpiredError if the session has expired, also in the middle.
        """

    def multi(self, operations: Sequence[ZkTransactionPart]) -> list[ZkResult]:
        """Run writes and checks as one transaction: all, or none if one fails.

        Then the first that fails has its code, and all others ROLLED_BACK. Raises as `run`.
        """

    def renew(self) -> None:
        """Open a new session after the old one expired. Watches are gone."""

    def close(self) -> None:
        """End the session; its ephemeral znodes are deleted."""
