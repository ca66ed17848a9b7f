"""The limit of one kind of quota that applies to a user and a client id.

A quota belongs to a user, to a client id, or to a pair of both; each name may be the default. The
most specific quota applies, in Kafka's order: user before client id, a name before the default.
All requests that share a quota draw from one account (a bucket or a rate), whose key is the pair
of texts that `QuotaLimits.account_of` returns.

The parts of a pair depend on which kinds of entities have quotas at all, as in Kafka: while only
users have quotas, all client ids of a user share one account.

Called by `mutations` and `requests`. Sources: Kafka's ``ClientQuotaManager`` and its
``DefaultQuotaCallback`` (4.3.1); KIP-55.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from kraft.image.quotas import CLIENT_ID, USER, QuotaEntity
from kraft.security.principals import KafkaPrincipal

if TYPE_CHECKING:
    from kraft.image.publishing import ImageDelta

#: The limit where no quota applies (Java's ``Long.MAX_VALUE`` as a double).
UNLIMITED: Final = float((1 << 63) - 1)
#: Accounts that a listener remembers of each quota. A peer chooses its client id, so that their
#: number must be bounded; the account that was unused for the longest time is dropped first.
MAX_ACCOUNTS: Final = 10_000

Value = TypeVar("Value")


class QuotaWindows(NamedTuple):
    """The number and the length in seconds of the windows in which quotas are measured.

    ``window_count`` and ``window_s`` are for requests and connections, the others for mutations.
    """

    window_count: int = 11
    window_s: int = 1
    mutation_window_count: int = 11
    mutation_window_s: int = 1


class QuotaAccount(NamedTuple):
    """The user and the client id whose requests share a quota; "" is "any"."""

    user: str
    client_id: str


def changed_quotas(delta: ImageDelta) -> Iterator[tuple[QuotaEntity, str, float | None]]:
    """Yield entity, key and new value of each changed quota; the value of a removed one is None.

    Of a full delta these are all quotas.
    """
    if delta.is_full:
        for entity, quotas in delta.image.state.client_quotas.items():
            for key, value in quotas.items():
                yield entity, key, value
        return
    for changed, values in delta.changes.get("client_quota", {}).items():
        assert isinstance(changed, tuple)
        yield changed[0], changed[1], values.after


class ClientLimits(Protocol):
    """The limits of one kind of quota: `QuotaLimits`, or those that a plugin decides."""

    def __bool__(self) -> bool:
        """Whether a quota may apply to any client."""

    def follow(self, delta: ImageDelta) -> None:
        """Apply the changed quotas of a published image."""

    def account_of(self, principal: KafkaPrincipal, client_id: str) -> Hashable:
        """Return the account that a request of this principal and client id draws from."""

    def limit_of(self, account: Any) -> float:
        """Return the limit of an account of `account_of`, `UNLIMITED` where no quota applies."""


class QuotaLimits:
    """The limits of the quota ``key``, such as ``controller_mutation_rate``."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._limits: dict[QuotaEntity, float] = {}
        #: How many quotas each kind of entity has, by the types of its parts.
        self._kinds: Counter[tuple[str, ...]] = Counter()

    def __bool__(self) -> bool:
        """Whether any quota of this kind is set."""
        return bool(self._limits)

    def follow(self, delta: ImageDelta) -> None:
        """Apply the changed quotas of a published image."""
        if delta.is_full:
            self._limits.clear()
            self._kinds.clear()
        for entity, key, limit in changed_quotas(delta):
            if key == self.key:
                self.set(entity, limit)

    def set(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set the quota of an entity; None removes it."""
        kind = tuple(part for part, _ in entity)
        if self._limits.pop(entity, None) is not None:
            self._kinds[kind] -= 1
            if not self._kinds[kind]:
                del self._kinds[kind]
        if limit is not None:
            self._limits[entity] = limit
            self._kinds[kind] += 1

    def account_of(self, principal: KafkaPrincipal, client_id: str) -> QuotaAccount:
        """Return the account that a request of this principal and client id draws from."""
        kinds, user = self._kinds, principal.name
        if not kinds or kinds.keys() == {(CLIENT_ID,)}:
            return QuotaAccount("", client_id)
        if kinds.keys() == {(USER,)}:
            return QuotaAccount(user, "")
        if kinds.keys() == {(CLIENT_ID, USER)}:
            return QuotaAccount(user, client_id)
        limits = self._limits
        for name in (user, None):
            if _pair(name, client_id) in limits or _pair(name, None) in limits:
                return QuotaAccount(user, client_id)
            if ((USER, name),) in limits:
                return QuotaAccount(user, "")
        return QuotaAccount("", client_id)

    def limit_of(self, account: QuotaAccount) -> float:
        """Return the limit of an account, `UNLIMITED` where no quota applies."""
        user, client_id = account
        wanted: tuple[QuotaEntity, ...] = ()
        if user and client_id:
            wanted = (
                *(_pair(user, client_id), _pair(user, None)),
                *(_pair(None, client_id), _pair(None, None)),
            )
        elif user:
            wanted = ((USER, user),), ((USER, None),)
        elif client_id:
            wanted = ((CLIENT_ID, client_id),), ((CLIENT_ID, None),)
        found = (self._limits[entity] for entity in wanted if entity in self._limits)
        return next(found, UNLIMITED)


class Accounts(Generic[Value]):
    """The states of at most `MAX_ACCOUNTS` accounts; ``make`` returns the state of a new one."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._states: OrderedDict[object, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def of(self, account: object) -> Value:
        """Return the state of an account, and make it the most recently used one."""
        state = self._states.get(account)
        if state is None:
            if len(self._states) >= MAX_ACCOUNTS:
                self._states.popitem(last=False)
            state = self._states[account] = self._make()
        else:
            self._states.move_to_end(account)
        return state

    def drop(self, account: object) -> None:
        """Forget an account, if it exists."""
        self._states.pop(account, None)


def _pair(user: str | None, client_id: str | None) -> QuotaEntity:
    return ((CLIENT_ID, client_id), (USER, user))
