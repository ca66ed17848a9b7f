"""What a broker describes from its image: configurations, ACLs, quotas, credentials, tokens."""

from __future__ import annotations

from pathlib import Path

from kraft.controller.security.delegation_tokens import TokenSettings
from kraft.errors import NONE
from kraft.image.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraft.protocol.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequestData,
    AlterClientQuotasResponseData,
    QuotaEntity,
    QuotaEntry,
    QuotaOp,
)
from kraft.protocol.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequestData,
    AlterUserScramCredentialsResponseData,
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
    TokenPrincipal,
)
from kraft.protocol.describe_acls import (
    DESCRIBE_ACLS,
    DescribeAclsRequestData,
    DescribeAclsResponseData,
)
from kraft.protocol.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequestData,
    DescribeClientQuotasResponseData,
    QuotaComponent,
)
from kraft.protocol.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequestData,
    DescribeConfigsResource,
    DescribeConfigsResponseData,
)
from kraft.protocol.describe_delegation_token import (
    DESCRIBE_DELEGATION_TOKEN,
    DescribeDelegationTokenRequestData,
    DescribeDelegationTokenResponseData,
)
from kraft.protocol.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequestData,
    DescribeUserScramCredentialsResponseData,
    ScramUser,
)
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)
from kraft.protocol.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequestData,
    ListConfigResourcesResponseData,
)
from kraft.security.principals import ANONYMOUS, KafkaPrincipal
from kraft.security.protocols import SecurityProtocol
from tests.harness.controller_nodes import RunScenario
from tests.unit.broker.apis.admin_broker import AdminBroker, admin_quorum, started_broker

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZED = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
UNSUPPORTED_VERSION, INVALID_REQUEST, SECURITY_DISABLED = 35, 42, 54
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED = 29, 30, 31
TOKEN_DISABLED, TOKEN_NOT_ALLOWED = 61, 64
RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE = 91, 92
SASL = SecurityProtocol.SASL_PLAINTEXT
# Kafka's sources of configurations.
DYNAMIC_TOPIC, DYNAMIC_BROKER, STATIC, DEFAULT = 1, 2, 4, 5


async def set_config(broker: AdminBroker, kind: int, name: str, key: str, value: str) -> None:
    response = await broker.ask(
        INCREMENTAL_ALTER_CONFIGS,
        1,
        IncrementalAlterConfigsRequestData(
            [IncrementalAlterConfigsResource(kind, name, [IncrementalConfig(key, 0, value)])]
        ),
        IncrementalAlterConfigsResponseData,
    )
    assert [each.error_code for each in response.responses] == [NONE]


def test_configurations_are_described_with_their_sources(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum, static={"log.segment.bytes": "7000000"})
        await quorum.brokers(1)
        await quorum.create("a")
        await set_config(broker, TOPIC, "a", "retention.ms", "5")
        await set_config(broker, BROKER, "1", "log.retention.ms", "6")
        await broker.is_current()
        wanted = (
            (TOPIC, "a", ["retention.ms", "segment.bytes", "max.message.bytes"]),
            (BROKER, "1", ["log.retention.ms", "log.segment.bytes"]),
            (BROKER_LOGGER, "1", ["root"]),
            (BROKER, "2", None),
            (TOPIC, "gone", None),
        )
        resources = [DescribeConfigsResource(*each) for each in wanted]
        for version in range(DESCRIBE_CONFIGS.lowest, DESCRIBE_CONFIGS.highest + 1):
            response = await broker.ask(
                DESCRIBE_CONFIGS,
                version,
                DescribeConfigsRequestData(resources, True, version >= 3),
                DescribeConfigsResponseData,
            )
            topic, node, loggers, other, gone = response.results
            assert {each.name: (each.value, each.config_source) for each in topic.configs} == {
                "retention.ms": ("5", DYNAMIC_TOPIC),
                "segment.bytes": ("7000000", STATIC),
                "max.message.bytes": ("1048588", DEFAULT),
            }
            assert {each.name: (each.value, each.config_source) for each in node.configs} == {
                "log.retention.ms": ("6", DYNAMIC_BROKER),
                "log.segment.bytes": ("7000000", STATIC),
            }
            synonyms = {each.name: each.synonyms for each in topic.configs}["retention.ms"]
            assert [(one.name, one.value, one.source) for one in synonyms[:2]] == [
                ("retention.ms", "5", DYNAMIC_TOPIC),
                ("log.retention.ms", "6", DYNAMIC_BROKER),
            ]
            has_text = [each.documentation is not None for each in topic.configs + node.configs]
            assert has_text == [version >= 3] * 5
            assert [each.name for each in loggers.configs] == ["root"]
            assert (other.error_code, gone.error_code) == (INVALID_REQUEST, 3)
        broker.close()

    run_scenario(scenario, quorum)


