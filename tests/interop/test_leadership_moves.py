"""Leadership moves between Kafka's controllers and kraft's, under brokers with a live load.

The leader is stopped, killed or paused, so that leadership moves from one kind of controller to the
other, while Admin clients change the cluster and an idempotent producer writes. At the end all
controllers have the same log and state, which has every acknowledged operation; every acknowledged
record is read back; the log fences a broker only where the test killed it; and no Kafka process
has logged an error that a quorum of Kafka's controllers alone does not log too.

Only ``make leadership-moves`` runs it: thirty moves on each release, and before that the control,
whose controllers are all Kafka's (`LEADERSHIP_CONTROL=1`).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

import kraft
from kraft.metadata.identifiers import random_uuid
from kraft.metadata.verification import verify
from kraft.metadata.verification_findings import Severity
from kraft.raft.rpc import DescribeQuorumResponse
from tests.harness.kafka_jars import KAFKA_3, KAFKA_4, kafka
from tests.interop import agreement
from tests.interop.admin_stream import AdminStream
from tests.interop.cluster import HOST, Cluster, Driver, wait_for
from tests.interop.kafka_faults import check_errors, check_fences
from tests.interop.kraft_node import KraftNode, add_kraft_controller
from tests.interop.mixed_quorum import (
    ELECTION_TIMEOUT,
    FETCH_TIMEOUT,
    LEADING,
    VOTING,
    MixedQuorum,
    log_bytes,
)
from tests.interop.record import TOPIC_TOOL
from tests.interop.scenario import RACKS

MOVES = int(os.environ.get("LEADERSHIP_MOVES", "3"))
RELEASES = os.environ.get("LEADERSHIP_RELEASES", KAFKA_4).split()
IS_CONTROL = os.environ.get("LEADERSHIP_CONTROL", "") == "1"
KAFKA, KRAFT, THIRD = 101, 102, 103
VOTERS = (KAFKA, KRAFT, THIRD)
BROKERS = tuple(RACKS)
SESSION_TIMEOUT_S = 6.0
STREAM_TOPIC, STREAM_PARTITIONS, STREAM_PAUSE_MS = "stream", 6, 5
#: The third voter stands only where another has a shorter log than its own.
THIRD_ELECTION_TIMEOUT_MS = "3000"


@dataclass
class Moves:
    """Ends leaders and counts the moves from one kind of controller to the other."""

    quorum: MixedQuorum
    draw: random.Random
    count: int = 0
    #: How often another node led a moment later, although no leader was ended: on a busy machine
    #: the short timeouts expire.
    unforced: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    failovers: list[float] = field(default_factory=list)

    def end_leader(self) -> DescribeQuorumResponse:
        """End the leader in one of three ways; return the quorum once another leads."""
        before = self._settled()
        node = self.quorum.nodes[before.leader_id]
        how = ("SIGTERM", "SIGKILL", "SIGSTOP")[self.ended.total() % 3]
        self.ended[how] += 1
        began = time.monotonic()
        process = node.process
        assert process is not None
        if how == "SIGSTOP":
            process.send_signal(signal.SIGSTOP)
            # Other nodes are asked for the leader.
            node.process = None
        elif how == "SIGKILL":
            node.kill()
        else:
            node.stop()
        try:
            after = self.quorum.wait_until(
                f"another leader than {node.id} after {how}",
                lambda said: (
                    said.leader_id not in (before.leader_id, -1) and said.high_watermark > 0
                ),
                timeout_s=60.0,
            )
        finally:
            if how == "SIGSTOP":
                process.send_signal(signal.SIGCONT)
                node.process = process
        self.failovers.append(time.monotonic() - began)
        assert after.epoch > before.epoch
        if how != "SIGSTOP":
            self.quorum.start(node.id)
        if IS_CONTROL or self._kind(before.leader_id) != self._kind(after.leader_id):
            self.count += 1
        return after

    def _kind(self, node_id: int) -> bool:
        return isinstance(self.quorum.nodes[node_id], KraftNode)

    def _settled(self) -> DescribeQuorumResponse:
        """Wait until every voter has what was committed a moment ago."""
        committed = self.quorum.described().high_watermark
        return self.quorum.wait_until(
            "the voters to follow",
            lambda said: (
                len(said.voters) == len(VOTERS)
                and all(each.log_end_offset >= committed for each in said.voters)
            ),
            timeout_s=60.0,
        )


class RecordStream:
    """Kafka's idempotent producer, and a consumer that reads all records back at the end."""

    def __init__(self, cluster: Cluster) -> None:
        addresses = [node.address for node in cluster.nodes.values() if node.role == "broker"]
        # As for the Admin client: the classes of the tests need 3.9.
        jars = cluster.jars if cluster.jars.version >= KAFKA_3 else kafka()
        command = jars.command(
            "RecordStream", ",".join(addresses), STREAM_TOPIC, str(STREAM_PARTITIONS),
            str(STREAM_PAUSE_MS), classes=jars.compiled("NumberedRecords", "RecordStream"),
        )  # fmt: skip
        with (cluster.directory / "stream.log").open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def finish(self) -> dict[str, int]:
        answer, _ = self._process.communicate("end\n", timeout=240)
        found: dict[str, int] = json.loads(answer)
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


