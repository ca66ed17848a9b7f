"""``ClusterState``: everything that committed records say and that is no topic or partition.

Owns the dispatch of typed records to the module that knows their rule, the one journal that takes
all of them back together, and the order of records in a snapshot. Fed by whoever replays a log
(the controller, a metadata directory); feeds publishers (``delta``), readers (the mappings) and
snapshots. Topics and partitions live in ``PartitionTable``, whose owner calls
:meth:`ClusterState.remove_topic` when a topic goes.

Invariants: a record that is refused has changed nothing; offsets never descend; a replay, a
revert and a delta cost what changes. Records of metadata transactions change nothing here:
whoever replays holds them back or reverts them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

from kraft import records
from kraft.errors import ReplayError, UnsupportedVersionError
from kraft.image.configs import Configs
from kraft.image.features import Features, ProducerIds
from kraft.image.journal import ABSENT, Journal, JournaledMap
from kraft.image.nodes import Brokers, Controllers
from kraft.image.quorum import Quorum, QuorumCell
from kraft.image.quotas import ClientQuotas
from kraft.image.security import Acls, DelegationTokens, ScramCredentials
from kraft.records import Record
from kraft.records.versions import METADATA_VERSION

# Kafka's first KRaft level stands in while no FeatureLevel record has set one (logs of 3.0 to
# 3.2 hold none).
_FIRST_METADATA_VERSION = 1

_NOT_STATE_HERE: frozenset[type[Record]] = frozenset(
    {
        records.Topic,
        records.Partition,
        records.PartitionChange,
        records.RemoveTopic,
        records.ClearElr,
        records.NoOp,
        records.ZkMigrationState,
        records.BeginTransaction,
        records.EndTransaction,
        records.AbortTransaction,
    }
)


class Changed(NamedTuple):
    """What became of one key since an offset; None stands for "was not there" or "is not there
    any more".
    """

    before: Any
    after: Any


class ClusterState:
    """Brokers, controllers, features, configs, quotas, ACLs, credentials, tokens, producer ids,
    and the quorum.

    ``journaling`` off is for a cold load, followed by :meth:`start_journal`.
    ``is_supported_config(resource_type, name)`` may name the configs that are known, as Kafka
    passes over others (see :class:`Configs`).
    """

    __slots__ = (
        "_handlers",
        "_journal",
        "_last_offset",
        "_maps",
        "acls",
        "brokers",
        "client_quotas",
        "configs",
        "controllers",
        "delegation_tokens",
        "derived",
        "features",
        "producer_ids",
        "quorum_cell",
        "scram_credentials",
    )

    def __init__(
        self,
        *,
        journaling: bool = True,
        is_supported_config: Callable[[int, str], bool] | None = None,
    ) -> None:
        self._journal = journal = Journal(recording=journaling)
        self._last_offset = -1
        #: What whoever decides keeps beside this state, and brings up to date by `JournaledMap.watch`.
        self.derived: Any = None
        self.features = Features(journal)
        self.brokers = Brokers(journal)
        self.controllers = Controllers(journal)
        self.configs = Configs(journal, is_supported_config)
        self.client_quotas = ClientQuotas(journal)
        self.producer_ids = ProducerIds(journal)
        self.acls = Acls(journal)
        self.scram_credentials = ScramCredentials(journal)
        self.delegation_tokens = DelegationTokens(journal)
        self.quorum_cell = QuorumCell(journal)
        # They registered with the journal in the order of a snapshot, the quorum last.
        self._maps: tuple[JournaledMap[Any, Any], ...] = tuple(journal.maps)
        self._handlers: dict[type[Record], Callable[[Any, int], None]] = {
            records.RegisterBroker: self.brokers.replay_register,
            records.UnregisterBroker: self.brokers.replay_unregister,
            records.FenceBroker: self.brokers.replay_fence,
            records.UnfenceBroker: self.brokers.replay_unfence,
            records.BrokerRegistrationChange: self.brokers.replay_change,
            records.RegisterController: self.controllers.replay_register,
            records.UnregisterController: self.controllers.replay_unregister,
            records.FeatureLevel: self.features.replay,
            records.ProducerIds: self.producer_ids.replay,
            records.Config: self.configs.replay,
            records.ClientQuota: self.client_quotas.replay,
            records.AccessControlEntry: self.acls.replay,
            records.RemoveAccessControlEntry: self.acls.replay_remove,
            records.UserScramCredential: self.scram_credentials.replay,
            records.RemoveUserScramCredential: self.scram_credentials.replay_remove,
            records.DelegationToken: self.delegation_tokens.replay,
            records.RemoveDelegationToken: self.delegation_tokens.replay_remove,
        }
        for record_type in _NOT_STATE_HERE:
            self._handlers[record_type] = _pass_over

    def apply(self, record: Record, offset: int) -> None:
        """Replays one record; every record of the log may be given, those of topics change
        nothing here.

        ``offset`` is the record's own, or for the records of a snapshot the last offset that it
        contains. Raises :class:`ReplayError` where the record contradicts the state (Kafka's
        nodes stop there), and :class:`UnsupportedVersionError` for a type that is not known. The
        state is then as it was.
        """
        if offset < self._last_offset:
            raise self._descending(offset)
        handler = self._handlers.get(type(record))
        if handler is None:
            raise UnsupportedVersionError(
                f"no rule is known for a {type(record).__name__} record (offset {offset})"
            )
        try:
            handler(record, offset)
        except ReplayError as error:
            raise ReplayError(f"{error} (offset {offset})") from None
        self._last_offset = offset

    def apply_control(self, record: Record, offset: int, epoch: int) -> None:
        """Replays one control record of a batch with this leader ``epoch``: what it says about
        the quorum.
        """
        if offset < self._last_offset:
            raise self._descending(offset)
        self.quorum_cell.replay(record, offset, epoch)
        self._last_offset = offset

    def remove_topic(self, name: str, offset: int) -> None:
        """Drops the configuration of a topic that a RemoveTopic record at ``offset`` removes."""
        if offset < self._last_offset:
            raise self._descending(offset)
        self.configs.remove_topic(name, offset)
        self._last_offset = offset

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version as a level; 1 as long as no record has set one."""
        return self.features.get(METADATA_VERSION, _FIRST_METADATA_VERSION)

    @property
    def next_producer_id(self) -> int:
        """Where the next block of producer ids begins; -1 as long as no block was given out."""
        return self.producer_ids.next_producer_id

    @property
    def quorum(self) -> Quorum:
        """What the control records say: leader, epoch, voters, kraft.version."""
        return self.quorum_cell.quorum

    def start_journal(self, offset: int) -> None:
        """From now on changes can be taken back, down to ``offset``: the next offset to be
        applied.
        """
        self._journal.start(offset)

    def stop_journal(self) -> None:
        """Forgets the way back and keeps none from now on: for cold loads."""
        self._journal.stop()

    def revert(self, offset: int) -> None:
        """Undoes every record at ``offset`` or after it.

        Raises :class:`OffsetOutOfRangeError` when the journal does not reach back to it.
        """
        self._journal.revert(offset)
        self._last_offset = min(self._last_offset, offset - 1)

    def forget(self, offset: int) -> None:
        """Gives up the way back to any state before ``offset``."""
        self._journal.forget(offset)

    def at(self, offset: int) -> ClusterState:
        """A copy as of before ``offset``, without a journal; costs the size of the state and of
        the change.
        """
        copy = ClusterState(journaling=False, is_supported_config=self.configs._is_supported)
        for source, target in zip(self._maps, copy._maps, strict=True):
            target._copy_entries(source)
        for _, number, key, old in self._journal.since(offset):
            copy._maps[number]._restore(key, old)
        copy._last_offset = min(self._last_offset, offset - 1)
        return copy

    def delta(self, since_offset: int) -> dict[str, dict[Hashable, Changed]]:
        """What records at ``since_offset`` or after it have changed: kind -> key -> before and now.

        A key that is now what it was before is left out. The key of a config is
        ``((resource_type, resource_name), name)``, that of a quota ``(entity, key)``.
        """
        oldest: dict[tuple[int, Hashable], Any] = {}
        for _, number, key, old in self._journal.since(since_offset):
            # Notes come newest first, so that the last one seen for a key is what it was before.
            oldest[number, key] = old
        delta: dict[str, dict[Hashable, Changed]] = {}
        for (number, key), before in oldest.items():
            changed = self._maps[number]
            after = changed._now(key)
            if after != before:
                delta.setdefault(changed.kind, {})[key] = Changed(
                    None if before is ABSENT else before, None if after is ABSENT else after
                )
        return delta

    def snapshot_records_before_topics(self) -> Iterator[Record]:
        """What a snapshot holds before its Topic and Partition records, in the order of
        ``MetadataImage.write``.

        Each record has the ``version`` that the metadata.version asks for. Raises
        :class:`UnsupportedVersionError` where no metadata.version was set or the one that is
        cannot express the state.
        """
        level = self.metadata_version
        yield from self.features.snapshot_records()
        yield from self.brokers.snapshot_records(level)
        yield from self.controllers.snapshot_records(level)

    def snapshot_records_after_topics(self) -> Iterator[Record]:
        """What a snapshot holds after its Topic and Partition records, in the order of
        ``MetadataImage.write``.
        """
        level = self.metadata_version
        yield from self.configs.snapshot_records()
        yield from self.client_quotas.snapshot_records()
        yield from self.producer_ids.snapshot_records()
        yield from self.acls.snapshot_records()
        yield from self.scram_credentials.snapshot_records(level)
        yield from self.delegation_tokens.snapshot_records(level)

    def journaled_maps(self) -> tuple[JournaledMap[Any, Any], ...]:
        """Every mapping of the state but the quorum, in the order of a snapshot."""
        return self._maps[:-1]

    def __eq__(self, other: object) -> bool:
        """Equal where a snapshot of both would say the same: who leads at the moment does not
        count.
        """
        if not isinstance(other, ClusterState):
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
        return (
            f"ClusterState(metadata_version={self.metadata_version}, "
            f"last_offset={self._last_offset}, {counts})"
        )

    def _descending(self, offset: int) -> ReplayError:
        return ReplayError(
            f"offset {offset} is applied after offset {self._last_offset}: offsets only grow"
        )


def _pass_over(record: Record, offset: int) -> None:
    """Records of topics, partitions and transactions belong to others."""
