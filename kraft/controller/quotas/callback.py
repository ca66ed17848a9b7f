"""Quotas that a plugin decides (``client.quota.callback.class``, KIP-257).

The plugin names for each client the tags of its account, and for each account the limit. It
receives every change of a client quota, and each image in which topics, partitions or brokers
changed.

A limit is asked for once per account. It is asked for again after a change of a quota, where
``quota_reset_required`` says so, and where ``update_cluster_metadata`` returns true. A call that
raises an exception is logged; then no quota applies to the request. (In Kafka the request fails.)

Called by ``kraft.server.client_quotas``. Sources: Kafka's ``ClientQuotaCallback``,
``ClientQuotaManager``, ``ClientQuotaMetadataManager``, ``DynamicTopicClusterQuotaPublisher``
(4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kraft.controller.quotas.limits import MAX_ACCOUNTS, UNLIMITED, changed_quotas
from kraft.image.quotas import QuotaEntity
from kraft.security.principals import KafkaPrincipal

if TYPE_CHECKING:
    from kraft.image.publishing import Image, ImageDelta

logger = logging.getLogger(__name__)
Result = TypeVar("Result")


class QuotaKind(StrEnum):
    """Kafka's ``ClientQuotaType``; the value is the quota's key. Controllers use the last two."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"


_KEYS = frozenset(QuotaKind)


class QuotaCallback(Protocol):
    """Decides the quotas of clients. Only the first two methods are required.

    ``entity`` is, for instance, ``{"user": "alice"}`` or ``{"user": None, "client-id": "c"}``;
    None is the default entity.
    """

    def quota_metric_tags(
        self, kind: QuotaKind, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        """Return the tags of the client's account; all clients with equal tags share a quota."""

    def quota_limit(self, kind: QuotaKind, tags: Mapping[str, str]) -> float | None:
        """Return the limit of an account; None for no limit."""

    def update_quota(self, kind: QuotaKind, entity: Mapping[str, str | None], limit: float) -> None:
        """Note that the quota of an entity was set."""

    def remove_quota(self, kind: QuotaKind, entity: Mapping[str, str | None]) -> None:
        """Note that the quota of an entity was removed."""

    def quota_reset_required(self, kind: QuotaKind) -> bool:
        """Return whether limits changed since the last call. Called for each request."""

    def update_cluster_metadata(self, image: Image) -> bool:
        """Note new topics, partitions or brokers; return whether limits changed."""


class CallbackQuotas:
    """A plugin with the limits that it has named; ``limits`` returns those of one kind."""

    def __init__(self, callback: QuotaCallback) -> None:
        self._callback = callback
        self._set: dict[tuple[QuotaEntity, str], float] = {}
        self._limits = {
            kind: CallbackLimits(self, kind)
            for kind in (QuotaKind.REQUEST, QuotaKind.CONTROLLER_MUTATION)
        }

    def limits(self, kind: QuotaKind) -> CallbackLimits:
        return self._limits[kind]

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Pass the changes of a published image to the plugin."""
        if delta.is_full:
            now = {
                (entity, key): limit
                for entity, key, limit in changed_quotas(delta)
                if key in _KEYS and limit is not None
            }
            changed: dict[tuple[QuotaEntity, str], float | None] = dict.fromkeys(
                self._set.keys() - now.keys()
            )
            changed |= now
        else:
            changed = {
                (entity, key): limit for entity, key, limit in changed_quotas(delta) if key in _KEYS
            }
        for (entity, key), limit in changed.items():
            self._pass_on(entity, QuotaKind(key), limit)
        is_new = bool(changed)
        if _has_other_cluster(delta):
            is_new |= bool(self.call("update_cluster_metadata", False, image))
        if is_new:
            for each in self._limits.values():
                each.forget()

    def _pass_on(self, entity: QuotaEntity, kind: QuotaKind, limit: float | None) -> None:
        if limit is None:
            self._set.pop((entity, kind), None)
            self.call("remove_quota", None, kind, dict(entity))
        else:
            self._set[entity, kind] = limit
            self.call("update_quota", None, kind, dict(entity), limit)

    def call(self, method: str, fallback: Result, *arguments: object) -> Any | Result:
        """Return the result of the plugin's method; ``fallback`` if it is missing or raises."""
        function: Callable[..., Any] | None = getattr(self._callback, method, None)
        if function is None:
            return fallback
        try:
            return function(*arguments)
        except Exception as error:
            logger.warning("client.quota.callback.class: %s failed: %r", method, error)
            return fallback


class CallbackLimits:
    """The limits of one kind, as `QuotaLimits`; an account is the sorted tags of the plugin."""

    def __init__(self, quotas: CallbackQuotas, kind: QuotaKind) -> None:
        self._quotas = quotas
        self._kind = kind
        self._known: dict[Hashable, float] = {}

    def __bool__(self) -> bool:
        """Return True: the plugin may limit any client."""
        return True

    def follow(self, delta: ImageDelta) -> None:
        """Do nothing: `CallbackQuotas` passes changes on."""

    def forget(self) -> None:
        """Ask the plugin for all limits again."""
        self._known.clear()

    def account_of(self, principal: KafkaPrincipal, client_id: str) -> Hashable:
        """Return the account that a request of this principal and client id draws from."""
        call, kind = self._quotas.call, self._kind
        tags = call("quota_metric_tags", None, kind, principal, client_id)
        if call("quota_reset_required", False, kind):
            self.forget()
        if tags is None:
            return None
        if not isinstance(tags, Mapping):
            logger.warning(
                "client.quota.callback.class: quota_metric_tags returned %r, which is no mapping",
                tags,
            )
            return None
        return tuple(sorted((str(name), str(value)) for name, value in tags.items()))

    def limit_of(self, account: Any) -> float:
        """Return the limit of an account, `UNLIMITED` where no quota applies."""
        if account is None:
            return UNLIMITED
        known = self._known.get(account)
        if known is None:
            limit = self._quotas.call("quota_limit", None, self._kind, dict(account))
            known = UNLIMITED if limit is None else float(limit)
            if len(self._known) >= MAX_ACCOUNTS:
                self._known.clear()
            self._known[account] = known
        return known


def _has_other_cluster(delta: ImageDelta) -> bool:
    """Return whether topics, partitions or brokers changed, or the image needs fewer rows."""
    return bool(
        delta.is_full
        or delta.is_renumbered
        or delta.changes.get("broker")
        or delta.topics_added
        or delta.topics_removed
        or delta.rows_added
        or len(delta.rows_changed)
    )
