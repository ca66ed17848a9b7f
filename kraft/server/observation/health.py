"""Whether a node is healthy and ready, with the reasons where it is not.

*Healthy*: the event loop answers, and the disk completes writes. A supervisor may restart a node
that is not healthy. *Ready*: the node follows the log of the quorum without a gap, has applied the
committed records, is a voter or observer as configured, and is registered if it should be; its
broker serves clients. Called by `routes`.
"""

from __future__ import annotations

from typing import Any

from kraft.raft.follower import FollowerState
from kraft.raft.interface import Role
from kraft.server.driver import now_ms
from kraft.server.observation.observed_node import ObservedNode

#: The disk makes no progress if the oldest write takes longer.
WRITE_TIMEOUT_MS = 10_000.0


def health(node: ObservedNode) -> tuple[list[str], dict[str, Any]]:
    """Return why the node is not healthy (empty: it is), and details."""
    waiting_ms = node.writer.oldest_write_ms()
    reasons = []
    if waiting_ms > WRITE_TIMEOUT_MS:
        reasons.append(f"the disk has not completed a write for {waiting_ms:.0f} ms")
    return reasons, {"oldest_write_ms": round(waiting_ms, 3)}


def readiness(node: ObservedNode) -> tuple[list[str], dict[str, Any]]:
    """Return why the node is not ready (empty: it is), and details."""
    raft, controller = node.raft, node.controller
    high_watermark = raft.log.high_watermark
    reasons, _ = health(node)
    if raft.is_shutting_down:
        reasons.append("the node shuts down")
    reasons += _quorum_reasons(node)
    if high_watermark >= 0 and controller.committed_offset < high_watermark:
        reasons.append(
            f"the controller has applied records up to offset {controller.committed_offset} of "
            f"{high_watermark}"
        )
    reasons += _membership_reasons(node)
    unregistered = node.why_unregistered()
    if unregistered is not None:
        reasons.append(unregistered)
    details: dict[str, Any] = {}
    for part in node.parts:
        reasons += part.unready_reasons()
        details |= part.details()
    return reasons, {
        **details,
        "node_id": node.config.node_id,
        "role": node.role.name.lower(),
        "is_voter": raft.is_voter,
        "leader_id": -1 if node.role is Role.RESIGNED else raft.leader_id,
        "epoch": raft.epoch,
        "log_end_offset": raft.log.end_offset,
        "high_watermark": high_watermark,
        "committed_offset": controller.committed_offset,
    }


def _quorum_reasons(node: ObservedNode) -> list[str]:
    """Return why the node does not follow, or lead, the log of the quorum."""
    role_state, raft = node.raft.role_state, node.raft
    if node.leadership is not None:
        if not role_state.is_active:
            return [f"this node leads epoch {raft.epoch}, and no record of it is committed yet"]
        if not node.controller.is_active:
            return ["this node leads, and its controller is not active yet"]
        return []
    if not isinstance(role_state, FollowerState):
        return [f"no leader of epoch {raft.epoch} is known (role {raft.role.name.lower()})"]
    leader = f"leader {raft.leader_id}"
    if not role_state.has_fetched:
        return [f"{leader} has not answered yet"]
    silent_ms = now_ms() - role_state.fetch_deadline_ms
    if silent_ms > 0:
        return [f"{leader} has not answered within the fetch timeout"]
    if raft.download is not None:
        return [f"a snapshot of {leader} is being fetched"]
    behind = role_state.leader_high_watermark
    if raft.log.high_watermark < 0:
        return [f"{leader} has committed no record yet"]
    if raft.log.high_watermark < behind:
        return [f"the log ends at offset {raft.log.end_offset}, {leader} has committed {behind}"]
    return []


def _membership_reasons(node: ObservedNode) -> list[str]:
    """Return why the node's part in the quorum is not the configured one."""
    raft, id = node.raft, node.config.node_id
    if raft.is_voter:
        return []
    if raft.log.kraft_version == 0:
        return [f"this node is not one of the static voters ({_ids(node)})"]
    if raft.config.auto_join:
        return [f"this node has not joined the voters yet ({_ids(node)}): auto join is enabled"]
    if id in raft.voters.ids:
        return [f"voter {id} has another directory: remove the old voter and add this one"]
    return []


def _ids(node: ObservedNode) -> str:
    return ", ".join(map(str, sorted(node.raft.voters.ids)))
