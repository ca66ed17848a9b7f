"""Other versions of kraft: a commit of this repository, built in an environment of its own.

`build` exports a commit (``git archive``) to a work directory outside of the checkout, makes a
virtual environment with the dependencies of that commit, and compiles its core, once: a later call
finds the finished build.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.commands import KRAFT, PLAIN

ROOT = Path(__file__).resolve().parents[2]
_BUILD_TOOLS = ("setuptools>=77", "cython>=3.1", "numpy>=2.0")
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class BuiltVersion:
    """A version that is ready to run: its command, and the directory with its modules."""

    name: str
    program: Sequence[str]
    tree: Path

    def run(self, *arguments: object, codes: Sequence[int] = (0,)) -> str:
        """Return the output of a ``kraft`` command of this version."""
        ran = subprocess.run(
            [*self.program, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=PLAIN,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert ran.returncode in codes, f"{self.name}: {ran.args}: {ran.stderr}"
        return ran.stdout

    def runs_in(self, pid: int) -> bool:
        """Return whether a process has loaded the compiled core of this version."""
        core = str(self.tree / "kraft" / "_core")
        return any(core in line for line in Path(f"/proc/{pid}/maps").read_text().splitlines())


#: The version of this checkout.
PRESENT = BuiltVersion("present", KRAFT, ROOT)


def build(commit: str, work: Path, report: Callable[[str], None]) -> BuiltVersion:
    """Build the commit below ``work``, unless that was done before; takes minutes."""
    work = work.resolve()
    assert not work.is_relative_to(ROOT), f"{work} is inside of the checkout"
    id = _output("git", "rev-parse", "--short=10", f"{commit}^{{commit}}").strip()
    home = work / id
    tree, environment = home / "tree", home / "venv"
    # Not `python -m kraft`, which would import the modules of the working directory.
    version = BuiltVersion(id, (str(environment / "bin" / "kraft"),), tree)
    done = home / "built"
    if done.exists():
        return version
    report(f"building {id} in {home}")
    tree.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", id], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tree, filter="data")
    _run([sys.executable, "-m", "venv", str(environment)], home)
    python = str(environment / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q"]
    _run([*install, *_BUILD_TOOLS], home)
    _run(
        [*install, "--no-build-isolation", "-e", f"{tree}[uvloop,codecs]"],
        home,
        KRAFT_MODULES="none",
    )
    _run(
        [python, "setup.py", "-q", "build_ext", "--inplace", "-j", "2"], tree, KRAFT_MARCH="native"
    )
    done.touch()
    return version


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _run(command: list[str], directory: Path, **environment: str) -> None:
    subprocess.run(command, cwd=directory, env=os.environ | environment, check=True)
