"""``ZnodeTree``: the znodes of one Kafka cluster, as they were read.

Pure. A tree is what the modules `migration`, `migrated_security` and `registrations` turn into
metadata records. Paths are relative to the cluster's chroot. `reading` reads a tree from ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraft.errors import ZooKeeperError


class StoredZnode(NamedTuple):
    """The content of a znode, and what ZooKeeper counts.

    ``version`` is the number of writes to its data since it was created, ``czxid`` the transaction
    that created it.
    """

    data: bytes
    version: int = 0
    czxid: int = 0


class ZnodeTree:
    """Znodes by path. A path that has only descendants in ``znodes`` exists too, and is empty.

    ``changed`` are the paths that another client wrote while the tree was read: the tree may mix
    two states there.
    """

    def __init__(self, znodes: Mapping[str, StoredZnode], *, changed: tuple[str, ...] = ()) -> None:
        self._znodes = znodes
        self.changed = changed
        self._children: dict[str, set[str]] = {}
        for path in znodes:
            # Up to an ancestor that is known already, with all its own.
            while path != "/":
                parent, _, name = path.rpartition("/")
                parent = parent or "/"
                names = self._children.setdefault(parent, set())
                if name in names:
                    break
                names.add(name)
                path = parent

    def __len__(self) -> int:
        return len(self._znodes)

    def __contains__(self, path: str) -> bool:
        return path in self._znodes or path in self._children

    def get(self, path: str) -> StoredZnode | None:
        """Return the znode at ``path``; None where it does not exist."""
        found = self._znodes.get(path)
        if found is None and path in self._children:
            return StoredZnode(b"")
        return found

    def data(self, path: str) -> bytes:
        """Return the content of a znode; empty where it does not exist."""
        found = self._znodes.get(path)
        return b"" if found is None else found.data

    def required(self, path: str) -> StoredZnode:
        """Return the znode at ``path``; raise ZooKeeperError where it does not exist."""
        found = self.get(path)
        if found is None:
            raise ZooKeeperError(
                f"the tree has no {path}, which every Kafka cluster has: give the chroot at the "
                "end of zookeeper.connect in a broker's configuration"
            )
        return found

    def children(self, path: str) -> list[str]:
        """Return the names of a znode's children in order; none where it does not exist."""
        return sorted(self._children.get(path, ()))
