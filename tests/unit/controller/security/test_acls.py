"""Create, find and delete ACLs: which ACLs are valid, and which of them a filter matches."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

import pytest

from kraft import records
from kraft.controller.security.acls import (
    AclFilter,
    create_acls,
    delete_acls,
    describe_acls,
)
from kraft.errors import (
    InvalidRequestError,
    KraftError,
    PolicyViolationError,
    SecurityDisabledError,
)
from kraft.image.security import (
    AccessControl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kraft.records import Uuid
from tests.harness.decisions import Lab, whole


def acl(
    name: str = "orders",
    pattern: int = PatternType.LITERAL,
    principal: str = "User:alice",
    *,
    type: int = ResourceType.TOPIC,
    host: str = "*",
    operation: int = AclOperation.READ,
    permission: int = PermissionType.ALLOW,
) -> AccessControl:
    return AccessControl(type, name, pattern, principal, host, operation, permission)


def numbered() -> Callable[[], Uuid]:
    numbers = count(1)
    return lambda: Uuid(next(numbers).to_bytes(16, "big"))


class AclLab(Lab):
    def __init__(self, *acls: AccessControl) -> None:
        super().__init__(brokers=0)
        self.draw = numbered()
        assert self.create_all(*acls) == [None] * len(acls)

    def create_all(self, *acls: AccessControl) -> list[KraftError | None]:
        return self.do(create_acls(self.cluster, acls, random_uuid=self.draw))

    def present(self) -> list[AccessControl]:
        return sorted(self.cluster.state.acls.values())


def test_creating_an_existing_acl_succeeds_without_a_record() -> None:
    lab = AclLab()
    decision = whole(create_acls(lab.cluster, [acl()], random_uuid=lab.draw))
    assert list(decision.records) == [records.AccessControlEntry(Uuid(bytes(15) + b"\1"), *acl())]
    assert decision.is_atomic
    lab.do(decision)
    assert lab.present() == [acl()]
    again = whole(create_acls(lab.cluster, [acl()], random_uuid=lab.draw))
    assert (len(again.records), again.response) == (0, [None])


def test_the_same_acl_twice_in_one_request_is_created_once() -> None:
    lab = AclLab()
    assert lab.create_all(acl(), acl(), acl(host="h")) == [None] * 3
    assert lab.present() == [acl(), acl(host="h")]


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (acl(type=ResourceType.ANY), "resource type ANY"),
        (acl(type=ResourceType.UNKNOWN), "resource type UNKNOWN"),
        (acl(type=8), "resource type 8"),
        (acl(pattern=PatternType.MATCH), "pattern type MATCH"),
        (acl(operation=AclOperation.ANY), "operation ANY"),
        (acl(operation=16), "operation 16"),
        (acl(permission=PermissionType.ANY), "permission type ANY"),
        (acl(permission=-1), "permission type -1"),
        (acl(name=""), "name of the resource is empty"),
        (acl(principal="alice"), "no colon"),
        (acl(type=ResourceType.CLUSTER), "kafka-cluster"),
    ],
)
def test_an_invalid_acl_is_rejected_and_the_others_are_created(
    refused: AccessControl, said: str
) -> None:
    lab = AclLab()
    first, second = lab.create_all(refused, acl())
    assert isinstance(first, InvalidRequestError)
    assert said in str(first)
    assert second is None
    assert lab.present() == [acl()]


def test_a_used_acl_id_is_replaced_by_a_new_one() -> None:
    lab = AclLab(acl("a"))
    drawn = iter([1, 2, 2, 3])
    lab.draw = lambda: Uuid(next(drawn).to_bytes(16, "big"))
    lab.create_all(acl("b"), acl("c"))
    assert [id[-1] for id in lab.cluster.state.acls] == [1, 2, 3]


def test_without_an_authorizer_acl_requests_are_rejected() -> None:
    cluster = AclLab().cluster
    with pytest.raises(SecurityDisabledError, match="authorizer"):
        whole(create_acls(cluster, [], random_uuid=numbered(), has_authorizer=False))
    with pytest.raises(SecurityDisabledError, match="authorizer"):
        whole(delete_acls(cluster, [], has_authorizer=False))
    with pytest.raises(SecurityDisabledError, match="authorizer"):
        describe_acls(cluster, AclFilter(), has_authorizer=False)


ORDERS = acl("orders")
ORD = acl("ord", PatternType.PREFIXED)
ORDERS_PREFIX = acl("orders", PatternType.PREFIXED)
ALL_TOPICS = acl("*")
STAR_PREFIX = acl("*", PatternType.PREFIXED)
GROUP = acl("orders", type=ResourceType.GROUP)
BOB = acl("orders", principal="User:bob", operation=AclOperation.WRITE)
DENIED = acl("secret", permission=PermissionType.DENY, host="10.0.0.1")
EVERY = [ORDERS, ORD, ORDERS_PREFIX, ALL_TOPICS, STAR_PREFIX, GROUP, BOB, DENIED]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), EVERY),
        (AclFilter(ResourceType.GROUP), [GROUP]),
        (AclFilter(resource_name="orders"), [ORDERS, ORDERS_PREFIX, GROUP, BOB]),
        (AclFilter(2, "orders", PatternType.LITERAL), [ORDERS, BOB]),
        (AclFilter(2, "orders", PatternType.PREFIXED), [ORDERS_PREFIX]),
        (AclFilter(2, "orders", PatternType.MATCH), [ORDERS, ORD, ORDERS_PREFIX, ALL_TOPICS, BOB]),
        (AclFilter(2, "order", PatternType.MATCH), [ORD, ALL_TOPICS]),
        (AclFilter(2, "*", PatternType.LITERAL), [ALL_TOPICS]),
        (AclFilter(2, "*x", PatternType.MATCH), [ALL_TOPICS, STAR_PREFIX]),
        (AclFilter(2, "", PatternType.MATCH), [ALL_TOPICS]),
        (AclFilter(2, "ordinary" + "x" * 5000, PatternType.MATCH), [ORD, ALL_TOPICS]),
        (AclFilter(pattern_type=PatternType.MATCH), EVERY),
        (AclFilter(pattern_type=PatternType.PREFIXED), [ORD, ORDERS_PREFIX, STAR_PREFIX]),
        (AclFilter(principal="User:bob"), [BOB]),
        (AclFilter(resource_name="orders", principal="User:bob"), [BOB]),
        (AclFilter(resource_name="orders", principal="User:nobody"), []),
        (AclFilter(host="10.0.0.1"), [DENIED]),
        (AclFilter(operation=AclOperation.WRITE), [BOB]),
        (AclFilter(permission_type=PermissionType.DENY), [DENIED]),
        (AclFilter(operation=AclOperation.ALL), []),
    ],
)
def test_a_filter_finds_and_deletes_what_it_matches(
    wanted: AclFilter, found: list[AccessControl]
) -> None:
    lab = AclLab(*EVERY)
    assert describe_acls(lab.cluster, wanted) == sorted(found)
    assert lab.do(delete_acls(lab.cluster, [wanted])) == [sorted(found)]
    assert lab.present() == sorted(set(EVERY) - set(found))


def test_an_acl_of_two_filters_is_deleted_once_and_in_both_responses() -> None:
    lab = AclLab(ORDERS, BOB)
    decision = whole(delete_acls(lab.cluster, [AclFilter(principal="User:bob"), AclFilter()]))
    assert decision.response == [[BOB], [ORDERS, BOB]]
    assert len(decision.records) == 2
    assert decision.is_atomic


@pytest.mark.parametrize("number", [0, 99])
def test_a_filter_with_unknown_values_deletes_nothing(number: int) -> None:
    lab = AclLab(ORDERS)
    for place, wanted in (
        ("resource type", AclFilter(resource_type=number)),
        ("pattern type", AclFilter(pattern_type=number)),
        ("operation", AclFilter(operation=number)),
        ("permission type", AclFilter(permission_type=number)),
    ):
        refused, found = whole(delete_acls(lab.cluster, [wanted, AclFilter()])).response
        assert isinstance(refused, InvalidRequestError)
        assert f"unknown {place} {number}" in str(refused)
        assert found == [ORDERS]
        with pytest.raises(InvalidRequestError, match="unknown"):
            describe_acls(lab.cluster, wanted)


def test_more_than_ten_thousand_acls_are_rejected_as_a_whole() -> None:
    lab = AclLab(*(acl(f"topic-{i}") for i in range(10_000)))
    deletion = whole(delete_acls(lab.cluster, [AclFilter(), AclFilter()]))
    assert len(deletion.records) == 10_000
    lab.create_all(acl("one-more"))
    with pytest.raises(InvalidRequestError, match="at most 10000"):
        whole(delete_acls(lab.cluster, [AclFilter()], at_once=10_001))
    many = [acl(f"other-{i}") for i in range(10_001)]
    with pytest.raises(PolicyViolationError, match="at most 10000"):
        whole(create_acls(lab.cluster, many, random_uuid=lab.draw, at_once=10_001))


def test_chunks_have_no_limit_and_errors_come_before_the_first_record() -> None:
    lab = AclLab()
    asked = [acl(f"topic-{i}") for i in range(12_000)]
    response, counts = lab.do_chunks(
        create_acls(lab.cluster, [acl(name=""), *asked, acl("topic-0")], random_uuid=lab.draw)
    )
    assert counts == [0] * 25 + [500] * 24 + [0]
    assert isinstance(response[0], InvalidRequestError)
    assert response[1:] == [None] * 12_001
    assert lab.present() == sorted(asked)
    filters = [AclFilter(operation=99), AclFilter(), AclFilter(resource_name="topic-7")]
    deleted, counts = lab.do_chunks(delete_acls(lab.cluster, filters))
    assert counts == [0] * 25 + [500] * 24 + [0]
    assert isinstance(deleted[0], InvalidRequestError)
    assert deleted[1:] == [sorted(asked), [acl("topic-7")]]
    assert lab.present() == []


def test_both_copies_of_an_acl_in_an_old_log_are_deleted() -> None:
    lab = AclLab(ORDERS)
    lab.write(records.AccessControlEntry(Uuid(b"twice" + bytes(11)), *ORDERS))
    assert lab.do(delete_acls(lab.cluster, [AclFilter()])) == [[ORDERS, ORDERS]]
    assert lab.present() == []
    lab.create_all(ORDERS)
    assert lab.present() == [ORDERS]


def test_the_name_index_is_exact_after_changes_and_reverts() -> None:
    dice = random.Random(4)
    lab = AclLab()
    names = ["a", "ab", "abc", "*", "b"]
    principals = ["User:a", "User:b"]
    starts = [(lab.cluster.next_offset, lab.present())]
    for _ in range(300):
        if dice.random() < 0.2 and len(starts) > 1:
            del starts[dice.randrange(1, len(starts)) + 1 :]
            lab.cluster.revert(starts[-1][0])
            assert lab.present() == starts[-1][1]
        name = dice.choice([None, *names])
        wanted = AclFilter(2, name, dice.randint(1, 4), dice.choice([None, *principals]))
        if dice.random() < 0.3:
            lab.do(delete_acls(lab.cluster, [wanted]))
        else:
            pattern = dice.randint(3, 4)
            lab.create_all(acl(dice.choice(names), pattern, dice.choice(principals)))
        starts.append((lab.cluster.next_offset, lab.present()))
        by_looking_at_all = [acl for acl in lab.present() if wanted.matches(acl)]
        assert describe_acls(lab.cluster, wanted) == by_looking_at_all
