"""Admin requests at a broker, compared with Kafka's ``KafkaApis``: its answers, what it forwards.

Both replay the same records (`java/BrokerAdminOracle.java`) and have a controller behind them that
alters every resource it is asked to alter.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from kraft import records
from kraft._core.codec.fetch import decode_request_header
from kraft._core.codec.metadata_codec import Message
from kraft.broker.apis.config_changes import ConfigChangeRules, config_change_apis
from kraft.broker.apis.configs import config_apis
from kraft.broker.apis.descriptions import description_apis
from kraft.broker.apis.forwarding import AdminForwarding, advertised_apis, forwarding_apis
from kraft.broker.dynamic_settings import DynamicSettingsCheck
from kraft.controller.configs.node_settings import NODE_SETTINGS, UpdateMode
from kraft.controller.security.delegation_tokens import TokenSettings
from kraft.errors import NONE
from kraft.image.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraft.image.publishing import Image, ImageDelta, ImagePublishing
from kraft.image.replay import MetadataState
from kraft.protocol.alter_configs import (
    ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsRequestData,
    AlterConfigsResource,
    AlterConfigsResponseData,
    AlteredResource,
)
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.apis import BROKER_RPCS, RPC_BY_KEY, RPCS, Rpc
from kraft.protocol.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreateDelegationTokenRequestData,
)
from kraft.protocol.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequestData,
    DescribeClientQuotasResponseData,
    QuotaComponent,
)
from kraft.protocol.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequestData,
    DescribeUserScramCredentialsResponseData,
    ScramUser,
)
from kraft.protocol.envelope import EnvelopeRequestData, EnvelopeResponseData
from kraft.protocol.expire_delegation_token import EXPIRE_DELEGATION_TOKEN
from kraft.protocol.headers import Api, RequestHeader, response_header
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
from kraft.protocol.renew_delegation_token import RENEW_DELEGATION_TOKEN
from kraft.records import Record, Uuid
from kraft.records.values import encode_value
from kraft.security.authorizer import Action, Authorizer, RequestContext
from kraft.security.controller_apis import BROKER_OPERATIONS
from kraft.security.principals import ANONYMOUS, KafkaPrincipal, encode_principal
from kraft.security.protocols import PeerIdentity, SecurityProtocol
from kraft.server.apis.api import handler_of
from kraft.server.apis.error_responses import REJECTIONS
from kraft.server.apis.forwarding import FORWARDABLE
from kraft.server.config.settings import SETTINGS
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests, LineProcess
from tests.harness.table_records import batch_of
from tests.reference.generated_structs import shapes

pytestmark = pytest.mark.interop

NODE_ID = 1
STATIC = {"log.dirs": "/data/a,/data/b"}
ALICE = KafkaPrincipal("User", "alice")
#: Settings that only a running broker of Kafka checks (pools of threads), or that only Kafka does:
#: listeners, Java classes, limits that depend on each other.
OTHERWISE_CHECKED = (
    "background.threads",
    "group.consumer.assignment.interval.ms",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
    "listener.security.protocol.map",
    "listeners",
    "log.cleaner.threads",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "principal.builder.class",
    "ssl.engine.factory.class",
)
#: Kafka checks these only without the prefix of a listener, where they have an effect.
UNPREFIXED = ("log.retention.ms", "log.roll.jitter.ms", "log.roll.ms")
COMPARED = [
    name
    for name, one in NODE_SETTINGS.items()
    if one.mode not in (UpdateMode.INTERNAL, UpdateMode.DYNAMIC_ONLY)
    and name not in OTHERWISE_CHECKED
]
#: At and beyond the bounds of ranges, and of wrong types.
VALUES = ("-2", "-1", "0", "1", "4", "9", "18", "524287", "2147483647", "soon", "", "true", "a,b")
Answer = TypeVar("Answer", bound=Message)


@pytest.fixture(scope="module")
def kafka(jars: Jars) -> Iterator[JsonRequests]:
    command = jars.oracle("BrokerAdminOracle")
    with LineProcess(command, errors=subprocess.DEVNULL) as process:
        yield JsonRequests(process)


class Denying(Authorizer):
    """An authorizer that denies the listed operations, as the oracle's."""

    def __init__(self, denied: list[str]) -> None:
        self._denied = denied

    def authorize(self, context: RequestContext, action: Action) -> bool:
        name = f"{int(action.operation)} {int(action.resource_type)} {action.resource_name}"
        return name not in self._denied


