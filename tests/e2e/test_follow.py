"""``kraft.follow`` while the leader, or the process that follows, stands still, and at scale."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import kraft
from kraft.admin import TopicSpec, connect_blocking
from kraft.errors import KraftError, OffsetOutOfRangeError
from kraft.live.delta import LiveDelta
from kraft.server.light_brokers import LightBrokers
from kraft.server.local_quorum import LOOPBACK
from kraft.testing.cluster import QuorumForTests
from tests.harness.commands import eventually
from tests.harness.nodes import Controllers

pytestmark = pytest.mark.nodes

ROOT = Path(__file__).parents[2]
# Snapshots and the deletion of the log before them, every few topics.
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "internal.metadata.log.segment.bytes": "20000",
    "metadata.max.retention.bytes": "1",
}
#: A large topic is one metadata transaction, which may take a third of this.
LONG_SESSIONS = {"broker.session.timeout.ms": "90000"}
# The interval of that is a minute.
CLEANING = (
    sys.executable,
    "-c",
    "from kraft.server import process; process.CLEAN_INTERVAL_S = 0.5; "
    "from kraft.cli import main; main()",
)
QuorumFactory = Callable[..., QuorumForTests]


def assert_recorded(found: kraft.MetadataView | Path, directories: Iterable[Path]) -> bool:
    """Compare with a controller's directory at the same offset; return False if none has it."""
    state = kraft.open_metadata(found) if isinstance(found, Path) else found
    for directory in directories:
        try:
            expected = kraft.open_metadata(directory, at=state.next_offset)
        except OffsetOutOfRangeError:
            continue
        assert list(kraft.diff(expected, state)) == []
        return True
    return False


def directories_of(cluster: QuorumForTests) -> list[Path]:
    return [cluster.metadata_directory(node) for node in cluster.controller_ids]


