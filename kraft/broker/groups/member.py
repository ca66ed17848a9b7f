"""One member of a classic group."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence

from kraft.protocol.describe_groups import DescribedGroupMember
from kraft.protocol.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember

#: The caller's name for a request whose response comes later; kraft does not look into it.
Call = Hashable


class GroupMember:
    """A member: its timeouts, the protocols that it supports, and the requests it waits for.

    ``awaiting_join`` and ``awaiting_sync`` are the calls whose responses wait for the group, or
    None. ``is_new``: the member has not had a response to its first JoinGroup, so that it cannot
    send heartbeats. Source: ``ClassicGroupMember``.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Sequence[JoinGroupRequestProtocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Call | None = None
        self.awaiting_sync: Call | None = None
        self.is_new = False

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the member lives without a heartbeat: its request waits for the group."""
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the subscription for a protocol; raise KeyError if the member lacks it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise KeyError(f"member {self.member_id!r} does not support protocol {protocol_name!r}")

    def vote(self, candidates: Container[str]) -> str:
        """Return the first of the member's protocols that is a candidate."""
        return next(one.name for one in self.protocols if one.name in candidates)

    def joined(self, protocol_name: str | None) -> JoinGroupResponseMember:
        """Return the member as the leader of the group sees it."""
        return JoinGroupResponseMember(
            self.member_id, self.group_instance_id, self.metadata(protocol_name)
        )

    def described(self, protocol_name: str | None) -> DescribedGroupMember:
        """Return the member for DescribeGroups; without its subscription for no protocol."""
        metadata = b"" if protocol_name is None else self.metadata(protocol_name)
        return DescribedGroupMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            metadata,
            self.assignment,
        )


def distinct(protocols: Sequence[JoinGroupRequestProtocol]) -> Sequence[JoinGroupRequestProtocol]:
    """Return the protocols with the first of each name, as Kafka's collection keeps them."""
    if len({one.name for one in protocols}) == len(protocols):
        return protocols
    by_name: dict[str, JoinGroupRequestProtocol] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, protocol)
    return list(by_name.values())
