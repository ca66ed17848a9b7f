"""One controller of Apache Kafka and two of kraft: the raft layer with kraft leaders.

Leadership passes from Kafka to kraft, from kraft to kraft, and back, by clean stops and by kills.

kraft writes metadata while it leads, so that Kafka's controller must apply each record. Every
controller registers with the leader, be it Kafka or kraft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import kraft
from kraft.network.quorum_client import QuorumClient, QuorumRefusedError
from kraft.raft.rpc import UpdateKRaftVersionRequest
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop.cluster import HOST, Cluster, Node, wait_for
from tests.interop.kraft_node import KraftNode, add_kraft_controller
from tests.interop.mixed_quorum import LEADING, VOTING, MixedQuorum, status_of
from tests.interop.quota_writer import QUOTA

pytestmark = pytest.mark.interop

KAFKA = 101
KRAFTS = (102, 103)


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedQuorum]:
    """Kafka leads first, so that its controller writes the bootstrap records."""
    directory = tmp_path_factory.mktemp("led-by-kraft")
    cluster = Cluster(kafka(KAFKA_4), directory, "b25lIEthZmthLCB0d28gdXM", is_static=True)
    cluster.reserve_controllers(KAFKA, *KRAFTS)
    cluster.settings["metadata.log.max.record.bytes.between.snapshots"] = "5000"
    cluster.settings["metadata.max.idle.interval.ms"] = "200"
    try:
        cluster.add_controller(KAFKA)
        for one in KRAFTS:
            add_kraft_controller(cluster, one).settings.update(VOTING)
        mixed = MixedQuorum(cluster)
        mixed.format()
        mixed.start()
        mixed.wait_for_leader(KAFKA)
        yield mixed
    finally:
        cluster.kill()


def kraft_nodes(quorum: MixedQuorum) -> list[KraftNode]:
    return [node for node in quorum.nodes.values() if isinstance(node, KraftNode)]


def acknowledged(quorum: MixedQuorum) -> set[str]:
    return set().union(*(node.acknowledged() for node in kraft_nodes(quorum)))


def wait_for_writes(quorum: MixedQuorum, count: int = 50) -> None:
    """Wait until ``count`` more records of kraft are acknowledged."""
    goal = len(acknowledged(quorum)) + count
    wait_for("records of kraft's", lambda: len(acknowledged(quorum)) >= goal)


def test_kraft_follows_kafka_from_a_snapshot(quorum: MixedQuorum) -> None:
    quorum.commit(5)
    quorum.commit_until_snapshot(KAFKA)
    for node in kraft_nodes(quorum):
        node.stop()
        node.wipe()
        quorum.start(node.id)
        fetched, served = quorum.wait_for_fetched_snapshot(node.id, KAFKA)
        assert fetched.read_bytes() == served.read_bytes()


def test_kraft_leads_once_kafka_resigns(quorum: MixedQuorum) -> None:
    """The other kraft node votes for the new leader; Kafka restarts, follows and applies records.

    After this test Kafka only votes.
    """
    for node in kraft_nodes(quorum):
        node.is_writer = True
        quorum.restart(node.id, **LEADING)
        quorum.wait_until_all_have_all()
    before = quorum.wait_for_leader(KAFKA)
    quorum.nodes[KAFKA].settings.update(VOTING)
    quorum.nodes[KAFKA].stop()
    after = quorum.wait_for_leader(*KRAFTS)
    assert after.epoch > before.epoch
    wait_for_writes(quorum)
    quorum.start(KAFKA)
    quorum.wait_until_all_have_all()
    wait_for_writes(quorum)


@pytest.mark.parametrize("end", [Node.stop, Node.kill], ids=["SIGTERM", "SIGKILL"])
def test_leadership_passes_from_kraft_to_kraft_by_kafkas_vote(
    quorum: MixedQuorum, end: Callable[[Node], None]
) -> None:
    """The old leader is stopped: the new one has its own vote and Kafka's.

    Kafka is paused when the old leader ends, and has not all its records: with equal logs it could
    be elected too. After SIGTERM its follower rejects the pre-vote of the other kraft node
    (KAFKA-20895) until it stands itself.
    """
    before = quorum.lose_leader_while_behind(end, KAFKA)
    old, new = before.leader_id, sum(KRAFTS) - before.leader_id
    after = quorum.wait_for_leader(new)
    assert after.epoch > before.epoch
    assert quorum.voted_for(KAFKA) == new
    wait_for_writes(quorum)
    quorum.start(old)
    quorum.wait_until_all_have_all()


def test_both_tools_describe_a_quorum_that_kraft_leads(quorum: MixedQuorum) -> None:
    """Kafka's controller knows kraft's leader by its registration."""
    quorum.wait_until_registered()
    leader = quorum.wait_until_all_have_all().leader_id
    said = [quorum.kafka_says(one, "describe", "--status") for one in quorum.nodes]
    said += [quorum.kraft_says(one, "describe", "--status") for one in quorum.nodes]
    assert {status_of(text)["LeaderId"] for text in said} == {str(leader)}


def test_kafkas_tools_find_the_registered_controllers_and_change_features(
    quorum: MixedQuorum,
) -> None:
    """The leader checks the supported feature levels of every registered controller."""
    assert quorum.wait_until_all_have_all().leader_id in KRAFTS
    addresses = {id: node.address for id, node in quorum.nodes.items()}
    for one in (KAFKA, KRAFTS[0]):
        quorum.wait_for_endpoints(one, addresses)
    quorum.set_feature(KAFKA, "downgrade", "group.version", 0)
    quorum.set_feature(KRAFTS[1], "upgrade", "group.version", 1)
    state = kraft.open_metadata(quorum.log_of(quorum.wait_until_all_have_all().leader_id))
    assert state.features["group.version"] == 1


def test_kafka_is_wiped_and_catches_up_from_kraft_by_snapshot(quorum: MixedQuorum) -> None:
    leader = quorum.wait_until_all_have_all().leader_id
    quorum.wipe_kafka(KAFKA)
    quorum.start(KAFKA)
    fetched, served = quorum.wait_for_fetched_snapshot(KAFKA, leader)
    assert fetched.read_bytes() == served.read_bytes()
    quorum.wait_until_all_have_all()


def test_kraft_raises_kraft_version(quorum: MixedQuorum) -> None:
    """The upgrade succeeds once Kafka has reported its support to the leader.

    After this test the voters are dynamic.
    """
    said = quorum.wait_until_all_have_all()
    assert all(state.key.directory_id is None for state in said.voters)

    def raised() -> bool:
        with QuorumClient([(HOST, quorum.nodes[said.leader_id].port)], timeout_s=60.0) as client:
            try:
                client.ask_leader(UpdateKRaftVersionRequest(1), "updating kraft.version to 1")
            except QuorumRefusedError as refused:
                # Kafka reports its support some time after it begins to follow.
                if f"voter {KAFKA} has not reported" not in str(refused):
                    raise
                return False
        return True

    wait_for("Kafka to say that it supports kraft.version 1", raised)
    said = quorum.wait_until_all_have_all()
    assert {state.key.id: str(state.key.directory_id) for state in said.voters} == {
        node.id: node.directory_id() for node in quorum.nodes.values()
    }


def test_kraft_truncates_uncommitted_records_for_kafka(quorum: MixedQuorum) -> None:
    """Kafka, elected by kraft's vote, has all acknowledged records; an isolated kraft leader then
    truncates its uncommitted ones.
    """
    old = quorum.wait_until_all_have_all().leader_id
    stays = sum(KRAFTS) - old
    # One after the other, so that Kafka has all acknowledged records.
    quorum.nodes[stays].kill()
    wait_for_writes(quorum, 10)
    quorum.nodes[KAFKA].kill()
    shared = quorum.log_end(KAFKA)
    wait_for("what only the leader has", lambda: quorum.log_end(old) > shared)
    quorum.nodes[old].kill()
    quorum.nodes[stays].settings.update(VOTING)
    quorum.nodes[KAFKA].settings.update(LEADING)
    quorum.start(stays, KAFKA)
    quorum.wait_for_leader(KAFKA)
    assert quorum.voted_for(stays) == KAFKA
    quorum.commit(10)
    quorum.nodes[old].settings.update(VOTING)
    quorum.start(old)
    quorum.wait_until_all_have_all()


def test_kafka_truncates_uncommitted_records_for_kraft(quorum: MixedQuorum) -> None:
    """An idle Kafka controller writes NoOpRecords."""
    assert quorum.wait_until_all_have_all().leader_id == KAFKA
    for one in KRAFTS:
        quorum.nodes[one].kill()
    shared = max(quorum.log_end(one) for one in KRAFTS)
    wait_for("what only Kafka has", lambda: quorum.log_end(KAFKA) > shared)
    quorum.nodes[KAFKA].kill()
    for one in KRAFTS:
        quorum.nodes[one].settings.update(LEADING)
    quorum.start(*KRAFTS)
    quorum.wait_for_leader(*KRAFTS)
    wait_for_writes(quorum)
    quorum.nodes[KAFKA].settings.update(VOTING)
    quorum.start(KAFKA)
    quorum.wait_until_all_have_all()


def test_all_logs_are_equal_and_have_all_acknowledged_records(quorum: MixedQuorum) -> None:
    leader = quorum.wait_until_all_have_all().leader_id
    for one in KRAFTS:
        # No node writes after the acknowledged records are counted.
        node = quorum.nodes[one]
        assert isinstance(node, KraftNode)
        node.is_writer = False
    for one in sorted(KRAFTS, key=lambda one: one == leader):
        quorum.restart(one)
    # A stopping leader prefers the voter with the longest log: that may be Kafka.
    quorum.wait_for_leader(KAFKA, *KRAFTS)
    users = acknowledged(quorum)
    assert len(users) > 200
    committed = quorum.stop()
    quorum.check_equal_logs(committed)
    for one in quorum.nodes:
        quotas = kraft.open_metadata(quorum.log_of(one), at=committed).client_quotas
        kept = {dict(entity)["user"] for entity, limits in quotas.items() if QUOTA in limits}
        assert users <= kept, (one, users - kept)
