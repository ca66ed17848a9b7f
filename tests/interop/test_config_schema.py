"""Dynamic configurations compared with Kafka's definitions and validator."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from kraft.configdef import ConfigValueError
from kraft.controller.config_schema import (
    BROKER_LISTS,
    DEFINITIONS,
    GROUP_CONFIGS,
    GROUP_LIMITS,
    TOPIC_CONFIGS,
    ConfigRules,
)
from kraft.controller.configs.config_validation import check_configs
from kraft.controller.configs.java_pattern import is_java_pattern
from kraft.errors import KraftError
from kraft.image.configs import BROKER, CLIENT_METRICS, GROUP, RESOURCE_TYPES, TOPIC
from tests.harness.configurations import CONTROLLER
from tests.harness.line_process import JsonRequests, RejectedError

pytestmark = pytest.mark.interop


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_names_kinds_defaults_and_synonyms_are_kafkas(oracle: JsonRequests) -> None:
    defined = oracle("schema")
    for type, definitions in DEFINITIONS.items():
        theirs = defined[RESOURCE_TYPES[type].upper()]
        assert set(definitions) == set(theirs)
        for name, mine in definitions.items():
            synonyms = [[one.name, str(one.factor)] for one in mine.synonyms]
            assert theirs[name] == {
                "type": mine.kind.name,
                "default": plain(mine.default),
                "synonyms": synonyms if type == TOPIC else [],
            }, name
    assert {name: ",".join(entries) for name, entries in BROKER_LISTS.items()} == {
        name: default or "" for name, default in defined["BROKER_LISTS"].items()
    }


VALUES = (
    *("", " ", "0", "1", "-1", "-2", "-3", "2", "3", "4", "5", "9", "10", "17", "18", "22", "23"),
    *("99", "100", "999", "1000", "-131072", "-131073", "1048575", "1048576", "2147483647"),
    *("2147483648", "9223372036854775807", "9223372036854775808", " +7 ", "1e3", "0x10", "1_0"),
    *("0.5", "1.0", "1.1", ".5", "5.", "1e-3", "0.5f", "0.5D", "0x1p-1", "0x1p-1f", "NaN", "-0.0"),
    *("Infinity", "-Infinity", "nan", "1e999", "0x.8p0", "0x1", "1e", "e1", "."),
    *("true", "FALSE", " true\t", "yes", "compact", "delete", "delete,compact", "delete, delete"),
    *("compact,other", "a,,b", ",", "a,", "a,a", "a b"),
    *("gzip", "zstd", "none", "uncompressed", "producer", "GZIP", "CreateTime", "LogAppendTime"),
    *("latest", "earliest", "none", "LATEST", "by_duration", "by_duration:", "by_duration:PT1H"),
    *("by_duration:-PT1H", "by_duration:P1DT-1H", "by_duration:-PT-1.5S", "by_duration:pt1,5s"),
    *("read_committed", "read_uncommitted", "*", "*,", "0:1,2:3", "0:1, 2:3", "0:-1", ":", "1:"),
)


def test_values_are_parsed_as_in_kafka(oracle: JsonRequests) -> None:
    taken = 0
    for type, definitions in DEFINITIONS.items():
        for name, definition in definitions.items():
            for text in VALUES:
                asked = {"type": RESOURCE_TYPES[type].upper(), "name": name, "value": text}
                try:
                    theirs = oracle("schemaValue", **asked)
                except RejectedError:
                    theirs = RejectedError
                try:
                    mine = plain(definition.read(text))
                    taken += 1
                except ConfigValueError:
                    mine = RejectedError
                # JSON has no NaN.
                assert ("NaN" if mine != mine else mine) == theirs, (name, text)
    assert taken > 500


STATIC: dict[str, tuple[str, ...]] = {
    "log.retention.ms": ("5000", "-1"),
    "log.retention.minutes": ("7", "-7"),
    "log.retention.hours": ("1", "-1"),
    "log.roll.ms": ("5000",),
    "log.roll.hours": ("9",),
    "log.roll.jitter.hours": ("2",),
    "log.flush.interval.ms": ("77",),
    "log.flush.scheduler.interval.ms": ("88",),
    "log.cleanup.policy": ("compact", "delete,compact", "delete"),
    "log.cleaner.min.compaction.lag.ms": ("100",),
    "log.cleaner.max.compaction.lag.ms": ("1000",),
    "log.cleaner.min.cleanable.ratio": ("0.25",),
    "log.local.retention.ms": ("100", "-1"),
    "log.local.retention.bytes": ("100", "-1"),
    "log.retention.bytes": ("200", "50"),
    "message.max.bytes": ("1000",),
    "min.insync.replicas": ("2",),
    "unclean.leader.election.enable": ("true",),
    "compression.type": ("gzip",),
    "remote.log.storage.system.enable": ("true", "true", "true"),
    "group.consumer.session.timeout.ms": ("46000",),
    "group.consumer.max.session.timeout.ms": ("90000",),
    "group.share.min.heartbeat.interval.ms": ("1000",),
    "group.consumer.assignment.interval.ms": ("2000", "0"),
    "group.share.assignment.interval.ms": ("3000",),
    "group.streams.assignment.interval.ms": ("4000",),
    "group.share.heartbeat.interval.ms": ("4000",),
    "group.streams.max.standby.replicas": ("5",),
    "group.streams.num.standby.replicas": ("1",),
    "group.share.max.delivery.count.limit": ("20",),
    "group.share.delivery.count.limit": ("7",),
}


def static(dice: random.Random) -> dict[str, str]:
    names = dice.sample(sorted(STATIC), dice.randrange(5))
    return {name: dice.choice(STATIC[name]) for name in names}


def test_defaults_are_kafkas_for_the_same_properties(oracle: JsonRequests) -> None:
    dice = random.Random(30)
    for _ in range(100):
        properties = static(dice)
        try:
            theirs = oracle("defaults", settings=CONTROLLER | properties)
        except RejectedError:
            continue
        rules = ConfigRules(properties)
        for mine, kafkas in (
            (rules.topic_defaults, theirs["TOPIC"]),
            (rules.group_defaults, theirs["GROUP"]),
        ):
            assert {name: plain(mine[name]) for name in kafkas} == kafkas, properties
        synonyms = {name for name, one in TOPIC_CONFIGS.items() if one.synonyms}
        assert set(theirs["TOPIC"]) == synonyms
        # Explicit assignment intervals are shown by DescribeConfigs only.
        assert set(theirs["GROUP"]) == {name for name, one in GROUP_CONFIGS.items() if one.synonyms}


def test_limits_of_groups_are_settings_of_brokers_with_these_defaults(oracle: JsonRequests) -> None:
    defined = oracle("definitions")
    for lowest, highest in GROUP_LIMITS.values():
        for limit in filter(None, (lowest, highest)):
            assert defined[limit[0]]["default"] == limit[1]


# Settings that are often used together, so that rules between them are tested.
TOGETHER: dict[int, dict[str, tuple[str, ...]]] = {
    TOPIC: {
        "remote.storage.enable": ("true", "true", "false"),
        "remote.log.copy.disable": ("true", "false"),
        "remote.log.delete.on.disable": ("true", "false"),
        "cleanup.policy": ("delete", "delete,delete", "compact", "", "delete,compact"),
        "retention.ms": ("-1", "0", "100", "200"),
        "local.retention.ms": ("-2", "-1", "0", "100", "200"),
        "retention.bytes": ("-5", "-1", "0", "100"),
        "local.retention.bytes": ("-2", "-1", "0", "100"),
        "min.compaction.lag.ms": ("0", "100", "101"),
        "max.compaction.lag.ms": ("1", "100", "101"),
    },
    GROUP: {
        "consumer.session.timeout.ms": ("45000", "60000", "60001", "44999"),
        "consumer.heartbeat.interval.ms": ("5000", "15000", "15001", "4999"),
        "consumer.assignment.interval.ms": ("0", "15000", "15001"),
        "share.session.timeout.ms": ("45000", "60000", "60001"),
        "share.heartbeat.interval.ms": ("1000", "5000", "15000"),
        "share.record.lock.duration.ms": ("14999", "15000", "60000", "60001"),
        "share.delivery.count.limit": ("2", "10", "11", "20", "21"),
        "share.partition.max.record.locks": ("100", "4000", "4001"),
        "share.assignment.interval.ms": ("0", "15001"),
        "streams.num.standby.replicas": ("0", "2", "3", "5", "6"),
        "streams.assignment.interval.ms": ("15000", "15001"),
    },
    CLIENT_METRICS: {
        "metrics": ("", "*", "a,b", "a,a"),
        "interval.ms": ("99", "100", "3600000", "3600001"),
        "match": ("", "client_id=a", "client_id=", "client_id=a=", "client_id=a=b", "=a", "b=c"),
    },
}
NAMES = {
    TOPIC: ("t", "t", "t", "t", "a.b_c-d", "", ".", "a/b", "a" * 249, "a" * 250),
    BROKER: ("", "0", "+1", "-0", "-1", "x", "2147483647", "2147483648", "00000000000000001", " 1"),
    GROUP: ("g", "g", "g", "any thing/", ""),
    CLIENT_METRICS: ("m", "m", "m", ""),
    8: ("0",),
}


def drawn(dice: random.Random, type: int) -> dict[str, str]:
    configs = {
        name: dice.choice(TOGETHER[type][name])
        for name in dice.sample(sorted(TOGETHER[type]), dice.randrange(min(7, len(TOGETHER[type]))))
    }
    if dice.random() < 0.2:
        name = dice.choice((*DEFINITIONS[type], "no.such.thing"))
        configs[name] = dice.choice(VALUES)
    return configs


def refused(
    rules: ConfigRules,
    resource: tuple[int, str],
    configs: Mapping[str, str],
    existing: Mapping[str, str],
) -> int:
    try:
        check_configs(rules, resource, configs, existing)
    except KraftError as error:
        return error.kafka_code
    return 0


def test_resources_accept_the_same_configurations_as_in_kafka(oracle: JsonRequests) -> None:
    dice = random.Random(31)
    held = 0
    for _ in range(6000):
        type = dice.choice((TOPIC, TOPIC, TOPIC, GROUP, GROUP, CLIENT_METRICS, BROKER, 8))
        name = dice.choice(NAMES[type])
        configs, existing = (
            (drawn(dice, type), drawn(dice, type)) if type in TOGETHER else ({"a": "b"}, {})
        )
        properties = static(dice)
        try:
            code = oracle(
                "validate",
                type=type,
                name=name,
                configs=configs,
                existing=existing,
                settings=CONTROLLER | properties,
            )
        except RejectedError:
            continue  # The properties contradict each other.
        case = (properties, name, configs, existing)
        assert refused(ConfigRules(properties), (type, name), configs, existing) == code, case
        held += code == 0
    assert held > 1000


PIECES = (
    *"ab*+?{}[]()|\\^$-.&1,:=<>!",
    *("(?:", "(?=", "(?<x>", "\\k<x>", "(?i)", "(?i-m:", "[^", "&&", "{2}", "{2,}", "{3,1}", "\\d"),
    *(
        "\\p{Alpha}",
        "\\p{Lu}",
        "\\pL",
        "\\Q",
        "\\E",
        "\\x41",
        "\\u0041",
        "\\b",
        "\\1",
        "\\0",
        "(?>",
    ),
    *("a-z", "z-a", "\\x{1F600}", "\\h", "\\t"),
)


def test_patterns_are_parsed_as_in_java(oracle: JsonRequests) -> None:
    dice = random.Random(32)
    for _ in range(10_000):
        text = "".join(dice.choices(PIECES, k=dice.randrange(8)))
        try:
            oracle("pattern", text=text)
        except RejectedError:
            assert not is_java_pattern(text), text
        else:
            assert is_java_pattern(text), text
