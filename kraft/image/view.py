"""Reading the state apart from topics and partitions: at present, or as of an offset.

``StateView`` holds the mappings and their order. ``StateImage`` is a view as of an offset while the
state moves on, and lists the changes between two images; nothing is copied to make one (see
``kraft.image.overlays``). ``ClusterState`` is the view that records change. The counterpart for
partitions is ``kraft._core.table.images``.

Invariants: the mappings are in the order of a snapshot, the quorum last; an image never changes,
and the journal keeps what a live image needs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from kraft.errors import OffsetOutOfRangeError
from kraft.image.configs import Configs
from kraft.image.features import Features, ProducerIdState, ZkMigration
from kraft.image.journal import ABSENT, Journal, JournaledGroups, JournaledMap
from kraft.image.nodes import Brokers, Controllers
from kraft.image.overlays import Overlay, PastEntries, PastGroups
from kraft.image.quorum import Quorum, QuorumCell
from kraft.image.quotas import ClientQuotas
from kraft.image.security import Acls, DelegationTokens, ScramCredentials
from kraft.records import Record
from kraft.records.versions import METADATA_VERSION

# Kafka's first KRaft level is assumed until a FeatureLevel record sets one (logs of 3.0 to 3.2
# hold none).
_FIRST_METADATA_VERSION = 1


class Changed(NamedTuple):
    """The values of a key before and after a change; None: absent."""

    before: Any
    after: Any


class StateView:
    """Brokers, controllers, features, configs, quotas, ACLs, credentials, tokens, producer ids,
    and the quorum, read-only.
    """

    __slots__ = (
        "_maps",
        "acls",
        "brokers",
        "client_quotas",
        "configs",
        "controllers",
        "delegation_tokens",
        "features",
        "producer_ids",
        "quorum_cell",
        "scram_credentials",
        "zk_migration",
    )

    def __init__(
        self, journal: Journal, is_supported_config: Callable[[int, str], bool] | None = None
    ) -> None:
        self.features = Features(journal)
        self.zk_migration = ZkMigration(journal)
        self.brokers = Brokers(journal)
        self.controllers = Controllers(journal)
        self.configs = Configs(journal, is_supported_config)
        self.client_quotas = ClientQuotas(journal)
        self.producer_ids = ProducerIdState(journal)
        self.acls = Acls(journal)
        self.scram_credentials = ScramCredentials(journal)
        self.delegation_tokens = DelegationTokens(journal)
        self.quorum_cell = QuorumCell(journal)
        # Each mapping registered itself with the journal: the order of a snapshot, the quorum last.
        self._maps: tuple[JournaledMap[Any, Any], ...] = tuple(journal.maps)

    @property
    def metadata_version(self) -> int:
        """The level of the finalized metadata.version; 1 until a record sets one."""
        return self.features.get(METADATA_VERSION, _FIRST_METADATA_VERSION)

    @property
    def next_producer_id(self) -> int:
        """The first id of the next block of producer ids; -1 until a block was allocated."""
        return self.producer_ids.next_producer_id

    @property
    def quorum(self) -> Quorum:
        """The leader, epoch, voters and kraft.version, from control records."""
        return self.quorum_cell.quorum

    def maps_before_topics(self) -> tuple[JournaledMap[Any, Any], ...]:
        """Return the mappings that a snapshot holds before its topics, ordered as in
        ``MetadataImage.write``.
        """
        return self.features, self.zk_migration, self.brokers, self.controllers

    def maps_after_topics(self) -> tuple[JournaledMap[Any, Any], ...]:
        """Return the mappings that a snapshot holds after its topics, likewise ordered."""
        return self._maps[len(self.maps_before_topics()) : -1]

    def snapshot_records_before_topics(self) -> Iterator[Record]:
        """Return the records before a snapshot's Topic and Partition records, ordered as in
        ``MetadataImage.write``.

        Each record has the ``version`` for the metadata.version. Raises
        :class:`UnsupportedVersionError` if no metadata.version was set, or if it cannot express
        the state.
        """
        return self._snapshot_records(self.maps_before_topics())

    def snapshot_records_after_topics(self) -> Iterator[Record]:
        """Return the records after a snapshot's Topic and Partition records, ordered as in
        ``MetadataImage.write``.
        """
        return self._snapshot_records(self.maps_after_topics())

    def _snapshot_records(self, maps: tuple[JournaledMap[Any, Any], ...]) -> Iterator[Record]:
        level = self.metadata_version
        for each in maps:
            yield from each.snapshot_records_in_order(level)

    def journaled_maps(self) -> tuple[JournaledMap[Any, Any], ...]:
        """Return every mapping except the quorum, in the order of a snapshot."""
        return self._maps[:-1]

    def __eq__(self, other: object) -> bool:
        """Compare what snapshots of both would hold; the present leader does not count."""
        if not isinstance(other, StateView):
            return NotImplemented
        mine, theirs = self.quorum, other.quorum
        return (mine.kraft_version, mine.voters) == (
            theirs.kraft_version,
            theirs.voters,
        ) and self.journaled_maps() == other.journaled_maps()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{name}={len(getattr(self, name))}"
            for name in (
                "brokers",
                "controllers",
                "configs",
                "client_quotas",
                "acls",
                "scram_credentials",
                "delegation_tokens",
            )
        )
        level = self.metadata_version
        return f"{type(self).__name__}(metadata_version={level}, {self._shown()}{counts})"

    def _shown(self) -> str:
        """Return the part of the repr that distinguishes this state from others."""
        return ""


class StateImage(StateView):
    """The immutable state before the record at ``offset``; O(1).

    Reading it costs the changes since, each once. While it is alive the journal keeps what it needs
    and rejects a revert to before its offset. Raises :class:`OffsetOutOfRangeError` where the
    journal does not reach back to ``offset``.
    """

    __slots__ = ("_journal", "offset")

    def __init__(self, tip: StateView, journal: Journal, offset: int) -> None:
        none = Journal(recording=False)
        super().__init__(none)
        # The mappings reference their journal: a cycle would keep a dropped image alive until the
        # garbage collector runs.
        none.maps.clear()
        self.offset = offset
        self._journal = journal
        overlay = Overlay(journal, offset)
        for number, (now, then) in enumerate(zip(tip._maps, self._maps, strict=True)):
            entries = PastGroups if isinstance(now, JournaledGroups) else PastEntries
            then.show(entries(now, number, overlay))

    def changes_since(self, before: StateImage) -> Mapping[str, Mapping[Hashable, Changed]]:
        """Return the changes since ``before``: kind -> key -> before, after.

        Keys are in the order of the last record on each. A key whose value is the same again is
        left out; the key of a setting is ``(group, name)``. Costs the records in between and those
        since. Raises :class:`OffsetOutOfRangeError` for images of two states, or in wrong order.
        """
        if before._journal is not self._journal or before.offset > self.offset:
            raise OffsetOutOfRangeError(
                f"no delta from offset {before.offset} to {self.offset}: give two images of one "
                "state, the earlier one first"
            )
        touched: dict[tuple[int, Hashable], None] = {}
        for offset, number, key, _ in self._journal.since(before.offset):
            if offset < self.offset:
                touched.setdefault((number, key))
        changes: dict[str, dict[Hashable, Changed]] = {}
        for number, key in reversed(touched):
            was, now = before._maps[number]._now(key), self._maps[number]._now(key)
            if was != now:
                changes.setdefault(self._maps[number].kind, {})[key] = Changed(
                    None if was is ABSENT else was, None if now is ABSENT else now
                )
        return changes

    def everything(self) -> Mapping[str, Mapping[Hashable, Changed]]:
        """Return all entries as changes from an empty state; costs the size of the state."""
        everything: dict[str, dict[Hashable, Changed]] = {}
        for each in self._maps:
            for key, value in each.items():
                changes = everything.setdefault(each.kind, {})
                if isinstance(each, JournaledGroups):
                    changes |= {(key, name): Changed(None, one) for name, one in value.items()}
                else:
                    changes[key] = Changed(None, value)
        return everything

    def _shown(self) -> str:
        return f"offset={self.offset}, "