pytestmark = [
    pytest.mark.interop,
    # On a busy machine reassignments outlast the wait; `make leadership-moves` runs it.
    pytest.mark.skipif("LEADERSHIP_MOVES" not in os.environ, reason="make leadership-moves"),
    # A move takes 10 s, and twice as long on a busy machine.
    pytest.mark.timeout(600 + 60 * MOVES),
]


@pytest.fixture(params=RELEASES)
def quorum(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedQuorum]:
    """Run three controllers and three brokers.

    The third controller is kraft's with 4.3, and Kafka's with the others.
    """
    release: str = request.param
    is_static = release < "4.0"
    cluster = Cluster(
        kafka(release), tmp_path_factory.mktemp("moves"), "bGVhZGVyc2hpcCBtb3Zlcw", is_static
    )
    cluster.reserve_controllers(*VOTERS)
    cluster.settings |= {
        "broker.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
        "broker.heartbeat.interval.ms": "1000",
        "metadata.log.max.record.bytes.between.snapshots": "100000",
    }
    waits = VOTING[FETCH_TIMEOUT] if not is_static else "60000"
    third = {FETCH_TIMEOUT: waits, ELECTION_TIMEOUT: THIRD_ELECTION_TIMEOUT_MS}
    krafts = {KRAFT, THIRD} if release == KAFKA_4 else {KRAFT}
    try:
        for one in VOTERS:
            add = Cluster.add_controller
            if one in krafts and not IS_CONTROL:
                add = add_kraft_controller
            add(cluster, one).settings.update(third if one == THIRD else LEADING)
        mixed = MixedQuorum(cluster)
        level = ("-r", ".".join(release.split(".")[:2]))
        voters = ",".join(
            f"{one}@{HOST}:{port}:{random_uuid()!s}"
            for one, port in cluster.controller_ports.items()
        )
        initial = () if is_static else ("--initial-controllers", voters)
        mixed.format(kafka=(*initial, *level), kraft=(*initial, *level))
        for id in BROKERS:
            cluster.add_broker(id, RACKS[id]).format(cluster.cluster_id, *cluster.broker_format())
        cluster.start()
        mixed.wait_for_leader(*VOTERS)
        yield mixed
    finally:
        cluster.kill()


