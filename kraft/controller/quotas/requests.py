"""Request quotas: the share of this node's time that a client's requests may take.

The quota ``request_percentage`` is in per cent of one thread. The time of a request is the time
that its handler runs on the event loop, without waiting for records to be committed. A client may
exceed its quota over ``quota.window.num`` windows of ``quota.window.size.seconds``. Then the node
responds as usual, but reads the client's next request only after the delay that brings the rate
back to the quota, at most one window.

The caller passes times. Sources: KIP-124; Kafka's ``ClientRequestQuotaManager``,
``RequestHandlerHelper`` (4.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.controller.quotas.limits import Accounts, ClientLimits, QuotaLimits
from kraft.controller.quotas.rates import WindowedRate
from kraft.security.principals import KafkaPrincipal

if TYPE_CHECKING:
    from kraft.image.publishing import Image, ImageDelta


class RequestQuotas:
    """The request quotas of a node, and the rates of its clients."""

    def __init__(
        self, window_count: int, window_s: int, limits: ClientLimits | None = None
    ) -> None:
        self.limits: ClientLimits = limits or QuotaLimits("request_percentage")
        self._window_ms = 1000.0 * window_s
        self._rates = Accounts(lambda: WindowedRate(window_count, self._window_ms))

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Follow the quotas of a published image."""
        self.limits.follow(delta)

    def __bool__(self) -> bool:
        """Whether any request quota is set: only then requests have to be timed."""
        return bool(self.limits)

    def record(
        self, principal: KafkaPrincipal, client_id: str, taken_ms: float, now_ms: float
    ) -> int:
        """Add a request's time; return the milliseconds that its client has to wait."""
        if not self.limits:
            return 0
        account = self.limits.account_of(principal, client_id)
        limit = self.limits.limit_of(account)
        # Also record accounts without a limit: a limit may be set while the client is busy.
        rate = self._rates.of(account)
        # Milliseconds as per cent of one second.
        rate.record(taken_ms / 10, now_ms)
        return rate.measure(now_ms).throttle_ms(limit, self._window_ms)
