"""Changes of configurations: which records are written, and which requests are rejected."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kraft import records
from kraft.controller.config_schema import ConfigRules, is_supported_config
from kraft.controller.configs.config_changes import (
    ConfigChange,
    ConfigOperation,
    alter_configs,
    incremental_alter_configs,
)
from kraft.controller.state import DecisionSettings
from kraft.controller.topics.topic_creation import NewTopic, create_topics
from kraft.errors import (
    BrokerIdNotRegisteredError,
    InvalidConfigError,
    InvalidRequestError,
    KraftError,
    PolicyViolationError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kraft.image.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraft.image.replay import MetadataState
from kraft.records import Uuid
from tests.harness.decisions import Lab, whole

DELETE, APPEND, SUBTRACT = (
    ConfigOperation.DELETE,
    ConfigOperation.APPEND,
    ConfigOperation.SUBTRACT,
)


def alter(lab: Lab, resource: tuple[int, str], *changes: ConfigChange) -> KraftError | None:
    """Apply changes of one resource; return its error, or None."""
    return lab.do(incremental_alter_configs(lab.cluster, [(resource, changes)]))[resource]


def configured(lab: Lab, resource: tuple[int, str]) -> Mapping[str, str]:
    return lab.cluster.state.configs.get(resource, {})


def test_a_value_is_set_and_deleted() -> None:
    lab = Lab()
    lab.create("t", [0])
    assert alter(lab, (TOPIC, "t"), ConfigChange("retention.ms", "1")) is None
    assert alter(lab, (TOPIC, "t"), ConfigChange("segment.ms", "2")) is None
    assert configured(lab, (TOPIC, "t")) == {"retention.ms": "1", "segment.ms": "2"}
    assert alter(lab, (TOPIC, "t"), ConfigChange("retention.ms", operation=DELETE)) is None
    assert alter(lab, (TOPIC, "t"), ConfigChange("segment.ms")) is None
    assert not configured(lab, (TOPIC, "t"))


def test_only_changed_values_are_written_except_for_brokers() -> None:
    lab = Lab()
    lab.create("t", [0], retention_ms="1")
    same = [
        ConfigChange("retention.ms", "1"),
        ConfigChange("segment.ms", "2"),
        ConfigChange("flush.ms", operation=DELETE),
    ]
    threads = [ConfigChange("num.io.threads", "3")]
    for written in (["segment.ms", "num.io.threads"], ["num.io.threads"]):
        decision = whole(
            incremental_alter_configs(lab.cluster, [((TOPIC, "t"), same), ((BROKER, "0"), threads)])
        )
        assert [record.name for record in decision.records] == written  # type: ignore[attr-defined]
        lab.do(decision)


def test_append_starts_from_the_default_and_skips_duplicates() -> None:
    lab = Lab()
    lab.create("t", [0])
    topic = (TOPIC, "t")
    assert alter(lab, topic, ConfigChange("cleanup.policy", "compact,delete", APPEND)) is None
    assert configured(lab, topic) == {"cleanup.policy": "delete,compact"}
    assert alter(lab, topic, ConfigChange("cleanup.policy", "delete,other", SUBTRACT)) is None
    assert configured(lab, topic) == {"cleanup.policy": "compact"}
    assert alter(lab, topic, ConfigChange("cleanup.policy", "compact", SUBTRACT)) is None
    assert configured(lab, topic) == {"cleanup.policy": ""}
    assert alter(lab, (BROKER, ""), ConfigChange("ssl.enabled.protocols", "TLSv1", APPEND)) is None
    assert configured(lab, (BROKER, "")) == {"ssl.enabled.protocols": "TLSv1.2,TLSv1.3,TLSv1"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (ConfigChange("retention.ms", "1", APPEND), InvalidConfigError),
        (ConfigChange("nonsense", "1", SUBTRACT), InvalidConfigError),
        (ConfigChange("cleanup.policy", None, APPEND), InvalidRequestError),
        (ConfigChange("cleanup.policy", "other", APPEND), InvalidConfigError),
        (ConfigChange("retention.ms", "1", 9), InvalidRequestError),
        (ConfigChange("retention.ms", "soon"), InvalidConfigError),
    ],
)
def test_an_invalid_operation_is_rejected(change: ConfigChange, error: type[KraftError]) -> None:
    lab = Lab()
    lab.create("t", [0], retention_ms="5")
    assert isinstance(alter(lab, (TOPIC, "t"), change), error)
    assert configured(lab, (TOPIC, "t")) == {"retention.ms": "5"}


def test_an_operation_on_the_entries_of_no_list_has_kafkas_message() -> None:
    lab = Lab()
    lab.create("t", [0])
    for operation, name in ((APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")):
        error = alter(lab, (TOPIC, "t"), ConfigChange("compression.type", "gzip", operation))
        assert str(error) == f"Can't {name} to key compression.type because its type is not LIST."


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        ((TOPIC, "no"), UnknownTopicOrPartitionError),
        ((TOPIC, ""), InvalidRequestError),
        ((BROKER, "77"), BrokerIdNotRegisteredError),
        ((BROKER, "-1"), InvalidRequestError),
        ((BROKER, "zero"), InvalidRequestError),
        ((BROKER_LOGGER, "0"), InvalidRequestError),
        ((GROUP, ""), InvalidRequestError),
        ((CLIENT_METRICS, ""), InvalidRequestError),
        ((7, "x"), UnsupportedVersionError),
    ],
)
def test_an_unknown_resource_is_rejected(
    resource: tuple[int, str], error: type[KraftError]
) -> None:
    lab = Lab()
    refused = alter(lab, resource)
    assert isinstance(refused, error)
    if error is UnknownTopicOrPartitionError:
        assert str(refused) == "The topic 'no' does not exist."


def test_groups_and_subscriptions_need_not_exist() -> None:
    lab = Lab()
    assert alter(lab, (GROUP, "g"), ConfigChange("consumer.session.timeout.ms", "46000")) is None
    assert alter(lab, (CLIENT_METRICS, "all"), ConfigChange("interval.ms", "1000")) is None
    assert len(lab.cluster.state.configs) == 2


def test_one_resource_fails_as_a_whole_and_the_others_are_changed() -> None:
    lab = Lab()
    lab.create("a", [0])
    lab.create("b", [0])
    bad = [ConfigChange("retention.ms", "1"), ConfigChange("segment.ms", "0")]
    response = lab.do(
        incremental_alter_configs(lab.cluster, [((TOPIC, "a"), bad), ((TOPIC, "b"), bad[:1])])
    )
    assert isinstance(response[TOPIC, "a"], InvalidConfigError)
    assert response[TOPIC, "b"] is None
    assert not configured(lab, (TOPIC, "a"))
    assert configured(lab, (TOPIC, "b")) == {"retention.ms": "1"}


def test_entries_that_are_named_twice_are_rejected() -> None:
    lab = Lab()
    lab.create("t", [0])
    one = ConfigChange("retention.ms", "1")
    assert isinstance(alter(lab, (TOPIC, "t"), one, one), InvalidRequestError)
    twice = [((TOPIC, "t"), [one]), ((TOPIC, "t"), [one])]
    decision = whole(incremental_alter_configs(lab.cluster, twice))
    assert isinstance(decision.response[TOPIC, "t"], InvalidRequestError)
    assert len(decision.records) == 0


def test_validate_only_writes_no_record() -> None:
    lab = Lab()
    lab.create("t", [0])
    decision = whole(
        incremental_alter_configs(
            lab.cluster, [((TOPIC, "t"), [ConfigChange("retention.ms", "1")])], validate_only=True
        )
    )
    assert decision.response == {(TOPIC, "t"): None}
    assert len(decision.records) == 0


def test_existing_values_are_validated_too() -> None:
    lab = Lab()
    lab.create("t", [0], min_compaction_lag_ms="100")
    refused = alter(lab, (TOPIC, "t"), ConfigChange("max.compaction.lag.ms", "99"))
    assert isinstance(refused, InvalidConfigError)
    assert alter(lab, (TOPIC, "t"), ConfigChange("max.compaction.lag.ms", "100")) is None


def test_too_long_values_are_rejected() -> None:
    lab = Lab()
    assert alter(lab, (BROKER, ""), ConfigChange("a", "x" * 32767)) is None
    assert isinstance(alter(lab, (BROKER, ""), ConfigChange("a", "x" * 32768)), InvalidConfigError)
    # Java's String.length counts a character outside the Basic Multilingual Plane twice.
    wide = ConfigChange("a", "\N{GRINNING FACE}" * 16384)
    assert isinstance(alter(lab, (BROKER, ""), wide), InvalidConfigError)


def test_legacy_alter_configs_replaces_all_values() -> None:
    lab = Lab()
    lab.create("t", [0], retention_ms="1", segment_ms="2", flush_ms="3")
    decision = whole(
        alter_configs(lab.cluster, [((TOPIC, "t"), {"retention.ms": "1", "segment.ms": "4"})])
    )
    assert list(decision.records) == [
        records.Config(resource_type=2, resource_name="t", name="segment.ms", value="4"),
        records.Config(resource_type=2, resource_name="t", name="flush.ms", value=None),
    ]
    lab.do(decision)
    assert configured(lab, (TOPIC, "t")) == {"retention.ms": "1", "segment.ms": "4"}


def test_a_policy_sees_the_changes_and_may_reject_them() -> None:
    lab = Lab()
    lab.create("t", [0], retention_ms="1", segment_ms="2")
    seen: list[Mapping[str, str | None]] = []

    def policy(resource: tuple[int, str], altered: Mapping[str, str | None]) -> None:
        seen.append(altered)
        if altered.get("flush.ms") == "13":
            raise PolicyViolationError("not on a Friday")

    asked = [((TOPIC, "t"), {"flush.ms": "13", "segment.ms": "2"})]
    decision = whole(alter_configs(lab.cluster, asked, policy=policy))
    assert isinstance(decision.response[TOPIC, "t"], PolicyViolationError)
    assert seen == [{"flush.ms": "13"}]
    assert len(decision.records) == 0


def test_an_exception_of_a_policy_is_the_error_of_its_resource() -> None:
    lab = Lab()
    lab.create("t", [0])

    def policy(resource: tuple[int, str], altered: Mapping[str, str | None]) -> None:
        if resource[0] == TOPIC:
            raise ZeroDivisionError

    change = [ConfigChange("log.cleaner.threads", "2")]
    asked = [((TOPIC, "t"), [ConfigChange("flush.ms", "1")]), ((BROKER, ""), change)]
    decision = whole(incremental_alter_configs(lab.cluster, asked, policy=policy))
    assert isinstance(decision.response[TOPIC, "t"], UnknownServerError)
    assert decision.response[BROKER, ""] is None
    assert len(decision.records) == 1


def test_more_records_than_one_batch_holds_are_rejected() -> None:
    lab = Lab()
    changes = [ConfigChange(f"a{number}", "1") for number in range(10_001)]
    with pytest.raises(PolicyViolationError, match="10000"):
        whole(incremental_alter_configs(lab.cluster, [((BROKER, ""), changes)]))


def test_with_elr_a_change_of_min_isr_clears_the_elrs_after_it() -> None:
    lab = Lab(elr=True)
    lab.create("t", [0, 1])
    two = [ConfigChange("min.insync.replicas", "2")]
    decision = whole(
        incremental_alter_configs(lab.cluster, [((TOPIC, "t"), two), ((BROKER, ""), two)])
    )
    assert list(decision.records)[2:] == [
        records.ClearElr(topic_name="t"),
        records.ClearElr(topic_name=""),
    ]


def test_with_elr_min_isr_can_only_be_set_for_the_cluster() -> None:
    lab = Lab(elr=True)
    two = ConfigChange("min.insync.replicas", "2")
    assert isinstance(alter(lab, (BROKER, "1"), two), InvalidConfigError)
    assert alter(lab, (BROKER, ""), two) is None
    gone = ConfigChange("min.insync.replicas", operation=DELETE)
    assert isinstance(alter(lab, (BROKER, ""), gone), InvalidConfigError)
    # A legacy AlterConfigs without the value would delete it silently.
    replaced = whole(alter_configs(lab.cluster, [((BROKER, ""), {})]))
    assert isinstance(replaced.response[BROKER, ""], InvalidConfigError)


@pytest.mark.parametrize("value", ["many", "0", ""])
def test_broker_settings_of_elections_are_validated(value: str) -> None:
    lab = Lab()
    for resource in ((BROKER, ""), (BROKER, "0")):
        answer = alter(lab, resource, ConfigChange("min.insync.replicas", value))
        assert isinstance(answer, InvalidConfigError)
        answer = alter(lab, resource, ConfigChange("unclean.leader.election.enable", value))
        assert isinstance(answer, InvalidConfigError)
    lab.create("t", [0])


def test_only_the_broker_can_add_cordoned_directories() -> None:
    lab = Lab()
    broker = (BROKER, "0")
    two = ConfigChange("cordoned.log.dirs", "/a,/b")
    assert isinstance(alter(lab, broker, two), InvalidConfigError)
    lab.do(incremental_alter_configs(lab.cluster, [(broker, [two])], is_forwarded=True))
    assert isinstance(alter(lab, broker, ConfigChange("cordoned.log.dirs", "/c")), KraftError)
    assert alter(lab, broker, ConfigChange("cordoned.log.dirs", " /b ")) is None
    assert alter(lab, broker, ConfigChange("cordoned.log.dirs", "")) is None


def test_cordoning_needs_metadata_version_4_3() -> None:
    lab = Lab()
    lab.write(records.FeatureLevel(name="metadata.version", feature_level=29))
    answer = alter(lab, (BROKER, "0"), ConfigChange("cordoned.log.dirs", ""))
    assert isinstance(answer, InvalidConfigError)
    assert "4.3-IV0" in str(answer)


def test_configurations_of_a_new_topic_are_validated() -> None:
    lab = Lab()
    rules = ConfigRules({"log.cleaner.min.compaction.lag.ms": "1000"})
    settings = DecisionSettings(config_rules=rules)

    def create(value: str) -> object:
        topic = NewTopic("t", Uuid(b"t" * 16), 1, 1, configs={"max.compaction.lag.ms": value})
        decision = whole(create_topics(lab.cluster, [topic], placer=lab.placer, settings=settings))
        return decision.response["t"]

    assert isinstance(create("999"), InvalidConfigError)
    assert isinstance(create("x"), InvalidConfigError)
    assert not isinstance(create("1000"), KraftError)


def test_unknown_configurations_in_the_log_are_ignored() -> None:
    lab = Lab(brokers=0)
    lab.cluster = MetadataState(journaling=True, is_supported_config=is_supported_config)
    lab.write(records.FeatureLevel(name="metadata.version", feature_level=30))
    for resource, name in (((TOPIC, "t"), "message.format.version"), ((BROKER, ""), "gone")):
        lab.write(
            records.Config(
                resource_type=resource[0], resource_name=resource[1], name=name, value="1"
            )
        )
    assert dict(lab.cluster.state.configs) == {(BROKER, ""): {"gone": "1"}}


def test_many_resources_are_decided_in_chunks() -> None:
    lab = Lab()
    asked = [
        ((GROUP, f"g{number}"), {"consumer.session.timeout.ms": "46000"})
        for number in range(12_000)
    ]
    asked.append(((GROUP, "bad"), {"consumer.session.timeout.ms": "1"}))
    response, sizes = lab.do_chunks(alter_configs(lab.cluster, asked))
    assert max(sizes) < 1_000
    assert len(lab.cluster.state.configs) == 12_000
    refused = [resource for resource, error in response.items() if error is not None]
    assert refused == [(GROUP, "bad")]


def test_chunks_write_the_same_records_as_one_decision() -> None:
    lab = Lab(elr=True)
    lab.create("t", [0])
    asked: list[tuple[tuple[int, str], list[ConfigChange]]] = [
        ((TOPIC, "t"), [ConfigChange("min.insync.replicas", "2"), ConfigChange("flush.ms", "1")]),
        ((TOPIC, "no"), [ConfigChange("flush.ms", "1")]),
    ]
    asked += [((BROKER, ""), [ConfigChange(f"a{number}", "1") for number in range(2000)])]
    asked += [((GROUP, "g"), [ConfigChange("streams.num.standby.replicas", "1")])]
    at_once = whole(incremental_alter_configs(lab.cluster, asked))
    in_chunks = whole(incremental_alter_configs(lab.cluster, asked, at_once=1))
    begin, *written, end = in_chunks.records
    assert (type(begin), type(end)) == (records.BeginTransaction, records.EndTransaction)
    assert written == list(at_once.records)
