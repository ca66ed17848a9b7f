"""Node configurations compared with Kafka's: definitions, values, whole files."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pytest

from kraft.configdef import ConfigValueError
from kraft.errors import CorruptRecordError, InvalidConfigError
from kraft.metadata.properties import parse_properties
from kraft.server.config.listeners import ListenerConfig, read_address, read_voters
from kraft.server.config.loading import ServerConfig
from kraft.server.config.names import KAFKA_NAMES
from kraft.server.config.settings import SETTINGS
from tests.harness.configurations import (
    BROKER,
    COMBINED,
    CONTROLLER,
    REFUSALS,
    changed,
    write_configuration,
)
from tests.harness.line_process import JsonRequests, RejectedError

pytestmark = pytest.mark.interop


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_names_kinds_and_defaults_are_kafkas(oracle: JsonRequests) -> None:
    defined = oracle("definitions")
    assert set(defined) == KAFKA_NAMES
    for name, rule in SETTINGS.items():
        required = rule.default is MISSING
        default = None if required else plain(rule.default)
        mine = {"type": rule.kind.name, "required": required, "default": default}
        theirs = defined[name]
        if name == "listener.security.protocol.map":
            # The order of a Java map.
            mine["default"], theirs["default"] = (
                sorted(each["default"].split(",")) for each in (mine, theirs)
            )
        assert mine == theirs, name


VALUES = [
    *("", "0", "-1", "1", "8388607", "8388608", "2147483647", "2147483648", "-2147483648"),
    *("9223372036854775807", "9223372036854775808", " 5 ", "+7", "\t3\x1f", "1e3", "0x10", "1_0"),
    *("true", "TRUE", "no", "yes", "a", "a,a", "a,,b", "a,b", " a , b ", ",", "a,", ",a"),
    *("broker", "controller", "broker,controller", "controller,controller", "PLAINTEXT", "plain"),
    *("1@h:1", "2@h-1.example.com:9093,3@[::1]:9", "1@h", "1@h:", "@h:1", "1@h:65535", "1@h:65536"),
    *("h:1", "h:70000", "[::1]:9", "h", "a b:1", "SSL://h:1", "x@h:1", "1@a@h:1", "h:-1"),
]


def test_values_are_parsed_as_in_kafka(oracle: JsonRequests) -> None:
    for name, rule in SETTINGS.items():
        for text in VALUES:
            try:
                theirs = oracle("value", name=name, value=text)
            except RejectedError:
                theirs = RejectedError
            try:
                mine = rule.read(text)
                # Kafka validates the entries of these two separately; here the parser does.
                if name == "controller.quorum.voters":
                    read_voters(mine, "CONTROLLER")
                if name == "controller.quorum.bootstrap.servers":
                    list(map(read_address, mine))
                mine = plain(mine)
            except ConfigValueError:
                mine = RejectedError
            assert mine == theirs, (name, text)


# Kafka accepts these, but they cannot work: rejected here, as the reference documents.
STRICTER = ("appears twice", "NAME://host:port", "config provider")


def kraft_reads(path: Path) -> dict[str, Any] | str:
    """Return a configuration in the oracle's form, or the error."""
    try:
        config = ServerConfig.load(path)
    except InvalidConfigError as refused:
        return str(refused)

    def endpoints(listeners: tuple[ListenerConfig, ...]) -> list[str]:
        return [f"{name} {host or 'null'} {port} {of}" for name, host, port, of in listeners]

    return {
        "nodeId": config.node_id,
        "logDirs": list(config.log_dirs),
        "metadataLogDir": config.metadata_log_dir,
        "listeners": endpoints(config.listeners),
        "controller": endpoints(config.advertised_controller_listeners),
        "broker": endpoints(config.advertised_broker_listeners),
    }


