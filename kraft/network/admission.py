"""Decide which connections a listener keeps when there are too many.

An unknown client may open connections and leave them idle. They must not keep voters and brokers
out. A listener therefore ranks its connections by their requests (`Standing`) and closes idle ones
of the lowest standing first.

- Above a limit a few new connections (``newcomers``) are still accepted, so that each can send its
  first request. When these places are taken, the longest idle newcomer is closed.
- A replica above the limit replaces an idle connection of a lower standing.
- Idle connections above the limit are closed after a few seconds.
- Connections of voters do not count against the limits; they have small limits of their own.
- A connection with a request in progress is never closed for another.

Three limits work in the same way: for all connections, for those of an address, and for those of a
listener. They may change while connections are open.

`Listener` calls this module on its event loop. A voter is recognised by the id that it claims.
Where the listener authenticates its peers, the authorizer has allowed the request before that.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from kraft.raft.rpc import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from kraft.raft.voters import ReplicaKey, VoterSet

#: Places above a limit for connections that have not sent a valid request yet.
NEWCOMERS = 64
#: Connections of all voters, and of one voter; it needs one, and another to reconnect.
VOTER_CONNECTIONS = 64
CONNECTIONS_OF_A_VOTER = 4
#: How long a connection may be idle above a limit; a broker sends heartbeats every 2 s.
_IDLE_ABOVE_LIMIT_S = 2.0
_IDLE_REPLICA_ABOVE_LIMIT_S = 10.0


class Standing(IntEnum):
    """The rank of a connection by its requests; the lowest is closed first."""

    SILENT = 0  #: No valid request so far.
    CLIENT = 1
    REPLICA = 2  #: It fetches the log, takes part in elections, or is a broker with heartbeats.
    VOTER = 3


class RankedConnection(Protocol):
    """The part of a connection that `Admission` uses; ``last_active`` in seconds of the loop."""

    address: str
    listener_name: str
    last_active: float

    def close_for_others(self) -> None: ...


def replica_of(request: Request) -> ReplicaKey | None:
    """Return the replica that the request names as its sender; None for clients."""
    if isinstance(request, (FetchRequest, FetchSnapshotRequest)):
        return request.replica if request.replica.id >= 0 else None
    if isinstance(request, VoteRequest):
        return request.candidate
    if isinstance(request, (BeginQuorumEpochRequest, EndQuorumEpochRequest)):
        return ReplicaKey(request.leader_id)
    return request.voter if isinstance(request, UpdateRaftVoterRequest) else None


def standing_of(request: Request, cluster_id: str, voters: VoterSet) -> tuple[Standing, int]:
    """Return the standing of a connection with this request, and the sender's id (-1: none)."""
    key = replica_of(request)
    if key is None:
        return Standing.CLIENT, -1
    if getattr(request, "cluster_id", None) not in (None, cluster_id):
        return Standing.CLIENT, key.id
    # A leader names its id without a directory.
    is_voter = voters.is_voter(key) if key.directory_id is not None else key.id in voters.ids
    return (Standing.VOTER if is_voter else Standing.REPLICA), key.id