class AlteringController:
    """The controller behind the broker; ``forwarded`` has its requests, or their resources."""

    versions: PeerVersions | None = None

    def __init__(self) -> None:
        self.forwarded: list[str] = []
        self.is_asked = False

    async def call(
        self, api: Api, request: Message, answer: type[Answer], *, timeout_ms: float
    ) -> Answer:
        assert isinstance(request, EnvelopeRequestData)
        self.is_asked = True
        flexible = {rpc.api.key: rpc.api.flexible_since for rpc in RPCS}
        key, version, correlation, _, position = decode_request_header(
            request.request_data, flexible
        )
        body = memoryview(request.request_data)[position:]
        rpc = RPC_BY_KEY[key]
        if key in (ALTER_CONFIGS.key, INCREMENTAL_ALTER_CONFIGS.key):
            assert rpc.request is not None
            asked: Any = rpc.request.decode(body, version)
            names = [(each.resource_type, each.resource_name) for each in asked.resources]
            self.forwarded = [f"{kind} {name}" for kind, name in names]
            results = [AlteredResource(0, None, *name) for name in names]
            response: Any = answer_of(rpc)(responses=results)
        else:
            response = answer_of(rpc)()
        made = response.encode(version)
        start = response_header(rpc.api, version, correlation, len(made))[4:]
        return answer.decode(EnvelopeResponseData(start + made).encode(0), 0)


class Both:
    """kraft's broker and Kafka's with the same records."""

    def __init__(self, kafka: JsonRequests, log: list[Record]) -> None:
        self._kafka = kafka
        kafka("image", records=[encode_value(record).hex() for record in log])
        cluster = MetadataState(journaling=True)
        publishing = ImagePublishing(cluster)
        publishing.register(self)
        batch = batch_of(log)
        cluster.apply(batch)
        publishing.note_batches(batch)
        publishing.publish(cluster.next_offset)
        assert publishing.fault_counts == {}
        self._controller = AlteringController()
        forwarding = AdminForwarding(
            self._controller, lambda _, principal: encode_principal(principal)
        )
        check = DynamicSettingsCheck(
            NODE_ID, STATIC, SETTINGS, frozenset(("/data/a", "/data/b")), lambda _: None
        )
        self._apis = (
            *forwarding_apis(forwarding),
            *config_apis(NODE_ID, STATIC, lambda: self._image),
            *config_change_apis(ConfigChangeRules(NODE_ID, lambda: self._image, check), forwarding),
            *description_apis(lambda: self._image, TokenSettings()),
        )

    name = "Both"
    _image: Image

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        self._image = image

    def ask(
        self,
        api: Api,
        version: int,
        body: bytes,
        denied: list[str] | None = None,
        principal: KafkaPrincipal = ALICE,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
    ) -> tuple[bytes | None, bytes | None]:
        """Return the responses, kraft's first; None for a request that a broker forwards whole.

        Both forward the same resources.
        """
        kafkas = self._kafka(
            "ask",
            key=api.key,
            version=version,
            body=body.hex(),
            user=principal.name,
            token=principal.token_authenticated,
            protocol=protocol.name,
            denied=denied,
        )
        (served,) = (one for one in self._apis if one.api is api)
        authorizer = None if denied is None else Denying(denied)
        handler = handler_of(served, authorizer, None, Counter(), BROKER_OPERATIONS)
        peer = PeerIdentity("127.0.0.1", principal, protocol, "PLAINTEXT")
        header = RequestHeader(api, version, 1, "client")
        self._controller.forwarded, self._controller.is_asked = [], False
        answer = asyncio.run(_awaited(handler.answer(header, memoryview(body), peer)))
        assert self._controller.forwarded == kafkas["forwarded"], (api, body, denied)
        is_whole = self._controller.is_asked and not self._controller.forwarded
        theirs = None if kafkas["body"] is None else bytes.fromhex(kafkas["body"])
        return None if is_whole else answer.body, theirs


