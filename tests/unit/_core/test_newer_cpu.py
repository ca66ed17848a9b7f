"""The choice between portable modules and modules that are compiled for newer CPUs."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from kraft import _core


@pytest.fixture
def twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that is searched for modules for newer CPUs.

    The import finders of this process are restored after the test.
    """
    monkeypatch.setattr(_core, "_V3", str(tmp_path))
    # An installed wheel has the finder; a build in the checkout does not.
    others = [finder for finder in sys.meta_path if finder is not _core._NewerCpuFinder]
    monkeypatch.setattr(sys, "meta_path", others)
    monkeypatch.delenv("KRAFT_BASELINE", raising=False)
    return tmp_path


def test_only_modules_with_a_twin_are_found(twins: Path) -> None:
    file = twins / "inner" / f"kernel{EXTENSION_SUFFIXES[0]}"
    file.parent.mkdir()
    file.touch()
    found = _core._NewerCpuFinder.find_spec("kraft._core.inner.kernel")
    assert found is not None
    assert found.origin == str(file)
    for name in ("kraft._core.inner", "kraft._core.kernel", "kraft.inner.kernel", "numpy"):
        assert _core._NewerCpuFinder.find_spec(name) is None


def test_a_cpu_without_the_features_keeps_the_portable_modules(
    twins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "_V3_FLAGS", frozenset({"no-such-feature"}))
    assert not _core.use_newer_cpu()
    assert _core._NewerCpuFinder not in sys.meta_path


def test_the_environment_can_disable_the_choice(
    twins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "_V3_FLAGS", frozenset())
    assert _core.use_newer_cpu() == Path("/proc/cpuinfo").exists()
    monkeypatch.setenv("KRAFT_BASELINE", "1")
    assert not _core.use_newer_cpu()


def test_a_build_for_one_machine_has_no_choice(twins: Path) -> None:
    twins.rmdir()
    assert not _core.use_newer_cpu()
