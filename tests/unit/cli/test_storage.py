"""`kraft storage` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.cli.exit_codes import FOUND, OK, REFUSED
from kraft.records import Uuid
from tests.harness.configurations import BROKER, CONTROLLER, write_configuration
from tests.unit.cli.conftest import Run


@pytest.fixture
def controller(tmp_path: Path) -> Path:
    settings = CONTROLLER | {"log.dirs": str(tmp_path / "log"), "log.cleaner.threads": "3"}
    return write_configuration(tmp_path, settings | {"controller.quorum.fetch.timeut.ms": "9"})


def test_a_node_is_formatted_and_inspected(kraft: Run, controller: Path) -> None:
    log_dir = controller.parent / "log"
    before = kraft("storage", "info", "-c", controller)
    assert before.code == FOUND
    assert f"{log_dir} does not exist" in before.out

    done = kraft("storage", "format", "-t", "c", "-c", controller, "--standalone")
    assert done.code == OK
    assert done.out == (
        f"Formatting dynamic metadata voter directory {log_dir} with metadata.version 4.3-IV0.\n"
    )
    assert "controller.quorum.fetch.timeut.ms is unknown" in done.err
    assert "did you mean controller.quorum.fetch.timeout.ms?" in done.err
    assert "these settings of Kafka have no effect here: log.cleaner.threads" in done.err

    after = kraft("storage", "info", "-c", controller)
    assert after.code == OK
    assert after.lines[:2] == ["Found log directory:", f"  {log_dir}"]
    assert after.lines[3].startswith("Found metadata: {cluster.id=c, directory.id=")
    document = kraft("storage", "info", "-c", controller, "--json").json
    assert document["problems"] == []
    assert document["directories"][0]["clusterId"] == "c"
    assert document["notUnderstood"] == ["controller.quorum.fetch.timeut.ms"]

    again = kraft("storage", "format", "-t", "c", "-c", controller, "--standalone")
    assert again.code == REFUSED
    assert f"{log_dir} is already formatted" in again.err
    ignored = kraft("storage", "format", "-t", "c", "-c", controller, "-s", "-g")
    assert ignored.out == "All of the log directories are already formatted.\n"


def test_settings_of_brokers_have_an_effect_on_brokers_only(kraft: Run, tmp_path: Path) -> None:
    for_brokers = {"replica.lag.time.max.ms": "9000", "offsets.topic.replication.factor": "1"}
    for role, unused in (
        (BROKER, ["log.cleaner.threads"]),
        (CONTROLLER, ["log.cleaner.threads", *for_brokers]),
    ):
        settings = role | {"log.dirs": str(tmp_path / "log"), "log.cleaner.threads": "3"}
        path = write_configuration(tmp_path, settings | for_brokers)
        info = kraft("storage", "info", "-c", path, "--json")
        assert info.json["noEffect"] == unused
        assert f"no effect here: {', '.join(unused)}\n" in info.err


def test_format_prints_its_result_as_json(kraft: Run, controller: Path) -> None:
    ran = kraft(
        *("storage", "format", "-t", "c", "-c", controller, "-s", "-r", "4.1", "--json"),
        *("-f", "group.version=0", "-S", "SCRAM-SHA-512=[name=alice,password=secret]"),
    )
    assert ran.code == OK
    assert ran.json["metadataVersion"] == "4.1-IV1"
    assert ran.json["features"]["group.version"] == 0
    assert ran.json["voters"][0]["endpoints"] == [
        {"name": "CONTROLLER", "host": "127.0.0.1", "port": 9093}
    ]
    assert ran.json["formatted"][0]["directoryId"] == ran.json["voters"][0]["directoryId"]
    assert "secret" not in ran.out + ran.err


def test_format_without_first_voters_names_the_options(kraft: Run, controller: Path) -> None:
    ran = kraft("storage", "format", "-t", "c", "-c", controller)
    assert ran.code == REFUSED
    assert "--standalone, --initial-controllers, or --no-initial-controllers" in ran.err


def test_random_ids_version_mappings_and_feature_dependencies_are_printed(kraft: Run) -> None:
    assert len(Uuid.parse(kraft("storage", "random-uuid").out.strip())) == 16
    mapping = kraft("storage", "version-mapping", "-r", "3.9")
    assert mapping.lines[:2] == ["metadata.version=21 (3.9)", "kraft.version=1"]
    assert kraft("storage", "version-mapping", "--json").json["metadata.version"] == 30
    needs = kraft("storage", "feature-dependencies", "-f", "eligible.leader.replicas.version=1")
    assert needs.lines == [
        "eligible.leader.replicas.version=1 requires:",
        "    metadata.version=23 (4.0-IV1)",
    ]
    unknown = kraft("storage", "feature-dependencies", "-f", "metadata.version=5")
    assert unknown.code == REFUSED