CHANGES: dict[str, list[str | None]] = {
    "process.roles": ["broker", "controller", "broker,controller", "controller , broker"],
    "node.id": ["1", "2", "11", None],
    "broker.id": ["1", "11", "-1", None],
    "listeners": [
        *("CONTROLLER://127.0.0.1:9093", "CONTROLLER://:9093,PLAINTEXT://:9092", None),
        *("controller://0.0.0.0:9093", "PLAINTEXT://0.0.0.0:9092", "SSL://h:1,CONTROLLER://h:2"),
        *("CONTROLLER://h:1,B://h:1", "CONTROLLER://127.0.0.1:1,B://[::1]:1", "B://h:1,b://h:2"),
        *("CONTROLLER://127.0.0.1:1,B://127.0.0.2:1", "CONTROLLER://h:0,B://h:0", "nonsense"),
        "CONTROLLER://127.0.0.1:1,B://[::1]:1,PLAINTEXT://h:1",
    ],
    "advertised.listeners": [
        *("CONTROLLER://host:1", "PLAINTEXT://host:1", "CONTROLLER://0.0.0.0:1", None),
        *("PLAINTEXT://a:1,CONTROLLER://b:1", "PLAINTEXT://a:1,SSL://b:2", "PLAINTEXT://0.0.0.0:1"),
        "B://b:1",
    ],
    "controller.listener.names": ["CONTROLLER", "controller", "CONTROLLER,B", "SSL", "PLAINTEXT"],
    "listener.security.protocol.map": [
        *("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", "controller:plaintext", "", None, None),
        *("CONTROLLER:SSL,B:SASL_SSL,PLAINTEXT:PLAINTEXT", "CONTROLLER", "PLAINTEXT:NONE"),
        *("B:SSL,b:SSL", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,B:PLAINTEXT,,"),
    ],
    "inter.broker.listener.name": ["PLAINTEXT", "B", "b", "CONTROLLER", None, None],
    "security.inter.broker.protocol": ["PLAINTEXT", "SSL", None, None],
    "controller.quorum.voters": ["1@h:1", "1@h:1,2@h:2", "11@[::1]:1", "", None, None],
    "controller.quorum.bootstrap.servers": ["h:1", "h:1,g:2", None],
    "controller.quorum.auto.join.enable": ["true", "false", None, None],
    "log.dirs": ["/a", "/b , /c", "/a,/a", "", None],
    "log.dir": ["/d", None],
    "metadata.log.dir": ["/m", None],
}


def generated(count: int, seed: int) -> Iterator[dict[str, str]]:
    """Generate configurations that differ in a few settings from a valid one."""
    chance = random.Random(seed)
    for _ in range(count):
        base = chance.choice((CONTROLLER, BROKER, COMBINED))
        names = chance.sample(sorted(CHANGES), chance.choice((1, 1, 2, 2, 3)))
        yield changed(base, {name: chance.choice(CHANGES[name]) for name in names})


def test_configurations_are_valid_where_they_are_in_kafka(
    oracle: JsonRequests, tmp_path: Path
) -> None:
    given = [changed(base, changes) for base, changes, _ in REFUSALS]
    held = refused = 0
    for settings in (CONTROLLER, BROKER, COMBINED, *given, *generated(1200, seed=20)):
        mine = kraft_reads(write_configuration(tmp_path, settings))
        try:
            theirs = oracle("config", settings=settings)
        except RejectedError as why:
            if not isinstance(mine, str):
                raise AssertionError(f"only Kafka refuses {settings}") from why
            refused += 1
            continue
        if isinstance(mine, str) and any(words in mine for words in STRICTER):
            continue
        assert mine == theirs, settings
        held += 1
    assert held > 200
    assert refused > 200


def test_properties_files_are_parsed_as_in_java(oracle: JsonRequests) -> None:
    chance = random.Random(21)
    pieces = [
        *"ab=:#! \t\f\\\n\r0",
        "\\u00e9",
        "\\u4",
        "\\n",
        "\\=",
        "\r\n",
        "key",
        "value",
        "\xe9",
    ]
    for _ in range(5000):
        text = "".join(chance.choices(pieces, k=chance.randrange(30)))
        content = base64.b64encode(text.encode("latin-1")).decode()
        try:
            theirs = oracle("properties", content=content)
        except RejectedError:
            with pytest.raises(CorruptRecordError):
                parse_properties(text)
            continue
        mine = parse_properties(text)
        # A single backslash at the very end makes an empty entry in Java, and none here.
        if text.rstrip("\r\n").endswith("\\"):
            mine.pop("", None)
            theirs.pop("", None)
        assert mine == theirs, repr(text)
