"""The indexed authorizer and its twin, which reads all ACLs, on generated ACLs and changes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.image.security import AccessControl, AclOperation, ResourceType
from kraft.records import Uuid
from kraft.security.authorizer import Action, Authorizer, AuthorizerSettings, RequestContext
from kraft.security.principals import parse_principal
from tests.reference.authorizer import is_allowed

NAMES = ("a", "ab", "abc", "abcd", "b", "ba", "*", "*a", "!a", "!b", "(")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")
OPERATIONS = [AclOperation(number) for number in range(3, 16)]

ACLS = st.builds(
    AccessControl,
    resource_type=st.sampled_from((2, 3)),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from((3, 4)),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from([AclOperation.ALL, *OPERATIONS]),
    permission_type=st.sampled_from((2, 3)),
)
# Changes of the ACL of an id; None removes it.
CHANGES = st.lists(st.tuples(st.integers(0, 12), st.none() | ACLS | ACLS), max_size=40)


@given(changes=CHANGES, is_open=st.booleans(), seed=st.integers(0, 1 << 32))
@settings(max_examples=300, deadline=None)
def test_the_index_decides_as_the_list(
    changes: list[tuple[int, AccessControl | None]], is_open: bool, seed: int
) -> None:
    authorizer = Authorizer(AuthorizerSettings(is_allowed_without_acls=is_open))
    authorizer.is_ready = True
    acls: dict[int, AccessControl] = {}
    dice = random.Random(seed)
    for number, acl in changes:
        authorizer.set_acl(Uuid(bytes([number] * 16)), acl)
        acls.pop(number, None)
        if acl is not None:
            acls[number] = acl
        assert authorizer.acl_count == len(acls)
        for _ in range(5):
            principal, host = dice.choice(PRINCIPALS), dice.choice(HOSTS[:2])
            operation, resource_type = dice.choice(OPERATIONS), dice.choice((2, 3))
            name = dice.choice(NAMES) + dice.choice(("", "", "a", "z"))
            context = RequestContext(parse_principal(principal), host, "Metadata")
            action = Action(operation, ResourceType(resource_type), name)
            expected = is_allowed(
                acls.values(), principal, host, operation, resource_type, name,
                is_allowed_without_acls=is_open,
            )  # fmt: skip
            assert authorizer.authorize(context, action) == expected


@pytest.mark.parametrize("count", [1, 2, 3])
def test_equal_acls_of_several_ids_last_as_long_as_one_of_them(count: int) -> None:
    authorizer = Authorizer()
    authorizer.is_ready = True
    acl = AccessControl(2, "a", 4, "User:alice", "*", AclOperation.READ, 3)
    context = RequestContext(parse_principal("User:alice"), "10.0.0.1", "Fetch")
    action = Action(AclOperation.DESCRIBE, ResourceType.TOPIC, "abc")
    ids = [Uuid(bytes([number] * 16)) for number in range(count)]
    for id in ids:
        authorizer.set_acl(id, acl)
    for id in ids:
        assert authorizer.authorize(context, action)
        authorizer.set_acl(id, None)
    assert not authorizer.authorize(context, action)
