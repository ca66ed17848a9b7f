"""Effective settings of topics: defaults by source, changes, the logs that get them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft import records
from kraft.broker.log.settings import LogSettings
from kraft.broker.produce_validation import ProduceRules
from kraft.broker.topic_settings import EffectiveTopicSettings
from kraft.errors import InvalidConfigError
from kraft.image.configs import BROKER, TOPIC
from kraft.image.publishing import Phase
from tests.harness.data_brokers import Properties
from tests.harness.partition_logs import Logs
from tests.harness.publishing import BASE, PublishedCluster
from tests.harness.publishing import TOPIC as TOPIC_ID

NODE = 1


def topics(**given: str) -> EffectiveTopicSettings:
    return EffectiveTopicSettings(
        Properties(NODE, {name.replace("_", "."): value for name, value in given.items()})
    )


def config(kind: int, name: str, setting: str, value: str | None) -> records.Config:
    return records.Config(kind, name, setting, value)


class Followed:
    """Settings that follow the metadata of a cluster."""

    def __init__(self, settings: EffectiveTopicSettings) -> None:
        self.settings = settings
        self.cluster = PublishedCluster()
        self.cluster.append(*BASE)
        self.cluster.publishing.register(settings, Phase.REPLICA_MANAGER)
        self.cluster.publish()

    def change(self, *changed: Any) -> None:
        self.cluster.append(*changed)
        self.cluster.publish()
        assert self.cluster.faults == []


def test_the_defaults_are_kafkas() -> None:
    found = topics().of("a")
    assert found.log == LogSettings()
    assert found.produce == ProduceRules()
    assert found.min_insync_replicas == 1
    assert topics().is_deleting("a")


def test_the_properties_file_sets_defaults_by_kafkas_names() -> None:
    settings = topics(
        log_retention_hours="2",
        log_segment_bytes="2000000",
        message_max_bytes="5000",
        min_insync_replicas="2",
        log_cleanup_policy="compact",
        log_message_timestamp_type="LogAppendTime",
        compression_type="zstd",
    )
    found = settings.of("a")
    assert found.log.retention_ms == 2 * 3_600_000
    assert found.log.segment_bytes == found.produce.segment_bytes == 2_000_000
    assert found.produce.max_message_bytes == 5000
    assert found.min_insync_replicas == 2
    assert (found.log.compacts, found.log.deletes, found.produce.keys_required) == (
        True,
        False,
        True,
    )
    assert (found.produce.append_time, found.produce.codec) == (True, 4)
    assert not settings.is_deleting("a")


def test_a_property_that_is_no_number_is_rejected() -> None:
    with pytest.raises(InvalidConfigError, match=r"log\.segment\.bytes"):
        topics(log_segment_bytes="much")


def test_dynamic_settings_override_each_other() -> None:
    """Topic over this broker over all brokers over the file, and back."""
    followed = Followed(topics(log_retention_ms="1"))
    settings = followed.settings
    assert settings.log_settings("a").retention_ms == 1
    steps = [
        (BROKER, "", "log.retention.ms", "2"),
        (BROKER, str(NODE), "log.retention.ms", "3"),
        (TOPIC, "a", "retention.ms", "4"),
    ]
    for expected, step in enumerate(steps, 2):
        followed.change(config(*step))
        assert settings.log_settings("a").retention_ms == expected
    assert settings.log_settings("b").retention_ms == 3
    for expected, (kind, name, setting, _) in zip((3, 2, 1), reversed(steps), strict=True):
        followed.change(config(kind, name, setting, None))
        assert settings.log_settings("a").retention_ms == expected
    followed.change(config(BROKER, "9", "log.retention.ms", "9"))
    assert settings.log_settings("a").retention_ms == 1


def test_topics_without_configs_share_their_settings() -> None:
    followed = Followed(topics())
    settings = followed.settings
    assert settings.of("a") is settings.of("b")
    followed.change(config(TOPIC, "a", "min.insync.replicas", "2"))
    assert settings.of("a") is settings.of("a")
    assert (settings.min_insync_replicas("a"), settings.min_insync_replicas("b")) == (2, 1)
    followed.change(records.RemoveTopic(topic_id=TOPIC_ID))
    assert settings.of("a") is settings.of("b")


def test_an_invalid_change_has_no_effect() -> None:
    followed = Followed(topics(min_insync_replicas="3"))
    followed.change(config(TOPIC, "a", "segment.ms", "soon"))
    assert followed.settings.of("a") is followed.settings.of("b")
    followed.change(config(TOPIC, "a", "segment.ms", "7"))
    assert followed.settings.log_settings("a").segment_ms == 7


def test_changed_settings_reach_the_logs(tmp_path: Path) -> None:
    followed = Followed(topics())
    logs = Logs(tmp_path).manager
    followed.settings.attach(logs)
    for partition in range(2):
        logs.create("a", partition, None)
    log, other = logs.get("a", 0), logs.create("b", 0, None)
    assert log is not None
    followed.change(config(TOPIC, "a", "retention.ms", "5"))
    assert (log.settings.retention_ms, other.settings.retention_ms) == (
        5,
        LogSettings().retention_ms,
    )
    followed.change(config(BROKER, "", "log.segment.bytes", "3000000"))
    assert (log.settings.segment_bytes, other.settings.segment_bytes) == (3_000_000, 3_000_000)
    assert log.settings.retention_ms == 5


def test_a_full_delta_replaces_everything(tmp_path: Path) -> None:
    followed = Followed(topics())
    logs = Logs(tmp_path).manager
    followed.change(config(TOPIC, "a", "retention.ms", "5"))
    log = logs.create("a", 0, None)
    again = topics()
    again.attach(logs)
    followed.cluster.publishing.unregister(followed.settings)
    followed.cluster.publishing.register(again, Phase.REPLICA_MANAGER)
    followed.change(config(TOPIC, "b", "retention.ms", "6"))
    assert (again.log_settings("a").retention_ms, again.log_settings("b").retention_ms) == (5, 6)
    assert log.settings.retention_ms == 5


def test_kafkas_own_setting_for_small_segments() -> None:
    followed = Followed(topics())
    followed.change(config(TOPIC, "a", "internal.segment.bytes", "1000"))
    assert followed.settings.of("a").produce.segment_bytes == 1000
