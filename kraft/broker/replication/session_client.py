"""Fetch sessions of the follower's side: which partitions the next Fetch request names (KIP-227).

`FetchSessionClient` is told which partitions changed, so that a request costs the changes and not
all partitions of the leader. Rules: Kafka's ``FetchSessionHandler``, ``FetchMetadata``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kraft.broker.replication.fetch_sessions import session_epoch_after
from kraft.broker.replication.messages import (
    INITIAL_SESSION_EPOCH,
    NO_SESSION,
    FetchPartition,
    PartitionId,
    ReceivedFetch,
)
from kraft.errors import FETCH_SESSION_ID_NOT_FOUND


class SessionRequest(NamedTuple):
    """The session's part of a Fetch request."""

    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: list[PartitionId]


class FetchSessionClient:
    """The session with one leader; ``in_session`` is what the leader knows of each partition."""

    __slots__ = ("_changed", "_epoch", "_id", "in_session")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_SESSION_EPOCH
        self._changed: dict[PartitionId, None] = {}
        self.in_session: dict[PartitionId, FetchPartition] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request names all partitions."""
        return self._epoch == INITIAL_SESSION_EPOCH

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def changed(self, id: PartitionId) -> None:
        """Note that a partition may have to be added, changed or forgotten."""
        self._changed[id] = None

    def build(
        self,
        all_ids: Iterable[PartitionId],
        wanted: Callable[[PartitionId], FetchPartition | None],
    ) -> SessionRequest | None:
        """Return the next request; None if there is nothing to fetch.

        ``wanted`` returns what to fetch of a partition now, None for nothing. A full request asks
        it for ``all_ids``, others only for those that changed.
        """
        if self.is_full:
            fetches = [fetch for id in all_ids if (fetch := wanted(id)) is not None]
            self._changed.clear()
            self.in_session = {fetch.id: fetch for fetch in fetches}
            return SessionRequest(self._id, self._epoch, fetches, []) if fetches else None
        to_send: list[FetchPartition] = []
        forgotten: list[PartitionId] = []
        for id in self._changed:
            want, known = wanted(id), self.in_session.get(id)
            if want is None:
                if known is not None:
                    forgotten.append(id)
                    del self.in_session[id]
            elif want != known:
                to_send.append(want)
                self.in_session[id] = want
        self._changed.clear()
        if not self.in_session and not forgotten:
            return None
        return SessionRequest(self._id, self._epoch, to_send, forgotten)

    def received(self, response: ReceivedFetch) -> bool:
        """Take a response's session; return whether its partitions are valid."""
        if response.error:
            if response.error == FETCH_SESSION_ID_NOT_FOUND:
                self._begin_anew(NO_SESSION)
            else:
                self._begin_anew(self._id)
            return False
        if response.session_id == NO_SESSION:
            # The leader has no room for a session, or has closed it.
            self._begin_anew(NO_SESSION)
        else:
            self._id = response.session_id
            self._epoch = session_epoch_after(self._epoch)
        return True

    def failed(self) -> None:
        """Begin a new session after a request without a response, and close the old one."""
        self._begin_anew(self._id)

    def _begin_anew(self, id: int) -> None:
        self._id, self._epoch = id, INITIAL_SESSION_EPOCH
