"""Lines of a fleet's trace, for tests of what reads them."""

from __future__ import annotations

import json
from typing import Any

from kraft.fleet.traces import TraceColumns, parse_trace


def line(**changed: Any) -> bytes:
    """Return a valid line, with some keys changed."""
    event = {"at_ms": 1.5, "step": "steady", "name": "applied", "broker": 7, "value": 2.0}
    return json.dumps({**event, **changed}).encode()


def started(step: str, at_ms: float) -> bytes:
    return line(at_ms=at_ms, step=step, name="step_started", broker=None, value=None)


def ended(step: str, at_ms: float) -> bytes:
    return line(at_ms=at_ms, step=step, name="step_ended", broker=None, value=1)


def trace_of(*lines: bytes) -> TraceColumns:
    """Return the columns of a trace with these lines."""
    return parse_trace(b"\n".join(lines), "t")
