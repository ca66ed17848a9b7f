"""``MetadataView``: the questions to a cluster's metadata, without ways to change it.

``kraft.metadata.facade`` adds files, offsets and changes to it, ``kraft.live`` a running quorum
that keeps it current.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from kraft.image.cluster import ClusterState
from kraft.image.replay import MetadataState
from kraft.metadata.arguments import path_of, whole_number
from kraft.metadata.decisions import Decisions
from kraft.metadata.partitions import Partitions, Topics
from kraft.metadata.snapshots import save_snapshot
from kraft.records import Uuid

if TYPE_CHECKING:
    import pyarrow as pa

    from kraft.image import (
        AccessControl,
        BrokerRegistration,
        ClientQuotas,
        Configs,
        ControllerRegistration,
        Quorum,
        ScramCredential,
        Token,
    )
    from kraft.metadata.source import MetadataSource


class LazyView(Protocol):
    """A result that still reads the states it was made of (`kraft.metadata.diff.Differences`)."""

    def settle(self) -> None:
        """Read the rest now, because one of the states is about to change."""


class MetadataView(Decisions):
    """The state of a cluster as of ``next_offset``: read it, compare it, write a snapshot of it.

    A decision method (``fence_broker``, ...) returns the records that Kafka's controller would
    write, and changes nothing.
    """

    #: The files that the state was read from; None for a state without files.
    source: MetadataSource | None = None

    def __init__(self, cluster: MetadataState) -> None:
        # A list, as differences are compared by value and so have no hash.
        self._differences: list[ref[LazyView]] = []
        self._show(cluster)

    def _show(self, cluster: MetadataState) -> None:
        """Answer questions from this state from now on."""
        self.cluster = cluster
        self.partitions = Partitions(cluster.table)
        self.topics = Topics(cluster.table)
        #: The offset at which the state was opened: records below it are in the source.
        self.opened_offset = cluster.next_offset

    # -- the state

    @property
    def state(self) -> ClusterState:
        """Everything except topics and partitions."""
        return self.cluster.state

    @property
    def next_offset(self) -> int:
        """The offset of the next record; the state includes all records below it."""
        return self.cluster.next_offset

    @property
    def epoch(self) -> int:
        """The leader epoch of the last record."""
        return self.state.quorum.leader_epoch

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version, as a feature level."""
        return self.state.metadata_version

    @property
    def quorum(self) -> Quorum:
        """Leader, epoch, voters and kraft.version from the control records."""
        return self.state.quorum

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]:
        """Broker registrations by id."""
        return self.state.brokers

    @property
    def controllers(self) -> Mapping[int, ControllerRegistration]:
        """Controller registrations by id."""
        return self.state.controllers

    @property
    def configs(self) -> Configs:
        """Configs by (resource type, name); ``configs.topic(name)`` and the like return one
        resource's.
        """
        return self.state.configs

    @property
    def features(self) -> Mapping[str, int]:
        """Finalized feature levels by name."""
        return self.state.features

    @property
    def acls(self) -> Mapping[Uuid, AccessControl]:
        """ACLs by id."""
        return self.state.acls

    @property
    def scram_credentials(self) -> Mapping[tuple[int, str], ScramCredential]:
        """SCRAM credentials by (mechanism, user); mechanism 1 is SHA-256, 2 SHA-512."""
        return self.state.scram_credentials

    @property
    def client_quotas(self) -> ClientQuotas:
        """Quota values by entity, then by name."""
        return self.state.client_quotas

    @property
    def delegation_tokens(self) -> Mapping[str, Token]:
        """Delegation tokens by id."""
        return self.state.delegation_tokens

    @property
    def next_producer_id(self) -> int:
        """The first id of the next block of producer ids; -1 before the first block."""
        return self.state.next_producer_id

    @property
    def record_counts(self) -> dict[int, int]:
        """The number of data records in this state by API key."""
        return self.cluster.table.counts_by_key

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None where it is not known."""
        return None

    @property
    def has_applied(self) -> bool:
        """True where records were applied that are not the source's."""
        return False

    @property
    def newest_timestamp_ms(self) -> int:
        """The append time of the last record, in ms, as far as it is known; at least 0."""
        return max(self.quorum.last_contained_log_timestamp_ms, 0)

    def write_snapshot(
        self,
        directory: str | PathLike[str],
        *,
        columns: bool = True,
        timestamp_ms: int | None = None,
    ) -> Path:
        """Write the state to ``directory`` as Kafka's snapshot (``%020d-%010d.checkpoint``); return
        its path.

        ``columns`` adds a column checkpoint, which makes the next opening faster; it is a cache and
        may be deleted at any time. ``timestamp_ms`` is the append time of the last record (default:
        :attr:`newest_timestamp_ms`). Raises :class:`StorageError`,
        :class:`UnsupportedVersionError`.
        """
        if timestamp_ms is None:
            timestamp_ms = self.newest_timestamp_ms
        timestamp_ms = whole_number(timestamp_ms, "timestamp_ms", low=-1)
        return save_snapshot(
            path_of(directory, "directory"),
            self.cluster,
            last_contained_log_timestamp_ms=timestamp_ms,
            timestamp_ms=timestamp_ms,
            columns=columns,
        )

    def to_arrow(self) -> pa.Table:
        """Return the partitions as an Arrow table (the extra ``kraft[arrow]``) with names and
        lists.
        """
        from kraft.metadata.arrow import partitions_to_arrow

        return partitions_to_arrow(self.cluster.table, self.partitions)

    def __repr__(self) -> str:
        return (
            f"Metadata(next_offset={self.next_offset}, brokers={len(self.brokers)}, "
            f"topics={len(self.topics)}, partitions={len(self.partitions)})"
        )

    def _keep_differences(self, differences: LazyView) -> None:
        """Register ``differences`` of this state, to settle them before the state changes."""
        self._differences = [each for each in self._differences if each() is not None]
        self._differences.append(ref(differences))

    def _settle_differences(self) -> None:
        for each in self._differences:
            differences = each()
            if differences is not None:
                differences.settle()
        self._differences.clear()