def test_resources_with_a_configuration_are_listed(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1, 2)
        await quorum.create("a")
        await quorum.create("b")
        await set_config(broker, CLIENT_METRICS, "m", "interval.ms", "1000")
        await set_config(broker, GROUP, "g", "consumer.session.timeout.ms", "50000")
        await broker.is_current()

        async def listed(version: int, *kinds: int) -> tuple[int, set[tuple[int, str]]]:
            request = ListConfigResourcesRequestData(list(kinds))
            response = await broker.ask(
                LIST_CONFIG_RESOURCES, version, request, ListConfigResourcesResponseData
            )
            found = [(each.resource_type, each.resource_name) for each in response.config_resources]
            assert len(set(found)) == len(found)
            return response.error_code, set(found)

        # Version 0 has no types; 16 is that of client metrics.
        assert await listed(0) == (NONE, {(16, "m")})
        every = {(TOPIC, "a"), (TOPIC, "b"), (GROUP, "g"), (CLIENT_METRICS, "m")}
        every |= {(kind, name) for kind in (BROKER, BROKER_LOGGER) for name in "12"}
        assert await listed(1) == (NONE, every)
        assert await listed(1, TOPIC, GROUP, TOPIC) == (
            NONE,
            {(TOPIC, "a"), (TOPIC, "b"), (GROUP, "g")},
        )
        assert await listed(1, TOPIC, 7) == (UNSUPPORTED_VERSION, set())
        broker.close()

    run_scenario(scenario, quorum)


async def quotas(
    broker: AdminBroker,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    version: int = 1,
    principal: KafkaPrincipal = ANONYMOUS,
) -> tuple[int, list[tuple[dict[str, str | None], dict[str, float]]] | None]:
    request = DescribeClientQuotasRequestData(
        [QuotaComponent(*each) for each in components], strict
    )
    response = await broker.ask(
        DESCRIBE_CLIENT_QUOTAS, version, request, DescribeClientQuotasResponseData, principal
    )
    if response.entries is None:
        return response.error_code, None
    return response.error_code, sorted(
        (
            (
                {part.entity_type: part.entity_name for part in entry.entity},
                {each.key: each.value for each in entry.values},
            )
            for entry in response.entries
        ),
        key=str,
    )


