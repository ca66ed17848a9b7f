"""The verified load of ``broker_chaos`` on brokers whose disks fill up and fail.

Each broker has three directories:

    data        log.dirs, first entry
    small       log.dirs, second entry, on a file system of its own, which can be full
    metadata    metadata.log.dir

A preloaded library (`failing_disk.c`) lets writes or syncs below some of them fail. One log
directory that fails goes offline, and the broker serves the others on; a broker without log
directories, or without that of its metadata, ends. A broker that had such a fault starts again
before the next one, as Kafka's operators would let it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraft.broker.log.checkpoint_files import CLEAN_SHUTDOWN
from kraft.metadata.properties import property_line, read_properties
from kraft.server.local_quorum import LocalNode
from kraft.testing.cluster import QuorumForTests
from tests.e2e.broker_chaos import (
    BROKERS,
    CONTROLLERS,
    SETTINGS,
    BrokerChaos,
    node_log,
)
from tests.harness.commands import PATIENCE_S, eventually
from tests.harness.small_disk import SmallDisk, small_disk

#: More than the longest run writes; the file system takes memory only for its content.
_SMALL_DISK_MIB = 4096
#: Is left of a disk that will be full: its content grows until its size is changed.
_LEFT_KIB = 256
_OFFLINE = "goes offline"


@dataclass(frozen=True)
class BrokerDisks:
    """The directories of one broker, as they are seen from outside of its namespace."""

    data: Path
    small: Path
    metadata: Path
    #: The file system of ``small``.
    small_disk: SmallDisk
    #: The file that `failing_disk.c` reads.
    failing: Path

    @property
    def log_directories(self) -> tuple[Path, Path]:
        return self.data, self.small

    def inside(self, directory: Path) -> str:
        """Return the path that the broker has for a directory."""
        return str(self.small_disk.at / "logs" if directory == self.small else directory)

    def fail(self, *directories: Path, only_syncs: bool = False) -> None:
        """Let writes and syncs, or syncs alone, fail below directories."""
        lines = ["sync"] * only_syncs + [self.inside(directory) for directory in directories]
        # Complete at once: the broker reads it before each write.
        other = self.failing.with_suffix(".new")
        other.write_text("\n".join(lines))
        other.rename(self.failing)

    def heal(self) -> None:
        """Let all disks work, with enough space."""
        self.failing.unlink(missing_ok=True)
        self.small_disk.resize(_SMALL_DISK_MIB << 10)


class ClusterWithDisks(QuorumForTests):
    """The cluster; see the module."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str], small_disks: list[SmallDisk]
    ) -> None:
        self._library = _failing_library(directory)
        self._unused = small_disks
        self.disks: dict[int, BrokerDisks] = {}
        super().__init__(directory, CONTROLLERS, brokers=BROKERS, settings=settings)

    def _prepare(self, node: LocalNode) -> None:
        if node.client_port is None:
            return
        home, disk = node.config_path.parent.resolve(), self._unused.pop()
        disks = BrokerDisks(
            home / "data",
            disk.from_outside / "logs",
            home / "metadata",
            disk,
            home / "failing-directories",
        )
        self.disks[node.id] = disks
        settings = {
            "log.dirs": ",".join(map(disks.inside, disks.log_directories)),
            "metadata.log.dir": str(disks.metadata),
        }
        kept = [
            line
            for line in node.config_path.read_text().splitlines(keepends=True)
            if not line.startswith("log.dirs")
        ]
        added = [property_line(name, value) for name, value in settings.items()]
        node.config_path.write_text("".join(kept + added))
        preloaded = f"LD_PRELOAD={self._library}", f"FAILING_DISK={disks.failing}"
        node.program = ("env", *preloaded, *disk.program)
        self._format(node, disks)

    def _format(self, node: LocalNode, disks: BrokerDisks) -> None:
        """Format the directories that the cluster's own configuration did not name."""
        path = disks.data / "meta.properties"
        formatted = {key: value for key, value, _ in read_properties(path.read_text(), path)}
        format = ("storage", "format", "--ignore-formatted", "-t", formatted["cluster.id"])
        subprocess.run(
            [*node.program, *format, "-c", str(node.config_path)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def is_running(self, id: int) -> bool:
        return self._node(id).is_running

    def end_of(self, id: int) -> int:
        """Wait until a broker has ended by itself; return its exit code."""
        process = self._node(id).process
        assert process is not None
        code = process.wait(PATIENCE_S)
        self.kill(id)
        return code


class DiskChaos(BrokerChaos):
    """The cluster under load, with the faults of ``broker_chaos`` and of disks."""

    _cluster: ClusterWithDisks

    def _kinds(self) -> list[Callable[[], None]]:
        return [
            *super()._kinds(),
            self.log_directory_full,
            self.log_directory_failing,
            self.all_log_directories_failing,
            self.metadata_directory_failing,
        ]

    def log_directory_full(self) -> None:
        id = self._any_broker()
        disks = self._cluster.disks[id]
        disks.small_disk.resize(disks.small_disk.used_kib + _LEFT_KIB)
        self._go_on_without_directory(id, disks.small)

    def log_directory_failing(self) -> None:
        id = self._any_broker()
        disks = self._cluster.disks[id]
        failed = self._dice.choice(disks.log_directories)
        disks.fail(failed, only_syncs=self._dice.random() < 0.5)
        self._go_on_without_directory(id, failed)

    def _go_on_without_directory(self, id: int, failed: Path) -> None:
        """Wait until the directory is offline and its leaders have moved; restart the broker."""
        eventually(lambda: _OFFLINE in node_log(self._cluster, id))
        self.await_progress()
        assert self._cluster.is_running(id), self._log(id)[-3000:]
        assert self._log(id).count(_OFFLINE) == 1
        self._last(0, 2)
        disks = self._cluster.disks[id]
        if self._dice.random() < 0.5:
            self._kill(id)
        else:
            self._note_epochs([id])
            self._cluster.stop(id)
            (other,) = set(disks.log_directories) - {failed}
            assert (other / CLEAN_SHUTDOWN).exists(), self._log(id)[-3000:]
            assert not (failed / CLEAN_SHUTDOWN).exists()
        self._start_again(id)

    def all_log_directories_failing(self) -> None:
        id = self._any_broker()
        disks = self._cluster.disks[id]
        disks.fail(*disks.log_directories, only_syncs=self._dice.random() < 0.5)
        self._go_on_without_broker(id, "no log directory is left")

    def metadata_directory_failing(self) -> None:
        id = self._any_broker()
        disks = self._cluster.disks[id]
        disks.fail(disks.metadata)
        self._go_on_without_broker(id, str(disks.metadata))

    def _go_on_without_broker(self, id: int, reason: str) -> None:
        """Wait until the broker has ended and its leaders have moved; start it again."""
        self._note_epochs([id])
        code = self._cluster.end_of(id)
        text = self._log(id)
        assert code == 1, text[-3000:]
        assert text.count("this node stops") == 1
        assert reason in text
        self.await_progress()
        self._last(0, 2)
        # The reason of the end.
        self._start_again(id, tracebacks=1)

    def _start_again(self, id: int, tracebacks: int = 0) -> None:
        """Start a broker with disks that work; the errors of its last life are expected."""
        (log,) = self._cluster.metadata_directory(id).parent.glob("*.log")
        text = log.read_text()
        assert text.count("Traceback") == tracebacks, text[-5000:]
        aside = len(list(log.parent.glob("log-of-failed-disk-*")))
        log.rename(log.with_name(f"log-of-failed-disk-{aside}"))
        self._cluster.disks[id].heal()
        self._cluster.start(id)

    def _log_directories(self, id: int) -> tuple[Path, ...]:
        return self._cluster.disks[id].log_directories


def _failing_library(directory: Path) -> Path:
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and a linker that preloads")
    library = directory / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    options = ("-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl")
    subprocess.run([*compiler.split(), *options], check=True)
    return library


@contextmanager
def disk_chaos(directory: Path, seed: int) -> Iterator[DiskChaos]:
    """Start a cluster under load; its processes are killed at the end.

    Skips the test where no user namespace may mount a file system, or without a C compiler.
    """
    with ExitStack() as stack:
        disks = []
        for number in range(BROKERS):
            home = directory / f"small-{number}"
            home.mkdir()
            disks.append(stack.enter_context(small_disk(home, _SMALL_DISK_MIB)))
        cluster = stack.enter_context(ClusterWithDisks(directory, SETTINGS, disks))
        yield DiskChaos(cluster, stack.enter_context(cluster.follow()), seed)
