"""Faults planted into the code of the quorum for the duration of a test."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def voters_that_were_truncated_stay() -> Iterator[None]:
    """Violate `voters_are_those_of_the_log`: a node keeps voters whose record was truncated.

    The violation appears only in a run with a few faults, where a change of voters is truncated.
    """
    from kraft.raft.log_view import LogView

    truncate = LogView.truncate

    def forgetful(self: LogView, end_offset: int) -> None:
        voters = list(self._voters)
        truncate(self, end_offset)
        self._voters = voters

    LogView.truncate = forgetful  # type: ignore[method-assign]
    try:
        yield
    finally:
        LogView.truncate = truncate  # type: ignore[method-assign]


@contextmanager
def the_high_watermark_is_one_too_high() -> Iterator[None]:
    """Violate many invariants soon, even in a run without faults."""
    from kraft.raft.state import NodeState

    commit = NodeState.commit

    def beyond(self: NodeState, high_watermark: int) -> None:
        commit(self, min(high_watermark + 1, self.log.end_offset))

    NodeState.commit = beyond  # type: ignore[method-assign]
    try:
        yield
    finally:
        NodeState.commit = commit  # type: ignore[method-assign]


@contextmanager
def a_lost_request_is_waited_for() -> Iterator[None]:
    """Violate only a liveness invariant: a node waits forever for a lost request's response."""
    from kraft.raft.connections import Connections

    give_up = Connections.give_up_late
    Connections.give_up_late = lambda self, now_ms: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Connections.give_up_late = give_up  # type: ignore[method-assign]
