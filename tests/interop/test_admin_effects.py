"""What Kafka's tools change takes effect on Apache Kafka's brokers, whose controllers are kraft's.

Each test types a tool's command and looks at a broker: at what its clients may do, at its threads
and at the files on its disks. CI runs the tests that take seconds; `make clients` (`CLIENTS=all`)
runs all, with Apache Kafka's own controllers first.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq
from pathlib import Path

import pytest

from tests.harness.commands import eventually
from tests.harness.configurations import write_properties
from tests.harness.kafka_jars import java
from tests.harness.line_process import RejectedError
from tests.interop import scenario
from tests.interop.client_cluster import (
    BROKERS,
    TOOLS,
    ClientCluster,
    client_cluster,
    full_size,
)
from tests.interop.cluster import ADMIN_PASSWORD, ADMIN_USER, sasl_client, wait_for
from tests.interop.data_clients import CONSUMER, Batch, Java, check_complete, numbered
from tests.interop.mixed_quorum import CLUSTER_TOOL, FEATURE_TOOL
from tests.interop.record import TOPIC_TOOL

ACL_TOOL = f"{TOOLS}.AclCommand"
ELECTION_TOOL = f"{TOOLS}.LeaderElectionCommand"
REASSIGN_TOOL = f"{TOOLS}.reassign.ReassignPartitionsCommand"
TOKEN_TOOL = f"{TOOLS}.DelegationTokenCommand"
RECORD_BYTES, RECORDS = 1000, 300
#: A quota that the second batch of records exceeds: brokers measure over ten seconds.
RATE = 50_000
PASSWORD = "throwaway-5"
#: The lowest level at which the test runs, and the newest one.
OLD_METADATA, NEW_METADATA = 29, 30

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    with client_cluster(tmp_path_factory.mktemp("effects"), "-r", "4.2") as cluster:
        yield cluster


def outcome(action: Callable[[], object]) -> str:
    """Return the name of the client's error, "" where it has none."""
    try:
        action()
    except RejectedError as error:
        return str(error).split(":")[0]
    return ""


def until(action: Callable[[], object], error: str = "") -> None:
    """Repeat the action until it has this outcome: a broker applies a change a moment later."""
    eventually(partial(outcome, action), until=partial(eq, error))


def large(count: int, size: int = RECORD_BYTES) -> list[str]:
    return [f"{number:06}".ljust(size, ".") for number in range(count)]


def produce(java: Java, topic: str, values: list[str]) -> Callable[[], object]:
    return lambda: java.produce(topic, values, is_idempotent=True)


def test_a_deleted_topic_leaves_the_brokers_disks(clients: ClientCluster) -> None:
    topic = "deleted"
    clients.create(topic, 2)
    clients.java.produce(topic, numbered("old", 20), is_idempotent=True)
    for id in BROKERS:
        assert clients.replicas(id, topic).keys() == {"deleted-0", "deleted-1"}
    clients.tool(TOPIC_TOOL, "--delete", "--topic", topic)
    for id in BROKERS:
        eventually(partial(clients.replicas, id, topic), until=partial(eq, {}))
    clients.create(topic, 2)
    sent = numbered("new", 20)
    clients.java.produce(topic, sent, is_idempotent=True)
    check_complete(clients.read(topic), sent)


@pytest.mark.parametrize("protocol", ["classic", CONSUMER])
def test_members_of_a_group_receive_from_new_partitions(
    clients: ClientCluster, protocol: str
) -> None:
    topic = f"grown-{protocol}"
    clients.create(topic, 1)
    member = clients.java.join(topic, topic, protocol, metadata__max__age__ms="500")
    wait_for("an assignment", lambda: member.assigned() == {0})
    clients.tool(TOPIC_TOOL, "--alter", "--topic", topic, "--partitions", "4")
    wait_for("the new partitions", lambda: member.assigned() == {0, 1, 2, 3})
    sent = numbered("grown", 200)
    clients.java.produce(topic, sent, is_idempotent=True)
    wait_for("the records", lambda: sum(map(len, member.values().values())) >= len(sent))
    member.leave()
    assert member.values().keys() == {0, 1, 2, 3}
    check_complete(member.values(), sent)


