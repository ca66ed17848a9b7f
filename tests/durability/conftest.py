"""Fixtures of the proofs of the real disk: the compiled recorder, and a directory for files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.durability.recording import compile_recorder, missing_for_recordings, recorded

SHARED_MEMORY = Path("/dev/shm")

#: Runs Python with arguments, recorded; further settings of the recorder by name.
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library to preload; skip where it cannot be built."""
    reason = missing_for_recordings()
    if reason is not None:
        pytest.skip(reason)
    return compile_recorder(tmp_path_factory.mktemp("recorder"))


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory in memory if possible: waiting for real syncs would prove nothing."""
    base = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kraft-", dir=base) as path:
        (Path(path) / "node").mkdir()
        yield Path(os.path.realpath(path))


@pytest.fixture
def run(recorder: Path, place: Path) -> Run:
    """Return a function that runs Python and records ``place/node`` to ``place/calls``."""

    def run_python(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        environment = recorded(recorder, place / "node", place / "calls", **settings)
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run_python
