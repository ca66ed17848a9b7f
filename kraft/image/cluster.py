"""``ClusterState``: everything that committed records say and that is no topic or partition.

Owns the dispatch of typed records to the module that knows their rule, and the one journal that
takes all of them back together; what can be asked is in ``kraft.image.view``. Fed by whoever
replays a log (the controller, a metadata directory); feeds publishers (``image``), readers (the
mappings) and snapshots. Topics and partitions live in ``PartitionTable``, whose owner calls
:meth:`ClusterState.remove_topic` when a topic goes.

Invariants: a record that is refused has changed nothing; offsets never descend; a replay, a
revert and a delta cost what changes. Records of metadata transactions change nothing here:
whoever replays holds them back or reverts them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from kraft import records
from kraft.errors import ReplayError, UnsupportedVersionError
from kraft.image.journal import ABSENT, Journal
from kraft.image.view import Changed, StateImage, StateView
from kraft.records import Record

__all__ = ["Changed", "ClusterState"]

_NOT_STATE_HERE: frozenset[type[Record]] = frozenset(
    {
        records.Topic,
        records.Partition,
        records.PartitionChange,
        records.RemoveTopic,
        records.ClearElr,
        records.NoOp,
        records.BeginTransaction,
        records.EndTransaction,
        records.AbortTransaction,
    }
)


class ClusterState(StateView):
    """Brokers, controllers, features, configs, quotas, ACLs, credentials, tokens, producer ids,
    and the quorum.

    ``journaling`` off is for a cold load, followed by :meth:`start_journal`.
    ``is_supported_config(resource_type, name)`` may name the configs that are known, as Kafka
    passes over others (see :class:`Configs`).
    """

    __slots__ = ("_handlers", "_journal", "_last_offset", "derived")

    def __init__(
        self,
        *,
        journaling: bool = True,
        is_supported_config: Callable[[int, str], bool] | None = None,
    ) -> None:
        self._journal = Journal(recording=journaling)
        super().__init__(self._journal, is_supported_config)
        self._last_offset = -1
        #: What whoever decides keeps beside this state, and brings up to date by
        #: `JournaledMap.watch`.
        self.derived: Any = None
        self._handlers: dict[type[Record], Callable[[Any, int], None]] = {
            records.RegisterBroker: self.brokers.replay_register,
            records.UnregisterBroker: self.brokers.replay_unregister,
            records.FenceBroker: self.brokers.replay_fence,
            records.UnfenceBroker: self.brokers.replay_unfence,
            records.BrokerRegistrationChange: self.brokers.replay_change,
            records.RegisterController: self.controllers.replay_register,
            records.UnregisterController: self.controllers.replay_unregister,
            records.FeatureLevel: self.features.replay,
            records.ZkMigrationState: self.zk_migration.replay,
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

        Raises :class:`OffsetOutOfRangeError` when the journal does not reach back to it,
        :class:`InvalidRequestError` beside a live image of a later offset.
        """
        self._journal.revert(offset)
        self._last_offset = min(self._last_offset, offset - 1)

    def abort(self, start_offset: int, offset: int) -> None:
        """Takes back the metadata transaction of ``start_offset``, which ends at ``offset``.

        What control records have said in between stays: they are part of no transaction, and the
        leader that aborts what a dead one left open has its LeaderChange inside it.
        """
        quorum = self.quorum
        self.revert(start_offset)
        self.quorum_cell.keep(quorum, offset)

    def forget(self, offset: int) -> None:
        """Gives up the way back to any state before ``offset``."""
        self._journal.forget(offset)

    def check_revert(self, offset: int) -> None:
        """Raises what :meth:`revert` would raise."""
        self._journal.check_revert(offset)

    def image(self, offset: int) -> StateImage:
        """The state as of before the record at ``offset``, whatever happens to it later; O(1)."""
        return StateImage(self, self._journal, offset)

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

    def _shown(self) -> str:
        return f"last_offset={self._last_offset}, "

    def _descending(self, offset: int) -> ReplayError:
        return ReplayError(
            f"offset {offset} is applied after offset {self._last_offset}: offsets only grow"
        )


def _pass_over(record: Record, offset: int) -> None:
    """Records of topics, partitions and transactions belong to others."""
