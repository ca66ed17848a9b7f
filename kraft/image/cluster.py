"""``ClusterState``: the replayed state of a cluster, apart from topics and partitions.

Dispatches each typed record to the module with its rule, and reverts all of them with one journal.
The methods for readers are in ``kraft.image.view``. ``kraft.image.replay`` replays a log into it;
publishers and snapshots read it. Topics and partitions are in ``PartitionTable``; the caller that
removes a topic there calls :meth:`ClusterState.remove_topic`.

Invariants:
- A rejected record changes nothing, and offsets never descend.
- A replay, a revert and a delta cost as much as changes, not as much as exists.
- The records that begin and end metadata transactions change nothing here: the caller reverts.
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

    Turn ``journaling`` off for a cold load, then call :meth:`start_journal`. Configs for which
    ``is_supported_config(resource_type, name)`` is false are ignored, as in Kafka (see
    :class:`Configs`).
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
        #: Data that the controller derives from this state and updates by `JournaledMap.watch`.
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
        """Replay one record of any type; records of topics and partitions change nothing.

        ``offset`` is the record's own; for a record of a snapshot it is the last offset that the
        snapshot contains. Raises :class:`ReplayError` where the record contradicts the state
        (Kafka's nodes stop there), and :class:`UnsupportedVersionError` for an unknown type. The
        state is then unchanged.
        """
        if offset < self._last_offset:
            raise self._descending(offset)
        handler = self._handlers.get(type(record))
        if handler is None:
            raise UnsupportedVersionError(
                f"unknown type of record: {type(record).__name__} (offset {offset})"
            )
        try:
            handler(record, offset)
        except ReplayError as error:
            raise ReplayError(f"{error} (offset {offset})") from None
        self._last_offset = offset

    def apply_control(self, record: Record, offset: int, epoch: int) -> None:
        """Replay one control record into the quorum; ``epoch`` is the leader epoch of its batch."""
        if offset < self._last_offset:
            raise self._descending(offset)
        self.quorum_cell.replay(record, offset, epoch)
        self._last_offset = offset

    def remove_topic(self, name: str, offset: int) -> None:
        """Drop the configuration of a topic that a RemoveTopic record at ``offset`` removes."""
        if offset < self._last_offset:
            raise self._descending(offset)
        self.configs.remove_topic(name, offset)
        self._last_offset = offset

    def start_journal(self, offset: int) -> None:
        """Make all later changes revertible, down to ``offset``, the next offset to be applied."""
        self._journal.start(offset)

    def stop_journal(self) -> None:
        """Drop the journal and record no more changes: for cold loads."""
        self._journal.stop()

    def revert(self, offset: int) -> None:
        """Undo every record at ``offset`` or after it.

        Raises :class:`OffsetOutOfRangeError` when the journal does not reach back to it,
        :class:`InvalidRequestError` while an image of a later offset is alive.
        """
        self._journal.revert(offset)
        self._last_offset = min(self._last_offset, offset - 1)

    def abort(self, start_offset: int, offset: int) -> None:
        """Revert the metadata transaction from ``start_offset`` to ``offset``.

        Control records in that range stay applied: they belong to no transaction. A new leader
        that aborts the transaction of a dead one has its LeaderChange in that range.
        """
        quorum = self.quorum
        self.revert(start_offset)
        self.quorum_cell.keep(quorum, offset)

    def forget(self, offset: int) -> None:
        """Drop the journal before ``offset``: earlier states cannot be reverted to any more."""
        self._journal.forget(offset)

    def check_revert(self, offset: int) -> None:
        """Raise the error that :meth:`revert` would raise, if any."""
        self._journal.check_revert(offset)

    def image(self, offset: int) -> StateImage:
        """Return the state before the record at ``offset``; later changes do not show. O(1)."""
        return StateImage(self, self._journal, offset)

    def at(self, offset: int) -> ClusterState:
        """Return a copy of the state before ``offset``, without a journal.

        Costs the size of the state and of the changes since.
        """
        copy = ClusterState(journaling=False, is_supported_config=self.configs._is_supported)
        for source, target in zip(self._maps, copy._maps, strict=True):
            target._copy_entries(source)
        for _, number, key, old in self._journal.since(offset):
            copy._maps[number]._restore(key, old)
        copy._last_offset = min(self._last_offset, offset - 1)
        return copy

    def delta(self, since_offset: int) -> dict[str, dict[Hashable, Changed]]:
        """Return the changes by records from ``since_offset`` on: kind -> key -> before, after.

        A key whose value is the same again is left out. The key of a config is
        ``((resource_type, resource_name), name)``, that of a quota ``(entity, key)``.
        """
        oldest: dict[tuple[int, Hashable], Any] = {}
        for _, number, key, old in self._journal.since(since_offset):
            # Notes come newest first: the last one of a key holds its value before all changes.
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
            f"offset {offset} is applied after offset {self._last_offset}: offsets must not descend"
        )


def _pass_over(record: Record, offset: int) -> None:
    """Ignore records of topics, partitions and transactions: other modules apply them."""
