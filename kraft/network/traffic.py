"""Counts of a listener's traffic: requests, times, errors and connections, for the metrics.

The listener notes a request when its response is written: one dictionary access and one note in a
histogram, less than a microsecond. Readers take the totals whenever they want. Runs on the event
loop of the node. Called by ``listener`` and ``server.apis.api``; read by ``server.observation``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from kraft.controller.runtime.event_queue import DurationHistogram
from kraft.protocol.headers import RequestHeader


@dataclass(slots=True)
class ApiTraffic:
    """The answered requests of one API; sizes in bytes, without the size field of a frame."""

    by_version: Counter[int] = field(default_factory=Counter)
    #: From the whole request to the written response.
    times: DurationHistogram = field(default_factory=DurationHistogram)
    request_size: int = 0


@dataclass(slots=True)
class ListenerTraffic:
    """The connections of one listener, and the requests that were answered on them."""

    opened: int = 0
    closed: int = 0
    requests: int = 0
    request_size: int = 0
    response_size: int = 0


class Traffic:
    """The traffic of all listeners of one node since its start."""

    def __init__(self) -> None:
        self.apis: defaultdict[str, ApiTraffic] = defaultdict(ApiTraffic)
        self.listeners: defaultdict[str, ListenerTraffic] = defaultdict(ListenerTraffic)
        #: Responses by API and error of the whole response; 0 is success.
        self.errors: Counter[tuple[str, int]] = Counter()

    def note(
        self,
        listener: ListenerTraffic,
        header: RequestHeader,
        request_size: int,
        response_size: int,
        taken_ms: float,
    ) -> None:
        """Note a request whose response was just written."""
        api = self.apis[header.api.name]
        api.by_version[header.version] += 1
        api.times.note(taken_ms)
        api.request_size += request_size
        listener.requests += 1
        listener.request_size += request_size
        listener.response_size += response_size
