"""A copy of the package and its tests in a separate directory, with its own compiled core.

`make sanitize` and `make core-mutants` build cores that no other process must import. A `Tree`
copies the sources with their times, so that only changed modules are compiled, and never writes
outside of its directory.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "kraft", "tests")
#: The exit code of a test run that did not end in time.
TIMED_OUT = -signal.SIGKILL


class Tree:
    """One copy, of the repository or of another copy.

    ``with_extensions`` copies the compiled modules too; without it, the tree compiles its own and
    keeps them from run to run.
    """

    def __init__(self, home: Path, *, with_extensions: bool, origin: Path = ROOT) -> None:
        self.home = home
        self.with_extensions = with_extensions
        self.origin = origin

    def refresh(self) -> None:
        """Make the copy equal to its origin; compile nothing."""
        kept: set[Path] = set()
        for name in COPIED:
            top = self.origin / name
            for source in [top] if top.is_file() else top.rglob("*"):
                is_extension = source.suffix == ".so"
                if source.is_dir() or "__pycache__" in source.parts:
                    continue
                target = self.home / source.relative_to(self.origin)
                kept.add(target)
                if is_extension and not self.with_extensions:
                    continue
                if not target.exists() or _stamp(target) != _stamp(source):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source, target)
        for path in self.home.rglob("*"):
            is_source = path.relative_to(self.home).parts[0] in COPIED
            if is_source and path.is_file() and path not in kept:
                path.unlink()

    def build(
        self, modules: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Compile ``modules`` of the core, or all of it, if they are older than their sources."""
        chosen = {"KRAFT_MODULES": ",".join(modules)} if modules else {}
        return subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "-j", "2"],
            cwd=self.home,
            env={**os.environ, "KRAFT_MARCH": "native", **(environment or {}), **chosen},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def test(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        log: Path | None = None,
    ) -> int:
        """Run pytest in the copy, and return its exit code; negative where a signal ended it.

        Its output goes to ``log``, or to this process's own.
        """
        with open(log or os.devnull, "wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
                cwd=self.home,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
                stdout=None if log is None else file,
                stderr=None if log is None else subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return TIMED_OUT
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size
