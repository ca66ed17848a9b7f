"""Limits of how many connections per second a listener accepts, and how many of one address.

- ``max.connection.creation.rate``, of the node and of each listener: a new connection above the
  rate waits, as if it was still in the backlog. The wait is the delay after which the measured rate
  is at the limit again, at most one window; connections wait one after the other.
- The quota ``connection_creation_rate`` of an address: a connection above it is rejected, and
  closed after the delay, so that the peer does not reconnect at once.

`Listener` calls this module with its clock. Sources: Kafka's ``ConnectionQuotas`` (4.3.1); KIP-612.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kraft.controller.configs.client_quotas import is_ip_address
from kraft.controller.quotas.limits import Accounts, changed_quotas
from kraft.controller.quotas.rates import WindowedRate
from kraft.image.quotas import IP
from kraft.security.hosts import java_host

if TYPE_CHECKING:
    from kraft.image.publishing import Image, ImageDelta

_KEY = "connection_creation_rate"


class RateLimits(NamedTuple):
    """Connections per second: of the node, and of listeners by name; None: unlimited.

    They are measured in ``window_count`` windows of ``window_s`` seconds.
    """

    in_all: int | None = None
    of_listeners: Mapping[str, int] = MappingProxyType({})
    window_count: int = 11
    window_s: int = 1


class Delay(NamedTuple):
    """How long a new connection waits, and whether it is closed then."""

    wait_ms: float
    is_rejected: bool = False


_AT_ONCE = Delay(0.0)


class CreationRates:
    """The rates of new connections of a node's listeners, and their limits."""

    def __init__(self, limits: RateLimits) -> None:
        #: The name of the publisher; the broker of a node has rates of its own.
        self.name = "ConnectionRates"
        self.limits = limits
        self._of_addresses: dict[str | None, float] = {}
        self._all = self._new_rate()
        self._by_listener: dict[str, WindowedRate] = {}
        self._by_address = Accounts(self._new_rate)
        #: When each listener may accept the next connection.
        self._free_ms: dict[str, float] = {}

    def _new_rate(self) -> WindowedRate:
        return WindowedRate(self.limits.window_count, 1000.0 * self.limits.window_s)

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Follow the quotas of addresses in a published image."""
        if delta.is_full:
            self._of_addresses.clear()
        for entity, key, limit in changed_quotas(delta):
            kind, ip = entity[0]
            if kind == IP and key == _KEY:
                self.limit_address(ip, limit)

    def limit_address(self, ip: str | None, limit: float | None) -> None:
        """Set the quota of an address, or of all without one (None); None removes it.

        A host name is ignored: resolving it would block the event loop.
        """
        if ip is not None and not is_ip_address(ip):
            return
        address = None if ip is None else parsed_address(ip)
        if limit is None:
            self._of_addresses.pop(address, None)
        else:
            # Kafka reads the quota as an int.
            self._of_addresses[address] = float(int(limit))

    def accept(self, listener_name: str, address: str, now_ms: float) -> Delay:
        """Count a new connection; return how long it has to wait."""
        limits = self.limits
        listener_limit = limits.of_listeners.get(listener_name)
        of_address = self._of_addresses
        if limits.in_all is None and listener_limit is None and not of_address:
            return _AT_ONCE
        longest_ms = 1000.0 * limits.window_s
        begin_ms = max(now_ms, self._free_ms.get(listener_name, now_ms))
        counted: list[WindowedRate] = []
        wait_ms = 0
        if limits.in_all is not None:
            counted.append(self._all)
            wait_ms = _record(self._all, limits.in_all, begin_ms, longest_ms)
        if listener_limit is not None:
            rate = self._by_listener.setdefault(listener_name, self._new_rate())
            counted.append(rate)
            wait_ms = max(wait_ms, _record(rate, listener_limit, begin_ms, longest_ms))
        self._free_ms[listener_name] = begin_ms + wait_ms
        limit = of_address.get(address, of_address.get(None))
        if limit is not None:
            own = self._by_address.of(address)
            delay_ms = _record(own, limit, begin_ms + wait_ms, longest_ms)
            if delay_ms:
                for rate in (own, *counted):
                    rate.record(-1, begin_ms + wait_ms)
                return Delay(begin_ms + wait_ms + delay_ms - now_ms, is_rejected=True)
        return Delay(begin_ms + wait_ms - now_ms)


def parsed_address(text: str) -> str:
    """Return an address as `java_host` writes it; `is_ip_address` must accept ``text``."""
    if ":" in text:
        return java_host(text.strip("[]"))
    *first, last = map(int, text.split("."))
    number = sum(part << 8 * (3 - place) for place, part in enumerate(first)) + last
    return ".".join(map(str, number.to_bytes(4, "big")))


def _record(rate: WindowedRate, limit: float, now_ms: float, longest_ms: float) -> int:
    rate.record(1, now_ms)
    return rate.measure(now_ms).throttle_ms(limit, longest_ms)
