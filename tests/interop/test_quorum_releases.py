"""Mixed quorums with other releases of Kafka: two of its controllers, and one of kraft.

CI runs 3.7 (static voters, no pre-vote, old versions of FETCH and VOTE) and 4.1 (dynamic voters);
``make interop-matrix`` runs every release from 3.7 to 4.4. With two of three voters alive, the
elected node needs the other's vote, so Kafka and kraft vote for each other.

Each test continues from the previous one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kraft
from kraft.metadata.identifiers import random_uuid
from kraft.raft.rpc import DescribeQuorumResponse
from kraft.records import MetadataVersion
from tests.harness.kafka_jars import kafka, mixed_releases
from tests.interop.cluster import HOST, Cluster, Node, wait_for
from tests.interop.kraft_node import add_kraft_controller
from tests.interop.mixed_quorum import (
    ELECTION_TIMEOUT,
    FETCH_TIMEOUT,
    LEADING,
    VOTING,
    MixedQuorum,
)
from tests.interop.quota_writer import QUOTA

pytestmark = pytest.mark.interop

KAFKAS = (101, 102)
KRAFT = 103
#: Before 4.0 there is no pre-vote: a follower without a leader becomes a candidate at once, and
#: another follower still votes in a higher epoch.
VOTING_WITHOUT_PRE_VOTE = {FETCH_TIMEOUT: "60000", ELECTION_TIMEOUT: "60000"}


def has_pre_vote(release: str) -> bool:
    return release >= "4.0"


@pytest.fixture(scope="module", params=mixed_releases())
def release(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def voting(release: str) -> dict[str, str]:
    """Return the settings of a node that votes and does not become a candidate."""
    return VOTING if has_pre_vote(release) else VOTING_WITHOUT_PRE_VOTE


@pytest.fixture(scope="module")
def is_static(release: str) -> bool:
    return not has_pre_vote(release)


@pytest.fixture(scope="module")
def quorum(
    tmp_path_factory: pytest.TempPathFactory, release: str, voting: dict[str, str], is_static: bool
) -> Iterator[MixedQuorum]:
    cluster = Cluster(
        kafka(release), tmp_path_factory.mktemp("mixed"), "YSBxdW9ydW0gb2YgYWxsLg", is_static
    )
    cluster.reserve_controllers(*KAFKAS, KRAFT)
    cluster.settings["metadata.max.idle.interval.ms"] = "500"
    try:
        for one in KAFKAS:
            cluster.add_controller(one).settings.update(LEADING)
        add_kraft_controller(cluster, KRAFT).settings.update(voting)
        mixed = MixedQuorum(cluster)
        level = ("-r", ".".join(release.split(".")[:2]))
        if is_static:
            mixed.format(kafka=level, kraft=level)
        else:
            voters = ",".join(
                f"{one}@{HOST}:{cluster.controller_ports[one]}:{random_uuid()!s}" for one in KAFKAS
            )
            mixed.format(
                kafka=("--initial-controllers", voters, *level),
                kraft=("--no-initial-controllers", *level),
            )
        mixed.start()
        mixed.wait_for_leader(*KAFKAS)
        yield mixed
    finally:
        cluster.kill()


def voters(quorum: MixedQuorum) -> set[int]:
    return {state.key.id for state in quorum.described().voters}


def add_kraft(quorum: MixedQuorum, asked: int) -> None:
    """Add kraft to the voters; retry where Kafka has just lost an old connection."""

    def is_added() -> bool:
        if KRAFT not in voters(quorum):
            quorum.kraft_says(
                asked, "add-controller", "-c", str(quorum.kraft_node(KRAFT).properties)
            )
        return KRAFT in voters(quorum)

    wait_for("kraft among the voters", is_added)


def test_kraft_follows(quorum: MixedQuorum, release: str, is_static: bool) -> None:
    """With static voters kraft follows as a voter; else as an observer that is then added."""
    quorum.commit(5)
    said = quorum.wait_until_all_have_all()
    if not is_static:
        assert [state.key.id for state in said.observers] == [KRAFT]
        add_kraft(quorum, 101)
        quorum.commit(1)
        quorum.wait_until_all_have_all()
    assert voters(quorum) == {*KAFKAS, KRAFT}
    state = kraft.open_metadata(quorum.log_of(KRAFT))
    assert state.metadata_version == MetadataVersion.from_text(release)


def test_kraft_votes_for_kafka_once_the_leader_is_killed(quorum: MixedQuorum) -> None:
    before = quorum.lose_leader(Node.kill, lambda leader: sum(KAFKAS) - leader)
    old, new = before.leader_id, sum(KAFKAS) - before.leader_id
    after = quorum.wait_for_leader(new)
    assert after.epoch > before.epoch
    assert quorum.voted_for(KRAFT) == new
    quorum.commit(3)
    quorum.start(old)
    quorum.wait_until_all_have_all()


def test_kafka_votes_for_kraft_once_the_leader_is_killed(
    quorum: MixedQuorum, voting: dict[str, str]
) -> None:
    """All Kafka controllers then apply kraft's records, also the killed one after its restart."""
    before = quorum.wait_until_all_have_all()
    old, stays = before.leader_id, sum(KAFKAS) - before.leader_id
    quorum.kraft_node(KRAFT).is_writer = True
    quorum.restart(KRAFT, **LEADING)
    quorum.restart(stays, **voting)
    quorum.wait_until_all_have_all()
    assert quorum.described().leader_id == old
    before = quorum.lose_leader(Node.kill, lambda leader: KRAFT)
    assert before.leader_id == old
    after = quorum.wait_for_leader(KRAFT)
    assert after.epoch > before.epoch
    quorum.nodes[old].settings.update(LEADING)
    quorum.start(old)
    wait_for("records of kraft's", lambda: len(quorum.kraft_node(KRAFT).acknowledged()) >= 50)
    quorum.wait_until_all_have_all()


