"""``kraft quorum`` against nodes on loopback, in the format of kafka-metadata-quorum."""

from __future__ import annotations

from pathlib import Path

from kraft import errors
from kraft.cli.exit_codes import REFUSED, USAGE
from kraft.raft import rpc as m
from kraft.raft.voters import Endpoint, ReplicaKey
from kraft.server.config.loading import ServerConfig
from kraft.server.storage.format import FormatRequest, format_storage
from tests.harness.running_nodes import CLUSTER_ID, DIRECTORIES, RunningNodes, done
from tests.unit.cli.conftest import Run


def at(nodes: RunningNodes) -> tuple[str, str]:
    """Return the option with the address of a follower, whose responses name the leader."""
    return "--bootstrap-controller", f"127.0.0.1:{nodes.ports[0]}"


def test_status_has_kafkas_format(kraft: Run) -> None:
    with RunningNodes() as nodes:
        ran = kraft("quorum", "describe", "--status", *at(nodes))
        voters = ", ".join(
            f'{{"id": {id}, "directoryId": "{DIRECTORIES[id]!s}", '
            f'"endpoints": ["CONTROLLER://127.0.0.1:{port}"]}}'
            for id, port in nodes.ports.items()
        )
    assert ran.lines == [
        f"ClusterId:              {CLUSTER_ID}",
        "LeaderId:               1",
        "LeaderEpoch:            7",
        "HighWatermark:          95",
        "MaxFollowerLag:         101",
        "MaxFollowerLagTimeMs:   -1",
        f"CurrentVoters:          [{voters}]",
        'CurrentObservers:       [{"id": 4}]',
    ]


def test_replication_lists_leader_followers_observers(kraft: Run) -> None:
    with RunningNodes() as nodes:
        ran = kraft("quorum", "describe", "--replication", *at(nodes))
        document = kraft("quorum", "describe", "--replication", "--json", *at(nodes)).json
    header, *rows = [line.split() for line in ran.lines]
    assert header == [
        *("NodeId", "DirectoryId", "LogEndOffset", "Lag"),
        *("LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"),
    ]
    assert rows == [
        ["1", str(DIRECTORIES[1]), "100", "0", "10000", "10000", "Leader"],
        ["0", str(DIRECTORIES[0]), "90", "10", "9000", "8000", "Follower"],
        ["2", str(DIRECTORIES[2]), "-1", "101", "-1", "-1", "Follower"],
        ["4", "A" * 22, "97", "3", "9900", "9800", "Observer"],
    ]
    assert [row["Status"] for row in document] == ["Leader", "Follower", "Follower", "Observer"]


def test_times_can_be_printed_as_ages(kraft: Run) -> None:
    with RunningNodes() as nodes:
        ran = kraft("quorum", "describe", "--replication", "--human-readable", *at(nodes))
    assert "ms ago" in ran.lines[1]
    assert "-1" in ran.lines[3].split()


def test_either_status_or_replication_is_required(kraft: Run) -> None:
    for words in ((), ("--status", "--replication")):
        ran = kraft("quorum", "describe", *words, "--bootstrap-controller", "a:1")
        assert ran.code == USAGE
        assert "give either --status or --replication" in ran.err


def test_the_error_without_a_controller_names_the_address(kraft: Run, tmp_path: Path) -> None:
    hasty = tmp_path / "client.properties"
    hasty.write_text("request.timeout.ms=200\n")
    there = ("--bootstrap-controller", "127.0.0.1:1", "--command-config", hasty)
    ran = kraft("quorum", "describe", "--status", *there)
    assert ran.code == REFUSED
    assert ran.err.startswith("error: ")
    assert "127.0.0.1:1" in ran.err


