"""The authorizer: DESCRIBE of 500 topics for one user among 7,000 ACLs, as in a Metadata request.

With this many ACLs and topics ``StandardAuthorizer`` used a whole CPU, because it scans the ACLs of
all users on a name (KAFKA-20667). One thread, warm; both sides write no audit lines at DEBUG.

``authorize_wildcard``  the ACLs of 7,000 users on ``*``
``authorize_prefix``    the ACLs of 7,000 users on one prefix of all topics
``authorize_literal``   14 users with an ACL on each of the 500 names: the peer scans 14 per check
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.bench_peers import run
from benchmarks.conftest import Sizes
from benchmarks.java_peers import Peers
from kraft.image.security import (
    AccessControl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kraft.records import Uuid
from kraft.security.authorizer import Action, Authorizer, RequestContext
from kraft.security.principals import parse_principal

ACLS = 7_000
TOPICS = 500


def acl(layout: str, number: int) -> AccessControl:
    name = {"wildcard": "*", "prefix": "topic-"}.get(layout, f"topic-{number % TOPICS}")
    pattern = PatternType.PREFIXED if layout == "prefix" else PatternType.LITERAL
    user = number // TOPICS if layout == "literal" else number
    return AccessControl(
        ResourceType.TOPIC, name, pattern, f"User:user-{user}", "*", AclOperation.READ,
        PermissionType.ALLOW,
    )  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("layout", ["wildcard", "prefix", "literal"])
def bench_authorize(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, peers: Peers, layout: str
) -> None:
    authorizer = Authorizer()
    authorizer.load({Uuid(n.to_bytes(16, "big")): acl(layout, n) for n in range(ACLS)})
    authorizer.is_ready = True
    context = RequestContext(parse_principal("User:user-3"), "10.0.0.1", "Metadata")
    actions = [
        Action(AclOperation.DESCRIBE, ResourceType.TOPIC, f"topic-{number}")
        for number in range(TOPICS)
    ]

    def work() -> int:
        return sum(authorizer.authorize(context, action) for action in actions)

    allowed = benchmark.pedantic(work, rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    name = f"authorize_{layout}"
    measured(name, unit="checks", count=TOPICS, total=ACLS)
    line = run(peers, "authorize", sizes, acls=ACLS, topics=TOPICS)[name]
    assert allowed == line["allowed"] == TOPICS
