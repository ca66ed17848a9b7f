"""Find out which voters of a lost quorum still answer at their addresses.

A voter that accepts a connection is alive, whatever protocol and authentication its listener
speaks. The addresses are tried at the same time, each for a second. Called by the command.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

CONNECT_TIMEOUT_S = 1.0

#: (host, port)
Address = tuple[str, int]


def answering(addresses: Iterable[Address]) -> list[Address]:
    """Return the addresses that accept a connection, in the given order, each once."""
    distinct = list(dict.fromkeys(addresses))
    if not distinct:
        return []
    with ThreadPoolExecutor(len(distinct)) as pool:
        return [
            at
            for at, is_open in zip(distinct, pool.map(_accepts, distinct), strict=True)
            if is_open
        ]


def _accepts(address: Address) -> bool:
    try:
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, UnicodeError):
        return False
    return True
