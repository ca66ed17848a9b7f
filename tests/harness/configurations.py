"""Configuration files for tests: settings of controllers and brokers, with changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/nowhere",
}
BROKER = {
    "process.roles": "broker",
    "node.id": "11",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/nowhere",
}
COMBINED = BROKER | {
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
}


def changed(base: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    """Return the settings with these changes; None removes one."""
    settings = base | changes
    return {name: value for name, value in settings.items() if value is not None}


def write_properties(path: Path, settings: Mapping[str, object]) -> None:
    """Write one setting per line, in order."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def write_configuration(directory: Path, settings: dict[str, str]) -> Path:
    """Write ``server.properties``; return the file."""
    path = directory / "server.properties"
    write_properties(path, settings)
    return path


REFUSALS: list[tuple[dict[str, str], dict[str, str | None], str]] = [
    (CONTROLLER, {"process.roles": None}, r"process\.roles is missing; it must be given"),
    (CONTROLLER, {"process.roles": "zookeeper"}, "one or more of broker, controller"),
    (CONTROLLER, {"node.id": "-1"}, r", line 2: node\.id is '-1'; expected at least 0"),
    (CONTROLLER, {"broker.id": "2"}, r"broker\.id must be the same as node\.id, 1"),
    (CONTROLLER, {"controller.listener.names": None}, r"controller\.listener\.names is missing"),
    (CONTROLLER, {"controller.listener.names": "OTHER"}, "nor, without that setting, in"),
    (CONTROLLER, {"controller.listener.names": "CONTROLLER,MORE"}, "each of them in listeners"),
    (CONTROLLER, {"listeners": "CONTROLLER//x:1"}, "NAME://host:port"),
    (CONTROLLER, {"listeners": "CONTROLLER://x:70000"}, "NAME://host:port"),
    (CONTROLLER, {"listeners": "CONTROLLER://:1,CONTROLLER://:2"}, "a different name"),
    (
        CONTROLLER,
        {"listeners": "CONTROLLER://a:1,PLAINTEXT://a:2"},
        r"listeners has PLAINTEXT; where process\.roles=controller",
    ),
    (
        CONTROLLER,
        {"listeners": "CONTROLLER://a:1,B://b:1", "controller.listener.names": "CONTROLLER,B"},
        "several have port 1",
    ),
    (
        CONTROLLER,
        {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
        "CONTROLLER is not in listener.security.protocol.map",
    ),
    (
        CONTROLLER,
        {"listener.security.protocol.map": "CONTROLLER:TELEPATHY"},
        "expected one of PLAINTEXT, SSL",
    ),
    (
        CONTROLLER,
        {"controller.quorum.bootstrap.servers": None},
        "no controllers are configured: set",
    ),
    (CONTROLLER, {"controller.quorum.bootstrap.servers": "a"}, "expected host:port"),
    (CONTROLLER, {"controller.quorum.voters": "1@a"}, "expected host:port"),
    (CONTROLLER, {"controller.quorum.voters": "1@a:1,1@b:1"}, "1 appears twice"),
    (CONTROLLER, {"controller.quorum.voters": "2@a:1"}, "must have the node id 1"),
    (CONTROLLER, {"controller.quorum.append.linger.ms": "-1"}, "at least 0"),
    (CONTROLLER, {"controller.quorum.fetch.timeout.ms": "2147483648"}, "an integer of 32 bits"),
    (CONTROLLER, {"metadata.log.segment.bytes": "8388607"}, "at least 8388608"),
    (CONTROLLER, {"log.dirs": "/a,,/b"}, "without empty entries"),
    (CONTROLLER, {"max.connections.per.ip": "0"}, "rejects every client"),
    (
        CONTROLLER,
        {"advertised.listeners": "CONTROLLER://0.0.0.0:1"},
        "which no node can connect to",
    ),
    (
        CONTROLLER,
        {"node.id": "${env:ID}", "config.providers": "env"},
        "takes its value from a config provider",
    ),
    (BROKER, {"controller.quorum.voters": "11@a:1"}, r"node\.id is 11, which controller\.quorum"),
    (BROKER, {"listeners": "PLAINTEXT://:1,CONTROLLER://:2"}, "none of them is allowed"),
    (BROKER, {"controller.quorum.auto.join.enable": "true"}, "is for controllers only"),
    (BROKER, {"inter.broker.listener.name": "SSL"}, "must have the listener between brokers, SSL"),
    (
        BROKER,
        {"inter.broker.listener.name": "SSL", "security.inter.broker.protocol": "SSL"},
        "only one may be",
    ),
    (BROKER, {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "has CONTROLLER, which is"),
    (BROKER, {"advertised.listeners": "PLAINTEXT://a:1,SSL://a:2"}, "has SSL, not in listeners"),
    (COMBINED, {"listeners": "PLAINTEXT://127.0.0.1:9092"}, "each of them in listeners"),
]
