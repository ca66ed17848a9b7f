"""A fault in the code of the quorum, planted for the length of a test, wherever it runs."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def voters_that_were_truncated_stay() -> Iterator[None]:
    """`voters_are_those_of_the_log` speaks: after a truncation a node acts by voters that are gone.

    It needs a change of voters, and something that has it truncated: a history of a few faults.
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
    """Many invariants speak, and soon: no fault is needed for it."""
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
    """Nothing goes wrong but that something does not happen: a liveness invariant speaks."""
    from kraft.raft.state import NodeState

    give_up = NodeState.give_up_late_requests
    NodeState.give_up_late_requests = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        NodeState.give_up_late_requests = give_up  # type: ignore[method-assign]
