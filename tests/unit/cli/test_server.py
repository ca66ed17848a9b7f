"""`kraft server` on the command line: what it does not start, and what it says of the rest."""

from __future__ import annotations

from pathlib import Path

from kraft.cli.exits import REFUSED
from tests.unit.cli.conftest import Run
from tests.unit.server.configurations import BROKER, COMBINED, CONTROLLER, write_configuration


def test_a_broker_is_refused_and_not_started_in_silence(kraft: Run, tmp_path: Path) -> None:
    path = write_configuration(tmp_path, BROKER | {"log.dirs": str(tmp_path / "log")})
    assert kraft("storage", "format", "-t", "c", "-c", path).code == 0
    started = kraft("server", "start", path)
    assert started.code == REFUSED
    assert f"error: {path}: process.roles is broker; only controllers run here" in started.err


def test_of_a_combined_node_the_controller_alone_is_said_to_run(kraft: Run, tmp_path: Path) -> None:
    """It ends there, as its directory is not formatted."""
    log_dir = tmp_path / "log"
    path = write_configuration(tmp_path, COMBINED | {"log.dirs": str(log_dir)})
    started = kraft("server", "start", path)
    assert started.code == REFUSED
    note, error = started.err.splitlines()
    assert note == (
        f"note: {path}: process.roles has broker, which is not served here: only the controller "
        "runs, and nobody listens at PLAINTEXT://127.0.0.1:9092"
    )
    assert f"{log_dir} is not formatted" in error


def test_a_controller_that_is_to_encrypt_does_not_speak_in_the_clear(
    kraft: Run, tmp_path: Path
) -> None:
    secure = {"listener.security.protocol.map": "CONTROLLER:SSL", "log.dirs": str(tmp_path / "log")}
    path = write_configuration(tmp_path, CONTROLLER | secure)
    assert kraft("storage", "format", "-t", "c", "-c", path, "--standalone").code == 0
    started = kraft("server", "start", path)
    assert started.code == REFUSED
    assert "CONTROLLER://127.0.0.1:9093 has the security protocol SSL" in started.err


def test_a_controller_alone_is_no_cause_for_a_note(kraft: Run, tmp_path: Path) -> None:
    path = write_configuration(tmp_path, CONTROLLER | {"log.dirs": str(tmp_path / "log")})
    started = kraft("server", "start", path)
    assert started.code == REFUSED
    assert started.err.startswith("error: ")
    assert "is not formatted" in started.err
