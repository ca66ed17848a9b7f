"""DescribeConfigs, and the configurations in CreateTopics, beside Apache Kafka's controller.

One kraft and one Kafka controller run with the same settings and the same dynamic configurations.
Each answers the same requests, in every version and from Kafka's Admin client.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraft.controller.config_schema import GROUP_CONFIGS
from kraft.controller.configs.config_description import synonyms_of
from kraft.controller.configs.node_settings import FIXED, NODE_SETTINGS, UpdateMode
from kraft.image.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
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
)
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.harness.line_process import JsonRequests
from tests.interop import mbeans
from tests.interop.cluster import Cluster, ClusterError, Driver, Node, wait_for
from tests.interop.kraft_node import add_kraft_controller
from tests.interop.raw_client import ask_node, unfenced_broker

pytestmark = pytest.mark.interop

ID, BROKER_ID = 101, 1
#: Settings of each kind: several names for one value, lists, secrets, names unknown to Kafka.
SETTINGS = {
    "log.retention.hours": "24",
    "log.roll.ms": "5000",
    "log.flush.scheduler.interval.ms": "77",
    "log.cleanup.policy": "compact, delete",
    "log.cleaner.min.cleanable.ratio": "0.00025",
    "log.cleaner.io.max.bytes.per.second": "12345678.5",
    "min.insync.replicas": "2",
    "num.io.threads": "3",
    "default.replication.factor": "1",
    "group.consumer.session.timeout.ms": "46000",
    "group.share.heartbeat.interval.ms": "6000",
    "group.streams.assignment.interval.ms": "500",
    "unstable.feature.versions.enable": "false",
    "ssl.keystore.password": "secret-of-a-throwaway-cluster",
    "listener.name.controller.ssl.keystore.password": "secret-of-a-throwaway-cluster",
    "listener.name.controller.max.connections": "1000",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "some.plugin.setting": "value",
}
#: Dynamic configurations, some of which a node ignores.
CHANGES: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "BROKER",
        "",
        {
            "log.retention.minutes": "600",
            "log.retention.ms": "700000",
            "log.roll.hours": "7",
            "log.flush.interval.ms": "99",
            "message.max.bytes": "1000000",
            "num.partitions": "5",
            "log.segment.bytes": "many",
            "leader.replication.throttled.rate": "1000",
            "unclean.leader.election.enable": "true",
            "another.plugin.setting": "value",
        },
    ),
    (
        "BROKER",
        str(ID),
        {
            "message.max.bytes": "2000000",
            "num.io.threads": "4",
            "log.cleaner.threads": "2",
            "listener.name.controller.max.connections": "2000",
            "log.index.interval.bytes": "8192",
        },
    ),
    (
        "TOPIC",
        "configured",
        {
            "retention.ms": " 5000",
            "cleanup.policy": "delete, compact",
            "min.cleanable.dirty.ratio": "1e-4",
            "preallocate": "TRUE",
            "compression.type": "gzip",
            "max.message.bytes": "77",
        },
    ),
    ("GROUP", "g", {"consumer.session.timeout.ms": "47000", "share.auto.offset.reset": "earliest"}),
    (
        "CLIENT_METRICS",
        "m",
        {"interval.ms": "1000", "metrics": "a,b", "match": "client_id=x"},
    ),
)
RESOURCES = (
    (TOPIC, "configured"),
    (TOPIC, "plain"),
    (TOPIC, "missing"),
    (TOPIC, "no/topic"),
    (BROKER, ""),
    (BROKER, str(ID)),
    (BROKER, "7"),
    (BROKER, "x"),
    (BROKER_LOGGER, ""),
    (BROKER_LOGGER, "7"),
    (CLIENT_METRICS, "m"),
    (CLIENT_METRICS, "none"),
    (CLIENT_METRICS, ""),
    (GROUP, "g"),
    (GROUP, "none"),
    (GROUP, ""),
)
KEYS = (None, [], ["retention.ms", "message.max.bytes", "no.such.name", "share.isolation.level"])
Pair = tuple[tuple[Node, Driver], tuple[Node, Driver]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Yield a kraft and a Kafka controller with one unfenced broker each, equally configured."""
    clusters = []
    try:
        for kind in ("kraft", "kafka"):
            cluster = Cluster(
                kafka(KAFKA_4), tmp_path_factory.mktemp(kind), "a3JhZnQgY29uZmlncyBoZQ", True
            )
            clusters.append(cluster)
            cluster.reserve_controllers(ID)
            # The broker has no process, so it must not be fenced for missing heartbeats.
            cluster.settings = SETTINGS | {"broker.session.timeout.ms": "600000"}
            add = add_kraft_controller if kind == "kraft" else Cluster.add_controller
            node = add(cluster, ID)
            node.format(cluster.cluster_id)
            node.start()
        first, second = (_prepared(cluster) for cluster in clusters)
        yield first, second
    finally:
        for cluster in clusters:
            cluster.kill()