def answer_of(rpc: Rpc) -> type[Any]:
    assert rpc.response is not None
    return rpc.response


async def _awaited(work: Any) -> Any:
    return await work


def base() -> list[Record]:
    return [
        records.FeatureLevel(name="metadata.version", feature_level=27, version=0),
        records.Topic(name="a", topic_id=Uuid(b"a" * 16)),
        records.Topic(name="b", topic_id=Uuid(b"b" * 16)),
        *(
            records.RegisterBroker(
                broker_id=id,
                broker_epoch=id,
                incarnation_id=Uuid(bytes([id]) * 16),
                fenced=id == 2,
                end_points=[records.EndpointData(name=name, host="localhost", port=9092)],
                version=3,
            )
            for id, name in ((1, "PLAINTEXT"), (2, "PLAINTEXT"), (3, "OTHER"))
        ),
    ]


def test_the_same_apis_are_forwarded(kafka: JsonRequests) -> None:
    """All in every version, but those that the broker checks first."""
    both = Both(kafka, base())
    for key, rejection in REJECTIONS.items():
        request = RPC_BY_KEY[key].request
        assert request is not None
        if key in (ALTER_CONFIGS.key, INCREMENTAL_ALTER_CONFIGS.key, 94):
            continue
        for version in range(rejection.api.lowest, rejection.api.highest + 1):
            body = next(iter(shapes(request, version))).encode(version)
            answers = both.ask(rejection.api, version, body, protocol=SecurityProtocol.SASL_SSL)
            assert answers == (None, None), rejection.api


def test_the_same_clients_may_ask_for_tokens(kafka: JsonRequests) -> None:
    both = Both(kafka, base())
    by_token = KafkaPrincipal("User", "alice", token_authenticated=True)
    for api in (CREATE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN):
        rpc = RPC_BY_KEY[api.key]
        assert rpc.request is not None
        assert rpc.response is not None
        made: Any = rpc.request()
        requests = [made]
        if api is CREATE_DELEGATION_TOKEN:
            requests.append(CreateDelegationTokenRequestData("User", "bob"))
        for protocol in SecurityProtocol:
            for principal in (ALICE, ANONYMOUS, by_token):
                for denied in (None, [], ["13 7 User:bob"]):
                    for request in requests:
                        ours, theirs = both.ask(
                            api,
                            api.highest,
                            request.encode(api.highest),
                            denied,
                            principal,
                            protocol,
                        )
                        assert error_of(rpc.response, ours, api.highest) == error_of(
                            rpc.response, theirs, api.highest
                        ), (api, protocol, principal, denied, request)


def error_of(response: type[Message], body: bytes | None, version: int) -> int | None:
    if body is None:
        return None
    decoded: Any = response.decode(body, version)
    code: int = decoded.error_code
    return code


@pytest.mark.parametrize("broker", ["1", ""])
def test_every_setting_takes_the_same_values(kafka: JsonRequests, broker: str) -> None:
    both = Both(kafka, base())
    for name in COMPARED:
        prefixes = ("",) if name in UNPREFIXED else ("", "listener.name.tls.")
        for prefix in prefixes:
            for value in dict.fromkeys((NODE_SETTINGS[name].default or "1", *VALUES)):
                change = IncrementalConfig(prefix + name, 0, value)
                request = IncrementalAlterConfigsRequestData(
                    [IncrementalAlterConfigsResource(BROKER, broker, [change])], True
                )
                bodies = both.ask(INCREMENTAL_ALTER_CONFIGS, 1, request.encode(1))
                compare_altered(IncrementalAlterConfigsResponseData, bodies, 1, request)


