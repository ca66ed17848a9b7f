"""The authorizer: its order of rules, image deltas, CIDR hosts, and the audit log."""

from __future__ import annotations

import logging

import pytest

from kraft.errors import AuthorizerNotReadyError, InvalidRequestError
from kraft.image.publishing import ImagePublishing
from kraft.image.replay import MetadataState
from kraft.image.security import AccessControl, AclOperation, ResourceType
from kraft.records import (
    AccessControlEntry,
    FeatureLevel,
    MetadataVersion,
    Record,
    RemoveAccessControlEntry,
    Uuid,
)
from kraft.records.batches import encode_records
from kraft.security.audit import TRACE
from kraft.security.authorizer import Action, Authorizer, AuthorizerSettings, RequestContext
from kraft.security.hosts import java_host
from kraft.security.principals import parse_principal

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
DENY, ALLOW = 2, 3
LITERAL, PREFIXED = 3, 4
TOPIC = ResourceType.TOPIC


def acl(
    name: str,
    permission: int = ALLOW,
    operation: AclOperation = READ,
    *,
    pattern: int = LITERAL,
    host: str = "*",
    principal: str = "User:alice",
) -> AccessControl:
    return AccessControl(TOPIC, name, pattern, principal, host, operation, permission)


def ready(*acls: AccessControl, **settings: bool) -> Authorizer:
    authorizer = Authorizer(AuthorizerSettings(**settings))
    authorizer.load({Uuid(bytes([number] * 16)): each for number, each in enumerate(acls)})
    authorizer.is_ready = True
    return authorizer


def may(
    authorizer: Authorizer,
    name: str,
    operation: AclOperation = READ,
    *,
    principal: str = "User:alice",
    host: str = "10.0.0.1",
) -> bool:
    context = RequestContext(parse_principal(principal), host, "Metadata")
    return authorizer.authorize(context, Action(operation, TOPIC, name))


def test_deny_wins_over_allow_in_any_order_and_pattern() -> None:
    for acls in (
        (acl("abc"), acl("a", DENY, pattern=PREFIXED)),
        (acl("abc", DENY), acl("a", pattern=PREFIXED)),
        (acl("*", DENY), acl("abc")),
        (acl("abc"), acl("abc", DENY, AclOperation.ALL, principal="User:*")),
    ):
        assert not may(ready(*acls), "abc")
        assert not may(ready(*reversed(acls)), "abc")


def test_only_allow_implies_describe() -> None:
    assert may(ready(acl("a")), "a", DESCRIBE)
    assert may(ready(acl("a", DENY), acl("a", ALLOW, WRITE)), "a", DESCRIBE)
    assert not may(ready(acl("a", ALLOW, DESCRIBE)), "a", READ)


def test_a_prefix_ends_where_it_ends() -> None:
    authorizer = ready(acl("ab", pattern=PREFIXED))
    assert [name for name in ("a", "ab", "abc", "aab", "b") if may(authorizer, name)] == [
        "ab",
        "abc",
    ]


def test_the_wildcard_is_every_name_but_longer_ones_that_begin_with_it() -> None:
    authorizer = ready(acl("*"))
    assert may(authorizer, "x")
    assert may(authorizer, "*")
    assert not may(authorizer, "*x")


def test_any_acl_on_a_resource_ends_the_default_of_having_none() -> None:
    authorizer = ready(acl("a", principal="User:bob"), is_allowed_without_acls=True)
    assert not may(authorizer, "a")
    assert may(authorizer, "b")


def test_only_super_users_pass_before_the_acls_are_loaded() -> None:
    authorizer = Authorizer(AuthorizerSettings(frozenset({"User:root"})))
    assert may(authorizer, "a", principal="User:root")
    with pytest.raises(AuthorizerNotReadyError):
        may(authorizer, "a")
    context = RequestContext(parse_principal("User:root"), "10.0.0.1", "Metadata")
    assert authorizer.authorize_by_resource_type(context, READ, TOPIC)


def test_one_resource_is_enough_unless_a_shorter_prefix_is_denied() -> None:
    context = RequestContext(parse_principal("User:alice"), "10.0.0.1", "InitProducerId")
    for acls, expected in (
        ((acl("abc"),), True),
        ((acl("abc"), acl("ab", DENY, pattern=PREFIXED)), False),
        ((acl("abc"), acl("abcd", DENY, pattern=PREFIXED)), True),
        ((acl("abc"), acl("abc", DENY)), False),
        ((acl("abc", pattern=PREFIXED), acl("abc", DENY)), True),
        ((acl("*"), acl("*", DENY)), False),
        ((acl("abc", ALLOW, WRITE),), False),
        ((acl("abc", host="10.0.0.2"),), False),
    ):
        found = ready(*acls).authorize_by_resource_type(context, READ, TOPIC)
        assert found == expected, acls
    with pytest.raises(InvalidRequestError):
        ready().authorize_by_resource_type(context, AclOperation.ALL, TOPIC)


def test_the_authorizer_follows_images() -> None:
    cluster = MetadataState(journaling=True)
    authorizer = Authorizer()
    publishing = ImagePublishing(cluster, lambda name, error: pytest.fail(f"{name}: {error}"))
    publishing.register(authorizer)
    ids = [Uuid(bytes([number] * 16)) for number in range(3)]

    def publish(*log: Record) -> None:
        cluster.apply(encode_records(log, base_offset=cluster.next_offset, timestamp_ms=0))
        publishing.publish(cluster.next_offset)

    def entry(id: Uuid, each: AccessControl) -> AccessControlEntry:
        return AccessControlEntry(id, *each)

    publish(
        FeatureLevel("metadata.version", MetadataVersion.IBP_4_3_IV0),
        entry(ids[0], acl("a")),
        entry(ids[1], acl("b", host="10.0.0.0/8")),
    )
    assert authorizer.is_ready
    assert authorizer.acl_count == 2
    assert may(authorizer, "a")
    assert not may(authorizer, "b"), "this metadata.version has no CIDR patterns"
    publish(RemoveAccessControlEntry(ids[0]), entry(ids[2], acl("c", pattern=PREFIXED)))
    assert not may(authorizer, "a")
    assert may(authorizer, "cd")
    publish(FeatureLevel("metadata.version", MetadataVersion.IBP_4_4_IV1))
    assert may(authorizer, "b")
    assert not may(authorizer, "b", host="11.0.0.1")


