"""What a decision gives: records to append, and what happens when they are committed or lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kraft.broker.groups.member import Call
from kraft.broker.groups.records import GroupRecord
from kraft.broker.groups.requests import GroupResponse


class GroupReply(NamedTuple):
    """The response to the request that the caller named ``call``."""

    call: Call
    response: GroupResponse


class Completion(Protocol):
    """The second half of a decision that waits for its records."""

    def committed(self, now_ms: int) -> None:
        """Finish the decision: its records are committed."""

    def failed(self, code: int, now_ms: int) -> None:
        """Take the decision back: its records were not appended, or not committed in time."""


@dataclass(slots=True)
class Write:
    """A decision: its records, and its response, which is given when the records are committed.

    Without records the response waits for the records before it, which it may be based on.
    ``applies``: the records change the state when they are appended; those of a group's members do
    not, since the members have changed already. ``is_atomic``: the records must be in one batch.
    """

    records: list[GroupRecord]
    response: GroupResponse | None = None
    completion: Completion | None = None
    applies: bool = True
    is_atomic: bool = True
