"""A cluster of kraft's controllers and brokers whose nodes lose power: unsynced work is gone.

Each node has the recorder of ``tests.durability`` preloaded. After a node has ended, the recording
says which of its bytes and names were on the device. `PoweredCluster.lose_power` gives the node's
directory the files that a crash leaves, in one of the ways of `Loss`.

`PowerLoss` is the verified load of ``broker_chaos`` with these faults.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from kraft._core.bytes.batch_records import iterate
from kraft.server.disk.directory_lock import DirectoryLock
from kraft.server.local_quorum import LocalNode
from kraft.testing.cluster import QuorumForTests
from tests.durability.recording import (
    DROP,
    SENDS,
    Recording,
    compile_recorder,
    missing_for_recordings,
    variables,
)
from tests.durability.replayed_disk import ReplayedDisk
from tests.e2e.broker_chaos import BROKERS, CONTROLLERS, SETTINGS, BrokerChaos, Topics, log_bytes
from tests.harness.commands import PATIENCE_S, eventually
from tests.harness.crash_disk import Loss
from tests.harness.numbered_load import Partition

SHARED_MEMORY = Path("/dev/shm")


class RecordedNode:
    """What is known of the disk of one node: its recording, replayed on a `ReplayedDisk`."""

    def __init__(self, node: LocalNode, recorder: Path, dropped: str) -> None:
        self._node = node
        self._recorder = recorder
        self._settings = {SENDS: "no"} | ({DROP: dropped} if dropped else {})
        self._root = node.config_path.parent / "data"
        self._plain_program = tuple(node.program)
        self._losses = 0
        # The parent process creates the file of the lock before the node starts.
        DirectoryLock(str(self._root)).release()
        self._begin()

    def _begin(self) -> None:
        """Count the present files as durable, and record from now on."""
        path = self._root.with_name(f"calls-{self._losses}")
        self._disk = ReplayedDisk(str(self._root))
        self._recording = Recording(path)
        given = variables(self._recorder, self._root, path, **self._settings)
        words = [f"{name}={value}" for name, value in given.items()]
        self._node.program = ("env", *words, *self._plain_program)

    def end(self) -> None:
        """Wait until the process has ended by the recorder's signal."""
        assert self._node.process is not None
        code = self._node.process.wait(PATIENCE_S)
        assert code == 128 + signal.SIGKILL, f"node {self._node.id} ended with {code}"

    def lose(self, loss: Loss, random: Random) -> None:
        """Replace the files of the ended node by those that are left of its disk."""
        for call in self._recording.new():
            self._disk.take(call)
        missed = self._disk.differences()
        assert not missed, f"the recorder missed changes of {missed}"
        left = self._disk.after_crash(loss, random)
        shutil.rmtree(self._root)
        for path in left.directories:
            if Path(path).is_relative_to(self._root):
                Path(path).mkdir()
        for path, content in left.files().items():
            Path(path).write_bytes(content)
        self._losses += 1
        self._begin()


class PoweredCluster(QuorumForTests):
    """The cluster; see the module.

    ``dropped`` are calls that do nothing, as of ``RECORD_DROP``: what they would have synced is
    lost.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], dropped: str = "") -> None:
        self._recorder = compile_recorder(directory)
        self._dropped = dropped
        self._recorded: dict[int, RecordedNode] = {}
        super().__init__(directory, CONTROLLERS, brokers=BROKERS, settings=settings)

    def _prepare(self, node: LocalNode) -> None:
        self._recorded[node.id] = RecordedNode(node, self._recorder, self._dropped)

    def lose_power(self, ids: Iterable[int], random: Random, loss: Loss | None = None) -> None:
        """End nodes at once, each with the loss of what it had not synced.

        Each node loses it in the way ``loss``, by default in one of its own.
        """
        nodes = [self._node(id) for id in ids]
        for node in nodes:
            assert node.process is not None
            # The recorder ends the process, with no call unrecorded.
            node.process.send_signal(signal.SIGUSR2)
        for node in nodes:
            self._recorded[node.id].end()
            self.kill(node.id)
            self._recorded[node.id].lose(loss or random.choice(list(Loss)), random)


class PowerLoss(BrokerChaos):
    """The cluster under load, with nodes that lose power."""

    _cluster: PoweredCluster

    def faults(self) -> Iterator[Callable[[], None]]:
        """Yield losses of power of single nodes, twice as often of brokers as of controllers."""
        every = [self.power_of_a_broker_lost, self.power_of_a_controller_lost]
        while True:
            yield self._dice.choices(every, (2, 1))[0]

    def power_of_a_broker_lost(self) -> None:
        self._lose_power([self._any_broker()])

    def power_of_a_controller_lost(self) -> None:
        self._lose_power([self._dice.choice(self._cluster.controller_ids)])

    def power_of_all_nodes_lost(self) -> None:
        self._lose_power(self._all)

    @property
    def _all(self) -> list[int]:
        return [*self._cluster.controller_ids, *self._cluster.broker_ids]

    def end_with_loss(self) -> dict[Partition, int]:
        """End all nodes without what they had not synced.

        Return by partition how many acknowledged records are in no replica any more.
        """
        eventually(lambda: all(self.load.acknowledged_ends().values()))
        self._cluster.lose_power(self._all, self._dice, Loss.ALL)
        return {
            (topic, id): max(0, end - max(self._ends(topic, id)))
            for (topic, id), end in self.load.acknowledged_ends().items()
        }

    def _ends(self, topic: str, id: int) -> Iterator[int]:
        """Yield the end offset of each replica's log."""
        for broker in self._cluster.broker_ids:
            log = log_bytes(self._cluster.metadata_directory(broker) / f"{topic}-{id}")
            yield max((each.last_offset + 1 for each in iterate(memoryview(log))), default=0)

    def _lose_power(self, ids: list[int]) -> None:
        self._last(0.2, 2)
        self._note_epochs(ids)
        self._cluster.lose_power(ids, self._dice)
        for id in self._dice.sample(ids, len(ids)):
            self._cluster.start(id)


@contextmanager
def power_loss(seed: int, topics: Topics, *, dropped: str = "") -> Iterator[PowerLoss]:
    """Start a cluster under load; its processes are killed at the end.

    Its files are in memory if possible: real syncs would take time and prove nothing. Skips the
    test where nothing can be recorded.
    """
    if (reason := missing_for_recordings()) is not None:
        pytest.skip(reason)
    base = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with (
        TemporaryDirectory(prefix="kraft-", dir=base) as path,
        PoweredCluster(Path(path).resolve(), SETTINGS, dropped) as cluster,
        cluster.follow() as live,
    ):
        yield PowerLoss(cluster, live, seed, topics)
