"""Apache Kafka's brokers live on a quorum of kraft controllers, through what happens to brokers.

They start before the controllers, come back with old and with wiped disks after a snapshot has
replaced the start of the log, lose one of two log directories, cordon directories, and shut down
uncleanly. After each, every acknowledged record is read back, all replicas are in sync, and each
is in a registered directory of its broker.

CI runs brokers of 4.3.1 with dynamic voters, mutual TLS at the controllers, and SCRAM over TLS at
the brokers. `make broker-lives` runs brokers of 3.9, 4.1 and 4.3 and a mixture of them, each with
static and with dynamic voters. Each test continues from the previous one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from kraft.metadata.facade import Metadata
from kraft.records.versions import MetadataVersion
from tests.harness.commands import printed
from tests.interop.broker_lives import (
    CLEAN_SHUTDOWN,
    CLUSTER_ID,
    IS_FULL_SIZE,
    VARIANTS,
    BrokerLives,
    check_nodes,
    formatted_cluster,
    partition,
)
from tests.interop.cluster import ClusterError, wait_for
from tests.interop.cluster_variants import BROKERS, Variant
from tests.interop.mixed_quorum import METADATA_LOG
from tests.interop.scenario import RACKS

pytestmark = pytest.mark.interop

#: A broker has tried to connect to a controller in vain.
NO_CONTROLLER = "could not be established"
#: A broker logs each failed write to its failed directory as an error.
PROVOKED = (r"/3/data-1",)


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def lives(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerLives]:
    variant: Variant = request.param
    with formatted_cluster(variant, tmp_path_factory.mktemp("lives")) as cluster:
        yield cluster


def has_elr(now: Metadata) -> bool:
    return now.features.get("eligible.leader.replicas.version", 0) > 0


def test_brokers_start_before_the_controllers(lives: BrokerLives) -> None:
    for id in BROKERS:
        lives.start_process(id)
    logs = [lives.cluster.nodes[id].log for id in BROKERS]
    wait_for(
        "the brokers to miss the controllers",
        lambda: all(NO_CONTROLLER in log.read_text() for log in logs),
    )
    for node in lives.controllers:
        node.start()
    for id in BROKERS:
        lives.wait_until_running(id)
    at = (
        "--bootstrap-controller",
        lives.at,
        "--command-config",
        lives.security.controller_client_file,
    )
    listed = {one["brokerId"]: one for one in json.loads(printed("brokers", "list", *at, "--json"))}
    assert {id: one["rack"] for id, one in listed.items()} == RACKS
    assert {one["state"] for one in listed.values()} == {"unfenced"}
    assert {len(one["logDirs"]) for one in listed.values()} == {2}
    quorum = lives.metadata().quorum
    assert quorum.kraft_version == (0 if lives.variant.is_static else 1)
    lives.create_topic("kept", partitions=6, replication_factor=3)
    lives.write()
    lives.check_readable()


def test_brokers_come_back_after_a_snapshot_has_replaced_the_start_of_the_log(
    lives: BrokerLives,
) -> None:
    """One broker has its log, which ends before that of the controllers begins; one is wiped."""
    kept, wiped = (lives.cluster.nodes[id] for id in (2, 3))
    for node in (kept, wiped):
        lives.stop(node.id)
    end = lives.log_end(kept)
    old_id = wiped.directory_id()
    lives.wipe(wiped.id)
    number = 0

    def is_replaced() -> bool:
        nonlocal number
        for _ in range(10):
            number += 1
            lives.ask(
                "create_acl",
                resource="TOPIC",
                name=f"topic-{number}",
                pattern="LITERAL",
                principal=f"User:{'u' * 500}",
                host="*",
                operation="READ",
                permission="ALLOW",
            )
        return min(map(lives.log_start, lives.controllers)) > end

    wait_for("the start of the controllers' logs to be replaced", is_replaced, 300)
    lives.start(kept.id, wiped.id)
    for node in (kept, wiped):
        assert lives.log_start(node) > end, "its log begins with a snapshot of the controllers"
        assert list((node.metadata_directory / METADATA_LOG).glob("*.checkpoint"))
    assert wiped.directory_id() != old_id
    now = lives.wait_until_in_sync()
    assert len(now.acls) == number
    lives.check_readable()
    lives.write()
    lives.check_readable()


def test_one_of_two_log_directories_fails(lives: BrokerLives) -> None:
    """The broker runs on with the other one, and replaces the failed one at its next start."""
    node = lives.cluster.nodes[3]
    stays, fails = lives.log_directories(node.id)
    held = lives.ask("log_directories", broker=node.id)
    assert held[str(stays)]
    assert held[str(fails)]
    before = lives.metadata().brokers[node.id].log_dirs
    # Renamed: the broker cannot write the checkpoints of offsets any more.
    aside = fails.rename(node.directory / "failed")
    fails.write_text("no directory\n")

    def has_failed(now: Metadata) -> bool:
        return len(now.brokers[node.id].log_dirs) == 1 and all(
            (node.id in one.isr) == (f"{one.topic}-{one.partition}" in held[str(stays)])
            for one in now.partitions
        )

    now = lives.wait_until("the replicas of one directory to leave the ISR", has_failed)
    (lost,) = {*before} - {*now.brokers[node.id].log_dirs}
    assert f"directory.id={lost!s}" in (aside / "meta.properties").read_text()
    assert not now.brokers[node.id].fenced
    assert all(one.leader in one.isr for one in now.partitions)
    node.check_running()
    lives.write()
    lives.check_readable()

    lives.stop(node.id)
    fails.unlink()
    shutil.rmtree(aside)
    node.format(CLUSTER_ID, *lives.broker_format(), "--ignore-formatted")
    lives.start(node.id)
    now = lives.wait_until_in_sync()
    assert len(now.brokers[node.id].log_dirs) == 2
    assert not any(lost in one.directories for one in now.partitions)
    lives.check_readable()
    lives.write()


def test_cordoned_directories_get_no_new_replicas(lives: BrokerLives) -> None:
    """First one of a broker's directories is cordoned, then both (KIP-1066)."""
    level = lives.metadata().metadata_version
    if not MetadataVersion(level).is_cordoned_log_dirs_supported:
        pytest.skip("needs metadata.version 4.3")
    id = 2
    stays, cordoned = map(str, lives.log_directories(id))

    def cordon(value: str | None, count: int) -> None:
        operation = ["DELETE" if value is None else "SET", "cordoned.log.dirs", value]
        lives.ask("alter_config", type="BROKER", name=str(id), ops=[operation])
        lives.wait_until(
            f"{count} cordoned directories",
            lambda now: len(now.brokers[id].cordoned_log_dirs or ()) == count,
        )

    def replicas_in(directory: str) -> int:
        return len(lives.ask("log_directories", broker=id)[directory])

    cordon(cordoned, 1)
    before = replicas_in(cordoned), replicas_in(stays)
    lives.create_topic("beside", partitions=6, replication_factor=3)
    assert (replicas_in(cordoned), replicas_in(stays)) == (before[0], before[1] + 6)

    cordon("*", 2)
    with pytest.raises(ClusterError, match="InvalidReplicationFactorException"):
        lives.ask(
            "create_topics", topics=[{"name": "three", "partitions": 1, "replication_factor": 3}]
        )
    lives.create_topic("elsewhere", partitions=8, replication_factor=2)
    now = lives.metadata()
    assert not any(id in one.replicas for one in now.partitions if one.topic == "elsewhere")

    cordon(None, 0)
    lives.create_topic("again", partitions=6, replication_factor=3)
    assert replicas_in(cordoned) > before[0]
    lives.write()
    lives.check_readable()