def _prepared(cluster: Cluster) -> tuple[Node, Driver]:
    node = cluster.nodes[ID]
    node.wait_until_listening()
    unfenced_broker(node, cluster.cluster_id, BROKER_ID)
    for name in ("configured", "plain"):
        assert not created(node, CreatableTopic(name, 1, 1)).topics[0].error_code
    driver = cluster.driver(to_controllers=True)
    for kind, name, configs in CHANGES:
        driver(
            "alter_config",
            type=kind,
            name=name,
            ops=[["SET", key, value] for key, value in configs.items()],
        )
    wait_for(
        "the node to apply the last change",
        lambda: (
            driver("describe_config", type="CLIENT_METRICS", name="m")["interval.ms"][0] == "1000"
        ),
    )
    return node, driver


def created(
    node: Node, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> CreateTopicsResponseData:
    request = CreateTopicsRequestData(list(topics), validate_only=validate_only)
    return ask_node(node, CREATE_TOPICS, version, request, CreateTopicsResponseData)


def neutral(node: Node, text: str | None) -> str | None:
    """Return a value without the node's own port and directory."""
    if text is None:
        return None
    return text.replace(str(node.directory), "DIRECTORY").replace(str(node.port), "PORT")


@pytest.mark.parametrize("version", range(DESCRIBE_CONFIGS.lowest, DESCRIBE_CONFIGS.highest + 1))
@pytest.mark.parametrize("keys", KEYS, ids=("all", "empty", "filtered"))
@pytest.mark.parametrize("synonyms", [True, False], ids=("synonyms", "no synonyms"))
def test_describe_configs_answers_as_kafka(
    pair: Pair, version: int, keys: list[str] | None, synonyms: bool
) -> None:
    request = DescribeConfigsRequestData(
        [DescribeConfigsResource(kind, name, keys) for kind, name in RESOURCES], synonyms
    )
    mine, kafkas = (
        ask_node(node, DESCRIBE_CONFIGS, version, request, DescribeConfigsResponseData)
        for node, _ in pair
    )
    described = 0
    for resource, ours, theirs in zip(RESOURCES, mine.results, kafkas.results, strict=True):
        assert (ours.resource_type, ours.resource_name) == resource
        assert ours.error_code == theirs.error_code, resource
        assert shown(pair[0][0], ours.configs) == shown(pair[1][0], theirs.configs), resource
        described += len(ours.configs)
    assert described > (400 if not keys else 4)


def test_the_same_configurations_are_documented_in_other_words(pair: Pair) -> None:
    request = DescribeConfigsRequestData(
        [DescribeConfigsResource(kind, name) for kind, name in RESOURCES], False, True
    )
    mine, kafkas = (
        {
            (result.resource_type, result.resource_name, one.name): one.documentation
            for result in ask_node(
                node, DESCRIBE_CONFIGS, 4, request, DescribeConfigsResponseData
            ).results
            for one in result.configs
        }
        for node, _ in pair
    )
    assert {key: bool(text) for key, text in mine.items()} == {
        key: bool(text) for key, text in kafkas.items()
    }
    assert sum(map(bool, mine.values())) > 400
    assert not [key for key, text in mine.items() if text and text == kafkas[key]]


def shown(node: Node, configs: list[Any]) -> dict[str, tuple[Any, ...]]:
    described = {
        one.name: (
            neutral(node, one.value),
            one.read_only,
            one.config_source,
            one.is_sensitive,
            one.config_type,
            one.documentation,
            [(each.name, neutral(node, each.value), each.source) for each in one.synonyms],
        )
        for one in configs
    }
    assert len(described) == len(configs)
    return described


def test_kafkas_admin_client_reads_the_same(pair: Pair) -> None:
    for kind, name in (
        *((kind, name) for kind, name, _ in CHANGES),
        ("TOPIC", "plain"),
        ("GROUP", "other"),
        ("CLIENT_METRICS", "other"),
    ):
        mine, kafkas = (
            {
                key: [
                    neutral(node, value),
                    *rest,
                    [[one[0], neutral(node, one[1]), one[2]] for one in synonyms],
                ]
                for key, (value, *rest, synonyms) in driver(
                    "describe_config", type=kind, name=name
                ).items()
            }
            for node, driver in pair
        )
        assert mine == kafkas, (kind, name)
        assert mine


@pytest.mark.parametrize(
    "entity",
    [
        ("brokers", "--entity-name", str(ID)),
        ("brokers", "--entity-default"),
        ("topics", "--entity-name", "configured"),
        ("groups", "--entity-name", "g"),
    ],
    ids=" ".join,
)
def test_kafka_configs_prints_the_same_for_both_controllers(
    pair: Pair, entity: tuple[str, ...]
) -> None:
    mine, kafkas = (
        sorted(
            str(neutral(node, line))
            for line in node.jars.run(
                "kafka.admin.ConfigCommand",
                *("--bootstrap-controller", node.address),
                *("--describe", "--all", "--entity-type", *entity),
            ).stdout.splitlines()
        )
        for node, _ in pair
    )
    assert mine == kafkas
    assert len(mine) > 1


def test_kafkas_admin_client_reads_errors(pair: Pair) -> None:
    for kind, name, error in (
        ("TOPIC", "missing", "UnknownTopicOrPartitionException"),
        ("GROUP", "", "InvalidRequestException"),
    ):
        for _, driver in pair:
            with pytest.raises(ClusterError, match=error):
                driver("describe_config", type=kind, name=name)


def test_loggers_have_levels_of_log4j(pair: Pair) -> None:
    _, driver = pair[0]
    described = driver("describe_config", type="BROKER_LOGGER", name=str(ID))
    level, source, is_sensitive, is_read_only, _, synonyms = described["root"]
    assert level in ("INFO", "WARN")
    assert (source, is_sensitive, is_read_only) == ("DYNAMIC_BROKER_LOGGER_CONFIG", False, False)
    assert synonyms == []
    assert "kraft.server.controller" in described


def test_an_unknown_type_rejects_the_request(pair: Pair) -> None:
    request = DescribeConfigsRequestData(
        [DescribeConfigsResource(TOPIC, "plain"), DescribeConfigsResource(77, "x")]
    )
    mine, kafkas = (
        ask_node(node, DESCRIBE_CONFIGS, 4, request, DescribeConfigsResponseData)
        for node, _ in pair
    )
    assert {one.error_code for one in kafkas.results} == {one.error_code for one in mine.results}


@pytest.mark.parametrize("version", range(CREATE_TOPICS.lowest, CREATE_TOPICS.highest + 1))
@pytest.mark.parametrize("validate_only", [True, False], ids=("validated", "created"))
def test_new_topics_have_kafkas_effective_configurations(
    pair: Pair, version: int, validate_only: bool
) -> None:
    own = (
        {"retention.ms": " 7", "cleanup.policy": "delete, compact", "segment.bytes": "2000000"},
        {"internal.segment.bytes": "1000"},
        {},
    )
    topics = [
        CreatableTopic(
            f"new-{version}-{number}",
            1,
            1,
            configs=[CreatableConfig(name, value) for name, value in configs.items()],
        )
        for number, configs in enumerate(own)
    ]
    topics.append(CreatableTopic("plain", 1, 1))
    mine, kafkas = (
        {
            topic.name: (
                topic.error_code,
                topic.num_partitions,
                topic.replication_factor,
                topic.topic_config_error_code,
                None
                if topic.configs is None
                else [
                    (one.name, one.value, one.read_only, one.config_source, one.is_sensitive)
                    for one in topic.configs
                ],
            )
            for topic in created(node, *topics, version=version, validate_only=validate_only).topics
        }
        for node, _ in pair
    )
    assert mine == kafkas
    if version >= 5:
        effective = mine[f"new-{version}-2"][-1]
        assert isinstance(effective, list)
        assert len(effective) > 30


def test_the_table_of_settings_is_kafkas(oracle: JsonRequests) -> None:
    described = oracle("nodeSettings")
    assert set(NODE_SETTINGS) == set(described["settings"])
    for name, theirs in described["settings"].items():
        mine = NODE_SETTINGS[name]
        assert (mine.kind.name, mine.is_set) == (theirs["type"], theirs["isSet"]), name
        if theirs["isDefined"]:
            assert mine.default == theirs["default"], name
        assert (mine.mode is UpdateMode.INTERNAL) == theirs["isInternal"], name
        assert (mine.mode is UpdateMode.DYNAMIC_ONLY) == (not theirs["isDefined"]), name
        assert (mine.mode is UpdateMode.PER_LISTENER) == theirs["isPerListener"], name
        assert (mine.mode in FIXED) == (theirs["mode"] is None), name
        is_per_broker = mine.mode in (UpdateMode.PER_BROKER, UpdateMode.PER_LISTENER)
        assert is_per_broker == (theirs["mode"] == "per-broker"), name
        assert list(synonyms_of(name)) == theirs["synonyms"], name
    assert set(GROUP_CONFIGS) == set(described["groups"])
    for name, synonym in described["groups"].items():
        assert (f"group.{name}" in NODE_SETTINGS) == (synonym is not None)
        assert synonym in (None, f"group.{name}")


#: The only logger that both have: the tests run Kafka without log4j.
LOGGER = "root"
#: Without a level that is null and unknown operations: Kafka answers UNKNOWN_SERVER_ERROR.
LOGGER_CHANGES = (
    (str(ID), [IncrementalConfig(LOGGER, 0, "WARN")]),
    (str(ID), [IncrementalConfig(LOGGER, 0, "LOUD")]),
    (str(ID), [IncrementalConfig("no.such.logger", 0, "INFO")]),
    (str(ID), [IncrementalConfig("no.such.logger", 1, None)]),
    (str(ID), [IncrementalConfig("root", 1, None)]),
    (str(ID), [IncrementalConfig("root", 0, "INFO")]),
    (str(ID), [IncrementalConfig(LOGGER, 2, "INFO")]),
    (str(ID), [IncrementalConfig(LOGGER, 3, "INFO")]),
    (str(ID), [IncrementalConfig("no.such.logger", 2, "INFO")]),
    (str(ID), []),
    ("7", [IncrementalConfig(LOGGER, 0, "INFO")]),
    ("x", [IncrementalConfig(LOGGER, 0, "INFO")]),
    ("", [IncrementalConfig(LOGGER, 0, "INFO")]),
    ("+101", [IncrementalConfig(LOGGER, 0, "INFO")]),
    ("99999999999", [IncrementalConfig(LOGGER, 0, "INFO")]),
)


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(("name", "configs"), LOGGER_CHANGES)
def test_changes_of_loggers_have_the_same_results(
    pair: Pair, name: str, configs: list[IncrementalConfig], validate_only: bool
) -> None:
    resource = IncrementalAlterConfigsResource(BROKER_LOGGER, name, configs)
    request = IncrementalAlterConfigsRequestData([resource], validate_only)
    mine, kafkas = (
        ask_node(node, INCREMENTAL_ALTER_CONFIGS, 1, request, IncrementalAlterConfigsResponseData)
        for node, _ in pair
    )
    assert mine.responses == kafkas.responses


def test_every_metric_of_kafka_is_exported_or_excluded_with_a_reason(pair: Pair) -> None:
    registered = mbeans.attributes_of(pair[1][0])
    exported = mbeans.exported()
    missing = {each for each in registered - exported if mbeans.reason_to_exclude(each) is None}
    assert not missing, "\n".join(sorted(map(str, missing)))
    unknown = exported - registered - mbeans.NOT_ALWAYS_REGISTERED
    assert not unknown, "\n".join(sorted(map(str, unknown)))
    twice = {each for each in exported if mbeans.reason_to_exclude(each) is not None}
    assert not twice, "\n".join(sorted(map(str, twice)))
