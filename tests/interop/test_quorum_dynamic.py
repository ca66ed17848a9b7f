"""Two controllers of Apache Kafka and one of kraft, with dynamic voters (kraft.version 1).

Kafka's tool, kraft's tool and auto-join change the voters.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kraft
from kraft.metadata.identifiers import random_uuid
from kraft.records import Uuid
from kraft.records.versions import SUPPORTED_FEATURES
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop.cluster import HOST, Cluster
from tests.interop.kraft_node import add_kraft_controller
from tests.interop.mixed_quorum import (
    LEADING,
    VOTING,
    MixedQuorum,
    replication_of,
)

pytestmark = pytest.mark.interop

KAFKAS = (101, 102)
KRAFT = 103


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedQuorum]:
    directory = tmp_path_factory.mktemp("dynamic")
    cluster = Cluster(kafka(KAFKA_4), directory, "dHdvIEthZmthcyBhbmQgdXM")
    cluster.reserve_controllers(*KAFKAS, KRAFT)
    cluster.settings["metadata.log.max.record.bytes.between.snapshots"] = "5000"
    cluster.settings["metadata.max.idle.interval.ms"] = "0"
    try:
        for one in KAFKAS:
            cluster.add_controller(one)
        # kraft makes no snapshots here, so all its snapshots were downloaded.
        add_kraft_controller(
            cluster, KRAFT, metadata__log__max__record__bytes__between__snapshots="1000000"
        ).settings.update(VOTING)
        voters = ",".join(
            f"{one}@{HOST}:{cluster.controller_ports[one]}:{random_uuid()!s}" for one in KAFKAS
        )
        mixed = MixedQuorum(cluster)
        mixed.format(kafka=("--initial-controllers", voters), kraft=("--no-initial-controllers",))
        mixed.start()
        mixed.wait_for_leader(*KAFKAS)
        yield mixed
    finally:
        cluster.kill()


def voters(quorum: MixedQuorum) -> dict[int, Uuid | None]:
    return {state.key.id: state.key.directory_id for state in quorum.described().voters}


def test_kraft_observes_before_it_votes(quorum: MixedQuorum) -> None:
    quorum.commit(10)
    said = quorum.wait_until_all_have_all()
    assert {state.key.id for state in said.voters} == set(KAFKAS)
    (observer,) = said.observers
    assert (observer.key.id, str(observer.key.directory_id)) == (
        KRAFT,
        quorum.kraft_node(KRAFT).directory_id(),
    )


def test_kraft_registers_with_kafkas_controller(quorum: MixedQuorum) -> None:
    """Kafka's tools list the kraft controller, and Kafka's controller checks its features."""
    quorum.wait_until_registered()
    addresses = {id: node.address for id, node in quorum.nodes.items()}
    for one in (KAFKAS[0], KRAFT):
        quorum.wait_for_endpoints(one, addresses)
    registered = kraft.open_metadata(quorum.log_of(KAFKAS[0])).controllers[KRAFT]
    assert dict(registered.features) == SUPPORTED_FEATURES
    quorum.set_feature(KRAFT, "downgrade", "group.version", 0)
    quorum.set_feature(KAFKAS[1], "upgrade", "group.version", 1)


def test_kafkas_tool_adds_kraft(quorum: MixedQuorum) -> None:
    """Kafka's tool reads kraft's configuration file and its meta.properties."""
    node = quorum.kraft_node(KRAFT)
    quorum.wait_until_all_have_all()
    output = quorum.kafka_says(101, "--command-config", str(node.properties), "add-controller")
    assert f"Added controller {KRAFT} with directory id {node.directory_id()}" in output
    assert str(voters(quorum)[KRAFT]) == node.directory_id()
    quorum.commit(5)
    said = quorum.wait_until_all_have_all()
    assert not said.observers


def test_both_tools_print_the_same_for_every_node(quorum: MixedQuorum) -> None:
    quorum.wait_until_all_have_all()
    rows = [replication_of(quorum.kafka_says(KRAFT, "describe", "--replication"))]
    rows += [
        replication_of(quorum.kraft_says(one, "describe", "--replication")) for one in quorum.nodes
    ]
    assert all(one == rows[0] for one in rows), rows
    assert {row[1] for row in rows[0]} == {node.directory_id() for node in quorum.nodes.values()}


def test_kraft_votes_for_the_remaining_kafka_controller(quorum: MixedQuorum) -> None:
    before = quorum.wait_until_all_have_all()
    old, new = before.leader_id, sum(KAFKAS) - before.leader_id
    quorum.nodes[old].kill()
    after = quorum.wait_for_leader(new)
    assert after.epoch > before.epoch
    assert quorum.voted_for(KRAFT) == new
    quorum.commit(5)
    quorum.start(old)
    quorum.wait_until_all_have_all()


def test_both_tools_remove_and_add_kraft(quorum: MixedQuorum) -> None:
    """The requests go to any node; a removed voter continues as an observer."""
    node = quorum.kraft_node(KRAFT)
    whom = ("-i", str(KRAFT), "-d", node.directory_id())
    quorum.remove_voter(KRAFT, lambda: quorum.kraft_says(KRAFT, "remove-controller", *whom))
    assert set(voters(quorum)) == set(KAFKAS)
    quorum.commit(5)
    said = quorum.wait_until_all_have_all()
    assert [state.key.id for state in said.observers] == [KRAFT]
    quorum.kraft_says(KRAFT, "add-controller", "-c", str(node.properties))
    assert set(voters(quorum)) == {*KAFKAS, KRAFT}
    ids = ("--controller-id", str(KRAFT), "--controller-directory-id", node.directory_id())
    quorum.remove_voter(KRAFT, lambda: quorum.kafka_says(KRAFT, "remove-controller", *ids))
    assert set(voters(quorum)) == set(KAFKAS)
    quorum.kraft_says(101, "add-controller", "-c", str(node.properties))
    quorum.commit(5)
    quorum.wait_until_all_have_all()


def test_kraft_auto_joins_with_an_empty_disk(quorum: MixedQuorum) -> None:
    """kraft downloads a snapshot from Kafka; its old directory is removed from the voters and its
    new directory is added.
    """
    leader = quorum.wait_until_all_have_all().leader_id
    made = quorum.commit_until_snapshot(leader)
    node = quorum.kraft_node(KRAFT)
    node.kill()
    old = node.directory_id()
    node.wipe()
    node.settings["controller.quorum.auto.join.enable"] = "true"
    quorum.start(KRAFT)
    quorum.wait_until(
        "kraft to have joined",
        lambda said: node.directory_id() in {str(state.key.directory_id) for state in said.voters},
    )
    assert node.directory_id() != old
    assert set(voters(quorum)) == {*KAFKAS, KRAFT}
    (fetched,) = quorum.snapshots(KRAFT)
    # Its leader may be the other one by now, or have made a later one.
    assert fetched.name >= made.name
    served = [path for one in KAFKAS for path in quorum.snapshots(one) if path.name == fetched.name]
    assert fetched.read_bytes() in [path.read_bytes() for path in served]
    quorum.commit(5)
    quorum.wait_until_all_have_all()


def test_kraft_is_restarted(quorum: MixedQuorum) -> None:
    node = quorum.kraft_node(KRAFT)
    for end in (node.stop, node.kill):
        end()
        quorum.commit(5)
        quorum.start(KRAFT)
        quorum.commit(5)
        quorum.wait_until_all_have_all()


def test_kraft_leads_while_kafka_is_removed_and_added(quorum: MixedQuorum) -> None:
    """Kafka votes for kraft; Kafka's tool then removes and adds Kafka's own controller.

    The tool connects to kraft, because a Kafka controller returns only leaders that are registered.
    """
    removed = quorum.wait_until_all_have_all().leader_id
    stays = sum(KAFKAS) - removed
    quorum.restart(KRAFT, **LEADING)
    quorum.restart(stays, **VOTING)
    quorum.wait_until_all_have_all()
    quorum.nodes[removed].kill()
    quorum.wait_for_leader(KRAFT)
    assert quorum.voted_for(stays) == KRAFT
    quorum.start(removed)
    quorum.wait_until_all_have_all()

    kafka = quorum.nodes[removed]
    whom = ("--controller-id", str(removed), "--controller-directory-id", kafka.directory_id())
    quorum.kafka_says(KRAFT, "remove-controller", *whom)
    assert set(voters(quorum)) == {stays, KRAFT}
    quorum.wait_until_all_have_all()
    quorum.kafka_says(KRAFT, "--command-config", str(kafka.properties), "add-controller")
    assert str(voters(quorum)[removed]) == kafka.directory_id()
    said = quorum.wait_until_all_have_all()
    assert (said.leader_id, said.observers) == (KRAFT, ())


def test_all_logs_are_equal(quorum: MixedQuorum) -> None:
    committed = quorum.stop()
    quorum.check_equal_logs(committed)
