"""Read the znodes of a Kafka cluster from ZooKeeper: `read_tree`.

Requests are pipelined: up to `_WINDOW` of them wait for an answer, as one round trip for each znode
would take minutes for a large cluster. ZooKeeper answers in their order.

Reads only what `migration` and `registrations` need, and writes nothing. ZooKeeper has no snapshot
of many znodes: a znode that was written while the tree was read is listed in ``ZnodeTree.changed``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kraft.errors import CorruptZnodeError, ZooKeeperError
from kraft.zookeeper import SCHEME
from kraft.zookeeper.migrated_security import TOKENS
from kraft.zookeeper.server import ZooKeeperAddress, close_client, open_client
from kraft.zookeeper.tree import StoredZnode, ZnodeTree
from kraft.zookeeper.znodes import (
    ACLS,
    BROKER_IDS,
    CLUSTER_ID,
    CONFIG,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    MIGRATION,
    PREFIXED_ACLS,
    PRODUCER_ID_BLOCK,
    TOPICS,
    TopicZnode,
    config_path,
    state_path,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient


_WINDOW = 512
_SINGLE = (CLUSTER_ID, CONTROLLER, CONTROLLER_EPOCH, MIGRATION, PRODUCER_ID_BLOCK)
#: Znodes whose children have no children that count.
_LISTS = (BROKER_IDS, DELETE_TOPICS, f"{CONFIG}/brokers", f"{CONFIG}/clients", f"{CONFIG}/ips")

#: Takes the znodes that were read, and those that are known so far.
OnProgress = Callable[[int, int], object]


def read_tree(address: str, *, on_progress: OnProgress | None = None) -> ZnodeTree:
    """Return the tree of the cluster at ``[zookeeper://]HOST:PORT[,HOST:PORT…][/CHROOT]``.

    Raises ZooKeeperError where no server answers, where the connection breaks, or where an access
    control list forbids to read a znode.
    """
    client = open_client(ZooKeeperAddress.parse(address.removeprefix(SCHEME)))
    try:
        return read_znodes(client, on_progress)
    finally:
        close_client(client)


def read_znodes(client: KazooClient, on_progress: OnProgress | None = None) -> ZnodeTree:
    """Return the tree below the chroot of a connected client. Raises ZooKeeperError."""
    reader = _PipelinedReader(client, on_progress or (lambda done, known: None))
    for path in _SINGLE:
        reader.get(path)
    for path in _LISTS:
        reader.get_with_children(path)
    reader.get_with_children(TOPICS, reader.get_topic)
    reader.get_with_children(f"{CONFIG}/users", reader.get_user)
    reader.get_with_children(TOKENS)
    for path in (ACLS, PREFIXED_ACLS):
        reader.get_with_children(path, reader.get_with_children)
    return reader.run()


class _PipelinedReader:
    """One reading of a tree: a queue of requests, and those that wait for an answer."""

    def __init__(self, client: KazooClient, on_progress: OnProgress) -> None:
        self._client = client
        self._on_progress = on_progress
        self._todo: deque[tuple[str, Callable[[str], Any], Callable[[Any], None]]] = deque()
        self._known = 0
        self._znodes: dict[str, StoredZnode] = {}
        self._changed: dict[str, None] = {}
        self._first_zxid = 0

    # -- requests, which `run` sends

    def get(self, path: str, then: Callable[[bytes], None] | None = None) -> None:
        """Read a znode; call ``then`` with its content if it exists."""
        self._add(path, self._client.get_async, partial(self._keep, path, then))

    def get_with_children(self, path: str, then: Callable[[str], None] | None = None) -> None:
        """Read a znode, and call ``then`` with the path of each child; by default, read them."""
        self.get(path)
        get_children = partial(self._client.get_children_async, include_data=True)
        self._add(path, get_children, partial(self._get_children, path, then or self.get))

    def get_topic(self, path: str) -> None:
        """Read a topic, its settings, and the state of each partition of its assignment."""
        topic = path.rpartition("/")[2]
        self.get(path, partial(self._get_states, topic))
        self.get(config_path("topics", topic))

    def get_user(self, path: str) -> None:
        """Read the settings of a user, and those of its clients."""
        self.get(path)
        self.get_with_children(f"{path}/clients")

    def run(self) -> ZnodeTree:
        """Send the requests, and those that their answers cause; return the tree."""
        from kazoo.exceptions import KazooException, NoAuthError, NoNodeError

        waiting: deque[tuple[str, Any, Callable[[Any], None]]] = deque()
        path, done = "/", 0
        try:
            # Afterwards the client knows the last transaction of the server that it reads from.
            self._client.sync("/")
            self._first_zxid = self._client.last_zxid
            while self._todo or waiting:
                while self._todo and len(waiting) < _WINDOW:
                    path, request, then = self._todo.popleft()
                    waiting.append((path, request(path), then))
                path, answer, then = waiting.popleft()
                with suppress(NoNodeError):
                    then(answer.get())
                done += 1
                if done % _WINDOW == 0:
                    self._on_progress(done, self._known)
        except NoAuthError:
            raise ZooKeeperError(
                f"ZooKeeper does not allow to read {path}: the cluster has "
                "zookeeper.set.acl=true. Give everyone the right to read it, for example by "
                "zookeeper-security-migration --zookeeper.acl=unsecure"
            ) from None
        except KazooException as error:
            raise ZooKeeperError(
                f"ZooKeeper did not answer for {path}: {type(error).__name__} {error}".rstrip()
            ) from error
        self._on_progress(done, done)
        return ZnodeTree(self._znodes, changed=tuple(self._changed))

    # -- answers

    def _add(self, path: str, request: Callable[[str], Any], then: Callable[[Any], None]) -> None:
        self._known += 1
        self._todo.append((path, request, then))

    def _keep(self, path: str, then: Callable[[bytes], None] | None, answer: Any) -> None:
        data, stat = answer
        self._znodes[path] = StoredZnode(data or b"", stat.version, stat.czxid)
        self._note_change(path, stat.mzxid)
        if then is not None:
            then(data or b"")

    def _get_children(self, path: str, then: Callable[[str], None], answer: Any) -> None:
        names, stat = answer
        self._note_change(path, stat.pzxid)
        for name in names:
            then(f"{path}/{name}")

    def _get_states(self, topic: str, data: bytes) -> None:
        try:
            assignment = TopicZnode.decode(data, topic).assignment
        except CorruptZnodeError:
            # The migration raises this error, and needs no more of the topic for it.
            return
        for partition in assignment:
            self.get(state_path(topic, partition))

    def _note_change(self, path: str, zxid: int) -> None:
        if zxid > self._first_zxid:
            self._changed[path] = None
