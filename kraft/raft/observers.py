"""Observers of a leader, bounded in number and forgotten after a session timeout.

Any client can fetch under any replica id; therefore the number of observers is bounded. An observer
is a newcomer at first. It is established once it has fetched for `ESTABLISHED_AFTER_MS`
without a pause of `SILENT_AFTER_MS`.

Invariants: at most `MAX_NEWCOMERS` newcomers and `MAX_ESTABLISHED` established observers; a
newcomer never takes the place of an established observer that fetched within `SILENT_AFTER_MS`.

`replicas` calls it for each fetch of a replica that does not vote, and keeps the progress itself.
Source of the session: Kafka's ``LeaderState`` (300 s). Kafka has no bound.
"""

from __future__ import annotations

from kraft.raft.voters import ReplicaKey

MAX_NEWCOMERS = 1000
MAX_ESTABLISHED = 2000
ESTABLISHED_AFTER_MS = 10_000
#: A replica fetches every `RaftSettings.fetch_max_wait_ms` (500) even while nothing is appended.
SILENT_AFTER_MS = 10_000


class Observers:
    """The keys of a leader's observers; those that fetched longest ago come first.

    ``session_ms`` is the time after which a silent observer is forgotten.
    """

    __slots__ = ("_established", "_newcomers", "_session_ms")

    def __init__(self, session_ms: int) -> None:
        self._session_ms = session_ms
        #: Both ordered by the last fetch. Newcomers: since when they fetch, and the last fetch;
        #: established observers: the last fetch.
        self._newcomers: dict[ReplicaKey, tuple[float, float]] = {}
        self._established: dict[ReplicaKey, float] = {}

    def __len__(self) -> int:
        return len(self._newcomers) + len(self._established)

    def __contains__(self, key: object) -> bool:
        return key in self._established or key in self._newcomers

    def note_fetch(self, key: ReplicaKey, now_ms: float) -> ReplicaKey | None:
        """Note that an observer fetched; return another that is forgotten for it, if any."""
        if self._established.pop(key, None) is not None:
            self._established[key] = now_ms
            return None
        since_ms, last_ms = self._newcomers.pop(key, (now_ms, now_ms))
        if now_ms - last_ms > SILENT_AFTER_MS:
            since_ms = now_ms
        if now_ms - since_ms >= ESTABLISHED_AFTER_MS:
            if len(self._established) < MAX_ESTABLISHED:
                self.establish(key, now_ms)
                return None
            longest_silent = next(iter(self._established))
            if now_ms - self._established[longest_silent] >= SILENT_AFTER_MS:
                del self._established[longest_silent]
                self.establish(key, now_ms)
                return longest_silent
        self._newcomers[key] = since_ms, now_ms
        if len(self._newcomers) <= MAX_NEWCOMERS:
            return None
        oldest = next(iter(self._newcomers))
        del self._newcomers[oldest]
        return oldest

    def establish(self, key: ReplicaKey, now_ms: float) -> None:
        """Make an observer an established one."""
        self._newcomers.pop(key, None)
        self._established[key] = now_ms

    def expire(self, now_ms: float) -> list[ReplicaKey]:
        """Forget the observers whose session is over, and return them."""
        oldest_ms = now_ms - self._session_ms
        expired = []
        for key, last_ms in self._established.items():
            if last_ms >= oldest_ms:
                break
            expired.append(key)
        for key, (_, last_ms) in self._newcomers.items():
            if last_ms >= oldest_ms:
                break
            expired.append(key)
        for key in expired:
            self._newcomers.pop(key, None)
            self._established.pop(key, None)
        return expired
