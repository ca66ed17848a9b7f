"""File descriptors of a node: raise the limit, and reserve some for the disk.

A node that cannot open a file must end, since it can then write neither its vote nor its log. Peers
and clients therefore get only the descriptors that the disk and the node's own connections do not
need. `process` calls this module at the start.
"""

from __future__ import annotations

import logging
import os
import resource
import sys

from kraft.errors import InvalidConfigError
from kraft.network.acceptor import ACCEPTED_AT_ONCE
from kraft.network.admission import NEWCOMERS, VOTER_CONNECTIONS
from kraft.network.listener import Limits
from kraft.network.transport import MAX_PEERS
from kraft.server.observation.http_server import MAX_CONNECTIONS

logger = logging.getLogger(__name__)

#: For log segments, snapshots being read or written, quorum-state, and directories being synced.
DISK_RESERVE = 64
RESERVE = DISK_RESERVE + MAX_PEERS
#: The acceptor takes so many connections before the first surplus one of them is closed.
SURPLUS = 2 * ACCEPTED_AT_ONCE
#: For the HTTP listener of metrics and health checks, its connections, and those that the event
#: loop accepts before it closes the first surplus one.
HTTP_RESERVE = 1 + MAX_CONNECTIONS + 2 * MAX_CONNECTIONS
#: A node with fewer connections than this cannot serve brokers.
_LEAST_CONNECTIONS = 16


def raise_soft_limit() -> int:
    """Raise the soft limit of open files to the hard limit, as the JVM does; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            # Some systems allow less than the hard limit (macOS: kern.maxfilesperproc).
            logger.warning("cannot raise the limit of open files from %d to %d", soft, hard)
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def most_connections(soft_limit: int | None = None, *, has_http: bool = False) -> int:
    """Return how many connections the free descriptors allow.

    ``soft_limit`` is by default the limit of the process; ``has_http``: the node serves metrics.
    Open the disk first: the function counts the descriptors that are open now. Raises
    InvalidConfigError where fewer than 16 are free.
    """
    if soft_limit is None:
        soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft_limit == resource.RLIM_INFINITY:
        return sys.maxsize
    in_use = len(os.listdir("/dev/fd"))
    reserve = RESERVE + SURPLUS + (HTTP_RESERVE if has_http else 0)
    left = soft_limit - in_use - reserve - NEWCOMERS - VOTER_CONNECTIONS
    if left < _LEAST_CONNECTIONS:
        needed = soft_limit - left + _LEAST_CONNECTIONS
        raise InvalidConfigError(
            f"the limit of open files is {soft_limit}, and this node needs at least {needed}: "
            f"raise it (ulimit -n, LimitNOFILE of systemd)"
        )
    return left


def bounded_limits(limits: Limits, most: int) -> Limits:
    """Return ``limits`` with at most ``most`` connections, see `most_connections`."""
    if most >= limits.max_connections:
        return limits
    logger.warning(
        "max.connections is %d instead of %d, as the limit of open files is %d",
        *(most, limits.max_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    )
    return limits._replace(max_connections=most)
