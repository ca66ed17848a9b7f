"""ACLs, credentials and tokens over a node's listener, and what the authorizer allows there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraft.errors import CLUSTER_AUTHORIZATION_FAILED
from kraft.image.configs import BROKER, GROUP, TOPIC
from kraft.protocol.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequestData,
    AlterUserScramCredentialsResponseData,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kraft.protocol.create_acls import (
    CREATE_ACLS,
    AclCreation,
    CreateAclsRequestData,
    CreateAclsResponseData,
)
from kraft.protocol.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreateDelegationTokenRequestData,
    CreateDelegationTokenResponseData,
)
from kraft.protocol.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequestData,
    CreatePartitionsResponseData,
    CreatePartitionsTopic,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_acls import (
    DELETE_ACLS,
    DeleteAclsFilter,
    DeleteAclsRequestData,
    DeleteAclsResponseData,
)
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
    DeleteTopicState,
)
from kraft.protocol.describe_acls import (
    DESCRIBE_ACLS,
    DescribeAclsRequestData,
    DescribeAclsResponseData,
)
from kraft.protocol.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequestData,
    DescribeQuorumResponseData,
)
from kraft.protocol.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersRequestData,
    ElectLeadersResponseData,
    ElectLeadersTopic,
)
from kraft.protocol.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequestData,
    ExpireDelegationTokenResponseData,
)
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)
from kraft.protocol.renew_delegation_token import (
    RENEW_DELEGATION_TOKEN,
    RenewDelegationTokenRequestData,
    RenewDelegationTokenResponseData,
)
from kraft.security.principals import KafkaPrincipal
from kraft.server.process import QuorumNode
from tests.harness.controller_nodes import Quorum, RunScenario, until
from tests.harness.listener_client import ask, forward

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OPEN = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
# The peers of a PLAINTEXT listener are ANONYMOUS, whom these settings permit nothing.
BROKERS_ONLY = {"authorizer.class.name": STANDARD, "super.users": "User:broker"}
ALICE = KafkaPrincipal("User", "alice")
SECURITY_DISABLED = 54
TOPIC_DENIED, GROUP_DENIED = 29, 30
TOKEN_NOT_ALLOWED, TOKEN_DENIED, TOKEN_DISABLED = 64, 65, 61
DUPLICATE_RESOURCE, RESOURCE_NOT_FOUND = 92, 91
# Kafka's codes of the operations READ and CREATE and of the permission ALLOW.
READ, CREATE, ALLOW = 3, 5, 3


def acl(name: str, operation: int, principal: str = "User:alice") -> AclCreation:
    return AclCreation(2, name, 3, principal, "*", operation, ALLOW)


async def started(quorum: Quorum) -> QuorumNode:
    await quorum.start()
    node = quorum.running[await quorum.active()]
    runner = node.controller
    assert runner is not None
    # The authorizer follows the image, which is published after the commit.
    end = runner.controller.committed_offset
    await until(lambda: runner.publishing.images.image.offset >= end)
    return node


def test_acls_are_created_described_and_deleted_in_every_version(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings=OPEN)

    async def scenario() -> None:
        node = await started(quorum)
        for version in range(CREATE_ACLS.lowest, CREATE_ACLS.highest + 1):
            creations = [acl(f"t{version}", READ), AclCreation(2, "", 3, "User:a", "*", 3, 3)]
            created = await ask(
                node,
                CREATE_ACLS,
                version,
                CreateAclsRequestData(creations),
                CreateAclsResponseData,
            )
            assert [each.error_code for each in created.results] == [0, 42]
            wanted = DescribeAclsRequestData(1, None, 1, "User:alice", None, 1, 1)
            described = await ask(node, DESCRIBE_ACLS, version, wanted, DescribeAclsResponseData)
            assert [each.resource_name for each in described.resources] == [f"t{version}"]
            assert described.resources[0].acls[0].operation == READ
            matching = DeleteAclsFilter(2, f"t{version}", 3, None, None, 1, 1)
            broken = DeleteAclsFilter(0, None, 3, None, None, 1, 1)
            deleted = await ask(
                node,
                DELETE_ACLS,
                version,
                DeleteAclsRequestData([matching, broken]),
                DeleteAclsResponseData,
            )
            first, second = deleted.filter_results
            assert [each.resource_name for each in first.matching_acls] == [f"t{version}"]
            assert (first.error_code, second.error_code) == (0, 42)
        assert not quorum.cluster(1).state.acls

    run_scenario(scenario, quorum)


def test_an_acl_that_is_not_committed_is_not_described(
    run_scenario: RunScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller has decided to create it, and reverts that if it loses its leadership."""
    quorum = Quorum(tmp_path, settings=OPEN)

    async def scenario() -> None:
        node = await started(quorum)
        runner = node.controller
        assert runner is not None
        commit, reached = runner.committed, [0]
        monkeypatch.setattr(runner, "committed", reached.append)

        async def described() -> list[str]:
            wanted = DescribeAclsRequestData(1, None, 1, "User:alice", None, 1, 1)
            said = await ask(node, DESCRIBE_ACLS, 3, wanted, DescribeAclsResponseData)
            return [each.resource_name for each in said.resources]

        request = CreateAclsRequestData([acl("t", READ)])
        creating = asyncio.ensure_future(ask(node, CREATE_ACLS, 3, request, CreateAclsResponseData))
        await until(lambda: runner.controller.cluster.state.acls)
        assert await described() == []
        await until(lambda: reached[-1] >= runner.controller.cluster.next_offset)
        monkeypatch.setattr(runner, "committed", commit)
        commit(reached[-1])
        assert (await creating).results[0].error_code == 0
        assert await described() == ["t"]

    run_scenario(scenario, quorum)


