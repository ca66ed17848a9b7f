"""``kraft server``: rejected configurations, and notes about a combined node."""

from __future__ import annotations

from pathlib import Path

from kraft.cli.exit_codes import REFUSED
from tests.harness.configurations import BROKER, COMBINED, CONTROLLER, write_configuration
from tests.unit.cli.conftest import Run


def test_a_broker_without_controller_is_rejected(kraft: Run, tmp_path: Path) -> None:
    path = write_configuration(tmp_path, BROKER | {"log.dirs": str(tmp_path / "log")})
    assert kraft("storage", "format", "-t", "c", "-c", path).code == 0
    started = kraft("server", "start", path)
    assert started.code == REFUSED
    assert f"error: {path}: process.roles is broker; kraft runs only controllers" in started.err


def test_a_combined_node_is_noted_to_run_its_controller_only(kraft: Run, tmp_path: Path) -> None:
    """The command then fails, because the directory is not formatted."""
    log_dir = tmp_path / "log"
    path = write_configuration(tmp_path, COMBINED | {"log.dirs": str(log_dir)})
    started = kraft("server", "start", path)
    assert started.code == REFUSED
    note, error = started.err.splitlines()
    assert note == (
        f"note: {path}: process.roles has broker, which kraft does not run: only the controller "
        "runs, and no process listens at PLAINTEXT://127.0.0.1:9092"
    )
    assert f"{log_dir} is not formatted" in error


def test_a_controller_with_encrypted_listeners_does_not_start_in_plaintext(
    kraft: Run, tmp_path: Path
) -> None:
    secure = {"listener.security.protocol.map": "CONTROLLER:SSL", "log.dirs": str(tmp_path / "log")}
    path = write_configuration(tmp_path, CONTROLLER | secure)
    assert kraft("storage", "format", "-t", "c", "-c", path, "--standalone").code == 0
    started = kraft("server", "start", path)
    assert started.code == REFUSED
    assert "ssl.keystore.location is missing: a TLS listener needs a key" in started.err


def test_a_controller_without_broker_has_no_note(kraft: Run, tmp_path: Path) -> None:
    path = write_configuration(tmp_path, CONTROLLER | {"log.dirs": str(tmp_path / "log")})
    started = kraft("server", "start", path)
    assert started.code == REFUSED
    assert started.err.startswith("error: ")
    assert "is not formatted" in started.err
