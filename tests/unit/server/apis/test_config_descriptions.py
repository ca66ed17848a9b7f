"""DescribeConfigs and the configurations in CreateTopics over a node's listener."""

from __future__ import annotations

from pathlib import Path

from kraft.controller.config_schema import USED_BROKER_SETTINGS
from kraft.controller.configs.config_documentation import NODES, NOT_USED, UNDOCUMENTED
from kraft.controller.configs.node_settings import NODE_SETTINGS
from kraft.errors import CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION
from kraft.image.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraft.protocol.create_acls import (
    CREATE_ACLS,
    AclCreation,
    CreateAclsRequestData,
    CreateAclsResponseData,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequestData,
    DescribeConfigsResource,
    DescribeConfigsResponseData,
    DescribeConfigsResult,
)
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)
from kraft.security.principals import KafkaPrincipal
from kraft.server.config.settings import OF_LISTENERS, READ_AS_TEXT, SETTINGS
from kraft.server.process import QuorumNode
from tests.harness.controller_nodes import Quorum, RunScenario
from tests.harness.listener_client import ask, forward

INVALID_TOPIC = 17
TOPIC_DENIED, GROUP_DENIED = 29, 30
# Kafka's codes of the operation CREATE and the permission ALLOW.
CREATE, ALLOW = 5, 3
# Kafka's codes of IncrementalAlterConfigs.
SET, DELETE = 0, 1
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OPEN = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
BROKERS_ONLY = {"authorizer.class.name": STANDARD, "super.users": "User:broker"}
ALICE = KafkaPrincipal("User", "alice")


async def describe(
    node: QuorumNode,
    *resources: tuple[int, str],
    version: int = 4,
    keys: list[str] | None = None,
    synonyms: bool = True,
    documentation: bool = False,
) -> list[DescribeConfigsResult]:
    request = DescribeConfigsRequestData(
        [DescribeConfigsResource(kind, name, keys) for kind, name in resources],
        synonyms,
        documentation,
    )
    return (
        await ask(node, DESCRIBE_CONFIGS, version, request, DescribeConfigsResponseData)
    ).results


def test_every_version_describes_every_kind_of_resource(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings={"num.io.threads": "3"})

    async def scenario() -> None:
        await quorum.start()
        await quorum.agree()
        node = quorum.running[await quorum.active()]
        id = str(node.config.node_id)
        for version in range(DESCRIBE_CONFIGS.lowest, DESCRIBE_CONFIGS.highest + 1):
            results = await describe(
                node,
                *((BROKER, id), (BROKER, ""), (BROKER_LOGGER, id)),
                *((CLIENT_METRICS, "m"), (GROUP, "g")),
                version=version,
            )
            assert [one.error_code for one in results] == [0] * 5
            # In a new cluster the feature eligible.leader.replicas.version sets this default.
            assert [(one.name, one.value) for one in results[1].configs] == [
                ("min.insync.replicas", "1")
            ]
            assert all(one.configs for one in results)
            settings = {one.name: one for one in results[0].configs}
            threads = settings["num.io.threads"]
            assert (threads.value, threads.config_source, threads.is_sensitive) == ("3", 4, False)
            assert threads.config_type == (3 if version >= 3 else 0)
            assert [(one.value, one.source) for one in threads.synonyms] == [("3", 4), ("8", 5)]
            assert threads.documentation is None
            assert settings["node.id"].read_only
            assert "root" in {one.name for one in results[2].configs}
            assert {one.config_source for one in results[2].configs} == {6}
        (filtered,) = await describe(
            node, (GROUP, "g"), keys=["share.isolation.level", "x"], synonyms=False
        )
        assert [(one.name, one.synonyms) for one in filtered.configs] == [
            ("share.isolation.level", [])
        ]

    run_scenario(scenario, quorum)


