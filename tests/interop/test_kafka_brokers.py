"""Apache Kafka's brokers run on a quorum of kraft controllers, through the recorded scenario.

Every request of the Admin client reaches the controllers in a broker's envelope. At the end the
state in the controllers' directories is what Kafka's tools print of the running cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft
from kraft.records.versions import LATEST_PRODUCTION
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop import agreement, scenario
from tests.interop.cluster import HOST, Cluster, ClusterError, sasl_client, wait_for
from tests.interop.kraft_node import add_kraft_controller
from tests.interop.record import FILTERS, TOPIC_TOOL, start, while_quiet
from tests.interop.scenario import CONTROLLERS, Stage

pytestmark = pytest.mark.interop

CHAPTERS = (
    scenario.create_topics,
    scenario.delete_topic,
    scenario.create_partitions,
    scenario.configure,
    scenario.configure_group,
    scenario.authorize,
    scenario.credentials,
    scenario.admin_credential,
    scenario.quotas,
    scenario.tokens,
    scenario.produce,
    scenario.reassign,
    scenario.log_directories,
    scenario.fence,
    scenario.failover,
    scenario.trouble,
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    cluster = Cluster(kafka(KAFKA_4), tmp_path_factory.mktemp("cluster"), "a3JhZnQgY29udHJvbGxlcg")
    cluster.is_static = True
    cluster.reserve_controllers(*CONTROLLERS)
    for id in CONTROLLERS:
        add_kraft_controller(cluster, id).format(cluster.cluster_id)
    try:
        yield start(cluster)
    finally:
        cluster.kill()


def test_brokers_and_clients_use_kraft_controllers(stage: Stage) -> None:
    for chapter in CHAPTERS:
        chapter(stage)


def test_the_controllers_authorize_forwarded_requests(stage: Stage) -> None:
    """A broker forwards a client's request unchecked; the controller knows the principal."""
    scram = {"mechanism": "SCRAM-SHA-256", "iterations": 4096, "password": "throwaway-4"}
    stage.ask("upsert_scram", user="guest", **scram)
    config = sasl_client(f"{HOST}:{stage.cluster.nodes[1].sasl_port}", "guest", "throwaway-4")

    def logs_in() -> bool:
        # A broker applies a user a moment later; a client that was rejected does not try again.
        stage.ask.connect("guest", config)
        return bool(stage.ask("brokers", client="guest"))

    wait_for("the login of User:guest", logs_in)
    topic = {"name": "guests", "partitions": 1, "replication_factor": 1}
    with pytest.raises(ClusterError, match="TopicAuthorizationException"):
        stage.ask("create_topics", client="guest", topics=[topic])
    with pytest.raises(ClusterError, match="ClusterAuthorizationException"):
        stage.ask("upsert_scram", client="guest", user="other", **scram)
    stage.ask(
        "create_acl",
        resource="TOPIC",
        name="guests",
        pattern="LITERAL",
        principal="User:guest",
        host="*",
        operation="CREATE",
        permission="ALLOW",
    )
    wait_for(
        "the permission of User:guest",
        lambda: stage.ask("create_topics", client="guest", topics=[topic]) == 1,
    )


def test_the_cluster_goes_on_after_the_leader_is_killed(stage: Stage) -> None:
    # The chapter `failover` has stopped one of the three controllers and started it again.
    leader = stage.ask("quorum")["leader"]
    stage.cluster.nodes[leader].kill()
    topic = {"name": "after", "partitions": 3, "replication_factor": 2}

    def is_there() -> bool:
        # A request whose answer was late may have created it.
        return "after" in stage.ask("list_topics") or not stage.ask("create_topics", topics=[topic])

    wait_for("a topic created by the next controller", is_there)
    assert stage.ask("quorum")["leader"] != leader


def test_controllers_and_brokers_report_the_same_features(stage: Stage) -> None:
    addresses = [stage.cluster.nodes[id].address for id in CONTROLLERS]
    stage.ask.connect("controllers", {"bootstrap.controllers": ",".join(addresses)})
    reported = stage.ask("features", client="controllers")
    assert reported == stage.ask("features")
    assert reported["metadata.version"] == LATEST_PRODUCTION


def test_a_rejected_request_has_kafkas_error_and_a_message(stage: Stage) -> None:
    with pytest.raises(ClusterError, match=r"TopicExistsException: Topic 'orders' already exists"):
        stage.ask(
            "create_topics", topics=[{"name": "orders", "partitions": 1, "replication_factor": 1}]
        )
    with pytest.raises(ClusterError, match="InvalidReplicationFactorException"):
        stage.ask(
            "create_topics", topics=[{"name": "wide", "partitions": 1, "replication_factor": 9}]
        )
    with pytest.raises(ClusterError, match="InvalidConfigurationException"):
        stage.config("TOPIC", "orders", ("SET", "retention.ms", "soon"))


def test_the_directories_hold_what_kafkas_tools_print(stage: Stage, tmp_path: Path) -> None:
    cluster = stage.cluster

    def printed(*options: str) -> str:
        bootstrap = ("--bootstrap-server", cluster.nodes[1].address)
        return cluster.jars.run(TOPIC_TOOL, *bootstrap, "--describe", *options).stdout

    said: dict[str, str] = {}

    def describe() -> None:
        said.update({one: printed(f"--{one}") for one in FILTERS}, all=printed())

    end, _ = while_quiet(stage, describe)
    leader = stage.ask("quorum")["leader"]
    cluster.freeze()
    metadata = kraft.open_metadata(cluster.nodes[leader].metadata_directory, at=end)
    agreement.check_topics(metadata, said.pop("all"))
    for one, text in said.items():
        agreement.check_filter(metadata, one, text)


def test_no_process_logs_a_fault(stage: Stage) -> None:
    for id in CONTROLLERS:
        log = (stage.cluster.directory / str(id) / "log").read_text()
        assert " ERROR " not in log, log[-2000:]
        assert "Traceback" not in log, log[-2000:]
    for id in (1, 2, 3):
        log = (stage.cluster.directory / str(id) / "log").read_text(errors="replace")
        assert "Encountered fatal fault" not in log
        assert "Encountered metadata" not in log
