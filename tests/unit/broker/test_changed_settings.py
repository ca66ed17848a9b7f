"""Dynamic settings of a running broker: what is applied, what is named as having no effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft import records
from kraft.broker.changed_settings import APPLIED, ChangedSettings, has_effect
from kraft.broker.config import BrokerSettings
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.quotas import (
    ALL_PARTITIONS,
    ReplicationQuota,
    ReplicationQuotas,
    throttled_partitions,
)
from kraft.controller.configs.node_settings import FIXED, NODE_SETTINGS
from kraft.image.configs import BROKER, TOPIC
from kraft.records import Uuid
from kraft.server.config.loading import ServerConfig
from tests.harness.configurations import BROKER as PROPERTIES
from tests.harness.configurations import write_configuration
from tests.harness.publishing import BASE, PublishedCluster

P0 = PartitionId(b"t" * 16, 0)


class Followed:
    """The settings of a broker that follows the metadata of a cluster."""

    def __init__(self, path: Path, **given: str) -> None:
        settings = PROPERTIES | {name.replace("_", "."): text for name, text in given.items()}
        config = ServerConfig.load(write_configuration(path, settings))
        self.node = str(config.node_id)
        self.quotas = ReplicationQuotas()
        self.applied: list[BrokerSettings] = []
        self.static = BrokerSettings.of(config)
        self.changed = ChangedSettings(config, self.static, self.quotas, self.applied.append)
        self.cluster = PublishedCluster()
        self.cluster.append(*BASE)
        self.cluster.publishing.register(self.changed)
        self.cluster.publish()

    def set(self, name: str, value: str | None, resource: str = "", kind: int = BROKER) -> None:
        self.cluster.append(records.Config(kind, resource, name, value))
        self.cluster.publish()
        assert self.cluster.faults == []


def test_settings_apply_while_they_are_set(tmp_path: Path) -> None:
    broker = Followed(tmp_path, log_cleaner_backoff_ms="7")
    broker.applied.clear()
    broker.set("log.cleaner.backoff.ms", "100")
    broker.set("producer.id.expiration.ms", "5000")
    broker.set("log.cleaner.dedupe.buffer.size", "4194304")
    broker.set("cordoned.log.dirs", "*", broker.node)
    settings = broker.changed.settings
    assert settings.log_cleaner_backoff_ms == 100
    assert settings.producer_id_expiration_ms == 5000
    assert settings.log_cleaner_dedupe_buffer_size == 4 << 20
    assert settings.cordoned_log_dirs == ("*",)
    broker.set("log.cleaner.backoff.ms", None)
    assert broker.changed.settings.log_cleaner_backoff_ms == 7
    assert len(broker.applied) == 5
    assert broker.applied[-1] is broker.changed.settings


def test_the_metadata_version_decides_whether_the_controller_knows_cordoned_directories(
    tmp_path: Path,
) -> None:
    broker = Followed(tmp_path)
    for level, is_known in ((29, False), (30, True), (31, True), (29, False)):
        feature = records.FeatureLevel(name="metadata.version", feature_level=level)
        broker.cluster.append(feature)
        broker.cluster.publish()
        assert broker.changed.knows_cordoned is is_known
    assert len(broker.applied) >= 2


def test_a_setting_of_the_broker_is_stronger_than_one_of_all(tmp_path: Path) -> None:
    broker = Followed(tmp_path)
    broker.set("leader.replication.throttled.rate", "100")
    broker.set("leader.replication.throttled.rate", "50", broker.node)
    broker.set("leader.replication.throttled.rate", "10", "77")
    assert broker.quotas.leader.limit == 50
    broker.set("leader.replication.throttled.rate", None, broker.node)
    assert broker.quotas.leader.limit == 100
    broker.set("leader.replication.throttled.rate", None)
    assert broker.quotas.leader.limit is None


def test_each_rate_has_its_quota(tmp_path: Path) -> None:
    broker = Followed(tmp_path)
    broker.set("follower.replication.throttled.rate", "2")
    broker.set("replica.alter.log.dirs.io.max.bytes.per.second", "3")
    quotas = broker.quotas
    assert [quotas.leader.limit, quotas.follower.limit, quotas.moves.limit] == [None, 2, 3]


def test_an_invalid_setting_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Followed(tmp_path)
    broker.set("log.cleaner.backoff.ms", "soon")
    broker.set("leader.replication.throttled.rate", "fast")
    assert broker.changed.settings is broker.static
    assert broker.quotas.leader.limit is None
    assert caplog.text.count("has no effect") == 3


@pytest.mark.parametrize(
    "name",
    [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
def test_a_negative_rate_leaves_the_quota_as_it_was(tmp_path: Path, name: str) -> None:
    """No rate is below it: replicas would wait for ever."""
    broker = Followed(tmp_path)
    quotas = broker.quotas
    for text, limit in (("-1", None), ("7", 7), ("-5", 7)):
        broker.set(name, text)
        limits = {quotas.leader.limit, quotas.follower.limit, quotas.moves.limit} - {None}
        assert limits == ({limit} - {None})


def test_an_invalid_setting_does_not_hold_back_the_others(tmp_path: Path) -> None:
    broker = Followed(tmp_path)
    broker.set("log.cleaner.backoff.ms", "5")
    broker.set("log.cleaner.backoff.ms", "soon")
    broker.set("cordoned.log.dirs", "*", broker.node)
    assert broker.changed.settings.cordoned_log_dirs == ("*",)
    assert broker.changed.settings.log_cleaner_backoff_ms == 5


def test_a_buffer_without_room_for_keys_is_not_applied(tmp_path: Path) -> None:
    """Compaction would fail in each round."""
    broker = Followed(tmp_path)
    for text in ("0", "-1", str(1 << 20)):
        broker.set("log.cleaner.dedupe.buffer.size", text)
        assert broker.changed.settings is broker.static
    broker.set("log.cleaner.dedupe.buffer.size", str(2 << 20))
    assert broker.changed.settings.log_cleaner_dedupe_buffer_size == 2 << 20


def test_a_deleted_topic_is_not_throttled_any_more(tmp_path: Path) -> None:
    broker = Followed(tmp_path)
    topic = Uuid(b"u" * 16)
    broker.cluster.append(records.Topic(name="u", topic_id=topic))
    broker.set("leader.replication.throttled.replicas", "*", "u", TOPIC)
    assert broker.quotas.leader.has_throttled
    broker.cluster.append(records.RemoveTopic(topic_id=topic))
    broker.cluster.publish()
    assert broker.cluster.faults == []
    assert not broker.quotas.leader.has_throttled


def test_throttled_replicas_are_those_of_this_broker(tmp_path: Path) -> None:
    broker = Followed(tmp_path)
    name = "leader.replication.throttled.replicas"
    broker.set(name, f"0:{broker.node},1:77,2:{broker.node}", "a", TOPIC)
    leader = broker.quotas.leader
    throttled = [leader.is_throttled("a", P0._replace(partition=each)) for each in range(3)]
    assert throttled == [True, False, True]
    assert not broker.quotas.follower.is_throttled("a", P0)
    broker.set(name, "*", "a", TOPIC)
    assert leader.is_throttled("a", P0._replace(partition=9))
    broker.set(name, None, "a", TOPIC)
    assert not leader.is_throttled("a", P0)


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("*", ALL_PARTITIONS),
        (" * ", ALL_PARTITIONS),
        ("", frozenset()),
        ("1:5", frozenset({1})),
        (" 1:5 , 2:5,3:6", frozenset({1, 2})),
        ("x:5,5", frozenset()),
    ],
)
def test_lists_of_throttled_replicas(text: str, partitions: frozenset[int]) -> None:
    assert throttled_partitions(text, 5) == partitions


def test_settings_without_effect_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Followed(tmp_path)
    broker.set("num.replica.fetchers", "2")
    broker.set("num.replica.fetchers", "3")
    broker.set("listener.name.external.ssl.keystore.location", "/k", broker.node)
    broker.set("max.connections", "100")
    named = [record.message for record in caplog.records if "have no effect" in record.message]
    assert named == [
        "these dynamic settings of Kafka have no effect here: num.replica.fetchers",
        "these dynamic settings of Kafka have no effect here: "
        "listener.name.external.ssl.keystore.location",
    ]


def test_which_dynamic_settings_have_an_effect() -> None:
    dynamic = {name for name, each in NODE_SETTINGS.items() if each.mode not in FIXED}
    assert set(APPLIED) <= dynamic
    effective = {name for name in dynamic if has_effect(name)}
    assert {"log.retention.ms", "message.max.bytes", "cordoned.log.dirs"} <= effective
    assert not {name for name in effective if name.startswith(("ssl.", "sasl.", "remote.", "num."))}
    assert "log.cleaner.threads" not in effective
    assert has_effect("listener.name.a.max.connections")
    assert has_effect("confluent.telemetry")


# -- quotas


def test_a_rate_above_the_limit_holds_back() -> None:
    quota = ReplicationQuota()
    quota.record(1000, 0.0)
    assert not quota.is_exceeded(0.0)
    quota.limit = 100.0
    assert quota.is_exceeded(0.0)
    # 1000 bytes in ten seconds.
    assert quota.is_exceeded(9_000.0)
    assert not quota.is_exceeded(10_000.0)
    quota.throttle("t", frozenset({0}))
    assert quota.holds_back("t", P0, 0.0)
    assert not quota.holds_back("u", P0, 0.0)
    quota.throttle("t", frozenset())
    assert not quota.holds_back("t", P0, 0.0)