def test_an_unsupported_mechanism_is_rejected(kraft: Run, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_SSL\n")
    there = ("--bootstrap-controller", "127.0.0.1:1", "--command-config", config)
    ran = kraft("quorum", "describe", "--status", *there)
    assert ran.code == REFUSED
    assert f"{config}: sasl.mechanism has 'GSSAPI', which kraft does not support" in ran.err


def formatted_controller(directory: Path, port: int) -> tuple[Path, ReplicaKey]:
    """Write the configuration of controller 4 and format its directory; return file and key."""
    path = directory / "controller.properties"
    path.write_text(
        "process.roles=controller\nnode.id=4\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:9999\nlog.dirs={directory / 'data'}\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{port}\n"
    )
    config = ServerConfig.load(path)
    request = FormatRequest(cluster_id=CLUSTER_ID, has_no_initial_controllers=True)
    report = format_storage(config, request, timestamp_ms=0)
    return path, ReplicaKey(4, report.formatted[0].directory_id)


def test_a_controller_is_added_from_its_own_configuration(kraft: Run, tmp_path: Path) -> None:
    with RunningNodes(answer=done) as nodes:
        path, key = formatted_controller(tmp_path, nodes.ports[0])
        dry = kraft("quorum", "add-controller", "-c", path, "--dry-run")
        assert nodes.asked == []
        ran = kraft("quorum", "add-controller", "-c", path)
    said = (
        f"controller 4 with directory id {key.directory_id!s} and endpoints: "
        "CONTROLLER://127.0.0.1:9999"
    )
    assert dry.lines == [f"DRY RUN of adding {said}"]
    assert ran.lines == [f"Added {said}"]
    id, request = nodes.asked[-1]
    assert isinstance(request, m.AddRaftVoterRequest)
    assert (id, request.voter) == (1, key)
    assert request.endpoints == (Endpoint("CONTROLLER", "127.0.0.1", 9999),)


def test_the_settings_of_the_client_may_be_in_a_file_of_their_own(
    kraft: Run, tmp_path: Path
) -> None:
    client = tmp_path / "client.properties"
    client.write_text("security.protocol=SSL\n")
    with RunningNodes(answer=done) as nodes:
        path, key = formatted_controller(tmp_path, nodes.ports[0])
        secured = kraft("quorum", "add-controller", "-c", path, "--command-config", client)
        assert secured.code == REFUSED
        assert "TLS" in secured.err
        # As in Kafka's tool.
        ran = kraft("quorum", "add-controller", "--command-config", path)
    assert ran.lines[0].startswith(f"Added controller 4 with directory id {key.directory_id!s}")


def test_the_error_for_a_duplicate_voter_names_the_old_directory_and_its_removal(
    kraft: Run, tmp_path: Path
) -> None:
    def refuse(request: m.Request) -> m.Response:
        if isinstance(request, m.DescribeQuorumRequest):
            return nodes.description()
        return m.AddRaftVoterResponse(errors.DUPLICATE_VOTER, "4 is a voter already")

    with RunningNodes(answer=refuse) as nodes:
        old = nodes.description()
        old.voters += (m.DescribedReplica(ReplicaKey(4, DIRECTORIES[0]), 1, 1, 1),)
        nodes.description = lambda: old  # type: ignore[method-assign]
        path, key = formatted_controller(tmp_path, nodes.ports[1])
        ran = kraft("quorum", "add-controller", "-c", path)
    assert ran.code == REFUSED
    assert "DUPLICATE_VOTER (4 is a voter already)" in ran.err
    assert (
        f"the voter has the directory id {DIRECTORIES[0]!s}, this controller {key.directory_id!s}"
        in ran.err
    )
    assert (
        "kraft quorum remove-controller --controller-id 4 --controller-directory-id "
        f"{DIRECTORIES[0]!s} --bootstrap-controller 127.0.0.1:{nodes.ports[1]}"
    ) in ran.err


def test_a_voter_is_removed_by_its_id_and_directory(kraft: Run) -> None:
    voter = ReplicaKey(2, DIRECTORIES[2])
    words = ("--controller-id", 2, "--controller-directory-id", str(DIRECTORIES[2]))
    with RunningNodes(answer=done) as nodes:
        ran = kraft("quorum", "remove-controller", *words, *at(nodes))
    assert ran.lines == [f"Removed KRaft controller 2 with directory id {voter.directory_id!s}"]
    assert nodes.asked[-1] == (1, m.RemoveRaftVoterRequest(None, voter))


def test_a_kafka_error_is_printed_by_name(kraft: Run) -> None:
    def refuse(request: m.Request) -> m.Response:
        return m.RemoveRaftVoterResponse(errors.VOTER_NOT_FOUND, "2 is no voter")

    words = ("--controller-id", 2, "--controller-directory-id", str(DIRECTORIES[2]))
    with RunningNodes(answer=refuse) as nodes:
        ran = kraft("quorum", "remove-controller", *words, *at(nodes))
    assert ran.code == REFUSED
    assert "VOTER_NOT_FOUND (2 is no voter)" in ran.err
