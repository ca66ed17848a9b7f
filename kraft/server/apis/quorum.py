"""Requests to the raft node that brokers forward: DescribeQuorum, AddRaftVoter, RemoveRaftVoter.

The listener passes such requests to the raft node directly if they are not in an envelope. A broker
looks for a new leader only if the error of its envelope is NOT_CONTROLLER. A follower therefore
reports NOT_LEADER_OR_FOLLOWER as NOT_CONTROLLER here. A follower of Kafka does not, and the broker
continues to send its requests to that follower.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from kraft.errors import NOT_CONTROLLER, NOT_LEADER_OR_FOLLOWER, KraftError
from kraft.protocol.add_raft_voter import ADD_RAFT_VOTER
from kraft.protocol.common import Rejected
from kraft.protocol.describe_quorum import DESCRIBE_QUORUM
from kraft.protocol.headers import Api, Body
from kraft.protocol.raft_rpcs import decode_request, encode_response
from kraft.protocol.remove_raft_voter import REMOVE_RAFT_VOTER
from kraft.raft.rpc import (
    AddRaftVoterResponse,
    DescribeQuorumResponse,
    LogSlice,
    RemoveRaftVoterResponse,
    Request,
    Response,
    SnapshotSlice,
)
from kraft.server.apis.api import CallContext, Reply

_FAILED: dict[int, Callable[[int], Response]] = {
    DESCRIBE_QUORUM.key: DescribeQuorumResponse,
    ADD_RAFT_VOTER.key: AddRaftVoterResponse,
    REMOVE_RAFT_VOTER.key: RemoveRaftVoterResponse,
}
FORWARDED_RAFT_APIS = (DESCRIBE_QUORUM, ADD_RAFT_VOTER, REMOVE_RAFT_VOTER)


class RaftApi(NamedTuple):
    """One API of the raft node; ``listener`` is the controller listener's name."""

    api: Api
    ask: Callable[[Request], Awaitable[Response]]
    listener: str

    async def reply(self, context: CallContext, body: Body) -> Reply:
        """Answer the request. Raises CorruptRecordError for a malformed body."""
        request = decode_request(self.api, context.version, body)
        if isinstance(request, Rejected):
            return Reply(request.body)
        try:
            context.check_cluster_operation()
            response = await self.ask(request)
        except KraftError as error:
            response = _FAILED[self.api.key](error.kafka_code)
        body = b"".join(encode_response(response, context.version, self.listener, _no_slice))
        return Reply(body, response.error in (NOT_CONTROLLER, NOT_LEADER_OR_FOLLOWER))


def _no_slice(slice: LogSlice | SnapshotSlice) -> memoryview:
    raise AssertionError("these responses hold no part of the log")
