"""Which connections a listener keeps when there are too many.

A stranger may open connections and leave them idle. Such connections must not keep voters and
brokers out, so that a listener ranks its connections by what they asked (`Standing`) and closes the
least useful idle ones first.

- Above a limit a newcomer still gets one of a few places (``newcomers``), to say what it is. The
  places go round: the newcomer that has said nothing for longest leaves.
- A replica above the limit takes the place of an idle connection of a lower standing.
- What is idle above the limit is closed after a while.
- Voters' connections do not count against the limits; of each voter and in all they are few.
- A connection with a request at work is never closed to make room.

Two limits hold in the same way: one for all connections, one for the connections of an address.

`Listener` calls it on its event loop. Voters are known by what they claim: the listeners speak
PLAINTEXT, so that nobody can prove who it is.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from kraft.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from kraft.raft.voters import ReplicaKey, VoterSet

#: Places above a limit for connections that have not said yet what they are.
NEWCOMERS = 64
#: Connections of voters, in all and of one voter, which needs one, and another to reconnect.
VOTER_CONNECTIONS = 64
CONNECTIONS_OF_A_VOTER = 4
#: How long a connection may be idle above a limit; a broker sends heartbeats every 2 s.
_IDLE_ABOVE_LIMIT_S = 2.0
_IDLE_REPLICA_ABOVE_LIMIT_S = 10.0


class Standing(IntEnum):
    """What a connection has shown itself to be; the lowest is closed first."""

    SILENT = 0  #: No valid request so far.
    CLIENT = 1
    REPLICA = 2  #: It fetches the log, or takes part in elections.
    VOTER = 3


class Connection(Protocol):
    """What `Admission` knows of a connection; ``last_active`` in seconds of the loop's clock."""

    address: str
    last_active: float

    def close_for_others(self) -> None: ...


def replica_of(request: Request) -> ReplicaKey | None:
    """Return the replica that sends this request, as it says itself; None for clients."""
    if isinstance(request, (FetchRequest, FetchSnapshotRequest)):
        return request.replica if request.replica.id >= 0 else None
    if isinstance(request, VoteRequest):
        return request.candidate
    if isinstance(request, (BeginQuorumEpochRequest, EndQuorumEpochRequest)):
        return ReplicaKey(request.leader_id)
    return request.voter if isinstance(request, UpdateRaftVoterRequest) else None


def standing_of(request: Request, cluster_id: str, voters: VoterSet) -> tuple[Standing, int]:
    """Return the standing that a request gives its connection, and the sender's id (-1: none)."""
    key = replica_of(request)
    if key is None:
        return Standing.CLIENT, -1
    if getattr(request, "cluster_id", None) not in (None, cluster_id):
        return Standing.CLIENT, key.id
    # A leader names its id without a directory.
    is_voter = voters.is_voter(key) if key.directory_id is not None else key.id in voters.ids
    return (Standing.VOTER if is_voter else Standing.REPLICA), key.id


