"""Quotas, SCRAM credentials, ACLs and delegation tokens of a tree as records."""

from __future__ import annotations

import pytest

from kraft.errors import CorruptZnodeError
from kraft.records import (
    AccessControlEntry,
    ClientQuota,
    DelegationToken,
    EntityData,
    Record,
    UserScramCredential,
)
from kraft.zookeeper.migration import migrated_records
from tests.harness.znode_trees import document, settings, tree

SCRAM = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
ALLOW = {"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*"}
TOKEN = {
    "version": 3,
    "owner": "User%3Aowner",
    "tokenRequester": "User%3Arequester",
    "renewers": ["User%3Ax%40y"],
    "issueTimestamp": 1,
    "maxTimestamp": 3,
    "expiryTimestamp": 2,
    "tokenId": "t",
}


def records_of(**znodes: bytes) -> list[Record]:
    """Return the records of a tree with one znode of each path."""
    return list(migrated_records(tree(znodes), []))


def test_quotas_of_users_clients_both_and_addresses() -> None:
    found = records_of(
        **{
            "/config/users/al%40x%20%2A": settings(producer_byte_rate="1024"),
            "/config/users/<default>": settings(request_percentage="1.5E1"),
            "/config/users/<default>/clients/<default>": settings(consumer_byte_rate="7"),
            "/config/users/u/clients/c": settings(consumer_byte_rate="8.0"),
            "/config/clients/c": settings(controller_mutation_rate="0.5"),
            "/config/ips/127.0.0.1": settings(connection_creation_rate="3"),
        }
    )
    everyone, anyone = EntityData("user", None), EntityData("client-id", None)
    assert found == [
        ClientQuota([everyone], "request_percentage", 15.0),
        ClientQuota([EntityData("user", "al@x *")], "producer_byte_rate", 1024.0),
        ClientQuota([EntityData("client-id", "c")], "controller_mutation_rate", 0.5),
        ClientQuota([everyone, anyone], "consumer_byte_rate", 7.0),
        ClientQuota(
            [EntityData("user", "u"), EntityData("client-id", "c")], "consumer_byte_rate", 8.0
        ),
        ClientQuota([EntityData("ip", "127.0.0.1")], "connection_creation_rate", 3.0),
    ]


def test_scram_credentials_of_a_user_with_a_quota() -> None:
    config = {"SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM, "consumer_byte_rate": "1"}
    found = records_of(**{"/config/users/al%40x": document(version=1, config=config)})
    keys = (b"salt", b"stored", b"server", 4096)
    assert found == [
        UserScramCredential("al@x", 1, *keys),
        UserScramCredential("al@x", 2, *keys),
        ClientQuota([EntityData("user", "al@x")], "consumer_byte_rate", 1.0),
    ]


def test_acls_of_literal_and_prefixed_resources() -> None:
    deny = {**ALLOW, "permissionType": "DENY", "operation": "IdempotentWrite"}
    found = records_of(
        **{
            "/kafka-acl/Topic/*": document(version=1, acls=[ALLOW, ALLOW]),
            "/kafka-acl/Cluster/kafka-cluster": document(version=1, acls=[deny]),
            "/kafka-acl/Group/unused": b"",
            "/kafka-acl-extended/prefixed/TransactionalId/p": document(version=1, acls=[ALLOW]),
        }
    )
    assert [_content(each) for each in found] == [
        (4, "kafka-cluster", 3, "User:a", "*", 12, 2),
        (2, "*", 3, "User:a", "*", 3, 3),
        (5, "p", 4, "User:a", "*", 3, 3),
    ]
    ids = [each.id for each in found if isinstance(each, AccessControlEntry)]
    assert len(set(ids)) == 3


def test_a_repeated_conversion_gives_acls_the_same_ids() -> None:
    one, two = (
        records_of(**{"/kafka-acl/Topic/a": document(version=1, acls=[ALLOW])}) for _ in range(2)
    )
    assert one == two


def test_acls_of_an_unknown_type_are_noted() -> None:
    notes: list[str] = []
    unknown = tree({"/kafka-acl/Broom/a": document(version=1, acls=[ALLOW])})
    assert list(migrated_records(unknown, notes)) == []
    assert notes == [
        "left out, because Kafka does not know this type of resource: znode /kafka-acl/Broom"
    ]


def test_tokens_of_old_and_new_versions() -> None:
    old = {**TOKEN, "version": 2}
    del old["tokenRequester"]
    found = records_of(
        **{
            "/delegation_token/tokens/1": document(**TOKEN),
            "/delegation_token/tokens/2": document(**old),
            "/delegation_token/tokens/3": b"",
        }
    )
    assert found == [
        DelegationToken("User:owner", "User:requester", ["User:x@y"], 1, 3, 2, "t"),
        DelegationToken("User:owner", "User:owner", ["User:x@y"], 1, 3, 2, "t"),
    ]


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("/config/clients/c", settings(rate="1_0"), "/config/clients/c: rate is '1_0', not a num"),
        ("/config/users/%ff", settings(rate="1"), "/config/users/%ff is named by bytes that are"),
        (
            "/config/users/a",
            document(config={"SCRAM-SHA-256": SCRAM[5:]}),
            "/config/users/a: a SCRAM credential has not the fields salt",
        ),
        (
            "/config/users/a",
            document(config={"SCRAM-SHA-512": SCRAM.replace("c2FsdA==", "?")}),
            "/config/users/a: the salt of a SCRAM credential is not base64",
        ),
        (
            "/config/users/a",
            document(config={"SCRAM-SHA-512": SCRAM.replace("4096", "-1")}),
            "/config/users/a: the iterations of a SCRAM credential are not a number",
        ),
        ("/kafka-acl/Topic/a", document(version=2, acls=[]), "/kafka-acl/Topic/a: version is 2"),
        (
            "/kafka-acl/Topic/a",
            document(version=1, acls=[{**ALLOW, "operation": "Sweep"}]),
            "/kafka-acl/Topic/a: operation is 'Sweep', which Kafka does not know",
        ),
        (
            "/kafka-acl/Topic/a",
            document(version=1, acls=[{**ALLOW, "permissionType": "Any"}]),
            "/kafka-acl/Topic/a: permissionType is 'Any', which Kafka does not know",
        ),
        (
            "/kafka-acl/Topic/a",
            document(version=1, acls=[{**ALLOW, "principal": "a"}]),
            "/kafka-acl/Topic/a: principal is 'a', not of the form Type:name",
        ),
        (
            "/delegation_token/tokens/1",
            document(**{**TOKEN, "version": 4}),
            "/delegation_token/tokens/1: version is 4, not 1 to 3",
        ),
        (
            "/delegation_token/tokens/1",
            document(**{**TOKEN, "maxTimestamp": "soon"}),
            "/delegation_token/tokens/1: maxTimestamp is 'soon', not an integer",
        ),
    ],
)
def test_an_error_names_the_path(path: str, content: bytes, message: str) -> None:
    with pytest.raises(CorruptZnodeError, match=message) as error:
        records_of(**{path: content})
    # No secret of a credential is in it.
    assert "c3RvcmVk" not in str(error.value)


def _content(record: Record) -> tuple[int | str, ...]:
    assert isinstance(record, AccessControlEntry)
    return (
        *(record.resource_type, record.resource_name, record.pattern_type, record.principal),
        *(record.host, record.operation, record.permission_type),
    )