def test_a_topics_limit_of_record_size_holds(clients: ClientCluster) -> None:
    topic = "limited"
    clients.create(topic, 1)
    send = produce(clients.java, topic, large(1, 5000))
    clients.alter("topics", topic, "max.message.bytes=2000")
    until(send, "RecordTooLargeException")
    clients.alter("topics", topic, "max.message.bytes")
    until(send)


def test_dynamic_defaults_of_brokers_hold(clients: ClientCluster) -> None:
    topic = "limited-by-default"
    clients.create(topic, 1)
    send = produce(clients.java, topic, large(1, 5000))
    clients.alter("brokers", "", "message.max.bytes=2000")
    until(send, "RecordTooLargeException")
    # Each broker applies it by itself.
    eventually(
        lambda: described(clients, 1, "message.max.bytes")[:2],
        until=partial(eq, ["2000", "DYNAMIC_DEFAULT_BROKER_CONFIG"]),
    )
    clients.alter("brokers", "", "message.max.bytes")
    until(send)


def test_one_broker_changes_its_threads(clients: ClientCluster) -> None:
    assert [io_threads(clients, id) for id in BROKERS] == [2, 2, 2]
    clients.alter("brokers", "1", "num.io.threads=4")
    eventually(lambda: [io_threads(clients, id) for id in BROKERS], until=partial(eq, [4, 2, 2]))
    assert described(clients, 1, "num.io.threads")[:2] == ["4", "DYNAMIC_BROKER_CONFIG"]
    clients.alter("brokers", "1", "num.io.threads")
    eventually(lambda: io_threads(clients, 1), until=partial(eq, 2))


def described(clients: ClientCluster, broker: int, name: str) -> list[str]:
    found: list[str] = clients.ask("describe_config", type="BROKER", name=str(broker))[name]
    return found


