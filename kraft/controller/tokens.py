"""Delegation tokens."""

from __future__ import annotations

from itertools import islice

from kraft import records
from kraft.controller.decision import Decision, Records
from kraft.controller.state import Cluster

MAX_RECORDS_PER_EXPIRATION = 1000


def expire_tokens(cluster: Cluster, now_ms: int) -> Decision[bool]:
    """Removes tokens whose time is over; the response says whether there may be more of them."""
    state = cluster.state
    expired = (
        records.RemoveDelegationToken(token_id=token_id)
        for token_id, token in state.delegation_tokens.items()
        if token.max_timestamp_ms < now_ms or token.expiration_timestamp_ms < now_ms
    )
    found = list(islice(expired, MAX_RECORDS_PER_EXPIRATION))
    is_more = len(found) == MAX_RECORDS_PER_EXPIRATION
    return Decision(Records.of(found, state.metadata_version), is_more)
