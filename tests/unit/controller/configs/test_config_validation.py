"""Validation of the configurations of topics, groups and client metrics."""

from __future__ import annotations

import re

import pytest

from kraft.controller.config_schema import DEFAULT_RULES, ConfigRules, is_supported_config
from kraft.controller.configs.config_validation import check_configs
from kraft.errors import InvalidConfigError, InvalidRequestError, InvalidTopicError, KraftError
from kraft.image.configs import BROKER, CLIENT_METRICS, GROUP, TOPIC

TIERED = ConfigRules({"remote.log.storage.system.enable": "true"})
REMOTE = {"remote.storage.enable": "true"}


def check(
    kind: int,
    configs: dict[str, str],
    rules: ConfigRules = DEFAULT_RULES,
    existing: dict[str, str] | None = None,
    name: str = "x",
) -> None:
    check_configs(rules, (kind, name), configs, existing or {})


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"retention.ms": " -1 ", "segment.bytes": "1048576", "preallocate": "TRUE"},
        {"cleanup.policy": "", "compression.gzip.level": "-1"},
        {"cleanup.policy": "compact, delete,compact", "min.cleanable.dirty.ratio": "0.1"},
        {"leader.replication.throttled.replicas": "*", "internal.segment.bytes": "1"},
    ],
)
def test_valid_topic_configurations(configs: dict[str, str]) -> None:
    check(TOPIC, configs)


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"retention": "1"}, "did you mean retention.ms"),
        ({"retention.ms": "-2"}, "for configuration retention.ms: Value must be at least -1"),
        ({"retention.ms": "1d"}, "64 bits"),
        ({"segment.bytes": "1048575"}, "at least 1048576"),
        ({"cleanup.policy": "delete,,"}, "empty"),
        (
            {"compression.type": "zip"},
            "Invalid value zip for configuration compression.type: String must be one of: "
            "uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ({"compression.type": "a\nb"}, r"Invalid value 'a\\nb' for"),
        ({"compression.gzip.level": "0"}, "or -1"),
        ({"min.cleanable.dirty.ratio": "1.1"}, "Value must be no more than 1$"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "larger"),
        (REMOTE, "remote.log.storage.system.enable"),
    ],
)
def test_invalid_topic_configurations(configs: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        check(TOPIC, configs)


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": "100", "local.retention.ms": "100"},
        {"retention.ms": "-1", "local.retention.ms": "-1"},
        {"remote.log.copy.disable": "true", "retention.ms": "9", "local.retention.ms": "9"},
        {"cleanup.policy": ""},
        {"cleanup.policy": "delete,delete"},
    ],
)
def test_valid_configurations_of_tiered_topics(configs: dict[str, str]) -> None:
    check(TOPIC, REMOTE | configs, TIERED)


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        (
            {"retention.ms": "100", "local.retention.ms": "101"},
            "Invalid value 101 for configuration local.retention.ms: Value must not be more than "
            "retention.ms property value: 100",
        ),
        (
            {"retention.bytes": "100", "local.retention.bytes": "-1"},
            "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as "
            "retention.bytes value is set as 100.",
        ),
        (
            {"cleanup.policy": "compact"},
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy "
            "being an empty list.",
        ),
        (
            {"remote.log.copy.disable": "true", "retention.ms": "9", "local.retention.ms": "8"},
            "When `remote.log.copy.disable` is set to true, the `local.retention.ms` and "
            "`retention.ms` must be set to the identical value because there will be no more logs "
            "copied to the remote storage.",
        ),
    ],
)
def test_invalid_configurations_of_tiered_topics_have_kafkas_messages(
    configs: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        check(TOPIC, REMOTE | configs, TIERED)
    assert str(raised.value) == said


def test_remote_storage_cannot_be_disabled_while_it_has_data() -> None:
    with pytest.raises(InvalidConfigError, match=r"delete\.on\.disable"):
        check(TOPIC, {}, TIERED, existing=REMOTE)
    check(TOPIC, {"remote.log.delete.on.disable": "true"}, TIERED, existing=REMOTE)


def test_defaults_come_from_the_properties_of_the_controller() -> None:
    rules = ConfigRules({"log.retention.hours": "1", "log.roll.ms": "5", "log.roll.hours": "9"})
    assert rules.topic_defaults["retention.ms"] == 3_600_000
    assert rules.topic_defaults["segment.ms"] == 5
    assert ConfigRules({"log.retention.minutes": "-7"}).topic_defaults["retention.ms"] == -1
    with pytest.raises(InvalidConfigError, match=r"log\.roll\.ms"):
        ConfigRules({"log.roll.ms": "soon"})
    rules = ConfigRules({"log.cleaner.max.compaction.lag.ms": "10"})
    with pytest.raises(InvalidConfigError, match="larger"):
        check(TOPIC, {"min.compaction.lag.ms": "11"}, rules)


@pytest.mark.parametrize("name", [".", "..", "a/b", "a" * 250, "a b", "\N{LATIN SMALL LETTER E}é"])
def test_invalid_topic_names(name: str) -> None:
    with pytest.raises(InvalidTopicError):
        check(TOPIC, {}, name=name)


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "15000"},
        {"consumer.assignment.interval.ms": "0", "share.auto.offset.reset": "by_duration:PT1H"},
        {"streams.num.standby.replicas": "2", "share.isolation.level": "read_committed"},
    ],
)
def test_valid_group_configurations(configs: dict[str, str]) -> None:
    check(GROUP, configs)


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        (
            {"session.timeout.ms": "1"},
            "Unknown group config name: session.timeout.ms; did you",
        ),
        (
            {"consumer.session.timeout.ms": "60001"},
            "consumer.session.timeout.ms must be less than or equal to "
            "group.consumer.max.session.timeout.ms",
        ),
        (
            {"share.heartbeat.interval.ms": "4999"},
            "share.heartbeat.interval.ms must be greater than or equal to "
            "group.share.min.heartbeat.interval.ms",
        ),
        ({"share.delivery.count.limit": "11"}, "group.share.max.delivery.count.limit"),
        ({"consumer.assignment.interval.ms": "15001"}, "max.assignment.interval.ms"),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to "
            "group.streams.max.standby.replicas",
        ),
        ({"share.auto.offset.reset": "none"}, "by_duration"),
    ],
)
def test_invalid_group_configurations(configs: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape(said)):
        check(GROUP, configs)