def io_threads(clients: ClientCluster, broker: int) -> int:
    """Return the number of the broker's threads for requests."""
    process = clients.cluster.nodes[broker].process
    assert process is not None
    command = [str(java().resolve().with_name("jcmd")), str(process.pid), "Thread.print"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return len(re.findall(r'^"data-plane-kafka-request-handler-\d+"', printed, re.MULTILINE))


def test_brokers_delete_records_past_the_retention(clients: ClientCluster) -> None:
    topic = "expired"
    clients.create(topic, 1)
    clients.java.produce(topic, numbered("old", 20), is_idempotent=True)
    assert clients.java("earliest", topic=topic) == 0
    clients.alter("brokers", "", "log.retention.ms=1000")
    wait_for("the retention", lambda: clients.java("earliest", topic=topic) == 20)
    clients.alter("brokers", "", "log.retention.ms")


@pytest.mark.parametrize("quota", ["producer_byte_rate", "consumer_byte_rate"])
def test_brokers_throttle_clients_with_a_quota(clients: ClientCluster, quota: str) -> None:
    topic = name = quota.replace("_", "-")
    clients.create(topic, 1)
    values = large(RECORDS)
    clients.java.produce(topic, values, is_idempotent=True)

    def throttle_ms() -> float:
        """Return the longest time for which the broker had the client wait."""
        config = {"client.id": name}
        if quota == "producer_byte_rate":
            found: float = clients.java("produce", config, topic=topic, values=values)
        else:
            found = clients.java("read", config, topic=topic)["throttle_ms"]
        return found

    assert throttle_ms() == 0
    clients.alter("clients", name, f"{quota}={RATE}")
    assert eventually(throttle_ms) > 0
    clients.alter("clients", name, quota)
    eventually(throttle_ms, until=partial(eq, 0))


@full_size
def test_a_quota_of_a_user_covers_its_clients(clients: ClientCluster) -> None:
    topic = user = "quota-of-user"
    clients.create(topic, 1)
    java = clients.new_user(user, PASSWORD)
    clients.tool(ACL_TOOL, "--add", "--allow-principal", f"User:{user}", "--producer",
                 "--topic", topic)  # fmt: skip
    until(produce(java, topic, large(1)))
    clients.alter("users", user, f"producer_byte_rate={RATE}")
    values = large(RECORDS)
    eventually(lambda: java("produce", topic=topic, values=values))
    clients.alter("users", user, "producer_byte_rate")


def test_a_quota_of_mutations_rejects_topics(clients: ClientCluster, tmp_path: Path) -> None:
    name = "maker"
    file = tmp_path / "client.properties"
    write_properties(file, {"client.id": name})
    clients.alter("clients", name, "controller_mutation_rate=1")
    numbers = itertools.count()

    def create() -> str:
        topic = f"made-{next(numbers)}"
        size = ("--partitions", "20", "--replication-factor", "1")
        at = ("--command-config", str(file))
        return clients.tool(TOPIC_TOOL, *at, "--create", "--topic", topic, *size, code=None)

    eventually(lambda: re.search("quota .*exceeded", create()))
    clients.alter("clients", name, "controller_mutation_rate")
    eventually(lambda: "Created topic" in create())


def test_acls_decide_what_a_client_may_do(clients: ClientCluster) -> None:
    topic, user = "guarded", "ann"
    clients.create(topic, 1)
    java = clients.new_user(user, PASSWORD)
    sent = numbered("guarded", 1)
    send = produce(java, topic, sent)
    transact = partial(java.transact, topic, [Batch(sent)], "guarded-id")
    who = ("--allow-principal", f"User:{user}")
    until(send, "TopicAuthorizationException")
    # Another broker, which may know the user later.
    until(transact, "TransactionalIdAuthorizationException")
    clients.tool(ACL_TOOL, "--add", *who, "--producer", "--topic", "guard",
                 "--resource-pattern-type", "prefixed")  # fmt: skip
    until(send)
    denial = ("--deny-principal", f"User:{user}", "--operation", "Write", "--topic", topic)
    clients.tool(ACL_TOOL, "--add", *denial)
    until(send, "TopicAuthorizationException")
    clients.tool(ACL_TOOL, "--remove", "--force", *denial)
    until(send)


def test_acls_decide_which_group_a_client_may_join(clients: ClientCluster) -> None:
    topic, user = "guarded-group", "ben"
    clients.create(topic, 1)
    sent = numbered("guarded", 20)
    clients.java.produce(topic, sent, is_idempotent=True)
    java = clients.new_user(user, PASSWORD)
    who = ("--allow-principal", f"User:{user}")
    clients.tool(ACL_TOOL, "--add", *who, "--operation", "Read", "--topic", topic)
    until(lambda: java.read(topic))
    refused = java.join(topic, topic)
    with pytest.raises(AssertionError, match="GroupAuthorizationException"):
        wait_for("a rejection", lambda: refused.values())
    clients.tool(ACL_TOOL, "--add", *who, "--operation", "Read", "--group", topic)

    # The broker of the group knows it a moment later.
    until(lambda: java("offsets", group=topic))
    member = java.join(topic, topic)
    wait_for("the records", lambda: sum(map(len, member.values().values())) == len(sent))
    member.leave()


def test_scram_users_log_in_until_they_are_deleted(clients: ClientCluster) -> None:
    user = "carl"
    java = clients.new_user(user, PASSWORD)
    until(partial(java, "log_in"))
    changed = clients.new_user(user, "another-password")
    until(partial(changed, "log_in"))
    until(partial(java, "log_in"), "SaslAuthenticationException")
    clients.alter("users", user, "SCRAM-SHA-256")
    until(partial(changed, "log_in"), "SaslAuthenticationException")


def test_a_token_logs_its_owner_in_until_it_expires(clients: ClientCluster, tmp_path: Path) -> None:
    admin = clients.new_user(ADMIN_USER, ADMIN_PASSWORD)
    until(partial(admin, "log_in"))
    file = tmp_path / "admin.properties"
    write_properties(file, sasl_client(clients.sasl_servers, ADMIN_USER, ADMIN_PASSWORD))

    def tool(*words: str) -> str:
        at = ("--command-config", str(file))
        return clients.tool(TOKEN_TOOL, *at, *words, servers=clients.sasl_servers)

    printed = tool("--create", "--max-life-time-period", "-1")
    (found,) = re.findall(r"^(\S{22})\s+(\S{80,})\s", printed, re.MULTILINE)
    token, hmac = found
    by_token = clients.user(token, hmac, is_token=True)
    until(partial(by_token, "log_in"))
    # The token has its owner's rights: those of a super user.
    topic = "by-token"
    clients.create(topic, 1)
    by_token.produce(topic, numbered("token", 20), is_idempotent=True)
    eventually(lambda: token in tool("--describe", "--owner-principal", f"User:{ADMIN_USER}"))
    assert "Completed" in tool("--renew", "--hmac", hmac, "--renew-time-period", "3600000")
    tool("--expire", "--hmac", hmac, "--expiry-time-period", "-1")
    until(partial(by_token, "log_in"), "SaslAuthenticationException")


def test_brokers_follow_features_up_and_down(clients: ClientCluster) -> None:
    for name, low in (
        ("transaction.version", 1),
        ("eligible.leader.replicas.version", 0),
        ("streams.version", 0),
    ):
        high = clients.ask("features")[name]
        assert high > low
        clients.set_feature(name, low)
        clients.set_feature(name, high)
    printed = clients.tool(FEATURE_TOOL, "describe")
    assert re.search(r"transaction.version.*FinalizedVersionLevel: 2", printed)


def test_groups_need_their_features(clients: ClientCluster) -> None:
    topic = "needs-features"
    clients.create(topic, 1)
    sent = numbered("feature", 20)
    clients.java.produce(topic, sent, is_idempotent=True)
    clients.share_from_the_beginning("needs-share")

    def joined(name: str) -> str:
        """Return the error of a member, "" once it has received all records."""
        group = name.replace(".", "-")
        if name == "group.version":
            member = clients.java.join(topic, f"{group}-group", CONSUMER)
        else:
            member = clients.java.join_share(topic, "needs-share")
        try:
            wait_for("the records", lambda: sum(map(len, member.values().values())) == len(sent))
        except AssertionError as error:
            return str(error)
        finally:
            member.leave()
        return ""

    for name in ("group.version", "share.version"):
        clients.set_feature(name, 0)
        assert "UnsupportedVersionException" in joined(name)
        clients.set_feature(name, 1)
        assert not joined(name)


def test_the_metadata_version_goes_down_and_up(clients: ClientCluster) -> None:
    clients.set_feature("metadata.version", OLD_METADATA - 1)
    clients.set_feature("metadata.version", NEW_METADATA)


@full_size
def test_a_cordoned_directory_gets_no_replicas(clients: ClientCluster) -> None:
    """Cordoned directories need the newest metadata.version."""
    clients.set_feature("metadata.version", NEW_METADATA)
    numbers = itertools.count()

    def has_replicas() -> bool:
        topic = f"placed-{next(numbers)}"
        clients.ask(
            "create_topics", topics=[{"name": topic, "partitions": 6, "replication_factor": 1}]
        )
        # The broker that is asked may not have the topic yet.
        partitions = wait_for("the topic", lambda: clients.stage.partitions(topic))
        return any(one["replicas"] == [2] for one in partitions)

    assert has_replicas()
    clients.alter("brokers", "2", "cordoned.log.dirs=*")
    eventually(lambda: not has_replicas())
    clients.alter("brokers", "2", "cordoned.log.dirs")
    eventually(has_replicas)


def test_a_throttled_reassignment_moves_the_data(clients: ClientCluster, tmp_path: Path) -> None:
    topic = "moved"
    clients.place(topic, [[1, 2]])
    sent = large(RECORDS)
    clients.java.produce(topic, sent, is_idempotent=True)
    file = tmp_path / "moves.json"
    move = {"topic": topic, "partition": 0, "replicas": [3, 2]}
    file.write_text(json.dumps({"version": 1, "partitions": [move]}))
    given = ("--reassignment-json-file", str(file))
    # So slow that a busy machine sees it in progress.
    clients.tool(REASSIGN_TOOL, *given, "--execute", "--throttle", "1000")
    # Replicas of the topic, and rates of the three brokers, as leaders and as followers.
    eventually(partial(throttles, clients, topic), until=partial(eq, 8))
    assert topic in clients.tool(REASSIGN_TOOL, "--list")
    clients.tool(REASSIGN_TOOL, *given, "--execute", "--additional", "--throttle", "10000000")
    wait_for("the end of the move", lambda: clients.ask("reassignments") == 0)
    assert "is completed" in clients.tool(REASSIGN_TOOL, *given, "--verify")
    eventually(partial(throttles, clients, topic), until=partial(eq, 0))
    (partition,) = clients.stage.partitions(topic)
    assert (partition["replicas"], sorted(partition["isr"])) == ([3, 2], [2, 3])
    assert clients.replicas(3, topic).keys() == {"moved-0"}
    wait_for("the old replica to go", lambda: not clients.replicas(1, topic))
    # The new replica serves all records.
    clients.tool(ELECTION_TOOL, "--election-type", "preferred", "--topic", topic,
                 "--partition", "0")  # fmt: skip
    wait_for("the new leader", lambda: clients.stage.partitions(topic)[0]["leader"] == 3)
    check_complete(clients.read(topic), sent)


def throttles(clients: ClientCluster, topic: str) -> int:
    """Return how many settings of the topic and the brokers throttle replication."""
    described = [clients.ask("describe_config", type="TOPIC", name=topic)]
    described += [clients.ask("describe_config", type="BROKER", name=str(id)) for id in BROKERS]
    return sum(
        "replication.throttled" in name and "DYNAMIC" in source
        for configs in described
        for name, (_, source, *_) in configs.items()
    )


def test_a_replica_moves_to_another_directory(clients: ClientCluster) -> None:
    topic = "between-directories"
    clients.place(topic, [[1]])
    sent = large(RECORDS)
    clients.java.produce(topic, sent, is_idempotent=True)
    source = clients.replicas(1, topic)[f"{topic}-0"]
    target = "data-1" if source == "data-0" else "data-0"
    path = str(clients.cluster.nodes[1].directory / target)
    clients.ask("move_replica", topic=topic, partition=0, broker=1, directory=path)
    wait_for(f"{topic} in {target}", lambda: clients.replicas(1, topic) == {f"{topic}-0": target})
    check_complete(clients.read(topic), sent)
    clients.java.produce(topic, numbered("later", 20), is_idempotent=True)


@full_size
def test_a_preferred_leader_is_elected(clients: ClientCluster) -> None:
    topic = "preferred"
    clients.place(topic, [[3, 1, 2]])

    def leader() -> int:
        found: int = clients.stage.partitions(topic)[0]["leader"]
        return found

    assert leader() == 3
    sent = numbered("preferred", 60)
    clients.java.produce(topic, sent[:20], is_idempotent=True)
    clients.cluster.nodes[3].stop()
    wait_for("another leader", lambda: leader() == 1)
    clients.java.produce(topic, sent[20:40], is_idempotent=True)
    clients.stage.broker(3)
    clients.stage.wait_for_isr(topic, 3)
    assert leader() == 1
    words = ("--topic", topic, "--partition", "0")
    clients.tool(ELECTION_TOOL, "--election-type", "preferred", *words)
    wait_for("the preferred leader", lambda: leader() == 3)
    clients.java.produce(topic, sent[40:], is_idempotent=True)
    check_complete(clients.read(topic), sent)


@full_size
def test_an_unclean_election_loses_what_only_the_dead_leader_had(clients: ClientCluster) -> None:
    scenario.unclean_election(clients.stage)
    assert clients.read("unclean") == {}
    sent = numbered("after", 20)
    clients.java.produce("unclean", sent, is_idempotent=True)
    check_complete(clients.read("unclean"), sent)


@full_size
def test_an_unregistered_broker_is_gone(clients: ClientCluster) -> None:
    scenario.retire_broker(clients.stage)

    def listed() -> list[int]:
        printed = clients.tool(CLUSTER_TOOL, "list-endpoints", "--include-fenced-brokers")
        return sorted(int(line.split()[0]) for line in printed.splitlines() if line[:1].isdigit())

    # The broker that is asked hears of it a moment later.
    eventually(listed, until=partial(eq, list(BROKERS)))


def test_no_process_logs_a_fault(clients: ClientCluster) -> None:
    clients.check_logs()
