"""Configuration files for tests: settings of controllers and brokers, with changes."""

from __future__ import annotations

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


def write_configuration(directory: Path, settings: dict[str, str]) -> Path:
    """Write a file with one setting a line, in order."""
    path = directory / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path