def test_many_acls_are_loaded_in_slices_while_the_old_ones_decide() -> None:
    authorizer = Authorizer()
    ids = [Uuid(number.to_bytes(16, "big")) for number in range(1, 352)]

    def publishing_of(name: str, count: int) -> tuple[MetadataState, ImagePublishing]:
        cluster = MetadataState(journaling=True)
        log: list[Record] = [FeatureLevel("metadata.version", MetadataVersion.IBP_4_4_IV1)]
        log += [
            AccessControlEntry(id, *acl(f"{name}-{number}", host="10.0.0.0/8"))
            for number, id in enumerate(ids[:count])
        ]
        cluster.apply(encode_records(log, base_offset=0, timestamp_ms=0))
        return cluster, ImagePublishing(cluster, lambda name, error: pytest.fail(f"{error}"))

    def change(cluster: MetadataState, publishing: ImagePublishing, *log: Record) -> None:
        cluster.apply(encode_records(log, base_offset=cluster.next_offset, timestamp_ms=0))
        publishing.publish(cluster.next_offset)

    cluster, publishing = publishing_of("old", 250)
    publishing.register(authorizer)
    publishing.publish(cluster.next_offset)
    slices = 0
    while authorizer.has_work:
        assert not authorizer.is_ready
        with pytest.raises(AuthorizerNotReadyError):
            may(authorizer, "old-0")
        authorizer.work()
        slices += 1
    assert slices == 3
    assert authorizer.is_ready
    assert may(authorizer, "old-0")

    # A snapshot replaces the state; changes that arrive during the loading are applied too.
    cluster, later = publishing_of("new", 350)
    later.register(authorizer)
    later.publish(cluster.next_offset)
    authorizer.work()
    change(
        *(cluster, later, RemoveAccessControlEntry(ids[0]), RemoveAccessControlEntry(ids[349])),
        AccessControlEntry(ids[350], *acl("added")),
    )
    assert may(authorizer, "old-0")
    assert not may(authorizer, "new-1")
    while authorizer.has_work:
        authorizer.work()
    assert authorizer.acl_count == 349
    assert not may(authorizer, "old-0")
    assert not may(authorizer, "new-0")
    assert not may(authorizer, "new-349")
    assert may(authorizer, "new-1")
    assert may(authorizer, "added")
    change(cluster, later, RemoveAccessControlEntry(ids[350]))
    assert not may(authorizer, "added")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
        ("10.0.0.7/32", "10.0.0.7", "10.0.0.6"),
        ("0.0.0.0/0", "1.2.3.4", "2001:db8:0:0:0:0:0:1"),
        ("2001:db8::/32", "2001:db8:0:0:0:0:0:1", "2001:db9:0:0:0:0:0:1"),
        ("[2001:db8::]/+32", "2001:db8:0:0:0:0:0:1", "10.0.0.1"),
    ],
)
def test_cidr_patterns_contain_hosts(pattern: str, inside: str, outside: str) -> None:
    for permission in (ALLOW, DENY):
        authorizer = ready(acl("a", permission, host=pattern), acl("b"))
        authorizer._index.is_cidr_supported = True
        assert may(authorizer, "a", host=inside) == (permission == ALLOW)
        assert not may(authorizer, "a", host=outside)


def test_addresses_are_written_as_java_does() -> None:
    assert java_host("10.0.0.1") == "10.0.0.1"
    assert java_host("::1") == "0:0:0:0:0:0:0:1"
    assert java_host("2001:DB8::20:1%eth0") == "2001:db8:0:0:0:0:20:1%eth0"
    assert java_host("::ffff:10.0.0.1") == "10.0.0.1"


def test_the_audit_log_names_the_rule(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = ready(acl("a", pattern=PREFIXED), acl("ab", DENY))
    context = RequestContext(parse_principal("User:alice"), "10.0.0.1", "Metadata")
    with caplog.at_level(TRACE, "kafka.authorizer.logger"):
        authorizer.authorize(context, Action(READ, TOPIC, "ab", 2))
        authorizer.authorize(context, Action(READ, TOPIC, "a"))
        authorizer.authorize(context, Action(READ, TOPIC, "b", log_if_denied=False))
    start = "Principal = User:alice is "
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (
            logging.INFO,
            f"{start}Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:ab "
            "for request = Metadata with resourceRefCount = 2 based on rule MatchingAcl("
            "acl=StandardAcl[resourceType=TOPIC, resourceName=ab, patternType=LITERAL, "
            "principal=User:alice, host=*, operation=READ, permissionType=DENY])",
        ),
        (
            logging.DEBUG,
            f"{start}Allowed operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:a "
            "for request = Metadata with resourceRefCount = 1 based on rule MatchingAcl("
            "acl=StandardAcl[resourceType=TOPIC, resourceName=a, patternType=PREFIXED, "
            "principal=User:alice, host=*, operation=READ, permissionType=ALLOW])",
        ),
        (
            TRACE,
            f"{start}Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:b "
            "for request = Metadata with resourceRefCount = 1 based on rule DefaultDeny",
        ),
    ]
