"""The paths of the monitoring server: ``/metrics``, ``/healthz``, ``/readyz``.

``process`` calls `serve_observation` where ``kraft.http.listener`` is set.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from kraft.server.observation.exposition import CONTENT_TYPE, exposition
from kraft.server.observation.health import health, readiness
from kraft.server.observation.http_server import HttpResponse, HttpServer, Route
from kraft.server.observation.observed_node import ObservedNode

logger = logging.getLogger(__name__)

Check = Callable[[ObservedNode], tuple[list[str], dict[str, Any]]]


async def serve_observation(node: ObservedNode, host: str, port: int) -> HttpServer:
    """Start the server. Raises OSError where the address is not available."""
    server = HttpServer(routes(node))
    try:
        bound = await server.start(host, port)
    except OSError as error:
        raise OSError(f"cannot serve metrics at {host}:{port}: {error.strerror}") from error
    logger.info("metrics and health at http://%s:%d", f"[{host}]" if ":" in host else host, bound)
    return server


def routes(node: ObservedNode) -> dict[str, Route]:
    """Return the handlers by path."""
    # One reading at a time: several would occupy the event loop more often, though not longer at
    # a time.
    reading = asyncio.Lock()

    async def metrics() -> HttpResponse:
        async with reading:
            return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, await exposition(node))

    return {
        "/metrics": metrics,
        "/healthz": _route(node, health, "healthy"),
        "/readyz": _route(node, readiness, "ready"),
    }


def _route(node: ObservedNode, check: Check, word: str) -> Route:
    async def answer() -> HttpResponse:
        reasons, details = check(node)
        document = {"status": f"not {word}" if reasons else word, "reasons": reasons, **details}
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return HttpResponse(status, "application/json", json.dumps(document).encode() + b"\n")

    return answer