@pytest.mark.parametrize("seed", range(20))
def test_changes_of_configurations_have_the_same_results(kafka: JsonRequests, seed: int) -> None:
    chance = random.Random(seed)
    log = base()
    for name, value in (("log.segment.bytes", "x"), ("log.retention.ms", "7"), ("log.dirs", "/x")):
        for broker in ("", "1"):
            if chance.random() < 0.4:
                log.append(
                    records.Config(
                        resource_type=BROKER, resource_name=broker, name=name, value=value
                    )
                )
    both = Both(kafka, log)
    for _ in range(60):
        version = chance.randint(0, 1)
        denied = chance.choice((None, [], ["11 4 kafka-cluster"]))
        resources = [random_resource(chance) for _ in range(chance.randint(1, 4))]
        incremental = IncrementalAlterConfigsRequestData(
            [
                IncrementalAlterConfigsResource(
                    kind,
                    name,
                    [
                        IncrementalConfig(one, random_operation(chance, kind, one), value)
                        for one, value in changes
                    ],
                )
                for kind, name, changes in resources
            ],
            validate_only=True,
        )
        bodies = both.ask(INCREMENTAL_ALTER_CONFIGS, version, incremental.encode(version), denied)
        compare_altered(IncrementalAlterConfigsResponseData, bodies, version, incremental)
        replacing = AlterConfigsRequestData(
            [
                AlterConfigsResource(kind, name, [AlterableConfig(*each) for each in changes])
                for kind, name, changes in resources
            ]
        )
        bodies = both.ask(ALTER_CONFIGS, version, replacing.encode(version), denied)
        compare_altered(AlterConfigsResponseData, bodies, version, replacing)


def random_operation(chance: random.Random, kind: int, name: str) -> int:
    """Return an operation. Kafka fails at unknown ones on loggers, and at lists without default."""
    if kind == BROKER_LOGGER:
        return chance.choice((0, 0, 0, 1, 2, 3))
    if name in NODE_SETTINGS and NODE_SETTINGS[name].default is None:
        return chance.choice((0, 0, 0, 1))
    return chance.choice((0, 0, 0, 1, 2, 3, 9))


def random_resource(
    chance: random.Random,
) -> tuple[int, str, list[tuple[str, str | None]]]:
    kinds = (BROKER, BROKER, BROKER, TOPIC, BROKER_LOGGER, CLIENT_METRICS, GROUP, 1, 99)
    kind = chance.choice(kinds)
    name = chance.choice(("", "1", "1", "2", "x", "-1"))
    if kind == BROKER_LOGGER:
        level = chance.choice(("INFO", "x", None))
        return kind, name, [(chance.choice(("root", "no.such")), level)]
    changes: list[tuple[str, str | None]] = []
    for _ in range(chance.choice((1, 1, 2))):
        setting = chance.choice(COMPARED)
        prefixed = setting not in UNPREFIXED and chance.random() < 0.2
        values = (NODE_SETTINGS[setting].default or "1", None, *VALUES)
        changes.append(
            (f"listener.name.tls.{setting}" if prefixed else setting, chance.choice(values))
        )
    return kind, name, changes


def compare_altered(
    kind: type[AlterConfigsResponseData | IncrementalAlterConfigsResponseData],
    bodies: tuple[bytes | None, bytes | None],
    version: int,
    request: Message,
) -> None:
    ours, theirs = (
        [
            (each.resource_type, each.resource_name, each.error_code, each.error_message)
            for each in kind.decode(body or b"", version).responses
        ]
        for body in bodies
    )
    assert [each[:3] for each in ours] == [each[:3] for each in theirs], (request, ours, theirs)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_quotas_and_credentials_are_described(kafka: JsonRequests, seed: int) -> None:
    chance = random.Random(seed)
    log = base()
    names = ("alice", "bob", None)
    for _ in range(chance.randint(0, 6)):
        entity = [records.EntityData(entity_type="user", entity_name=chance.choice(names))]
        if chance.random() < 0.5:
            entity.append(
                records.EntityData(entity_type="client-id", entity_name=chance.choice(names))
            )
        if chance.random() < 0.2:
            entity = [records.EntityData(entity_type="ip", entity_name="10.0.0.1")]
        log.append(records.ClientQuota(entity=entity, key="request_percentage", value=5.5))
    for user in ("alice", "bob"):
        for mechanism in (1, 2):
            if chance.random() < 0.5:
                log.append(
                    records.UserScramCredential(
                        name=user,
                        mechanism=mechanism,
                        salt=b"salt",
                        stored_key=b"stored",
                        server_key=b"server",
                        iterations=4096,
                    )
                )
    both = Both(kafka, log)
    for _ in range(40):
        denied = chance.choice((None, [], ["10 4 kafka-cluster", "8 4 kafka-cluster"]))
        compare_quotas(both, chance, denied)
        compare_credentials(both, chance, denied)
        compare_listed(both, chance, denied)