class Follower:
    """A process of ``tests.harness.follower``, and the lines that it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    @property
    def offset(self) -> int:
        return int(self.lines[-1]["offset"]) if self.lines else -1

    def has_topic(self, name: str) -> bool:
        return name in kraft.open_metadata(self.lines[-1]["path"]).topics


@contextmanager
def following(bootstrap: str, directory: Path) -> Iterator[Follower]:
    command = [sys.executable, "-m", "tests.harness.follower", bootstrap, str(directory)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield Follower(process)
    finally:
        process.kill()
        process.wait()


def log_start(directory: Path) -> int:
    source = kraft.open_metadata(directory).source
    assert source is not None
    return source.log_start_offset


def test_a_stopped_follower_continues_with_the_snapshot_of_the_leader(tmp_path: Path) -> None:
    """The leader deletes its log up to behind the follower, which stands still (SIGSTOP)."""
    quorum = Controllers(tmp_path, 1, SETTINGS)
    node = quorum.all[0]
    node.program = CLEANING
    with quorum, ExitStack() as stack:
        quorum.form([node])
        eventually(lambda: quorum.described().high_watermark > 0)
        admin = stack.enter_context(connect_blocking(quorum.bootstrap))
        light = LightBrokers([(LOOPBACK, node.port)], admin.describe_cluster().cluster_id, 3)
        light.start()
        stack.callback(light.stop)
        eventually(lambda: light.unfenced_count == 3)
        copies = tmp_path / "copies"
        follower = stack.enter_context(following(quorum.bootstrap, copies))
        eventually(lambda: follower.offset > 0)
        admin.create_topics([TopicSpec("running", 3, 3)])
        eventually(partial(follower.has_topic, "running"))
        follower.process.send_signal(signal.SIGSTOP)
        step = 0
        # Lines that it printed before may still be read.
        while log_start(node.data) <= follower.offset + 100:
            assert step < 500, "the leader keeps its log"
            admin.create_topics([TopicSpec(f"meanwhile-{step}", 40, 3)])
            if step % 2:
                admin.delete_topics([f"meanwhile-{step - 1}"])
            step += 1
        follower.process.send_signal(signal.SIGCONT)
        for name in ("next", "last"):
            admin.create_topics([TopicSpec(name, 3, 3)])
            eventually(partial(follower.has_topic, name))
        offsets = [line["offset"] for line in follower.lines]
        assert all(before < after for before, after in pairwise(offsets))
        assert any(line["full"] for line in follower.lines), "no snapshot replaced the state"
        assert len(follower.lines) > [line["full"] for line in follower.lines].index(True) + 1
        assert all(line["kept"] for line in follower.lines), "a delta has other differences later"
        assert assert_recorded(Path(follower.lines[-1]["path"]), [node.data])


def test_the_state_goes_on_while_the_leader_stands_still(
    kraft_cluster_factory: QuorumFactory,
) -> None:
    """The leader keeps its connections and answers nothing (SIGSTOP); later it is a follower."""
    cluster = kraft_cluster_factory(3, light_brokers=3)
    offsets = []
    with kraft.follow(cluster.bootstrap_controllers, timeout_s=10) as live:
        for round in range(2):
            name = f"round-{round}"
            paused = cluster.leader_id()
            cluster.pause(paused)
            # One attempt to create the topic may wait half a minute for the leader.
            end = time.monotonic() + 180
            while name not in live.topics:
                assert time.monotonic() < end, live.trouble
                # It may exist by an earlier attempt, or the next leader knows no broker yet.
                with suppress(KraftError):
                    cluster.create_topic(name, 5, 3)
                live.poll(0.2)
                offsets.append(live.next_offset)
            assert assert_recorded(live, directories_of(cluster))
            cluster.resume(paused)
    assert offsets == sorted(offsets)


def test_a_large_topic_appears_as_a_whole(kraft_cluster_factory: QuorumFactory) -> None:
    """The controller writes it as a metadata transaction of several batches."""
    cluster = kraft_cluster_factory(1, light_brokers=3, settings=LONG_SESSIONS)
    seen: list[int] = []
    with kraft.follow(cluster.bootstrap_controllers) as live:
        cluster.create_topic("large", 60_000, 3)
        end = time.monotonic() + 120
        while "large" not in live.topics:
            assert time.monotonic() < end
            live.poll(0.1, max_bytes=1)
            seen.append(len(live.partitions))
        assert set(seen) <= {0, 60_000}
        assert assert_recorded(live, directories_of(cluster))
    recorded = kraft.open_metadata(cluster.metadata_directory(1))
    types = [type(each.record).__name__ for each in recorded.records()]
    assert types.count("BeginTransaction") >= 2, "one transaction is that of the bootstrap"


def test_a_million_partitions(kraft_cluster_factory: QuorumFactory) -> None:
    """The first state, small deltas, and a compaction equal the controller's directory."""
    cluster = kraft_cluster_factory(1, light_brokers=3, settings=LONG_SESSIONS)
    for topic in range(10):
        cluster.create_topic(f"topic-{topic}", 100_000, 3)
    with kraft.follow(cluster.bootstrap_controllers) as live:
        assert len(live.partitions) == 1_000_000
        assert assert_recorded(live, directories_of(cluster))
        deltas: list[LiveDelta] = []
        live.on_delta(deltas.append)
        cluster.create_topic("small", 1, 3)
        end = time.monotonic() + 120
        while "small" not in live.topics:
            assert time.monotonic() < end
            live.poll(0.1)
        assert [each.key for delta in deltas for each in delta.differences()] == ["small"]
        assert not any(delta.is_full for delta in deltas)
        deltas.clear()
        for topic in range(6):
            cluster.delete_topic(f"topic-{topic}")
        while len(live.topics) > 5 or not deltas[-1].is_full:
            assert time.monotonic() < end, "the rows of removed topics are still there"
            live.poll(0.1)
        assert len(live.partitions.leader) == len(live.partitions) == 400_001
        # The deltas before the compaction still have their differences.
        removed = [each.key for delta in deltas for each in delta.differences()]
        assert removed == [f"topic-{topic}" for topic in range(6)]
        assert assert_recorded(live, directories_of(cluster))
