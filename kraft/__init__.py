"""kraft: Kafka's metadata controller, KRaft, over numpy columns.

Packages, from the lowest layer up::

    kraft.errors      one exception family, each with Kafka's error code
    kraft._core       bytes and columns, compiled
    kraft.records     every metadata record, typed
    kraft.raft        the quorum, as a pure state machine
    kraft.image       committed records -> the state of a cluster
    kraft.controller  requests -> the records that Kafka's controller would write
    kraft.metadata    a metadata directory as a library object
    kraft.server      a node, its configuration and its directories
    kraft.admin       a client of the controllers of a running quorum
    kraft.live        the metadata of a running quorum, kept current
    kraft.zookeeper   the metadata of Kafka before KRaft
    kraft.testing     a quorum for tests, and its pytest fixtures
    kraft.lab         million-partition scenarios
    kraft.cli         the ``kraft`` command

The names below are the library::

    import kraft

    m = kraft.open_metadata("/var/lib/kafka/metadata")
    m.partitions.leader          # a numpy column, one entry a partition, no copy
    m.topics["payments"].rows    # the rows of a topic's partitions in that column
    records = m.fence_broker(3)  # the records that the controller would write
    m.apply(records)
    kraft.diff(m.at(1000), m)    # what changed since offset 1000, and which record changed it
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kraft.errors import (
    BudgetExceededError,
    CorruptRecordError,
    DamagedLogError,
    KraftError,
    OffsetOutOfRangeError,
    ReplayError,
    StorageError,
)

if TYPE_CHECKING:
    from kraft.live.metadata import LiveMetadata, follow, follow_async
    from kraft.metadata.diff import diff
    from kraft.metadata.facade import Metadata, open_metadata
    from kraft.metadata.salvage import salvage
    from kraft.metadata.verification import verify
    from kraft.metadata.view import MetadataView
    from kraft.zookeeper.opened import TreeMetadata, open_zookeeper
from kraft.version import VERSION

__version__ = VERSION

__all__ = [
    "BudgetExceededError",
    "CorruptRecordError",
    "DamagedLogError",
    "KraftError",
    "LiveMetadata",
    "Metadata",
    "MetadataView",
    "OffsetOutOfRangeError",
    "ReplayError",
    "StorageError",
    "TreeMetadata",
    "diff",
    "follow",
    "follow_async",
    "open_metadata",
    "open_zookeeper",
    "salvage",
    "verify",
]

_LATE = {
    "LiveMetadata": "kraft.live.metadata",
    "Metadata": "kraft.metadata.facade",
    "MetadataView": "kraft.metadata.view",
    "TreeMetadata": "kraft.zookeeper.opened",
    "follow": "kraft.live.metadata",
    "follow_async": "kraft.live.metadata",
    "open_metadata": "kraft.metadata.facade",
    "open_zookeeper": "kraft.zookeeper.opened",
    "diff": "kraft.metadata.diff",
    "salvage": "kraft.metadata.salvage",
    "verify": "kraft.metadata.verification",
}


if not TYPE_CHECKING:
    # Hidden from type checkers, for which every name would exist otherwise.
    def __getattr__(name):
        """Import the library on first use: most commands start without it, or before it."""
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LATE[name]), name)