def compare_quotas(both: Both, chance: random.Random, denied: list[str] | None) -> None:
    version = chance.randint(0, 1)
    types = ("user", "client-id", "ip", "user", "client-id", "", "group")
    components = [
        QuotaComponent(
            chance.choice(types),
            chance.choice((0, 0, 1, 2, 3)),
            chance.choice(("alice", None, None)),
        )
        for _ in range(chance.randint(0, 2))
    ]
    request = DescribeClientQuotasRequestData(components, chance.random() < 0.5)
    described = [
        DescribeClientQuotasResponseData.decode(body or b"", version)
        for body in both.ask(DESCRIBE_CLIENT_QUOTAS, version, request.encode(version), denied)
    ]
    for each in described:
        each.error_message = None
        for entry in each.entries or ():
            entry.entity.sort(key=lambda part: part.entity_type)
        (each.entries or []).sort(key=str)
    assert described[0] == described[1], (request, denied)


def compare_credentials(both: Both, chance: random.Random, denied: list[str] | None) -> None:
    users = [
        ScramUser(chance.choice(("alice", "bob", "carol"))) for _ in range(chance.randint(0, 3))
    ]
    if denied and not users:
        # Kafka fails at a denied request for all users.
        users.append(ScramUser("alice"))
    request = DescribeUserScramCredentialsRequestData(users or chance.choice((None, [])))
    described = [
        DescribeUserScramCredentialsResponseData.decode(body or b"", 0)
        for body in both.ask(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request.encode(0), denied)
    ]
    for each in described:
        each.error_message = None
        each.results.sort(key=lambda result: result.user)
        for result in each.results:
            result.error_message = None
            result.credential_infos.sort(key=lambda info: info.mechanism)
    assert described[0] == described[1], (request, denied)


def compare_listed(both: Both, chance: random.Random, denied: list[str] | None) -> None:
    # The others are those of managers that the oracle does not have.
    kinds = chance.sample((TOPIC, BROKER, BROKER_LOGGER, 7), chance.randint(1, 3))
    request = ListConfigResourcesRequestData(kinds)
    listed = [
        ListConfigResourcesResponseData.decode(body or b"", 1)
        for body in both.ask(LIST_CONFIG_RESOURCES, 1, request.encode(1), denied)
    ]
    for each in listed:
        each.config_resources.sort(key=lambda one: (one.resource_type, one.resource_name))
    assert listed[0] == listed[1], (request, denied)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_versions_are_listed(kafka: JsonRequests, seed: int) -> None:
    chance = random.Random(seed)
    # What 4.3.1 has: one API and one version are those of 4.4.
    served = [
        rpc.api._replace(highest=4) if rpc.api.key == 18 else rpc.api
        for rpc in (*RPCS, *BROKER_RPCS)
        if rpc.api.key != 94
    ]
    controller = []
    for api in served:
        if chance.random() < 0.8:
            lowest = chance.randint(0, api.highest + 1)
            controller.append((api.key, lowest, lowest + chance.randint(0, 9)))
    ranges = {key: (lowest, highest) for key, lowest, highest in controller}
    ours = advertised_apis(served, PeerVersions(NONE, ranges, {}, {}))
    theirs = {key: tuple(range) for key, *range in kafka("versions", controller=controller)}
    assert {
        api.key: (api.lowest, api.highest) for api in ours if api.key in FORWARDABLE - {67}
    } == {key: range for key, range in theirs.items() if key in FORWARDABLE}
    assert {api.key for api in ours if api.key in theirs} == {
        key for key in theirs if key in {api.key for api in served}
    }
