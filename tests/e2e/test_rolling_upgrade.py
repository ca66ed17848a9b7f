"""Rolling upgrades between versions that announce different features and versions of APIs.

`make processes` runs the upgrades, `make upgrade` builds a second version instead.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from kraft.errors import NONE
from kraft.network.quorum_client import QuorumClient
from kraft.protocol.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateData,
    UpdateFeaturesRequestData,
    UpdateFeaturesResponseData,
)
from kraft.records.versions import METADATA_VERSION, SUPPORTED_FEATURES
from tests.e2e.built_version import PRESENT, ROOT, BuiltVersion
from tests.e2e.rolling_upgrade import RollingUpgrade, VersionedQuorum
from tests.harness import older_version
from tests.harness.commands import eventually
from tests.harness.nodes import Controllers

PAGE = ROOT / "docs" / "how-to" / "upgrade-a-quorum.md"
OLDER = BuiltVersion("a release that supports less", older_version.PROGRAM, ROOT)
INVALID_UPDATE_VERSION = 95
UPGRADE = 1
NEWEST = SUPPORTED_FEATURES[METADATA_VERSION][1]


def raise_metadata_version(quorum: VersionedQuorum) -> tuple[int, str | None]:
    """Ask for the newest metadata.version that kraft supports; return error and message."""
    update = FeatureUpdateData(METADATA_VERSION, NEWEST, upgrade_type=UPGRADE)
    request = UpdateFeaturesRequestData(30_000, [update])
    with QuorumClient(quorum.addresses) as client:
        answer = client.call(
            UPDATE_FEATURES, request, UpdateFeaturesResponseData, lambda each: each.error_code
        ).response
    return answer.error_code, answer.error_message


@pytest.mark.nodes
def test_a_quorum_is_upgraded_node_by_node_and_downgraded_until_a_level_is_finalized(
    tmp_path: Path,
) -> None:
    """The nodes negotiate what both versions support, and refuse what one of them does not."""
    with VersionedQuorum(tmp_path, OLDER, "--release-version", "4.2-IV1") as quorum:
        upgrade = RollingUpgrade(quorum, OLDER, PRESENT, 20264, print)
        upgrade.is_thorough = False
        try:
            upgrade.upgrade_and_downgrade(1)
            assert upgrade.history.acknowledged > 6 * 9
            assert min(upgrade.mixed_leaders.values()) == 2
            assert upgrade.checked_columns == 2
        finally:
            for client in upgrade.clients:
                client.stop()


@pytest.mark.nodes
def test_an_older_version_can_neither_raise_nor_read_a_level_that_it_does_not_support(
    tmp_path: Path,
) -> None:
    with VersionedQuorum(tmp_path, OLDER, "--release-version", "4.2-IV1") as quorum:
        nodes = list(quorum.nodes.values())
        for node in nodes[:2]:
            node.stop(signal.SIGTERM)
            node.program = PRESENT.program
            node.start()

        def refused() -> tuple[int, str | None]:
            return raise_metadata_version(quorum)

        # Until the third is restarted, its registration names what it supports.
        error, message = eventually(refused, until=lambda said: "only supports" in (said[1] or ""))
        assert error == INVALID_UPDATE_VERSION
        assert message is not None
        assert f"3 only supports versions 7-{older_version.HIGHEST}" in message
        nodes[2].stop(signal.SIGTERM)
        nodes[2].program = PRESENT.program
        nodes[2].start()
        error, message = eventually(refused, until=lambda said: said[0] == NONE)
        # Too late for a downgrade: the log has a level that the older version does not support.
        nodes[0].stop(signal.SIGTERM)
        nodes[0].program = OLDER.program
        nodes[0].launch()
        running = nodes[0].running
        assert running is not None
        assert running.process.wait(60) == 1
        text = running.text
        assert f"{METADATA_VERSION} {NEWEST} (supported: 7 to {older_version.HIGHEST})" in text
        assert "Start that version with this node's directories again" in text
        with running:
            nodes[0].running = None
        nodes[0].program = PRESENT.program
        nodes[0].start()
        voters = eventually(lambda: quorum.described().voters)
        assert {voter.key.id for voter in voters} == set(quorum.nodes)


def test_the_pages_commands_run(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^ *(?:/opt/kraft-new/bin/)?kraft (.+)$", text, re.MULTILINE)
    commands = dict.fromkeys(found)
    with Controllers(tmp_path, 1) as controllers:
        (node,) = controllers.all
        controllers.form([node])
        known = {
            "10.0.0.1:9093": node.address,
            "/var/lib/kraft": str(node.data),
            "/var/backups/kraft": str(tmp_path / "backup"),
        }
        controllers.described()
        for command in commands:
            if command.startswith("server start"):
                assert command == "server start node-1.properties"
                continue
            arguments = [known.get(word, word) for word in command.split()]
            said = PRESENT.run(*arguments)
            if "--replication" in arguments:
                header, row = (line.split() for line in said.splitlines()[:2])
                assert row[header.index("Lag")] == "0"
    assert len(commands) == 6


@pytest.mark.parametrize("command", [("--version",), ("server", "--help")])
def test_the_older_stand_in_is_the_whole_command(command: tuple[str, ...]) -> None:
    assert OLDER.run(*command) == PRESENT.run(*command)
