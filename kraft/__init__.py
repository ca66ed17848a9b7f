"""kraft: Kafka's metadata controller, KRaft, over numpy columns.

The map of the house, from the ground up::

    kraft.errors      one exception family, each with Kafka's error code
    kraft._core       bytes and columns, compiled
    kraft.records     every metadata record, typed
    kraft.raft        the quorum, as a pure state machine
    kraft.image       committed records -> the state of a cluster
    kraft.controller  requests -> the records that Kafka's controller would write
    kraft.metadata    a metadata directory as a library object
    kraft.server      a node, its configuration and its directories
    kraft.lab         million-partition scenarios
    kraft.cli         the ``kraft`` command

The names below are the library::

    import kraft

    m = kraft.open_metadata("/var/lib/kafka/metadata")
    m.partitions.leader          # a numpy column, one entry a partition, no copy
    m.topics["payments"].rows    # where a topic's partitions lie in it
    records = m.fence(3)         # what the controller would write
    m.apply(records)
    kraft.diff(m.at(1000), m)    # what changed since, and which record did it
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kraft.errors import (
    BudgetExceededError,
    CorruptRecordError,
    DamagedLogError,
    KraftError,
    OffsetOutOfRangeError,
    ReplayError,
    StorageError,
)
from kraft.metadata.facade import Metadata, open_metadata

if TYPE_CHECKING:
    from kraft.metadata.diff import diff
    from kraft.metadata.salvage import salvage
    from kraft.metadata.verification import verify

__version__ = "0.1.0"

__all__ = [
    "BudgetExceededError",
    "CorruptRecordError",
    "DamagedLogError",
    "KraftError",
    "Metadata",
    "OffsetOutOfRangeError",
    "ReplayError",
    "StorageError",
    "diff",
    "open_metadata",
    "salvage",
    "verify",
]

_LATE = {
    "diff": "kraft.metadata.diff",
    "salvage": "kraft.metadata.salvage",
    "verify": "kraft.metadata.verification",
}


def __getattr__(name: str) -> Any:
    """Functions are imported when they are asked for, so that ``import kraft`` stays quick."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