class _Group:
    """Connections under one limit: their count, and the idle ones by standing, oldest first."""

    __slots__ = ("count", "idle", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.idle: tuple[dict[RankedConnection, None], ...] = ({}, {}, {})

    @property
    def newcomers(self) -> int:
        """The places above the limit; none where the limit is 0."""
        return max(2, min(NEWCOMERS, self.limit // 4)) if self.limit else 0


class ConnectionLimits(NamedTuple):
    """How many connections a listener keeps.

    ``in_all`` limits all connections, ``of_address`` those of one address. ``of_addresses`` has
    different limits for single addresses (0: the address may not connect). ``of_listeners`` has the
    limits of listeners, by name.
    """

    in_all: int
    of_address: int
    of_addresses: Mapping[str, int] = MappingProxyType({})
    of_listeners: Mapping[str, int] = MappingProxyType({})


class Admission:
    """The connections of a node's listeners.

    Above each limit there are `NEWCOMERS` places, and `VOTER_CONNECTIONS` above all.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._all = _Group(limits.in_all)
        self._by_listener: dict[str, _Group] = {}
        self._by_address: dict[str, _Group] = {}
        self._standings: dict[RankedConnection, Standing] = {}
        #: The connections of each voter, and whether they are idle; longest idle first.
        self._voters: dict[int, dict[RankedConnection, bool]] = {}
        self._voter_of: dict[RankedConnection, int] = {}

    def __len__(self) -> int:
        return len(self._standings)

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Apply other limits; `trim` closes idle connections above them."""
        self._limits = limits
        self._all.limit = limits.in_all
        for name, group in self._by_listener.items():
            group.limit = limits.of_listeners.get(name, sys.maxsize)
        for address, group in self._by_address.items():
            group.limit = limits.of_addresses.get(address, limits.of_address)

    def admit(self, connection: RankedConnection) -> bool:
        """Add a new connection and close another above a limit; return False to reject it."""
        own = self._by_address.get(connection.address)
        limits = self._limits
        if own is None:
            limit = limits.of_addresses.get(connection.address, limits.of_address)
            own = self._by_address[connection.address] = _Group(limit)
        listener = self._by_listener.get(connection.listener_name)
        if listener is None:
            limit = limits.of_listeners.get(connection.listener_name, sys.maxsize)
            listener = self._by_listener[connection.listener_name] = _Group(limit)
        for group in (own, listener, self._all):
            if group.count < group.limit:
                continue
            if len(group.idle[Standing.SILENT]) >= group.newcomers:
                standings: tuple[Standing, ...] = (Standing.SILENT,)
            elif group.count >= group.limit + group.newcomers:
                # Close silent newcomers last: each should have time for its first request.
                standings = Standing.CLIENT, Standing.SILENT
            else:
                continue
            if not self._close_idle(group, standings):
                self._drop_empty(connection.address)
                return False
        # `_close_idle` may have removed the address with its last connection.
        self._by_address.setdefault(connection.address, own)
        self._standings[connection] = Standing.SILENT
        for group in self._groups(connection):
            group.count += 1
            group.idle[Standing.SILENT][connection] = None
        return True

    def leave(self, connection: RankedConnection) -> None:
        """Remove a closed connection; unknown ones are ignored."""
        if connection in self._standings:
            self._remove(connection)
            del self._standings[connection]
            self._drop_empty(connection.address)

    def begin_work(self, connection: RankedConnection) -> None:
        """Mark the connection as busy with a request."""
        standing = self._standings.get(connection)
        if standing is Standing.VOTER:
            self._voters[self._voter_of[connection]][connection] = False
        elif standing is not None:
            for group in self._groups(connection):
                group.idle[standing].pop(connection, None)

    def end_work(self, connection: RankedConnection) -> None:
        """Mark the connection as idle, and as the most recently active one."""
        standing = self._standings.get(connection)
        if standing is Standing.VOTER:
            own = self._voters[self._voter_of[connection]]
            del own[connection]
            own[connection] = True
        elif standing is not None:
            for group in self._groups(connection):
                group.idle[standing][connection] = None

    def promote(self, connection: RankedConnection, standing: Standing, voter_id: int = -1) -> None:
        """Raise the standing of a busy connection; a lower standing changes nothing."""
        now = self._standings.get(connection)
        if now is None or standing <= now:
            return
        if standing is Standing.VOTER and not self._may_add_voter(voter_id):
            standing = Standing.REPLICA
        if standing is Standing.VOTER:
            self._remove(connection)
            self._drop_empty(connection.address)
            self._voters.setdefault(voter_id, {})[connection] = False
            self._voter_of[connection] = voter_id
        else:
            self.begin_work(connection)
        self._standings[connection] = standing
        if standing is Standing.REPLICA:
            for group in self._groups(connection):
                if group.count > group.limit:
                    self._close_idle(group, (Standing.CLIENT, Standing.SILENT))

    def is_silent(self, connection: RankedConnection) -> bool:
        """Return whether the connection has not sent a valid request yet."""
        return self._standings.get(connection) is Standing.SILENT

    def trim(self, now: float) -> None:
        """Close idle connections above a limit; ``now`` is the loop's clock in seconds."""
        for group in (*self._by_address.values(), *self._by_listener.values(), self._all):
            while group.count > group.limit:
                if not self._close_idle(
                    group, (Standing.SILENT, Standing.CLIENT), now - _IDLE_ABOVE_LIMIT_S
                ) and not self._close_idle(
                    group, (Standing.REPLICA,), now - _IDLE_REPLICA_ABOVE_LIMIT_S
                ):
                    break

    def _groups(self, connection: RankedConnection) -> tuple[_Group, _Group, _Group]:
        return (
            self._by_address[connection.address],
            self._by_listener[connection.listener_name],
            self._all,
        )

    def _close_idle(
        self,
        group: _Group,
        standings: tuple[Standing, ...],
        idle_since: float = float("inf"),
    ) -> bool:
        """Close the longest idle connection of the first of these standings that has one."""
        for standing in standings:
            for connection in group.idle[standing]:
                if connection.last_active > idle_since:
                    break
                self.leave(connection)
                connection.close_for_others()
                return True
        return False

    def _remove(self, connection: RankedConnection) -> None:
        """Remove a connection from its groups, or from those of its voter."""
        standing = self._standings[connection]
        if standing is Standing.VOTER:
            voter_id = self._voter_of.pop(connection)
            own = self._voters[voter_id]
            del own[connection]
            if not own:
                del self._voters[voter_id]
            return
        for group in self._groups(connection):
            group.count -= 1
            group.idle[standing].pop(connection, None)

    def _may_add_voter(self, voter_id: int) -> bool:
        """Close an idle connection of a voter at its limit; return whether one may be added."""
        own = self._voters.get(voter_id, {})
        if len(own) >= CONNECTIONS_OF_A_VOTER:
            idle = next((connection for connection in own if own[connection]), None)
            if idle is None:
                return False
            self.leave(idle)
            idle.close_for_others()
        return len(self._voter_of) < VOTER_CONNECTIONS

    def _drop_empty(self, address: str) -> None:
        """Remove the group of an address without connections (those of voters do not count)."""
        group = self._by_address.get(address)
        if group is not None and group.count == 0:
            del self._by_address[address]
