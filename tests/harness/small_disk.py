"""A small file system of a test's own, which a process can fill up without root."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

from tests.harness.commands import KRAFT


@dataclass(frozen=True)
class SmallDisk:
    """A file system that only the mount namespace of the process ``holder`` has."""

    holder: int
    #: Its path in that namespace.
    at: Path

    @property
    def from_outside(self) -> Path:
        return Path(f"/proc/{self.holder}/root{self.at}")

    @property
    def program(self) -> list[str]:
        """Return the command ``kraft`` within that namespace."""
        return [*self._enter, *KRAFT]

    @property
    def _enter(self) -> tuple[str, ...]:
        enter = ("nsenter", "--target", str(self.holder), "--user", "--mount")
        return (*enter, "--preserve-credentials")

    @property
    def used_kib(self) -> int:
        """The size of its content."""
        return shutil.disk_usage(self.from_outside).used >> 10

    def resize(self, size_kib: int) -> None:
        """Change its size, which must not be below that of its content."""
        remount = ("mount", "-o", f"remount,size={size_kib}k", str(self.at))
        subprocess.run([*self._enter, *remount], check=True)


@contextmanager
def small_disk(tmp_path: Path, size_mib: int) -> Iterator[SmallDisk]:
    """Yield an empty file system of this size, of a namespace of its own."""
    at = tmp_path / "disk"
    at.mkdir()
    script = f'mount -t tmpfs -o size={size_mib}m none "$0" && echo ready && exec cat'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(at)]
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare of util-linux")
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if not holder.stdout.readline():
            pytest.skip("needs user namespaces that may mount a tmpfs")
        yield SmallDisk(holder.pid, at)
        holder.stdin.close()


def fill(file: Path, *, left_kib: int) -> None:
    """Write a file until so many KiB of its disk are left."""
    with file.open("ab", buffering=0) as ballast, suppress(OSError):
        while left_kib == 0 or shutil.disk_usage(file).free > left_kib << 10:
            ballast.write(bytes(4096))