def test_a_kraft_leader_is_killed(quorum: MixedQuorum, voting: dict[str, str]) -> None:
    """The Kafka candidate gets the vote of the other Kafka voter; kraft restarts and follows."""
    node = quorum.kraft_node(KRAFT)
    (standing,) = (id for id in KAFKAS if LEADING.items() <= quorum.nodes[id].settings.items())

    def kill_leader() -> DescribeQuorumResponse:
        return quorum.lose_leader(Node.kill, lambda leader: standing if leader == KRAFT else KRAFT)

    before = kill_leader()
    for _ in range(5):
        if before.leader_id == KRAFT:
            break
        # The machine stood still for a fetch timeout, and any other controller may lead now.
        quorum.wait_for_leader(*KAFKAS, KRAFT)
        quorum.start(before.leader_id)
        before = kill_leader()
    assert before.leader_id == KRAFT
    after = quorum.wait_for_leader(*KAFKAS)
    assert after.epoch > before.epoch
    quorum.commit(3)
    node.is_writer = False
    node.settings.update(voting)
    quorum.start(KRAFT)
    quorum.wait_until_all_have_all()


def test_voters_are_removed_and_added(quorum: MixedQuorum, is_static: bool) -> None:
    if is_static:
        pytest.skip("the quorum has static voters")
    whom = ("-i", str(KRAFT), "-d", quorum.kraft_node(KRAFT).directory_id())
    quorum.remove_voter(KRAFT, lambda: quorum.kraft_says(101, "remove-controller", *whom))
    assert voters(quorum) == set(KAFKAS)
    quorum.commit(2)
    assert [state.key.id for state in quorum.wait_until_all_have_all().observers] == [KRAFT]
    add_kraft(quorum, 102)
    assert voters(quorum) == {*KAFKAS, KRAFT}


def test_kafka_unregisters_a_controller_and_creates_an_acl_of_a_cidr_pattern(
    quorum: MixedQuorum, release: str
) -> None:
    """kraft applies UnregisterController and an ACL with a CIDR host (metadata.version 4.4-IV2)."""
    if release < "4.4":
        pytest.skip("needs Kafka 4.4")
    gone = sum(KAFKAS) - quorum.wait_until_all_have_all().leader_id
    assert gone in kraft.open_metadata(quorum.log_of(KRAFT)).controllers
    quorum.nodes[gone].stop()
    quorum.commit(1)
    quorum.admin("unregister_controller", controller=gone)
    acl = {"resource": "TOPIC", "name": "t", "pattern": "LITERAL", "principal": "User:a"}
    quorum.admin("create_acl", **acl, host="2001:db8::/32", operation="READ", permission="ALLOW")
    quorum.wait_until_all_have_all()
    state = kraft.open_metadata(quorum.log_of(KRAFT))
    assert gone not in state.controllers
    assert "2001:db8::/32" in {acl.host for acl in state.acls.values()}
    quorum.start(gone)
    wait_for(
        "it to register again",
        lambda: gone in kraft.open_metadata(quorum.log_of(KRAFT)).controllers,
    )


def test_all_logs_are_equal_and_have_all_acknowledged_records(quorum: MixedQuorum) -> None:
    quorum.commit(2)
    committed = quorum.stop()
    quorum.check_equal_logs(committed)
    users = quorum.kraft_node(KRAFT).acknowledged()
    assert len(users) >= 50
    for one in quorum.nodes:
        quotas = kraft.open_metadata(quorum.log_of(one), at=committed).client_quotas
        kept = {dict(entity)["user"] for entity, limits in quotas.items() if QUOTA in limits}
        assert users <= kept, (one, users - kept)
