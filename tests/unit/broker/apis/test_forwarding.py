"""Admin requests of a broker's clients that a real quorum of controllers decides."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft._core.codec.metadata_codec import Message, Struct
from kraft.broker.apis.forwarding import AdminForwarding, advertised_apis, forwarding_apis
from kraft.broker.controller_channel import ControllerChannel
from kraft.errors import (
    NONE,
    REQUEST_TIMED_OUT,
    UNKNOWN_SERVER_ERROR,
    UnforwardableRequestError,
)
from kraft.network.authentication import ListenerSecurity
from kraft.network.throttled_log import ThrottledLog
from kraft.protocol.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequestData,
    AlterClientQuotasResponseData,
    QuotaEntity,
    QuotaEntry,
    QuotaOp,
)
from kraft.protocol.alter_configs import ALTER_CONFIGS
from kraft.protocol.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequestData,
    AlterPartitionReassignmentsResponseData,
    ReassignablePartition,
    ReassignableTopic,
)
from kraft.protocol.api_versions import API_VERSIONS, PeerVersions
from kraft.protocol.apis import RPC_BY_KEY
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
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.describe_configs import DESCRIBE_CONFIGS
from kraft.protocol.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribePartition,
    DescribeQuorumRequestData,
    DescribeQuorumResponseData,
    DescribeTopic,
)
from kraft.protocol.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequestData,
    ExpireDelegationTokenResponseData,
)
from kraft.protocol.headers import Api, RequestHeader, read_response_header, request_frame
from kraft.protocol.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from kraft.protocol.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequestData,
    ListPartitionReassignmentsResponseData,
)
from kraft.protocol.metadata import METADATA
from kraft.security.controller_apis import BROKER_OPERATIONS
from kraft.security.principals import KafkaPrincipal
from kraft.security.protocols import PeerIdentity, SecurityProtocol
from kraft.server.apis.api import handler_of
from kraft.server.apis.error_responses import REJECTIONS
from kraft.server.apis.forwarding import FORWARDABLE
from tests.harness.controller_nodes import RunScenario, hold_disk, until
from tests.harness.listener_client import ask_bytes
from tests.reference.generated_structs import shapes
from tests.unit.broker.apis.admin_broker import (
    CORRELATION,
    AdminBroker,
    admin_quorum,
    started_broker,
)

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
#: The broker connects as ANONYMOUS; its clients have no permissions but those of ACLs.
AUTHORIZED = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
TOPIC_DENIED, TOKEN_NOT_ALLOWED, TOKEN_DENIED = 29, 64, 65
# Kafka's codes of resources, patterns, operations and permissions.
TOPIC, LITERAL, PREFIXED, CREATE, ALLOW = 2, 3, 4, 5, 3
#: Each version of each API that the controller decides alone.
REJECTED = [
    pytest.param(rejection.api, version, id=f"{rejection.api.name}-{version}")
    for key, rejection in REJECTIONS.items()
    if key not in (ALTER_CONFIGS.key, INCREMENTAL_ALTER_CONFIGS.key)
    for version in range(rejection.api.lowest, rejection.api.highest + 1)
]


def created(*names: str, partitions: int = 1) -> CreateTopicsRequestData:
    return CreateTopicsRequestData([CreatableTopic(name, partitions, 1) for name in names])


async def create(
    broker: AdminBroker, *names: str, version: int = 7, partitions: int = 1, **client: Any
) -> list[int]:
    """Return the errors of the topics, in their order."""
    response = await broker.ask(
        CREATE_TOPICS,
        version,
        created(*names, partitions=partitions),
        CreateTopicsResponseData,
        **client,
    )
    errors = {topic.name: topic.error_code for topic in response.topics}
    return [errors[name] for name in names]


async def allow(broker: AdminBroker, *acls: AclCreation) -> None:
    response = await broker.ask(
        CREATE_ACLS, 3, CreateAclsRequestData(list(acls)), CreateAclsResponseData
    )
    assert [result.error_code for result in response.results] == [NONE] * len(acls)
    await broker.is_current()


def test_topics_are_created_in_every_version(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        for version in range(CREATE_TOPICS.lowest, CREATE_TOPICS.highest + 1):
            assert await create(broker, f"t{version}", version=version) == [NONE]
        assert await create(broker, "t7") == [36]
        broker.close()

    run_scenario(scenario, quorum)


def test_the_response_is_the_controllers_own(run_scenario: RunScenario, tmp_path: Path) -> None:
    """Its bytes are those that the controller sends to a client of its own."""
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1, 2)
        await create(broker, "a")
        target = ReassignablePartition(0, [1, 2])
        await broker.ask(
            ALTER_PARTITION_REASSIGNMENTS,
            1,
            AlterPartitionReassignmentsRequestData(
                60_000, topics=[ReassignableTopic("a", [target])]
            ),
            AlterPartitionReassignmentsResponseData,
        )
        body = ListPartitionReassignmentsRequestData(60_000, None).encode(0)
        api = LIST_PARTITION_REASSIGNMENTS
        direct = await ask_bytes(quorum.running[1], request_frame(api, 0, CORRELATION, "c", body))
        _, position = read_response_header(direct, api, 0)
        forwarded, _ = await broker.ask_bytes(api, 0, body)
        assert forwarded == direct[position:]
        assert ListPartitionReassignmentsResponseData.decode(forwarded, 0).topics
        log = DescribeTopic("__cluster_metadata", [DescribePartition()])
        for version in range(DESCRIBE_QUORUM.lowest, DESCRIBE_QUORUM.highest + 1):
            described = await broker.ask(
                DESCRIBE_QUORUM,
                version,
                DescribeQuorumRequestData([log]),
                DescribeQuorumResponseData,
            )
            assert [at.leader_id for at in described.topics[0].partitions] == [1]
        broker.close()

    run_scenario(scenario, quorum)


def test_the_controller_decides_by_the_clients_principal_and_address(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path, settings=AUTHORIZED)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        await allow(
            broker,
            AclCreation(TOPIC, "a", PREFIXED, "User:alice", "*", CREATE, ALLOW),
            AclCreation(TOPIC, "b", LITERAL, "User:bob", "10.1.2.3", CREATE, ALLOW),
            AclCreation(TOPIC, "c", LITERAL, "User:bob", "fe80:0:0:0:0:0:0:7", CREATE, ALLOW),
        )
        assert await create(broker, "a1", "b", principal=ALICE) == [NONE, TOPIC_DENIED]
        assert await create(broker, "b", principal=BOB) == [TOPIC_DENIED]
        assert await create(broker, "b", principal=BOB, address="10.1.2.3") == [NONE]
        assert await create(broker, "c", principal=BOB, address="fe80::7%eth0") == [NONE]
        # An IPv4 client of a listener with IPv6 has its IPv4 address.
        assert await create(broker, "b", principal=BOB, address="::ffff:10.1.2.3") == [36]
        broker.close()

    run_scenario(scenario, quorum)


def test_a_client_waits_at_the_broker_for_its_quota_at_the_controller(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        limit = QuotaEntry(
            [QuotaEntity("user", "alice")], [QuotaOp("controller_mutation_rate", 1.0)]
        )
        altered = await broker.ask(
            ALTER_CLIENT_QUOTAS,
            1,
            AlterClientQuotasRequestData([limit]),
            AlterClientQuotasResponseData,
        )
        assert [entry.error_code for entry in altered.entries] == [NONE]
        await broker.is_current()
        # Before version 6 the quota is not strict: the request is done and the client waits.
        for version in (5, 2):
            request = created(f"v{version}", partitions=50).encode(version)
            body, throttle_ms = await broker.ask_bytes(CREATE_TOPICS, version, request, ALICE)
            response = CreateTopicsResponseData.decode(body, version)
            assert throttle_ms == response.throttle_time_ms > 0
            assert [topic.error_code for topic in response.topics] == [NONE]
        _, throttle_ms = await broker.ask_bytes(CREATE_TOPICS, 5, created("v").encode(5), BOB)
        assert throttle_ms == 0
        broker.close()

    run_scenario(scenario, quorum)


def test_tokens_are_for_authenticated_clients(run_scenario: RunScenario, tmp_path: Path) -> None:
    """The controller sees only the broker's connection: the broker checks the client's."""
    quorum = admin_quorum(
        tmp_path, settings={**AUTHORIZED, "delegation.token.secret.key": "secret"}
    )

    async def scenario() -> None:
        broker = await started_broker(quorum)

        async def create_token(
            principal: KafkaPrincipal, protocol: SecurityProtocol, version: int = 3, owner: str = ""
        ) -> CreateDelegationTokenResponseData:
            request = CreateDelegationTokenRequestData(max_lifetime_ms=-1)
            if owner:
                request.owner_principal_type, request.owner_principal_name = "User", owner
            return await broker.ask(
                CREATE_DELEGATION_TOKEN,
                version,
                request,
                CreateDelegationTokenResponseData,
                principal,
                protocol=protocol,
            )

        sasl = SecurityProtocol.SASL_PLAINTEXT
        for version in range(1, 4):
            issued = await create_token(ALICE, sasl, version)
            assert (issued.error_code, issued.principal_name) == (NONE, "alice")
        by_token = KafkaPrincipal("User", "alice", token_authenticated=True)
        for principal, protocol in ((ALICE, SecurityProtocol.PLAINTEXT), (by_token, sasl)):
            denied = await create_token(principal, protocol)
            assert (denied.error_code, denied.issue_timestamp_ms) == (TOKEN_NOT_ALLOWED, -1)
        assert (await create_token(ALICE, sasl, owner="bob")).error_code == TOKEN_DENIED
        for protocol, error in ((SecurityProtocol.PLAINTEXT, TOKEN_NOT_ALLOWED), (sasl, NONE)):
            expired = await broker.ask(
                EXPIRE_DELEGATION_TOKEN,
                2,
                ExpireDelegationTokenRequestData(issued.hmac, -1),
                ExpireDelegationTokenResponseData,
                ALICE,
                protocol=protocol,
            )
            assert expired.error_code == error
        broker.close()

    run_scenario(scenario, quorum)


def test_a_principal_builder_writes_the_principal(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    settings = {
        **AUTHORIZED,
        "principal.builder.class": "tests.unit.server.apis.principal_builders:WithOwnEnvelopes",
        "super.users": "User:ANONYMOUS;User:peer-of-CONTROLLER",
    }
    quorum = admin_quorum(tmp_path, settings=settings)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        seen = []

        def encode(listener: str, principal: KafkaPrincipal) -> bytes:
            # The broker's listener has the same builder.
            seen.append(listener)
            return node.security.encode_envelope_principal("CONTROLLER", principal)

        broker = AdminBroker(quorum, node, encode_principal=encode)
        await broker.is_current()
        await quorum.brokers(1)
        await allow(broker, AclCreation(TOPIC, "a", LITERAL, "User:alice", "*", CREATE, ALLOW))
        assert await create(broker, "a", "b", principal=ALICE) == [NONE, TOPIC_DENIED]
        assert set(seen) == {"PLAINTEXT"}
        broker.close()

    run_scenario(scenario, quorum)


def test_an_envelope_that_the_controller_rejects_is_an_unknown_error(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        broker = AdminBroker(quorum, node, encode_principal=lambda *_: b"\xff\xff")
        assert await create(broker, "a", "b") == [UNKNOWN_SERVER_ERROR] * 2
        broker.close()

    run_scenario(scenario, quorum)


def test_a_version_that_the_controller_lacks_closes_the_connection(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """The client then asks for the versions again (KIP-590)."""
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        with pytest.raises(UnforwardableRequestError, match="version 8 of CreateTopics"):
            await broker.ask_bytes(CREATE_TOPICS, 8, created("a").encode(7))
        with pytest.raises(UnforwardableRequestError):
            await broker.ask_bytes(CREATE_TOPICS, 7, created("a").encode(7)[:-3])
        broker.close()

    run_scenario(scenario, quorum)


@pytest.mark.parametrize(("api", "version"), REJECTED)
def test_without_a_leader_every_api_answers_that_the_time_is_over(api: Api, version: int) -> None:
    rpc = RPC_BY_KEY[api.key]
    assert rpc.request is not None
    assert rpc.response is not None
    request_type, response_type = rpc.request, rpc.response

    async def answers() -> list[Message]:
        warnings = ThrottledLog(logging.getLogger(__name__), time.monotonic)
        channel = ControllerChannel(
            lambda: None, "broker-1", ListenerSecurity(), warnings, attempt_timeout_ms=10
        )
        forwarding = AdminForwarding(channel, lambda *_: b"", timeout_ms=0)
        (served,) = (one for one in forwarding_apis(forwarding) if one.api is api)
        handler = handler_of(served, None, None, Counter(), BROKER_OPERATIONS)
        header = RequestHeader(api, version, CORRELATION, None)
        peer = PeerIdentity("::1", ALICE, SecurityProtocol.SASL_SSL, "SASL")
        bodies = [made.encode(version) for made in shapes(request_type, version)]
        given = [await handler.answer(header, memoryview(body), peer) for body in bodies]
        return [response_type.decode(each.body, version) for each in given]

    errors = [each for one in asyncio.run(answers()) for each in errors_of(one, version)]
    assert set(errors) == {REQUEST_TIMED_OUT}


def errors_of(response: Any, version: int) -> Iterator[int]:
    """Yield the errors of a response and of its entries that the version has."""
    for name, spec in type(response).schema.specs.items():
        value = getattr(response, name)
        if name == "error_code" and version >= spec.since:
            yield value
        elif isinstance(value, list):
            for entry in value:
                if isinstance(entry, Struct):
                    yield from errors_of(entry, version)


def test_a_request_without_an_answer_times_out(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum, forwarding_ms=300)
        await quorum.brokers(1)
        gate = hold_disk(quorum.running[1])
        try:
            assert await create(broker, "a", "b") == [REQUEST_TIMED_OUT] * 2
        finally:
            gate.set()
        broker.close()

    run_scenario(scenario, quorum)


def test_a_request_reaches_the_next_leader(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path, 3)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        assert await create(broker, "before") == [NONE]
        await quorum.stop(await quorum.active())
        assert await create(broker, "after") == [NONE]
        broker.close()

    run_scenario(scenario, quorum)


def test_a_request_in_progress_moves_to_the_next_leader(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """The leader has decided the request, and loses its followers before it is committed."""
    quorum = admin_quorum(tmp_path, 3)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        leader = await quorum.active()
        followers = [id for id in quorum.running if id != leader]
        await quorum.stop(*followers)
        end = quorum.cluster(leader).next_offset
        request = asyncio.ensure_future(create(broker, "moved"))
        await until(lambda: quorum.cluster(leader).next_offset > end)
        # Without a majority the leader resigns, and reverts what it has decided.
        await until(lambda: not quorum.runner(leader).controller.is_active)
        assert not request.done()
        # It still has the records in its log: as the next leader it would find the topic.
        await quorum.stop(leader)
        await quorum.start(*followers)
        assert await request == [NONE]
        broker.close()

    run_scenario(scenario, quorum)


def test_api_versions_have_the_versions_of_the_active_controller(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        served = [API_VERSIONS, *(handler.api for handler in broker.handlers.values())]
        assert broker.channel.versions is None
        assert advertised_apis(served, broker.channel.versions) == served
        await create(broker, "a")
        versions = broker.channel.versions
        assert versions is not None
        # The controller is of the same release.
        assert advertised_apis(served, versions) == served
        assert {api.key for api in served} & FORWARDABLE == FORWARDABLE - {67}
        broker.close()

    run_scenario(scenario, quorum)


def test_api_versions_lack_what_an_older_controller_lacks() -> None:
    older = PeerVersions(
        NONE,
        {CREATE_TOPICS.key: (0, 5), DESCRIBE_CONFIGS.key: (1, 1), METADATA.key: (0, 0)},
        {},
        {},
    )
    served = [METADATA, CREATE_TOPICS, DESCRIBE_CONFIGS, ALTER_CLIENT_QUOTAS]
    assert advertised_apis(served, older) == [
        METADATA,
        CREATE_TOPICS._replace(highest=5),
        DESCRIBE_CONFIGS,
    ]
    newer = PeerVersions(NONE, {CREATE_TOPICS.key: (8, 9)}, {}, {})
    assert advertised_apis([CREATE_TOPICS], newer) == []