def test_an_election_is_denied_in_every_version(run_scenario: RunScenario, tmp_path: Path) -> None:
    """Version 0 has no error of the whole response: the partitions have it."""
    quorum = Quorum(tmp_path, settings=BROKERS_ONLY)

    async def scenario() -> None:
        node = await started(quorum)
        request = ElectLeadersRequestData(topic_partitions=[ElectLeadersTopic("a", [0])])
        for version in range(ELECT_LEADERS.lowest, ELECT_LEADERS.highest + 1):
            elected = await ask(node, ELECT_LEADERS, version, request, ElectLeadersResponseData)
            assert elected.error_code == (CLUSTER_AUTHORIZATION_FAILED if version else 0)
            (topic,) = elected.replica_election_results
            assert [each.error_code for each in topic.partition_result] == [
                CLUSTER_AUTHORIZATION_FAILED
            ]

    run_scenario(scenario, quorum)


def test_without_an_authorizer_acls_are_disabled(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        node = await started(quorum)
        creation = CreateAclsRequestData([acl("a", READ)] * 2)
        created = await ask(node, CREATE_ACLS, 3, creation, CreateAclsResponseData)
        assert [each.error_code for each in created.results] == [SECURITY_DISABLED] * 2
        deletion = DeleteAclsRequestData([DeleteAclsFilter(1, None, 1, None, None, 1, 1)])
        deleted = await ask(node, DELETE_ACLS, 3, deletion, DeleteAclsResponseData)
        assert [each.error_code for each in deleted.filter_results] == [SECURITY_DISABLED]
        wanted = DescribeAclsRequestData(1, None, 1, None, None, 1, 1)
        described = await ask(node, DESCRIBE_ACLS, 3, wanted, DescribeAclsResponseData)
        assert described.error_code == SECURITY_DISABLED

    run_scenario(scenario, quorum)


def test_scram_credentials_are_set_and_deleted(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        node = await started(quorum)
        salted = bytes(32)
        for deletions, upsertions, errors in (
            ([], [ScramCredentialUpsertion("alice", 1, 4096, b"salt", salted)], {"alice": 0}),
            (
                [ScramCredentialDeletion("alice", 1)],
                [ScramCredentialUpsertion("alice", 1, 4096, b"salt", salted)],
                {"alice": DUPLICATE_RESOURCE},
            ),
            (
                [ScramCredentialDeletion("alice", 1), ScramCredentialDeletion("bob", 1)],
                [],
                {"alice": 0, "bob": RESOURCE_NOT_FOUND},
            ),
        ):
            altered = await ask(
                node,
                ALTER_USER_SCRAM_CREDENTIALS,
                0,
                AlterUserScramCredentialsRequestData(deletions, upsertions),
                AlterUserScramCredentialsResponseData,
            )
            assert {each.user: each.error_code for each in altered.results} == errors
        assert not quorum.cluster(1).state.scram_credentials

    run_scenario(scenario, quorum)


def test_tokens_need_an_authenticated_client(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, settings={**OPEN, "delegation.token.secret.key": "s"})

    async def scenario() -> None:
        node = await started(quorum)
        for version in range(1, 4):
            request = CreateDelegationTokenRequestData(max_lifetime_ms=-1)
            response = CreateDelegationTokenResponseData
            direct = await ask(node, CREATE_DELEGATION_TOKEN, version, request, response)
            assert direct.error_code == TOKEN_NOT_ALLOWED
            assert direct.issue_timestamp_ms == -1
            issued = await forward(node, CREATE_DELEGATION_TOKEN, version, request, response, ALICE)
            assert isinstance(issued, CreateDelegationTokenResponseData)
            assert (issued.error_code, issued.principal_name) == (0, "alice")
            assert issued.token_requester_principal_name == ("alice" if version == 3 else "")
            by_token = KafkaPrincipal("User", "alice", token_authenticated=True)
            denied = await forward(
                node, CREATE_DELEGATION_TOKEN, version, request, response, by_token
            )
            assert isinstance(denied, CreateDelegationTokenResponseData)
            assert denied.error_code == TOKEN_NOT_ALLOWED
        renewal = RenewDelegationTokenRequestData(issued.hmac, 1000)
        renewed = await forward(
            node, RENEW_DELEGATION_TOKEN, 2, renewal, RenewDelegationTokenResponseData, ALICE
        )
        assert isinstance(renewed, RenewDelegationTokenResponseData)
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms < issued.max_timestamp_ms
        end = ExpireDelegationTokenRequestData(issued.hmac, -1)
        expired = await forward(
            node, EXPIRE_DELEGATION_TOKEN, 2, end, ExpireDelegationTokenResponseData, ALICE
        )
        assert isinstance(expired, ExpireDelegationTokenResponseData)
        assert expired.error_code == 0
        for_bob = CreateDelegationTokenRequestData("User", "bob", [], -1)
        others = await forward(
            node,
            CREATE_DELEGATION_TOKEN,
            3,
            for_bob,
            CreateDelegationTokenResponseData,
            ALICE,
        )
        assert isinstance(others, CreateDelegationTokenResponseData)
        assert others.error_code == TOKEN_DENIED

    run_scenario(scenario, quorum)


def test_tokens_need_a_secret_key(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        node = await started(quorum)
        issued = await forward(
            node,
            CREATE_DELEGATION_TOKEN,
            3,
            CreateDelegationTokenRequestData(max_lifetime_ms=-1),
            CreateDelegationTokenResponseData,
            ALICE,
        )
        assert isinstance(issued, CreateDelegationTokenResponseData)
        assert issued.error_code == TOKEN_DISABLED

    run_scenario(scenario, quorum)


def test_an_authorizer_denies_what_no_acl_allows(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, settings=OPEN)

    async def scenario() -> None:
        node = await started(quorum)
        topics = CreateTopicsRequestData([CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1)])
        made = await forward(node, CREATE_TOPICS, 7, topics, CreateTopicsResponseData, ALICE)
        assert isinstance(made, CreateTopicsResponseData)
        assert {each.name: each.error_code for each in made.topics} == {
            "a": TOPIC_DENIED,
            "b": TOPIC_DENIED,
        }
        allowed = CreateAclsRequestData([acl("a", CREATE)])
        await ask(node, CREATE_ACLS, 3, allowed, CreateAclsResponseData)

        async def errors() -> dict[str, int]:
            made = await forward(node, CREATE_TOPICS, 7, topics, CreateTopicsResponseData, ALICE)
            assert isinstance(made, CreateTopicsResponseData)
            return {each.name: each.error_code for each in made.topics}

        # Error 38: the ACL allows the request, but there is no broker for the replica.
        while await errors() != {"a": 38, "b": TOPIC_DENIED}:
            pass
        deletion = DeleteTopicsRequestData([DeleteTopicState("a")], timeout_ms=30_000)
        deleted = await forward(node, DELETE_TOPICS, 6, deletion, DeleteTopicsResponseData, ALICE)
        assert isinstance(deleted, DeleteTopicsResponseData)
        assert deleted.responses[0].error_code == TOPIC_DENIED
        more = CreatePartitionsRequestData([CreatePartitionsTopic("a", 3)], 30_000)
        grown = await forward(node, CREATE_PARTITIONS, 3, more, CreatePartitionsResponseData, ALICE)
        assert isinstance(grown, CreatePartitionsResponseData)
        assert grown.results[0].error_code == TOPIC_DENIED
        change = [IncrementalConfig("retention.ms", 0, "1")]
        resources = [
            IncrementalAlterConfigsResource(kind, name, change)
            for kind, name in ((TOPIC, "a"), (GROUP, "g"), (BROKER, ""))
        ]
        altered = await forward(
            node,
            INCREMENTAL_ALTER_CONFIGS,
            1,
            IncrementalAlterConfigsRequestData(resources),
            IncrementalAlterConfigsResponseData,
            ALICE,
        )
        assert isinstance(altered, IncrementalAlterConfigsResponseData)
        assert {each.resource_type: each.error_code for each in altered.responses} == {
            TOPIC: TOPIC_DENIED,
            GROUP: GROUP_DENIED,
            BROKER: CLUSTER_AUTHORIZATION_FAILED,
        }
        elected = await forward(
            node, ELECT_LEADERS, 2, ElectLeadersRequestData(), ElectLeadersResponseData, ALICE
        )
        assert isinstance(elected, ElectLeadersResponseData)
        assert elected.error_code == CLUSTER_AUTHORIZATION_FAILED
        described = await forward(
            node,
            DESCRIBE_QUORUM,
            2,
            DescribeQuorumRequestData(),
            DescribeQuorumResponseData,
            ALICE,
        )
        assert isinstance(described, DescribeQuorumResponseData)

    run_scenario(scenario, quorum)


def test_an_anonymous_peer_without_permission_reaches_nothing(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings=BROKERS_ONLY)

    async def scenario() -> None:
        node = await started(quorum)
        topics = CreateTopicsRequestData([CreatableTopic("a", 1, 1)])
        # The envelope itself is denied, whatever principal it names.
        inside = KafkaPrincipal("User", "broker")
        denied = await forward(node, CREATE_TOPICS, 7, topics, CreateTopicsResponseData, inside)
        assert denied == CLUSTER_AUTHORIZATION_FAILED
        about = DescribeQuorumRequestData()
        described = await ask(node, DESCRIBE_QUORUM, 2, about, DescribeQuorumResponseData)
        assert (described.error_code, described.topics) == (CLUSTER_AUTHORIZATION_FAILED, [])

    run_scenario(scenario, quorum)
