"""A followed quorum of three processes: equal to the directories of its nodes at each offset."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kraft
from kraft.errors import InvalidRequestError, KraftError, OffsetOutOfRangeError
from kraft.live import fetching
from kraft.live.delta import LiveDelta
from kraft.network.quorum_client import QuorumClient, QuorumUnreachableError
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
    DeleteTopicState,
)
from kraft.server.light_brokers import LightBrokers
from kraft.server.local_quorum import LOOPBACK, LocalNode, LocalQuorum, free_ports

# Snapshots and the deletion of the log before them, every few seconds of this test's changes.
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "internal.metadata.log.segment.bytes": "20000",
    "metadata.max.retention.bytes": "1",
}


class Quorum:
    """Three controllers with light brokers, and a client that changes topics."""

    def __init__(self, directory: Path) -> None:
        self.local = LocalQuorum(directory, 3, SETTINGS)
        self.local.start()
        self.bootstrap = ",".join(node.endpoint for node in self.local.nodes)
        self.client = QuorumClient([(LOOPBACK, node.port) for node in self.local.nodes])
        end = time.monotonic() + 120
        while True:
            try:
                self.client.describe_quorum()
                break
            except KraftError:
                assert time.monotonic() < end
                time.sleep(0.1)
        self.cluster_id = self.client.describe_cluster().cluster_id
        addresses = [(LOOPBACK, node.port) for node in self.local.nodes]
        self.brokers = LightBrokers(addresses, self.cluster_id, 3)
        self.brokers.start()
        while self.brokers.unfenced_count < 3:
            assert time.monotonic() < end
            time.sleep(0.05)

    def create(self, name: str, partitions: int) -> None:
        request = CreateTopicsRequestData([CreatableTopic(name, partitions, 3)], 10_000)
        said = self.client.call(
            CREATE_TOPICS,
            request,
            CreateTopicsResponseData,
            lambda response: response.topics[0].error_code,
        )
        assert said.response.topics[0].error_code in (0, 36)

    def delete(self, name: str) -> None:
        request = DeleteTopicsRequestData(topics=[DeleteTopicState(name)], timeout_ms=10_000)
        self.client.call(
            DELETE_TOPICS,
            request,
            DeleteTopicsResponseData,
            lambda response: response.responses[0].error_code,
        )

    def leader(self) -> LocalNode:
        leader_id = self.client.describe_quorum().leader_id
        return next(node for node in self.local.nodes if node.id == leader_id)

    def close(self) -> None:
        self.brokers.stop()
        self.client.close()
        self.local.stop()


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    made = Quorum(tmp_path_factory.mktemp("live") / "quorum")
    try:
        yield made
    finally:
        made.close()


def caught_up(live: kraft.LiveMetadata, quorum: Quorum) -> None:
    """Poll until the state has all that is committed now."""
    target = quorum.client.describe_quorum().high_watermark
    end = time.monotonic() + 120
    while live.next_offset < target:
        assert time.monotonic() < end, (live.next_offset, target, live.trouble)
        live.poll(0.2)


def recorded(quorum: Quorum, offset: int) -> kraft.Metadata | None:
    """Return the state of a node's directory at this offset; None where no log reaches it."""
    for node in quorum.local.nodes:
        try:
            return kraft.open_metadata(node.config_path.parent / "data", at=offset)
        except OffsetOutOfRangeError:
            continue
    return None


def assert_equal(live: kraft.LiveMetadata, quorum: Quorum) -> bool:
    expected = recorded(quorum, live.next_offset)
    if expected is None:
        return False
    assert expected.next_offset == live.next_offset
    assert list(kraft.diff(expected, live)) == []
    assert live.state == expected.state
    assert live.quorum.leader_epoch == expected.quorum.leader_epoch
    return True


def test_the_state_is_that_of_the_nodes_at_each_offset(quorum: Quorum) -> None:
    """Over new and removed topics, two changes of the leader, snapshots, and a compaction."""
    offsets: list[int] = []
    compared = 0
    with kraft.follow(quorum.bootstrap) as live, kraft.follow(quorum.bootstrap) as paused:
        before = live.write_snapshot(quorum.local.directory / "copies", columns=False)
        for step in range(40):
            quorum.create(f"topic-{step}", 40)
            if step % 3 == 2:
                quorum.delete(f"topic-{step - 1}")
            if step in (15, 28):
                killed = quorum.leader()
                quorum.local.kill(killed)
            if step in (20, 33):
                quorum.local.start_node(killed)
            # Its time is that of a busy machine: it returns once the topic is there.
            if live.poll(60) is not None:
                compared += assert_equal(live, quorum)
            offsets.append(live.next_offset)
        caught_up(live, quorum)
        compared += assert_equal(live, quorum)
        # The paused one gets the log, or a snapshot where the leader has dropped that log.
        caught_up(paused, quorum)
        assert_equal(paused, quorum)
        assert len(kraft.diff(kraft.open_metadata(before), paused)) > 0
    assert offsets == sorted(offsets)
    assert compared > 15
    snapshots = [
        path
        for node in quorum.local.nodes
        for path in node.config_path.parent.rglob("*-*.checkpoint")
        if int(path.name[:20]) > 0
    ]
    assert snapshots, "the test is to make snapshots"


