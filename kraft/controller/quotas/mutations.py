"""Controller mutation quotas: how many partitions a client may create and delete per second.

Each account (see `limits`) has a bucket of tokens. It holds at most as many as the quota allows in
``controller.quota.window.num`` windows of ``controller.quota.window.size.seconds``, and is refilled
with the quota. A partition that is created or deleted takes one token. The bucket is exhausted when
it is below zero; until then it accepts a request of any size.

A strict quota rejects topics while the bucket is exhausted, with THROTTLING_QUOTA_EXCEEDED. A
permissive one, for versions of requests whose clients do not know that error, only delays the
client. Both return how long the client has to wait.

The caller passes the clock. Sources: KIP-599; Kafka's ``ControllerMutationQuotaManager``,
``TokenBucket``, ``StrictControllerMutationQuota``, ``PermissiveControllerMutationQuota`` (4.3.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraft.controller.quotas.limits import UNLIMITED, Accounts, ClientLimits, QuotaLimits
from kraft.errors import ThrottlingQuotaExceededError
from kraft.security.principals import KafkaPrincipal

if TYPE_CHECKING:
    from kraft.image.publishing import Image, ImageDelta

_MAX_INT32 = (1 << 31) - 1


@dataclass(slots=True)
class _Bucket:
    """The tokens of one account at ``updated_ms``; a new bucket is full."""

    tokens: float = 0.0
    updated_ms: float = -math.inf

    def refill(self, rate: float, burst: float, now_ms: float) -> None:
        self.tokens = min(burst, self.tokens + rate * (now_ms - self.updated_ms) / 1000)
        self.updated_ms = now_ms

    def take(self, count: float, burst: float) -> None:
        self.tokens = min(burst, self.tokens - count)


class MutationQuotas:
    """The mutation quotas of a node, and the buckets of its clients."""

    def __init__(
        self, window_count: int, window_s: int, limits: ClientLimits | None = None
    ) -> None:
        self.limits: ClientLimits = limits or QuotaLimits("controller_mutation_rate")
        self._burst_s = float(window_count * window_s)
        self.buckets: Accounts[_Bucket] = Accounts(_Bucket)

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Follow the quotas of a published image."""
        self.limits.follow(delta)

    def recorder(
        self,
        principal: KafkaPrincipal,
        client_id: str,
        *,
        is_strict: bool,
        clock: Callable[[], float],
    ) -> MutationRecorder | None:
        """Return the recorder of one request, None if no mutation quota is set at all.

        ``clock`` returns milliseconds that never go back.
        """
        if not self.limits:
            return None
        account = self.limits.account_of(principal, client_id)
        return MutationRecorder(self, account, is_strict, clock)

    def take(
        self, account: Hashable, count: float, now_ms: float, *, is_strict: bool
    ) -> float | None:
        """Take tokens; return None, or the milliseconds until the bucket is at zero again.

        An exhausted bucket gives no tokens to a strict request.
        """
        limit = self.limits.limit_of(account)
        if limit == UNLIMITED:
            # The next quota begins with a full bucket, as after a refill without a limit.
            self.buckets.drop(account)
            return None
        burst = limit * self._burst_s
        bucket = self.buckets.of(account)
        bucket.refill(limit, burst, now_ms)
        is_exhausted = bucket.tokens < 0
        if not (is_strict and is_exhausted):
            bucket.take(count, burst)
        if is_exhausted if is_strict else bucket.tokens < 0:
            # Kafka rounds a half up.
            return math.floor(-bucket.tokens / limit * 1000 + 0.5)
        return None


class MutationRecorder:
    """The mutations of one request; call it with each number of partitions.

    It is the ``MutationQuota`` of the decisions on topics: it raises ThrottlingQuotaExceededError
    to reject a topic.
    """

    def __init__(
        self,
        quotas: MutationQuotas,
        account: Hashable,
        is_strict: bool,
        clock: Callable[[], float],
    ) -> None:
        self._quotas = quotas
        self._account = account
        self._is_strict = is_strict
        self._clock = clock
        self._throttle_ms = 0.0
        self._recorded_ms = 0.0

    def __call__(self, count: int) -> None:
        now_ms = self._clock()
        throttle_ms = self._quotas.take(
            self._account, float(count), now_ms, is_strict=self._is_strict
        )
        if throttle_ms is None:
            return
        self._throttle_ms, self._recorded_ms = throttle_ms, now_ms
        if self._is_strict:
            raise ThrottlingQuotaExceededError(
                f"the quota controller_mutation_rate is exceeded: retry in {throttle_ms:.0f} ms"
            )

    def throttle_ms(self) -> int:
        """Return how long the client has to wait from now on; 0 within the quota."""
        if not self._throttle_ms:
            return 0
        left_ms = self._throttle_ms - (self._clock() - self._recorded_ms)
        return max(0, min(int(left_ms), _MAX_INT32))
