"""How tests get kcat: of the machine, of Debian's package, or an error that says what to do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import kafka_jars, kcat
from tests.harness.kafka_jars import MissingToolError
from tests.harness.missing_tools import skipped_if_missing

#: Lists two packages and downloads them; without lists of its own it knows none.
APT_GET = """#!/bin/sh
echo "$*" >> "$ASKED"
case "$*" in
*update*) touch "$LISTS" ;;
*--print-uris*)
  test -e "$LISTS" || { echo "E: Unable to locate package kcat" >&2; exit 100; }
  echo "'http://host/k/kcat_1.7.1-2_amd64.deb' kcat_1.7.1-2_amd64.deb 33792 MD5Sum:4"
  echo "'http://host/y/libyajl2_2.1.0-3%2bd_amd64.deb' libyajl2_2.1.0-3+d_amd64.deb 22 MD5Sum:c" ;;
*download*kcat*libyajl2*) touch kcat_1.7.1-2_amd64.deb libyajl2_2.1.0-3+d_amd64.deb ;;
*) exit 9 ;;
esac
"""
DPKG_DEB = """#!/bin/sh
mkdir -p "$3/usr/bin" "$3/usr/lib/some-linux-gnu"
printf '#!/bin/sh\\necho kcat finds $LD_LIBRARY_PATH\\n' > "$3/usr/bin/kcat"
chmod +x "$3/usr/bin/kcat"
"""


class Machine:
    """A machine with these programs and no others but the shell's."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._programs = directory / "bin"
        self._programs.mkdir()
        self.cache = directory / "cache"
        self.lists = directory / "lists"
        self._asked = directory / "asked"
        for module in (kafka_jars, kcat):
            monkeypatch.setattr(module, "CACHE", self.cache)
        for tool in ("sh", "env", "mkdir", "chmod", "touch"):
            (self._programs / tool).symlink_to(shutil.which(tool) or tool)
        monkeypatch.setenv("PATH", str(self._programs))
        monkeypatch.setenv("ASKED", str(self._asked))
        monkeypatch.setenv("LISTS", str(self.lists))

    def add(self, **programs: str) -> None:
        for name, text in programs.items():
            program = self._programs / name.replace("_", "-")
            program.write_text(text)
            program.chmod(0o755)

    def asked(self) -> list[str]:
        """Return the arguments of the calls of apt-get, without its options."""
        lines = self._asked.read_text().splitlines()
        return [" ".join(word for word in line.split() if word[0] != "-") for line in lines]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    kcat.kcat_command.cache_clear()
    yield Machine(tmp_path, monkeypatch)
    kcat.kcat_command.cache_clear()


def test_the_kcat_of_the_machine_is_used(machine: Machine) -> None:
    machine.add(kcat="#!/bin/sh\n")
    (found,) = kcat.kcat_command()
    assert found.endswith("/bin/kcat")
    assert not machine.cache.exists()


def test_the_package_is_downloaded_once_with_the_libraries_that_are_missing(
    machine: Machine,
) -> None:
    machine.add(apt_get=APT_GET, dpkg_deb=DPKG_DEB)
    machine.lists.touch()
    command = kcat.kcat_command()
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == f"kcat finds {machine.cache}/kcat/usr/lib/some-linux-gnu\n"
    assert machine.asked() == ["install kcat", "download kcat libyajl2"]
    kcat.kcat_command.cache_clear()
    assert kcat.kcat_command() == command
    assert len(machine.asked()) == 2
    assert [path.name for path in machine.cache.glob("kcat*")] == ["kcat"]


def test_lists_of_its_own_are_fetched_where_the_system_knows_no_kcat(machine: Machine) -> None:
    machine.add(apt_get=APT_GET, dpkg_deb=DPKG_DEB)
    kcat.kcat_command()
    assert machine.asked() == ["install kcat", "update", "install kcat", "download kcat libyajl2"]


def test_an_error_says_what_to_install(machine: Machine) -> None:
    with pytest.raises(MissingToolError, match=r"no apt-get\. Install kcat"):
        kcat.kcat_command()
    machine.add(dpkg_deb=DPKG_DEB, apt_get="#!/bin/sh\necho 'E: no network' >&2; exit 100\n")
    with pytest.raises(MissingToolError, match=r"(?s)Install kcat .*E: no network"):
        kcat.kcat_command()


def test_a_test_that_lacks_a_tool_is_skipped_by_name_but_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="no kcat"), skipped_if_missing():
        raise MissingToolError("no kcat")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(MissingToolError, match="no kcat"), skipped_if_missing():
        raise MissingToolError("no kcat")


def test_a_package_of_another_system_is_named(machine: Machine) -> None:
    program = machine.cache / "kcat" / "usr" / "bin" / "kcat"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'libssl.so.3: cannot open' >&2; exit 127\n")
    program.chmod(0o755)
    with pytest.raises(MissingToolError, match=r"(?s)remove the directory.*libssl.so.3"):
        kcat.kcat_command()
