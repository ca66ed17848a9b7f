"""The settings of brokers and group coordinators compared with Kafka's: names, values, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft.broker.config import BROKER_SETTINGS
from kraft.broker.group_settings import GROUP_SETTINGS, GroupSettings
from kraft.configdef import ConfigValueError
from kraft.errors import InvalidConfigError
from kraft.server.config.loading import ServerConfig
from tests.harness.configurations import BROKER, write_configuration
from tests.harness.line_process import JsonRequests, RejectedError

pytestmark = pytest.mark.interop

#: Settings of groups that kraft does not have.
OTHERS = ("group.consumer.", "group.share.", "group.streams.")
VALUES = (
    *("", "0", "-1", "-2", "1", "2", "5", "100", "524287", "524288", "32767", "32768", "1048588"),
    *("2147483647", "2147483648", "9223372036854775807", "9223372036854775808", " 5 ", "1e3"),
    *("classic", "classic,consumer", "classic,classic", "share", "other", "classic,", "none"),
)


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_names_kinds_and_defaults_are_kafkas(oracle: JsonRequests) -> None:
    defined = oracle("definitions")
    names = {
        name
        for name in defined
        if name.startswith(("group.", "offsets.", "offset.")) and not name.startswith(OTHERS)
    }
    assert set(GROUP_SETTINGS) == names | {"message.max.bytes"}
    for name, rule in GROUP_SETTINGS.items():
        mine = {"type": rule.kind.name, "required": False, "default": plain(rule.default)}
        assert mine == defined[name], name


def test_kinds_and_defaults_of_a_broker_are_kafkas(oracle: JsonRequests) -> None:
    defined = oracle("definitions")
    for name, rule in BROKER_SETTINGS.items():
        mine = {"type": rule.kind.name, "required": False, "default": plain(rule.default)}
        assert mine == defined[name], name


def test_values_are_parsed_as_in_kafka(oracle: JsonRequests) -> None:
    for name, rule in (GROUP_SETTINGS | BROKER_SETTINGS).items():
        for text in VALUES:
            try:
                theirs = oracle("value", name=name, value=text)
            except RejectedError:
                theirs = RejectedError
            try:
                mine = plain(rule.read(text))
            except ConfigValueError:
                mine = RejectedError
            assert mine == theirs, (name, text)


@pytest.mark.parametrize("codec", range(-1, 7))
def test_codecs_are_checked_as_in_kafka(oracle: JsonRequests, tmp_path: Path, codec: int) -> None:
    settings = BROKER | {"offsets.topic.compression.codec": str(codec)}
    try:
        oracle("config", settings=settings)
        is_valid = True
    except RejectedError:
        is_valid = False
    config = ServerConfig.load(write_configuration(tmp_path, settings))
    if is_valid:
        assert GroupSettings.of(config).offsets_topic_compression_codec == codec
    else:
        with pytest.raises(InvalidConfigError):
            GroupSettings.of(config)