def test_each_configuration_has_a_sentence_where_a_client_asks_for_it(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings={"listener.name.controller.max.connections": "500"})

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(1)
        await quorum.create("t")
        await quorum.agree()
        node = quorum.running[await quorum.active()]
        id = str(node.config.node_id)
        resources = ((BROKER, id), (BROKER, ""), (TOPIC, "t"), (GROUP, "g"), (CLIENT_METRICS, "m"))
        for version in (3, 4):
            results = await describe(node, *resources, version=version, documentation=True)
            for result in results:
                assert result.configs
                without = {one.name for one in result.configs if not one.documentation}
                # As in Kafka, which has no definition of a name with the prefix of a listener.
                assert without <= {"listener.name.controller.max.connections", *UNDOCUMENTED}
        settings, default, topic = (
            {one.name: one.documentation for one in result.configs} for result in results[:3]
        )
        assert topic["retention.ms"] == (
            "The age from which on segments are deleted; -1 for no limit."
        )
        assert settings["log.retention.ms"] == (
            f"The default of topics' retention.ms. {topic['retention.ms']}"
        )
        assert settings["group.consumer.max.session.timeout.ms"] == (
            "The largest value of groups' consumer.session.timeout.ms."
        )
        assert settings["num.io.threads"] == NOT_USED
        assert settings["node.id"] == "The id of the node in the cluster."
        assert default["min.insync.replicas"] == settings["min.insync.replicas"]

    run_scenario(scenario, quorum)


def test_settings_that_have_an_effect_are_not_documented_as_unused() -> None:
    used = {name for name, rule in SETTINGS.items() if rule.has_effect}
    used |= READ_AS_TEXT & NODE_SETTINGS.keys() | set(OF_LISTENERS) | USED_BROKER_SETTINGS
    assert not {name for name in used & NODE_SETTINGS.keys() if NODES[name] == NOT_USED}


