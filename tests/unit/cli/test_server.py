"""``kraft server``: nodes that cannot start."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.cli.exit_codes import REFUSED
from tests.harness.configurations import BROKER, COMBINED, CONTROLLER, write_configuration
from tests.unit.cli.conftest import Run


def test_a_controller_with_encrypted_listeners_does_not_start_in_plaintext(
    kraft: Run, tmp_path: Path
) -> None:
    secure = {"listener.security.protocol.map": "CONTROLLER:SSL", "log.dirs": str(tmp_path / "log")}
    path = write_configuration(tmp_path, CONTROLLER | secure)
    assert kraft("storage", "format", "-t", "c", "-c", path, "--standalone").code == 0
    started = kraft("server", "start", path)
    assert started.code == REFUSED
    assert "ssl.keystore.location is missing: a TLS listener needs a key" in started.err


@pytest.mark.parametrize("settings", [CONTROLLER, BROKER, COMBINED], ids=("C", "B", "BC"))
def test_a_node_that_is_not_formatted_does_not_start(
    kraft: Run, tmp_path: Path, settings: dict[str, str]
) -> None:
    path = write_configuration(tmp_path, settings | {"log.dirs": str(tmp_path / "log")})
    started = kraft("server", "start", path)
    assert started.code == REFUSED
    assert started.err.startswith("error: ")
    assert "is not formatted" in started.err
