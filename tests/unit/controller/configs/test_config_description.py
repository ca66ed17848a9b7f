"""Describe configurations: which source wins, and which values are hidden or ignored."""

from __future__ import annotations

import pytest

from kraft.configdef import ConfigType
from kraft.controller.configs.config_description import (
    ConfigDescription,
    NodeConfigs,
    describe_client_metrics,
)
from kraft.controller.configs.config_sources import (
    CLIENT_METRICS_CONFIG,
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    GROUP_CONFIG,
    STATIC_BROKER_CONFIG,
    TopicDefaults,
)
from kraft.errors import InvalidConfigError

STATIC = {"log.retention.hours": "24", "ssl.key.password": "secret", "plugin": "unknown"}


def node(
    for_all: dict[str, str] | None = None,
    for_node: dict[str, str] | None = None,
    static: dict[str, str] | None = None,
) -> NodeConfigs:
    return NodeConfigs(3, STATIC if static is None else static, for_all or {}, for_node or {})


def by_name(described: list[ConfigDescription]) -> dict[str, ConfigDescription]:
    found = {one.name: one for one in described}
    assert len(found) == len(described)
    return found


def test_a_node_has_the_strongest_value_and_all_its_sources() -> None:
    described = by_name(node({"message.max.bytes": "2"}, {"message.max.bytes": "3"}).node)[
        "message.max.bytes"
    ]
    assert (described.value, described.kind, described.source) == (
        "3",
        ConfigType.INT,
        DYNAMIC_BROKER_CONFIG,
    )
    assert [one.source for one in described.synonyms] == [
        DYNAMIC_BROKER_CONFIG,
        DYNAMIC_DEFAULT_BROKER_CONFIG,
        DEFAULT_CONFIG,
    ]
    assert not described.is_read_only


def test_a_dynamic_synonym_replaces_the_one_of_the_file() -> None:
    topic = by_name(node({"log.retention.ms": "60000"}).describe_topic({}))["retention.ms"]
    assert topic.value == "60000"
    assert topic.synonyms == (
        ("log.retention.ms", "60000", DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.hours", "24", STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", DEFAULT_CONFIG),
    )


def test_synonyms_without_a_value_of_their_first_name_are_not_listed() -> None:
    topic = by_name(node().describe_topic({}))["retention.ms"]
    assert (topic.value, topic.synonyms, topic.source) == ("86400000", (), DEFAULT_CONFIG)


@pytest.mark.parametrize("name", ["ssl.key.password", "plugin"])
def test_secrets_and_unknown_settings_have_no_value(name: str) -> None:
    described = by_name(node().node)[name]
    assert (described.is_sensitive, described.value) == (True, None)
    assert described.is_read_only == (name == "plugin")
    assert [(one.value, one.source) for one in described.synonyms] == [(None, STATIC_BROKER_CONFIG)]


def test_internal_settings_are_hidden_unless_they_are_set() -> None:
    name = "unstable.api.versions.enable"
    assert name not in by_name(node().node)
    assert by_name(node(static={name: "true"}).node)[name].value == "true"
    topic = node().describe_topic({"internal.segment.bytes": "5"})
    assert by_name(topic)["internal.segment.bytes"].value == "5"
    assert "internal.segment.bytes" not in by_name(node().describe_topic({}))


def test_the_id_of_the_node_has_two_names() -> None:
    described = by_name(node(static={"node.id": "3"}).node)
    assert (described["node.id"].value, described["broker.id"].value) == ("3", "3")
    assert described["broker.id"].source == STATIC_BROKER_CONFIG


IGNORED = {
    "num.partitions": "5",
    "log.segment.bytes": "many",
    "ssl.keystore.location": "/k",
    "listeners": "A://:1",
    "listener.name.a.ssl.keystore.location": "/k",
}


def test_the_default_of_all_brokers_has_only_what_a_node_applies() -> None:
    applied = {"log.cleaner.threads": "2", "listener.name.a.max.connections": "7", "plugin.x": "y"}
    described = by_name(node(IGNORED | applied).describe_default())
    assert {name: one.value for name, one in described.items()} == applied | {"plugin.x": None}
    for one in described.values():
        assert [each.source for each in one.synonyms] == [DYNAMIC_DEFAULT_BROKER_CONFIG]