def test_leadership_moves_between_kafka_and_kraft_under_load(quorum: MixedQuorum) -> None:
    cluster, draw = quorum.cluster, random.Random(7)
    ask = cluster.driver()
    wait_for("all brokers", lambda: ask("brokers") == list(BROKERS), 60)
    topic = {"name": STREAM_TOPIC, "partitions": STREAM_PARTITIONS, "replication_factor": 3}
    ask("create_topics", topics=[topic | {"configs": {"min.insync.replicas": "2"}}])
    streams = [
        AdminStream(cluster.driver(), "t", BROKERS, True, 1),
        AdminStream(cluster.driver(), "u", BROKERS, False, 2),
    ]
    records = RecordStream(cluster)
    moves = Moves(quorum, draw)
    killed: Counter[int] = Counter()
    try:
        for stream in streams:
            stream.start()
        while moves.count < MOVES:
            assert moves.ended.total() < 4 * MOVES + 4, "leadership stays with one kind"
            leader = moves.end_leader()
            for stream in streams:
                stream.wait_for(5, 60)
            if moves.count == (MOVES + 1) // 2 and not killed:
                # A real stop, which the log must have.
                fence(cluster, ask, BROKERS[0])
                killed[BROKERS[0]] += 1
            reign_s = SESSION_TIMEOUT_S + 1 if draw.random() < 0.4 or moves.count == MOVES else 1
            time.sleep(reign_s)
            moves.unforced += quorum.described().leader_id != leader.leader_id
        for stream in streams:
            stream.stop()
        found = records.finish()
    finally:
        records.kill()
    print(
        f"\n{cluster.jars.version}: {moves.count} moves, leaders ended: {dict(moves.ended)}, "
        f"{moves.unforced} other elections, slowest failover {max(moves.failovers):.1f} s; "
        f"records {found}"
    )
    for stream in streams:
        print(f"operations {dict(stream.acknowledged)}, failures {dict(stream.failures)}")
    assert found["acknowledged"] > 0
    assert (found["missing"], found["out_of_order"], found["failed"]) == (0, 0, 0), found
    assert found["read"] == found["acknowledged"]

    wait_for("all brokers unfenced", lambda: ask("brokers") == list(BROKERS), 60)
    wait_for("the end of all reassignments", lambda: ask("reassignments") == endless(quorum), 60)
    bootstrap = ("--bootstrap-server", cluster.nodes[BROKERS[0]].address)
    described = cluster.jars.run(TOPIC_TOOL, *bootstrap, "--describe").stdout
    quiet_at = quorum.wait_until_all_have_all().high_watermark
    for id in BROKERS:
        cluster.nodes[id].kill()
    committed = quorum.stop()
    check_states(quorum, committed)
    state = kraft.open_metadata(quorum.log_of(KRAFT), at=quiet_at)
    agreement.check_topics(state, described)
    for stream in streams:
        stream.check(state)
    check_fences(log_bytes(quorum.log_of(KRAFT), 0, quiet_at), BROKERS, killed)
    check_errors(list(cluster.nodes.values()))


def endless(quorum: MixedQuorum) -> int:
    """Return the number of reassignments that never end.

    One that supersedes another, and adds no replica, keeps the additions of the earlier one, though
    it may remove these replicas: then the target never has them in sync. Kafka's controllers of all
    releases do so (`ReplicationControlManager.changePartitionReassignment`), and kraft's too.
    """
    state = kraft.open_metadata(quorum.log_of(KRAFT))
    return sum(
        bool({*each.adding_replicas} & {*each.removing_replicas}) for each in state.partitions
    )


def fence(cluster: Cluster, ask: Driver, broker: int) -> None:
    """Kill a broker, wait until it is fenced, and start it again."""
    cluster.nodes[broker].kill()
    wait_for(f"{broker} to be fenced", lambda: broker not in ask("brokers"), 60)
    cluster.nodes[broker].start()
    cluster.nodes[broker].wait_until_listening()
    wait_for(f"{broker} to be unfenced", lambda: broker in ask("brokers"), 60)


def check_states(quorum: MixedQuorum, committed: int) -> None:
    """Check that all controllers have the same log, and snapshots of the state of that log.

    `verify` knows the snapshots in which Kafka keeps the configuration of a deleted topic.
    """
    quorum.check_equal_logs(committed)
    result = verify([quorum.log_of(one) for one in VOTERS])
    bad = [each for each in result.findings if each.severity is Severity.CONTRADICTION]
    assert not bad, "\n".join(map(str, bad))
    assert sum(each.snapshot_count for each in result.directories) >= len(VOTERS)
