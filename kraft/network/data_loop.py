"""Choose whether a compiled loop moves the bytes of plain connections.

The loop needs Linux (epoll, sendfile). Elsewhere `data_listener_type` returns None, connections
stay with the event loop, and `file_copies` copies the slices of files.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from kraft.network.listener import Listener, PlainListener


def data_listener_type() -> Callable[[Listener, asyncio.AbstractEventLoop], PlainListener] | None:
    """Return the class of a listener with a compiled loop, or None where there is none."""
    if sys.platform != "linux":
        return None
    from kraft.network.data_listener import DataListener

    return DataListener