def test_only_an_eligible_replica_leads_after_all_brokers_went_down(lives: BrokerLives) -> None:
    """Two brokers shut down uncleanly, one cleanly: with ELR only the latter is eligible then."""
    lives.create_topic("eligible", assignment=[[1, 2, 3]])
    lives.write()
    lives.kill(2)
    lives.stop(3)
    marks = {id: (lives.log_directories(id)[0] / CLEAN_SHUTDOWN).exists() for id in (2, 3)}
    assert marks == {2: False, 3: True}
    now = lives.wait_until("1 alone", lambda now: partition(now, "eligible").isr == (1,))
    is_elr = has_elr(now)
    assert partition(now, "eligible").elr == ((3,) if is_elr else ())
    lives.kill(1)
    now = lives.wait_until("no leader", lambda now: partition(now, "eligible").leader == -1)
    found = partition(now, "eligible")
    assert ({*found.isr}, {*found.elr}) == ((set(), {1, 3}) if is_elr else ({1}, set()))

    # Without ELR the last replica in sync stays so, however its broker ended.
    first, rightful = (1, 3) if is_elr else (3, 1)
    for id in (2, first):
        lives.start(id)
        found = partition(lives.metadata(), "eligible")
        assert found.leader == -1, (id, found)
    assert ({*found.isr}, {*found.elr}) == ((set(), {3}) if is_elr else ({1}, set()))
    lives.start(rightful)
    now = lives.wait_until("a leader", lambda now: partition(now, "eligible").leader != -1)
    assert partition(now, "eligible").leader == rightful
    lives.wait_until_in_sync()
    lives.check_readable()
    lives.write()
    lives.check_readable()


def test_the_last_leader_leads_when_no_replica_is_eligible(lives: BrokerLives) -> None:
    """Two brokers are killed; one shuts down cleanly and loses the mark of that.

    The last leader has every acknowledged record. No other replica leads before.
    """
    if not IS_FULL_SIZE:
        pytest.skip("make broker-lives")
    is_elr = has_elr(lives.metadata())
    lives.kill(2)
    lives.stop(3)
    for directory in lives.log_directories(3):
        (directory / CLEAN_SHUTDOWN).unlink()
    assert partition(lives.metadata(), "eligible").leader == 1
    lives.kill(1)
    for id in (3, 2):
        lives.start(id)
        assert partition(lives.metadata(), "eligible").leader == -1
    found = partition(lives.metadata(), "eligible")
    assert ({*found.isr}, {*found.elr}) == ((set(), {1}) if is_elr else ({1}, set()))
    lives.start(1)
    lives.wait_until("1 to lead", lambda now: partition(now, "eligible").leader == 1)
    lives.wait_until_in_sync()
    lives.check_readable()


def test_all_nodes_have_the_same_metadata_and_no_fault(lives: BrokerLives) -> None:
    check_nodes(lives, provoked=PROVOKED)
