"""Fetch the tests of the installed kafka-python, which only its source distribution has.

With them come the packages of its codecs, which the client itself does not require.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

from tests.harness.kafka_jars import CACHE, MissingToolError, cache_lock

_NAME = "kafka-python"
_CODECS = ("lz4", "python-snappy", "zstandard")


def test_tree() -> Path:
    """Return the directory with the package `test` and the codecs; fetch both on first use.

    Raises MissingToolError where the package index cannot be reached.
    """
    release = version(_NAME)
    tree = CACHE / f"{_NAME}-{release}"
    with cache_lock():
        if not tree.is_dir():
            _fetch(release, tree)
    return tree


def _fetch(release: str, tree: Path) -> None:
    # Filled under another name, and renamed when complete: a failed run leaves nothing.
    partial = tree.with_name(f"{tree.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    _pip("install", "--target", partial, "--no-compile", *_CODECS)
    source = (f"{_NAME}=={release}", "--no-deps", "--no-binary", ":all:", "--no-build-isolation")
    _pip("download", "-d", partial, *source)
    (file,) = partial.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        for member in archive.getmembers():
            _, _, path = member.name.partition("/")
            # Without the client itself: the tests use the installed one.
            if path.startswith("test/"):
                member.name = path
                archive.extract(member, partial, filter="data")
    file.unlink()
    # The archive lacks it; without it `test` would be the package of Python's own tests.
    (partial / "test" / "__init__.py").touch()
    partial.rename(tree)


def _pip(command: str, *words: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, "-q", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MissingToolError(
            f"pip cannot fetch the tests of {_NAME} and its codecs:\n{done.stderr[-2000:]}"
        )