def test_quotas_are_found_by_their_entities(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        entities = (
            [QuotaEntity("user", "alice")],
            [QuotaEntity("user", None)],
            [QuotaEntity("user", "alice"), QuotaEntity("client-id", "c")],
        )
        await broker.ask(
            ALTER_CLIENT_QUOTAS,
            1,
            AlterClientQuotasRequestData(
                [QuotaEntry(list(one), [QuotaOp("request_percentage", 5.0)]) for one in entities]
            ),
            AlterClientQuotasResponseData,
        )
        await broker.is_current()
        limit = {"request_percentage": 5.0}
        alice: dict[str, str | None] = {"user": "alice"}
        default: dict[str, str | None] = {"user": None}
        both = alice | {"client-id": "c"}
        exact, is_default, specified = 0, 1, 2
        for version in range(2):
            for strict, found in ((True, [alice]), (False, [both, alice])):
                seen = await quotas(
                    broker, ("user", exact, "alice"), strict=strict, version=version
                )
                assert seen == (NONE, sorted(((one, limit) for one in found), key=str))
        assert await quotas(broker, ("user", is_default, None)) == (NONE, [(default, limit)])
        everyone = sorted(((one, limit) for one in (alice, default, both)), key=str)
        assert await quotas(broker, ("user", specified, None)) == (NONE, everyone)
        assert await quotas(broker) == (NONE, everyone)
        assert await quotas(broker, ("ip", specified, None)) == (NONE, [])
        for components, error in (
            ([("user", exact, None)], INVALID_REQUEST),
            ([("user", is_default, "alice")], INVALID_REQUEST),
            ([("user", specified, "alice")], INVALID_REQUEST),
            ([("user", 3, None)], INVALID_REQUEST),
            ([("user", exact, "a"), ("user", exact, "b")], INVALID_REQUEST),
            ([("user", exact, "a"), ("ip", exact, "b")], INVALID_REQUEST),
            ([("", exact, "a")], INVALID_REQUEST),
            ([("group", exact, "a")], UNSUPPORTED_VERSION),
        ):
            assert await quotas(broker, *components) == (error, None)
        broker.close()

    run_scenario(scenario, quorum)


def test_scram_credentials_are_described_without_secrets(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        upsertions = [
            ScramCredentialUpsertion("alice", mechanism, 4096 * mechanism, b"salt", bytes(size))
            for mechanism, size in ((1, 32), (2, 64))
        ]
        for upsertion in upsertions:
            await broker.ask(
                ALTER_USER_SCRAM_CREDENTIALS,
                0,
                AlterUserScramCredentialsRequestData([], [upsertion]),
                AlterUserScramCredentialsResponseData,
            )
        await broker.is_current()

        async def described(*names: str) -> list[tuple[str, int, dict[int, int]]]:
            users = [ScramUser(name) for name in names] if names else None
            response = await broker.ask(
                DESCRIBE_USER_SCRAM_CREDENTIALS,
                0,
                DescribeUserScramCredentialsRequestData(users),
                DescribeUserScramCredentialsResponseData,
            )
            assert response.error_code == NONE
            return [
                (
                    each.user,
                    each.error_code,
                    {info.mechanism: info.iterations for info in each.credential_infos},
                )
                for each in response.results
            ]

        alice = ("alice", NONE, {1: 4096, 2: 8192})
        assert await described() == [alice]
        assert await described("alice", "bob") == [alice, ("bob", RESOURCE_NOT_FOUND, {})]
        assert await described("alice", "alice") == [("alice", DUPLICATE_RESOURCE, {})]
        broker.close()

    run_scenario(scenario, quorum)


async def tokens(
    broker: AdminBroker,
    principal: KafkaPrincipal,
    *owners: KafkaPrincipal,
    version: int = 3,
    protocol: SecurityProtocol = SASL,
    is_all: bool = True,
) -> DescribeDelegationTokenResponseData:
    wanted = [TokenPrincipal(owner.type, owner.name) for owner in owners]
    return await broker.ask(
        DESCRIBE_DELEGATION_TOKEN,
        version,
        DescribeDelegationTokenRequestData(None if is_all and not owners else wanted),
        DescribeDelegationTokenResponseData,
        principal,
        protocol=protocol,
    )


def test_tokens_are_shown_to_their_owners_and_to_those_who_may_describe_them(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    secret = "secret"
    quorum = admin_quorum(tmp_path, settings={**AUTHORIZED, "delegation.token.secret.key": secret})

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        broker = AdminBroker(quorum, node, tokens=TokenSettings(secret.encode()))
        await broker.is_current()
        issued = await broker.ask(
            CREATE_DELEGATION_TOKEN,
            3,
            CreateDelegationTokenRequestData(
                renewers=[TokenPrincipal("User", "bob")], max_lifetime_ms=-1
            ),
            CreateDelegationTokenResponseData,
            ALICE,
            protocol=SASL,
        )
        await broker.is_current()
        for version in range(1, 4):
            (token,) = (await tokens(broker, ALICE, version=version)).tokens
            assert (token.principal_name, token.hmac) == ("alice", issued.hmac)
            assert token.token_requester_principal_name == ("alice" if version == 3 else "")
            assert token.renewers == [TokenPrincipal("User", "bob")]
        carol = KafkaPrincipal("User", "carol")
        counts = {
            who: len((await tokens(broker, who)).tokens) for who in (ALICE, BOB, carol, ANONYMOUS)
        }
        assert counts == {ALICE: 1, BOB: 1, carol: 0, ANONYMOUS: 1}
        assert len((await tokens(broker, ALICE, BOB)).tokens) == 1
        assert (await tokens(broker, ALICE, carol)).tokens == []
        assert (await tokens(broker, ALICE, is_all=False)).tokens == []
        # DESCRIBE_TOKENS (14) on the user (7), or DESCRIBE (8) on the token (6).
        for kind, name, operation, who in (
            (7, "User:alice", 14, "carol"),
            (6, issued.token_id, 8, "dave"),
        ):
            acl = AclCreation(kind, name, 3, f"User:{who}", "*", operation, 3)
            await broker.ask(CREATE_ACLS, 3, CreateAclsRequestData([acl]), CreateAclsResponseData)
            await broker.is_current()
            assert len((await tokens(broker, KafkaPrincipal("User", who))).tokens) == 1
        unproven = await tokens(broker, ALICE, protocol=SecurityProtocol.PLAINTEXT)
        assert unproven.error_code == TOKEN_NOT_ALLOWED
        broker.close()

    run_scenario(scenario, quorum)


def test_without_a_secret_there_are_no_tokens(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        assert (await tokens(broker, ALICE)).error_code == TOKEN_DISABLED
        broker.close()

    run_scenario(scenario, quorum)


def test_acls_are_described(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path, settings=AUTHORIZED)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        creations = [
            AclCreation(2, name, 3, f"User:{user}", "*", 3, 3) for name in "ab" for user in "xy"
        ]
        await broker.ask(CREATE_ACLS, 3, CreateAclsRequestData(creations), CreateAclsResponseData)
        await broker.is_current()
        for version in range(DESCRIBE_ACLS.lowest, DESCRIBE_ACLS.highest + 1):
            response = await broker.ask(
                DESCRIBE_ACLS,
                version,
                DescribeAclsRequestData(2, None, 1, "User:x", None, 1, 1),
                DescribeAclsResponseData,
            )
            assert [each.resource_name for each in response.resources] == ["a", "b"]
        broker.close()

    run_scenario(scenario, quorum)


def test_descriptions_need_permissions(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path, settings=AUTHORIZED)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        acls = await broker.ask(
            DESCRIBE_ACLS,
            3,
            DescribeAclsRequestData(1, None, 1, None, None, 1, 1),
            DescribeAclsResponseData,
            ALICE,
        )
        assert acls.error_code == CLUSTER_DENIED
        assert await quotas(broker, principal=ALICE) == (CLUSTER_DENIED, None)
        users = await broker.ask(
            DESCRIBE_USER_SCRAM_CREDENTIALS,
            0,
            DescribeUserScramCredentialsRequestData(),
            DescribeUserScramCredentialsResponseData,
            ALICE,
        )
        assert users.error_code == CLUSTER_DENIED
        for version in range(2):
            listed = await broker.ask(
                LIST_CONFIG_RESOURCES,
                version,
                ListConfigResourcesRequestData(),
                ListConfigResourcesResponseData,
                ALICE,
            )
            assert listed.error_code == CLUSTER_DENIED
        kinds = (TOPIC, GROUP, BROKER, BROKER_LOGGER, CLIENT_METRICS)
        resources = [DescribeConfigsResource(kind, "1") for kind in kinds]
        configs = await broker.ask(
            DESCRIBE_CONFIGS,
            4,
            DescribeConfigsRequestData(resources),
            DescribeConfigsResponseData,
            ALICE,
        )
        assert [each.error_code for each in configs.results] == [
            TOPIC_DENIED,
            GROUP_DENIED,
            *[CLUSTER_DENIED] * 3,
        ]
        broker.close()

    run_scenario(scenario, quorum)


def test_without_an_authorizer_acls_are_disabled(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        response = await broker.ask(
            DESCRIBE_ACLS,
            3,
            DescribeAclsRequestData(1, None, 1, None, None, 1, 1),
            DescribeAclsResponseData,
        )
        assert response.error_code == SECURITY_DISABLED
        broker.close()

    run_scenario(scenario, quorum)
