"""The settings of group coordinators from a node's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.broker.group_settings import GroupSettings
from kraft.broker.groups import GroupCoordinatorConfig
from kraft.errors import InvalidConfigError
from kraft.server.config.loading import ServerConfig
from tests.harness.configurations import COMBINED, write_configuration


def read(directory: Path, **settings: str) -> GroupSettings:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return GroupSettings.of(ServerConfig.load(write_configuration(directory, COMBINED | named)))


def test_the_defaults_are_those_of_the_coordinators(tmp_path: Path) -> None:
    config = read(tmp_path).coordinator_config
    # Kafka cleans up all groups at once; kraft leaves turns to the loop.
    assert config == GroupCoordinatorConfig(cleanup_slice=100)


def test_settings_reach_the_coordinators(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        group_min_session_timeout_ms="1",
        group_max_session_timeout_ms="2",
        group_initial_rebalance_delay_ms="3",
        group_max_size="4",
        offset_metadata_max_bytes="5",
        offsets_retention_minutes="6",
        offsets_retention_check_interval_ms="7",
        offsets_commit_timeout_ms="8",
        offsets_topic_compression_codec="2",
        message_max_bytes="9000",
    ).coordinator_config
    assert config == GroupCoordinatorConfig(
        *(1, 2, 3, 4),
        offset_metadata_max_bytes=5,
        offsets_retention_ms=360_000,
        offsets_retention_check_interval_ms=7,
        offsets_commit_timeout_ms=8,
        offsets_topic_compression_codec=2,
        max_batch_bytes=9000,
        cleanup_slice=100,
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("group_max_size", "0", r"group\.max\.size is '0'; expected at least 1"),
        ("offsets_topic_replication_factor", "32768", "an integer of 16 bits"),
        ("offsets_topic_compression_codec", "5", r"is 5; expected 0 \(none\), 1 \(gzip\)"),
        ("group_coordinator_rebalance_protocols", "", "at least one"),
    ],
)
def test_values_out_of_range_are_rejected(
    tmp_path: Path, name: str, value: str, expected: str
) -> None:
    with pytest.raises(InvalidConfigError, match=expected):
        read(tmp_path, **{name: value})