def test_a_resource_with_an_error_does_not_reject_the_others(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        results = await describe(
            node,
            *((TOPIC, "missing"), (TOPIC, "no/topic"), (BROKER, "77"), (BROKER, "x")),
            *((BROKER_LOGGER, ""), (GROUP, ""), (CLIENT_METRICS, ""), (GROUP, "g")),
        )
        assert [one.error_code for one in results] == [
            UNKNOWN_TOPIC_OR_PARTITION,
            INVALID_TOPIC,
            *[INVALID_REQUEST] * 5,
            0,
        ]
        assert results[0].error_message == "there is no topic 'missing'"
        # More resources than the node describes in one turn of the event loop.
        many = await describe(node, *[(GROUP, f"g{number}") for number in range(50)])
        assert {len(one.configs) for one in many} == {17}
        unknown = await describe(node, (GROUP, "g"), (77, "x"))
        assert [one.error_code for one in unknown] == [INVALID_REQUEST] * 2
        request = DescribeConfigsRequestData([DescribeConfigsResource(GROUP, "g")])
        refused = await forward(node, DESCRIBE_CONFIGS, 4, request, DescribeConfigsResponseData)
        assert refused == INVALID_REQUEST

    run_scenario(scenario, quorum)


def test_created_topics_return_their_configurations_and_are_described(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings={"log.retention.hours": "1"})

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        await quorum.brokers(1)
        for version in range(CREATE_TOPICS.lowest, CREATE_TOPICS.highest + 1):
            for validate_only in (True, False):
                request = CreateTopicsRequestData(
                    [
                        CreatableTopic(
                            f"own-{version}", 1, 1, configs=[CreatableConfig("preallocate", "true")]
                        ),
                        CreatableTopic(f"plain-{version}", 1, 1),
                        CreatableTopic("in/valid", 1, 1),
                    ],
                    validate_only=validate_only,
                )
                made = await ask(node, CREATE_TOPICS, version, request, CreateTopicsResponseData)
                own, plain, invalid = (
                    {one.name: (one.value, one.config_source) for one in topic.configs or ()}
                    for topic in made.topics
                )
                assert invalid == {}
                if version < 5:
                    assert own == plain == {}
                    continue
                assert own == plain | {"preallocate": ("true", 1)}
                assert plain["preallocate"] == ("false", 5)
                assert plain["retention.ms"] == ("3600000", 4)
        await quorum.agree()
        own_result, plain_result = await describe(node, (TOPIC, "own-7"), (TOPIC, "plain-7"))
        values = {one.name: (one.value, one.config_source) for one in own_result.configs}
        assert values["preallocate"] == ("true", 1)
        assert values["retention.ms"] == ("3600000", 5)
        assert len(plain_result.configs) == len(own_result.configs)

    run_scenario(scenario, quorum)


def test_created_topics_return_defaults_that_changed_before(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """The defaults are computed once, until a setting that they depend on changes."""
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        await quorum.brokers(1)
        seen = []
        for number, settings in enumerate((None, {"": "1000"}, {"": "2000"}, {"": None})):
            for name, value in (settings or {}).items():
                await set_broker_config(node, name, "log.retention.ms", value)
            request = CreateTopicsRequestData([CreatableTopic(f"t-{number}", 1, 1)])
            made = await ask(node, CREATE_TOPICS, 7, request, CreateTopicsResponseData)
            values = {
                one.name: (one.value, one.config_source) for one in made.topics[0].configs or ()
            }
            seen.append(values["retention.ms"])
        assert seen == [("604800000", 5), ("1000", 3), ("2000", 3), ("604800000", 5)]

    run_scenario(scenario, quorum)


async def set_broker_config(node: QuorumNode, broker: str, name: str, value: str | None) -> None:
    """Set a dynamic setting of a broker, of all brokers for ""; None deletes it."""
    change = IncrementalConfig(name, DELETE if value is None else SET, value)
    request = IncrementalAlterConfigsRequestData(
        [IncrementalAlterConfigsResource(BROKER, broker, [change])]
    )
    said = await ask(
        node, INCREMENTAL_ALTER_CONFIGS, 1, request, IncrementalAlterConfigsResponseData
    )
    assert [each.error_code for each in said.responses] == [0], said


def test_configurations_are_hidden_from_clients_that_may_not_describe_them(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings=BROKERS_ONLY)

    async def scenario() -> None:
        await quorum.start()
        await quorum.agree()
        node = quorum.running[await quorum.active()]
        id = str(node.config.node_id)
        hidden = await describe(node, (TOPIC, "t"), (GROUP, "g"), (BROKER, id), (BROKER_LOGGER, id))
        assert [(one.error_code, one.configs) for one in hidden] == [
            (TOPIC_DENIED, []),
            (GROUP_DENIED, []),
            (CLUSTER_AUTHORIZATION_FAILED, []),
            (CLUSTER_AUTHORIZATION_FAILED, []),
        ]

    run_scenario(scenario, quorum)


def test_created_topics_have_no_configurations_for_clients_that_may_not_describe_them(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings=OPEN)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(1)
        await quorum.agree()
        node = quorum.running[await quorum.active()]
        creation = CreateAclsRequestData([AclCreation(2, "t", 3, "User:alice", "*", CREATE, ALLOW)])
        allowed = await ask(node, CREATE_ACLS, 3, creation, CreateAclsResponseData)
        assert [one.error_code for one in allowed.results] == [0]
        await quorum.agree()
        request = CreateTopicsRequestData([CreatableTopic("t", 1, 1)])
        made = await forward(node, CREATE_TOPICS, 7, request, CreateTopicsResponseData, ALICE)
        assert not isinstance(made, int)
        (topic,) = made.topics
        assert (topic.error_code, topic.topic_config_error_code) == (0, TOPIC_DENIED)
        assert (topic.configs, topic.num_partitions) == ([], -1)

    run_scenario(scenario, quorum)
