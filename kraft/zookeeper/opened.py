"""``open_zookeeper``: the metadata of a cluster in ZooKeeper mode as a library object.

`TreeMetadata` has the questions of every ``Metadata``, at metadata.version 3.9-IV0, and a log of
the records that a migration to KRaft would write. ZooKeeper is read, never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from kraft.metadata.arguments import text
from kraft.metadata.facade import Metadata
from kraft.records import METADATA_VERSION, FeatureLevel, MetadataVersion, Record
from kraft.records.batches import encode_records
from kraft.zookeeper.checked_values import named
from kraft.zookeeper.migration import cluster_id_of, migrated_records
from kraft.zookeeper.registrations import registrations
from kraft.zookeeper.tree import ZnodeTree
from kraft.zookeeper.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ControllerZnode,
    decode_controller_epoch,
)

#: The level at which a tree is read: 3.9 is the last release with ZooKeeper.
LEVEL = MetadataVersion.IBP_3_9_IV0
RECORDS_AT_ONCE = 4096


class TreeMetadata(Metadata):
    """The metadata in a tree of znodes; made by :func:`open_zookeeper`.

    ``notes`` are sentences about what the tree lacks. ``controller_id`` and ``controller_epoch``
    are those in ZooKeeper, -1 without a controller.
    """

    def __init__(self, tree: ZnodeTree) -> None:
        super().__init__()
        self.notes: list[str] = []
        if tree.changed:
            self.notes.append(f"changed while the tree was read: {named(tree.changed, 'znode')}")
        self._cluster_id = cluster_id_of(tree)
        controller, epoch = tree.data(CONTROLLER), tree.data(CONTROLLER_EPOCH)
        self.controller_id = ControllerZnode.decode(controller).broker_id if controller else -1
        self.controller_epoch = decode_controller_epoch(epoch) if epoch else -1
        self._apply_in_parts([FeatureLevel(METADATA_VERSION, LEVEL)])
        self._apply_in_parts(registrations(tree, LEVEL))
        self._apply_in_parts(migrated_records(tree, self.notes))

    def _apply_in_parts(self, records: Iterable[Record]) -> None:
        rest = iter(records)
        while some := list(islice(rest, RECORDS_AT_ONCE)):
            # Encoded here, because a migration writes partitions in an older version.
            self.apply(encode_records(some))

    @property
    def cluster_id(self) -> str | None:
        """The id in ``/cluster/id``."""
        return self._cluster_id


def open_zookeeper(
    address: str, *, on_progress: Callable[[int, int], object] | None = None
) -> TreeMetadata:
    """Open the metadata of a cluster in ZooKeeper mode, for example
    ``zookeeper://localhost:2181/kafka``.

    ``address`` is the cluster's ``zookeeper.connect``, with or without ``zookeeper://``: several
    servers are separated by commas, and the chroot comes last. ``on_progress`` is called with the
    znodes that were read and those that are known so far. The metadata is that of one moment only
    where nobody wrote meanwhile; ``notes`` has a sentence where somebody did.

    Raises :class:`ZooKeeperError` where no server answers or the tree is not Kafka's,
    :class:`CorruptZnodeError` with the path of a znode that Kafka did not write,
    :class:`MissingPackageError` without ``kraft[zookeeper]``.
    """
    from kraft.zookeeper.reading import read_tree

    address = text(address, "address")
    return TreeMetadata(read_tree(address, on_progress=on_progress))