class _Group:
    """Connections under one limit: how many, and the idle ones by standing, longest idle first."""

    __slots__ = ("count", "idle", "limit", "newcomers")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.newcomers = max(2, min(NEWCOMERS, limit // 4))
        self.count = 0
        self.idle: tuple[dict[Connection, None], ...] = ({}, {}, {})


class Admission:
    """The connections of a listener; ``max_connections`` in all, ``max_per_address`` of one.

    Above each limit there are `NEWCOMERS` places, and `VOTER_CONNECTIONS` above both.
    """

    def __init__(self, max_connections: int, max_per_address: int) -> None:
        self._max_per_address = max_per_address
        self._all = _Group(max_connections)
        self._by_address: dict[str, _Group] = {}
        self._standings: dict[Connection, Standing] = {}
        #: The connections of each voter, and whether they are idle; longest idle first.
        self._voters: dict[int, dict[Connection, bool]] = {}
        self._voter_of: dict[Connection, int] = {}

    def __len__(self) -> int:
        return len(self._standings)

    def admit(self, connection: Connection) -> bool:
        """Take in a new connection, or return False; close another where there are too many."""
        own = self._by_address.get(connection.address)
        if own is None:
            own = self._by_address[connection.address] = _Group(self._max_per_address)
        for group in (own, self._all):
            if group.count < group.limit:
                continue
            if len(group.idle[Standing.SILENT]) >= group.newcomers:
                standings: tuple[Standing, ...] = (Standing.SILENT,)
            elif group.count >= group.limit + group.newcomers:
                # Newcomers leave each other the time to say what they are, as long as they can.
                standings = Standing.CLIENT, Standing.SILENT
            else:
                continue
            if not self._close_idle(group, standings):
                self._drop_empty(connection.address)
                return False
        # Closing the last one of an address forgets the address.
        self._by_address.setdefault(connection.address, own)
        self._standings[connection] = Standing.SILENT
        for group in self._groups(connection):
            group.count += 1
            group.idle[Standing.SILENT][connection] = None
        return True

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed; nothing happens for unknown ones."""
        if connection in self._standings:
            self._take_out(connection)
            del self._standings[connection]
            self._drop_empty(connection.address)

    def begin_work(self, connection: Connection) -> None:
        """The connection has a request at work: it is not idle."""
        standing = self._standings.get(connection)
        if standing is Standing.VOTER:
            self._voters[self._voter_of[connection]][connection] = False
        elif standing is not None:
            for group in self._groups(connection):
                group.idle[standing].pop(connection, None)

    def end_work(self, connection: Connection) -> None:
        """The request is answered: the connection is the one that was active last."""
        standing = self._standings.get(connection)
        if standing is Standing.VOTER:
            own = self._voters[self._voter_of[connection]]
            del own[connection]
            own[connection] = True
        elif standing is not None:
            for group in self._groups(connection):
                group.idle[standing][connection] = None

    def promote(self, connection: Connection, standing: Standing, voter_id: int = -1) -> None:
        """Note what a connection with a request at work is; a lower standing changes nothing."""
        now = self._standings.get(connection)
        if now is None or standing <= now:
            return
        if standing is Standing.VOTER and not self._make_room_for_voter(voter_id):
            standing = Standing.REPLICA
        if standing is Standing.VOTER:
            self._take_out(connection)
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

    def is_silent(self, connection: Connection) -> bool:
        """Whether the connection has not sent a valid request yet."""
        return self._standings.get(connection) is Standing.SILENT

    def trim(self, now: float) -> None:
        """Close what is idle above a limit; ``now`` is the loop's clock in seconds."""
        for group in (*self._by_address.values(), self._all):
            while group.count > group.limit:
                if not self._close_idle(
                    group, (Standing.SILENT, Standing.CLIENT), now - _IDLE_ABOVE_LIMIT_S
                ) and not self._close_idle(
                    group, (Standing.REPLICA,), now - _IDLE_REPLICA_ABOVE_LIMIT_S
                ):
                    break

    def _groups(self, connection: Connection) -> tuple[_Group, _Group]:
        return self._by_address[connection.address], self._all

    def _close_idle(
        self,
        group: _Group,
        standings: tuple[Standing, ...],
        idle_since: float = float("inf"),
    ) -> bool:
        """Close the connection of the first of these standings that is idle longest."""
        for standing in standings:
            for connection in group.idle[standing]:
                if connection.last_active > idle_since:
                    break
                self.leave(connection)
                connection.close_for_others()
                return True
        return False

    def _take_out(self, connection: Connection) -> None:
        """Remove a connection from its groups, or from its voter's."""
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

    def _make_room_for_voter(self, voter_id: int) -> bool:
        """Close an idle connection of a voter that has too many; return whether there is room."""
        own = self._voters.get(voter_id, {})
        if len(own) >= CONNECTIONS_OF_A_VOTER:
            idle = next((connection for connection in own if own[connection]), None)
            if idle is None:
                return False
            self.leave(idle)
            idle.close_for_others()
        return len(self._voter_of) < VOTER_CONNECTIONS

    def _drop_empty(self, address: str) -> None:
        """Forget an address without connections (voters' connections need none)."""
        group = self._by_address.get(address)
        if group is not None and group.count == 0:
            del self._by_address[address]