def test_a_delta_has_the_differences_and_their_causes(quorum: Quorum) -> None:
    with kraft.follow(quorum.bootstrap) as live:
        caught_up(live, quorum)
        seen: list[LiveDelta] = []
        live.on_delta(seen.append)
        before = kraft.open_metadata(live.write_snapshot(quorum.local.directory / "a"))
        quorum.create("caused", 3)
        quorum.delete("topic-0")
        end = time.monotonic() + 60
        while "topic-0" in live.topics or "caused" not in live.topics:
            assert time.monotonic() < end
            live.poll(0.1)
        found = [each for delta in seen for each in delta.differences()]
        expected = list(kraft.diff(before, live))
        assert {(each.kind, each.key, each.before, each.after) for each in found} == {
            (each.kind, each.key, each.before, each.after) for each in expected
        }
        causes = {each.key: each.cause.type for each in found if each.cause is not None}
        assert causes == {"caused": "Topic", "topic-0": "RemoveTopic"}
        assert all(record.offset < delta.offset for delta in seen for record in delta.records())


def test_nothing_changes_between_polls_and_after_close(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The leader may answer a fetch after 2 s, which `close` would wait for: it ends the request.
    monkeypatch.setattr(fetching, "_MAX_WAIT_MS", 300_000)
    monkeypatch.setattr(fetching, "_CLOSE_S", 300.0)
    live = kraft.follow(quorum.bootstrap)
    offset, leaders = live.next_offset, live.partitions.leader.copy()
    quorum.create("later", 2)
    time.sleep(0.3)
    assert live.next_offset == offset
    assert (live.partitions.leader == leaders).all()
    began = time.monotonic()
    live.close()
    assert time.monotonic() - began < 30
    assert "later" not in live.topics
    with pytest.raises(InvalidRequestError, match="closed"):
        live.poll()
    with pytest.raises(AttributeError):
        live.apply  # type: ignore[attr-defined]  # noqa: B018


def test_asyncio_waits_without_blocking_the_loop(quorum: Quorum) -> None:
    async def run() -> set[str]:
        live = await kraft.follow_async(quorum.bootstrap)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        async def create_later() -> None:
            # The stream waits, and nothing comes: a blocked loop would not tick meanwhile.
            while ticks < 100:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(quorum.create, "async", 2)

        ticking = asyncio.create_task(tick())
        with live:
            creating = asyncio.create_task(create_later())
            found: set[str] = set()
            async for delta in live:
                found |= {str(each.key) for each in delta.differences() if each.kind == "topic"}
                if "async" in found:
                    break
            await creating
        ticking.cancel()
        return found

    assert "async" in asyncio.run(asyncio.wait_for(run(), 60))


def test_a_callback_that_fails_does_not_hide_the_change(quorum: Quorum) -> None:
    def fail(delta: LiveDelta) -> None:
        raise ValueError("of the callback")

    with kraft.follow(quorum.bootstrap, on_delta=fail) as live:
        seen: list[LiveDelta] = []
        live.on_delta(seen.append)
        quorum.create("noticed", 1)
        failures = 0
        end = time.monotonic() + 60
        while "noticed" not in live.topics:
            assert time.monotonic() < end
            try:
                live.poll(0.2)
            except ValueError:
                failures += 1
        assert failures == len(seen) > 0


def test_another_cluster_is_refused(quorum: Quorum) -> None:
    with pytest.raises(KraftError, match=f"of cluster {quorum.cluster_id}, not of AAAAAAAAAAAAAA"):
        kraft.follow(quorum.bootstrap, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")


def test_an_address_without_a_controller_is_an_error() -> None:
    (port,) = free_ports(1)
    with pytest.raises(QuorumUnreachableError, match=f"127.0.0.1:{port}"):
        kraft.follow(f"127.0.0.1:{port}", timeout_s=2)
    with pytest.raises(KraftError, match="no controller is named"):
        kraft.follow("")
    with pytest.raises(KraftError, match="cannot read"):
        kraft.follow(f"127.0.0.1:{port}", properties="/missing/client.properties")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"bootstrap_controllers": 5}, "give 'host:port,…'"),
        ({"bootstrap_controllers": ["localhost:1", None]}, "give 'host:port,…'"),
        ({"bootstrap_controllers": "localhost"}, "the address of a controller"),
        ({"properties": 5}, "give a mapping"),
        ({"properties": {"security.protocol": "TLS"}}, "security.protocol"),
        ({"timeout_s": "soon"}, "timeout_s is 'soon'"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
    ],
)
def test_bad_arguments_are_rejected_before_anything_is_sent(
    arguments: dict[str, Any], wanted: str
) -> None:
    given: dict[str, Any] = {"bootstrap_controllers": "127.0.0.1:1"} | arguments
    with pytest.raises(KraftError, match=wanted):
        kraft.follow(**given)
