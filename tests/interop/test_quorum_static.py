"""Two controllers of Apache Kafka and one of kraft, with static voters.

Kafka leads; kraft follows, votes, restarts, loses its disk, and falls behind the start of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop.cluster import Cluster, Node
from tests.interop.kraft_node import add_kraft_controller
from tests.interop.mixed_quorum import VOTING, MixedQuorum, replication_of, status_of

pytestmark = pytest.mark.interop

KAFKAS = (101, 102)
KRAFT = 103


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedQuorum]:
    directory = tmp_path_factory.mktemp("static")
    cluster = Cluster(kafka(KAFKA_4), directory, "dHdvIEthZmthcyBhbmQgdXM", is_static=True)
    cluster.reserve_controllers(*KAFKAS, KRAFT)
    cluster.settings["metadata.log.max.record.bytes.between.snapshots"] = "5000"
    # The description must not change between two requests.
    cluster.settings["metadata.max.idle.interval.ms"] = "0"
    try:
        for one in KAFKAS:
            cluster.add_controller(one)
        # kraft makes no snapshots here, so all its snapshots were downloaded.
        add_kraft_controller(
            cluster, KRAFT, metadata__log__max__record__bytes__between__snapshots="1000000"
        ).settings.update(VOTING)
        mixed = MixedQuorum(cluster)
        mixed.format()
        mixed.start()
        mixed.wait_for_leader(*KAFKAS)
        yield mixed
    finally:
        cluster.kill()


def other_kafka(node_id: int) -> int:
    return sum(KAFKAS) - node_id


def test_kraft_follows(quorum: MixedQuorum) -> None:
    quorum.commit(20)
    said = quorum.wait_until_all_have_all()
    assert said.high_watermark > 20
    assert {state.key.id for state in said.voters} == {*KAFKAS, KRAFT}


def test_both_tools_print_the_same_for_every_node(quorum: MixedQuorum) -> None:
    quorum.wait_until_all_have_all()
    said = [status_of(quorum.kafka_says(one, "describe", "--status")) for one in (101, KRAFT)]
    said += [status_of(quorum.kraft_says(one, "describe", "--status")) for one in quorum.nodes]
    assert all(one == said[0] for one in said), said
    assert int(said[0]["LeaderId"]) in KAFKAS
    rows = [replication_of(quorum.kafka_says(KRAFT, "describe", "--replication"))]
    rows += [
        replication_of(quorum.kraft_says(one, "describe", "--replication")) for one in quorum.nodes
    ]
    assert all(one == rows[0] for one in rows), rows
    assert len(rows[0]) == 3


def test_kraft_votes_for_the_remaining_kafka_controller(quorum: MixedQuorum) -> None:
    before = quorum.wait_until_all_have_all()
    old, new = before.leader_id, other_kafka(before.leader_id)
    quorum.nodes[old].kill()
    after = quorum.wait_for_leader(new)
    assert after.epoch > before.epoch
    assert quorum.voted_for(KRAFT) == new
    # Only the new leader and kraft run, and commit these.
    quorum.commit(5)
    quorum.start(old)
    quorum.wait_until_all_have_all()


@pytest.mark.parametrize("end", [Node.stop, Node.kill], ids=["SIGTERM", "SIGKILL"])
def test_kraft_is_restarted(quorum: MixedQuorum, end: Callable[[Node], None]) -> None:
    node = quorum.kraft_node(KRAFT)
    before = quorum.wait_until_all_have_all()
    quorum.commit(5)
    end(node)
    quorum.commit(5)
    quorum.start(KRAFT)
    quorum.commit(5)
    after = quorum.wait_until_all_have_all()
    assert (after.epoch, after.leader_id) == (before.epoch, before.leader_id)
    assert after.high_watermark >= before.high_watermark + 15


def test_kraft_is_wiped_and_catches_up_by_snapshot(quorum: MixedQuorum) -> None:
    leader = quorum.wait_until_all_have_all().leader_id
    made = quorum.commit_until_snapshot(leader)
    node = quorum.kraft_node(KRAFT)
    node.stop()
    node.wipe()
    quorum.start(KRAFT)
    fetched = quorum.wait_for_snapshot(KRAFT, made.name)
    assert fetched.read_bytes() == made.read_bytes()
    quorum.commit(5)
    quorum.wait_until_all_have_all()


def test_kraft_falls_behind_the_start_of_the_log(quorum: MixedQuorum) -> None:
    """While kraft is stopped, the other Kafka controller restarts from a snapshot and then leads,
    so that no log contains kraft's next offset any more.
    """
    leader = quorum.wait_until_all_have_all().leader_id
    new = other_kafka(leader)
    (behind,) = quorum.snapshots(KRAFT)
    quorum.kraft_node(KRAFT).stop()
    made = quorum.commit_until_snapshot(leader)
    quorum.wipe_kafka(new)
    quorum.start(new)
    quorum.wait_for_snapshot(new, made.name)
    quorum.wait_until_all_have_all()
    quorum.nodes[leader].kill()
    quorum.start(KRAFT)
    quorum.wait_for_leader(new)
    quorum.wait_until_all_have_all()
    fetched = quorum.wait_for_snapshot(KRAFT, made.name)
    assert fetched.read_bytes() == made.read_bytes()
    assert not behind.exists()
    quorum.commit(5)
    quorum.start(leader)
    quorum.wait_until_all_have_all()


def test_all_logs_are_equal(quorum: MixedQuorum) -> None:
    quorum.commit(5)
    committed = quorum.stop()
    quorum.check_equal_logs(committed)