def test_settings_of_one_listener_are_of_one_node() -> None:
    described = by_name(node({}, IGNORED).node)
    assert described["listeners"].source == DYNAMIC_BROKER_CONFIG
    listener = described["listener.name.a.ssl.keystore.location"]
    assert (listener.kind, listener.value) == (ConfigType.STRING, "/k")
    assert described["num.partitions"].source == DEFAULT_CONFIG
    mechanism = "listener.name.a.plain.sasl.jaas.config"
    assert by_name(node({}, {mechanism: "x"}).node)[mechanism].kind is (ConfigType.PASSWORD)


def test_an_invalid_value_of_a_setting_that_is_not_used_is_shown_as_written() -> None:
    described = by_name(node(static={"num.io.threads": "many"}).node)
    assert described["num.io.threads"].value == "many"


def test_a_topic_has_its_own_value_before_those_of_the_node() -> None:
    described = by_name(node().describe_topic({"min.insync.replicas": " 2"}))
    own = described["min.insync.replicas"]
    assert own.value == "2"
    assert [(one.name, one.source) for one in own.synonyms] == [
        ("min.insync.replicas", DYNAMIC_TOPIC_CONFIG),
        ("min.insync.replicas", DEFAULT_CONFIG),
    ]
    assert described["retention.ms"].value == "86400000"
    with pytest.raises(
        InvalidConfigError,
        match=r"Invalid value x for configuration retention\.ms: expected an integer",
    ):
        node().describe_topic({"retention.ms": "x"})


def test_a_group_has_the_settings_of_the_node_as_defaults() -> None:
    static = {
        "group.share.heartbeat.interval.ms": "6000",
        "group.share.assignment.interval.ms": "7",
    }
    described = by_name(node(static=static).describe_group({"share.auto.offset.reset": "earliest"}))
    heartbeat = described["share.heartbeat.interval.ms"]
    assert (heartbeat.value, heartbeat.source) == ("6000", STATIC_BROKER_CONFIG)
    assert described["share.assignment.interval.ms"].value == "7"
    reset = described["share.auto.offset.reset"]
    assert [(one.value, one.source) for one in reset.synonyms] == [
        ("earliest", GROUP_CONFIG),
        ("latest", DEFAULT_CONFIG),
    ]


def test_client_metrics_have_defaults_without_synonyms() -> None:
    described = by_name(describe_client_metrics({"metrics": "a, b"}))
    assert (described["metrics"].value, described["metrics"].source) == (
        "a,b",
        CLIENT_METRICS_CONFIG,
    )
    assert (described["interval.ms"].value, described["interval.ms"].synonyms) == ("300000", ())


def test_a_new_topic_has_effective_configurations_with_their_texts() -> None:
    defaults = TopicDefaults(
        {"log.retention.hours": " 1", "log.roll.hours": "soon"},
        {"log.cleanup.policy": "compact, delete"},
        {"message.max.bytes": "7"},
    )
    created = defaults.of_topic({"retention.bytes": " 5", "internal.segment.bytes": "9"})
    values = {one.name: (one.value, one.source) for one in created}
    assert [one.name for one in created] == sorted(values)
    assert values["retention.ms"] == ("3600000", STATIC_BROKER_CONFIG)
    assert values["segment.ms"] == ("0", STATIC_BROKER_CONFIG)
    assert values["cleanup.policy"] == ("compact, delete", DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert values["max.message.bytes"] == ("7", DYNAMIC_BROKER_CONFIG)
    assert values["retention.bytes"] == (" 5", DYNAMIC_TOPIC_CONFIG)
    assert values["internal.segment.bytes"] == ("9", DYNAMIC_TOPIC_CONFIG)
    assert values["segment.index.bytes"] == ("10485760", DEFAULT_CONFIG)
    assert "internal.segment.bytes" not in {one.name for one in defaults.of_topic({})}
