"""A node reloads the keys and users of its listeners when their files change."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from kraft.errors import InvalidConfigError, SaslAuthenticationError
from kraft.security.sasl.credentials import PublishedCredentials
from kraft.server.config.loading import ServerConfig
from kraft.server.node_security import NodeSecurity
from tests.harness.certificates import KeyPair, authority
from tests.harness.configurations import CONTROLLER, write_configuration, write_properties

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def replaced(path: Path, text: str) -> None:
    """Replace a file atomically, as an operator should."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def settings(directory: Path, password: str) -> dict[str, str]:
    return CONTROLLER | {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "key.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": (
            f"{PLAIN} required username=admin password=old user_admin={password};"
        ),
    }


def node_security(directory: Path, keys: KeyPair) -> NodeSecurity:
    (directory / "key.pem").write_text(keys.pem)
    path = write_configuration(directory, settings(directory, "old"))
    credentials = PublishedCredentials(secret=b"x")
    return NodeSecurity(ServerConfig.load(path), credentials, reload_interval_s=0.01)


def test_files_are_read_again_after_a_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        security = node_security(tmp_path, authority().issue("controller"))
        listener = security.listeners["CONTROLLER"]
        security.start()
        async with asyncio.timeout(60):
            first = listener.tls
            replaced(tmp_path / "key.pem", authority().issue("controller").pem)
            while listener.tls is first:
                await asyncio.sleep(0.01)
            second, users = listener.tls, listener.sasl
            replaced(tmp_path / "key.pem", "not a key")
            while "cannot reload keys, certificates and users" not in caplog.text:
                await asyncio.sleep(0.01)
            assert listener.tls is second
            replaced(tmp_path / "key.pem", authority().issue("controller").pem)
            new = tmp_path / "new"
            write_properties(new, settings(tmp_path, "renewed"))
            os.replace(new, tmp_path / "server.properties")
            while listener.tls is second or listener.sasl is users:
                await asyncio.sleep(0.01)
            assert listener.sasl is not None
            while True:
                # The node may have reloaded the key, but not yet the users.
                server = listener.sasl.servers["PLAIN"]()
                try:
                    answer = server.respond(b"\0admin\0renewed", now_ms=0)
                except SaslAuthenticationError:
                    await asyncio.sleep(0.01)
                else:
                    break
            assert answer.message == b""
        security.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert "has no private key in PEM" in caplog.text
    assert "reloaded the keys, certificates and users" in caplog.text
    assert "renewed" not in caplog.text.replace("reloaded", "")


def test_a_protocol_changes_by_a_restart_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        security = node_security(tmp_path, authority().issue("controller"))
        listener = security.listeners["CONTROLLER"]
        before = listener.tls
        security.start()
        new = tmp_path / "new"
        write_properties(new, CONTROLLER)
        os.replace(new, tmp_path / "server.properties")
        async with asyncio.timeout(60):
            while "restart the node to change the security protocol" not in caplog.text:
                await asyncio.sleep(0.01)
        assert listener.tls is before
        security.close()

    asyncio.run(run())


def test_a_node_does_not_start_without_its_keys(tmp_path: Path) -> None:
    path = write_configuration(tmp_path, settings(tmp_path, "old"))
    with pytest.raises(InvalidConfigError, match=r"cannot read .*key\.pem: No such file"):
        NodeSecurity(ServerConfig.load(path), PublishedCredentials(secret=b"x"))


def test_a_plaintext_node_watches_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        config = ServerConfig.load(write_configuration(tmp_path, CONTROLLER))
        security = NodeSecurity(config, PublishedCredentials(secret=b"x"))
        security.start()
        assert len(asyncio.all_tasks()) == 1
        assert security.listeners["CONTROLLER"].tls is None

    asyncio.run(run())