def test_the_limits_of_a_group_are_those_of_the_brokers() -> None:
    rules = ConfigRules(
        {
            "group.consumer.max.session.timeout.ms": "90000",
            "group.consumer.min.session.timeout.ms": "10",
            "group.consumer.session.timeout.ms": "7000",
        }
    )
    check(GROUP, {"consumer.session.timeout.ms": "90000"}, rules)
    said = "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    with pytest.raises(InvalidConfigError, match=said):
        check(GROUP, {"consumer.heartbeat.interval.ms": "7000"}, rules)


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"metrics": "org.apache.", "interval.ms": "100", "match": "client_id=a.*"}, None),
        ({"metrics": "*"}, None),
        ({"match": " client_software_name = apache-.* , client_id=b="}, None),
        ({"period": "1"}, InvalidRequestError),
        ({"interval.ms": "99"}, InvalidRequestError),
        ({"interval.ms": "often"}, InvalidConfigError),
        ({"metrics": "a,a"}, None),
        ({"metrics": "a,,b"}, InvalidConfigError),
        ({"match": "client_id"}, InvalidConfigError),
        ({"match": "client_id=a=b"}, InvalidConfigError),
        ({"match": "user=a"}, InvalidConfigError),
        ({"match": "client_id=(a"}, InvalidConfigError),
    ],
)
def test_configurations_of_metrics_subscriptions(
    configs: dict[str, str], error: type[KraftError] | None
) -> None:
    if error is None:
        check(CLIENT_METRICS, configs)
        return
    with pytest.raises(error):
        check(CLIENT_METRICS, configs)


def test_broker_settings_are_not_validated() -> None:
    check(BROKER, {"anything": "at all"}, name="1")
    check(BROKER, {"anything": "at all"}, name="")


def test_records_of_unknown_configurations_are_ignored() -> None:
    assert is_supported_config(TOPIC, "retention.ms")
    assert is_supported_config(BROKER, "anything")
    assert not is_supported_config(TOPIC, "message.format.version")
    assert not is_supported_config(8, "retention.ms")
