"""A quorum run by commands: format, start, describe, change voters, stop."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kraft.server.local_quorum import free_ports
from tests.harness.commands import (
    KRAFT,
    PATIENCE_S,
    PLAIN,
    eventually,
    heed_interrupts,
    kraft,
    printed,
)
from tests.harness.nodes import Controllers

pytestmark = pytest.mark.nodes

#: Longer than any test: a follower changes its leader only when another is elected.
NEVER = {
    "controller.quorum.fetch.timeout.ms": "600000",
    "controller.quorum.election.timeout.ms": "300",
}


def test_one_node_is_formatted_started_queried_and_stopped(tmp_path: Path) -> None:
    with Controllers(tmp_path, 1) as quorum:
        (node,) = quorum.all
        refused = kraft("server", "start", node.file)
        assert refused.returncode == 1
        assert f"{node.data} is not formatted" in refused.stderr
        assert "kraft storage format" in refused.stderr

        cluster_id = printed("storage", "random-uuid").strip()
        output = node.format(cluster_id, "--standalone")
        assert output.startswith(f"Formatting dynamic metadata voter directory {node.data}")
        node.start()

        status = quorum.status()
        assert status["ClusterId"] == cluster_id
        assert (status["LeaderId"], status["LeaderEpoch"], status["MaxFollowerLag"]) == (1, 1, 0)
        assert [voter["id"] for voter in status["CurrentVoters"]] == [1]
        assert status["CurrentObservers"] == []

        again = kraft("server", "start", node.file)
        assert again.returncode == 1
        assert f"{node.data} is in use" in again.stderr

        assert node.stop(signal.SIGTERM) == 0
        assert quorum_refuses(node.address)


def quorum_refuses(address: str) -> bool:
    """Check that an unreachable address is an error at once, with the address."""
    ran = kraft("quorum", "describe", "--replication", "--bootstrap-controller", address)
    return ran.returncode == 1 and f"{address}: " in ran.stderr and "refused" in ran.stderr


def test_the_node_of_the_readme(tmp_path: Path) -> None:
    """The README's file and commands, with a free port."""
    page = (Path(__file__).parents[2] / "README.md").read_text()
    (properties,) = re.findall(r"^```\n(process\.roles=.*?)^```", page, re.MULTILINE | re.DOTALL)
    (commands,) = re.findall(r"^```sh\n(kraft storage.*?)^```", page, re.MULTILINE | re.DOTALL)
    (port,) = free_ports(1)
    (tmp_path / "node-1.properties").write_text(properties.replace("9093", str(port)))
    place = Path(sys.executable).parent
    with subprocess.Popen(
        ["sh", "-e", "-c", commands.replace("kraft server", "exec kraft server")],
        cwd=tmp_path,
        env={**PLAIN, "PATH": f"{place}:{PLAIN['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as shell:
        try:
            assert shell.stdout is not None
            assert "Formatting dynamic metadata voter directory" in shell.stdout.readline()
            while "node 1 of cluster" not in (line := shell.stdout.readline()):
                assert line, "the node ended"
            address = f"localhost:{port}"
            output = printed("quorum", "describe", "--status", "--bootstrap-controller", address)
            assert re.search(r"^LeaderId: +1$", output, re.MULTILINE)
            shell.send_signal(signal.SIGTERM)
            assert shell.wait(PATIENCE_S) == 0
        finally:
            shell.kill()


def test_a_port_that_is_in_use_is_named(tmp_path: Path) -> None:
    with Controllers(tmp_path, 2) as quorum:
        first, second = quorum.all
        quorum.form([first])
        second.port = first.port
        second.write().format("JEXY6aqzQY-32P5TStzaFg", "--standalone")
        refused = kraft("server", "start", second.file)
        assert refused.returncode == 1
        assert refused.stderr.endswith(
            f"error: cannot listen at CONTROLLER://{first.address}: Address already in use\n"
        )


def test_unknown_settings_in_a_file_are_reported(tmp_path: Path) -> None:
    settings = {"controller.quorum.fetch.timeout": "5", "log.cleaner.threads": "3", "my.own": "x"}
    with Controllers(tmp_path, 1, settings) as quorum:
        (node,) = quorum.all
        quorum.form([node])
        assert node.running is not None
        output = node.running.text
        assert re.search(r"line 7: controller\.quorum\.fetch\.timeout is unknown", output)
        assert "did you mean controller.quorum.fetch.timeout.ms?" in output
        assert "my.own is unknown" in output
        assert "these settings of Kafka have no effect here: log.cleaner.threads" in output
    refused = kraft("server", "start", node.file, "--override", "node.id=one")
    assert refused.returncode == 1
    assert "node.id" in refused.stderr
    assert "the command line" in refused.stderr


def test_three_nodes_hand_over_and_change_their_voters(tmp_path: Path) -> None:
    """The leader stops, and its successor leads without an election timeout."""
    with Controllers(tmp_path, 4, NEVER) as quorum:
        voters, newcomer = quorum.all[:3], quorum.all[3]
        quorum.form(voters)
        status = quorum.status()
        assert sorted(voter["id"] for voter in status["CurrentVoters"]) == [1, 2, 3]

        leader = quorum.all[status["LeaderId"] - 1]
        assert leader.stop(signal.SIGTERM) == 0
        following = quorum.described()
        assert following.leader_id not in (-1, leader.id)
        assert following.epoch > status["LeaderEpoch"]
        # A new leader knows no observers before the first record of its epoch is committed.
        eventually(lambda: quorum.described().high_watermark >= status["HighWatermark"])
        leader.start()

        newcomer.format(status["ClusterId"], "--no-initial-controllers")
        newcomer.start()
        eventually(lambda: [one.key.id for one in quorum.described().observers] == [4])
        bootstrap = ("--bootstrap-controller", quorum.bootstrap)
        added = printed("quorum", "add-controller", "-c", newcomer.file, *bootstrap)
        match = re.fullmatch(
            rf"Added controller 4 with directory id (\S{{22}}) and endpoints: "
            rf"CONTROLLER://{newcomer.address}\n",
            added,
        )
        assert match, added
        assert voter_ids(quorum) == [1, 2, 3, 4]

        twice = kraft("quorum", "add-controller", "-c", newcomer.file, *bootstrap)
        assert twice.returncode == 1
        assert "DUPLICATE_VOTER" in twice.stderr
        assert "the voter has the same directory id: it was added before" in twice.stderr

        removal = ("quorum", "remove-controller", "-i", "4", "-d", match[1], *bootstrap)
        assert printed(*removal) == f"Removed KRaft controller 4 with directory id {match[1]}\n"
        assert voter_ids(quorum) == [1, 2, 3]
        unknown = kraft(*removal)
        assert unknown.returncode == 1
        assert "VOTER_NOT_FOUND" in unknown.stderr

        for node in quorum.all:
            assert node.running is not None
            assert "Traceback" not in node.running.text
            assert node.stop(signal.SIGTERM) == 0


def test_a_lost_disk_and_a_lost_majority_are_reported_with_a_remedy(tmp_path: Path) -> None:
    with Controllers(tmp_path, 3) as quorum:
        quorum.form(quorum.all)
        leader = quorum.described().leader_id
        first, second = (node for node in quorum.all if node.id != leader)
        bootstrap = ("--bootstrap-controller", quorum.bootstrap)
        old = next(v for v in quorum.described().voters if v.key.id == first.id).key.directory_id
        cluster_id = quorum.status()["ClusterId"]

        # One node loses its disk: its new directory cannot be added before the old one is removed.
        assert first.stop(signal.SIGTERM) == 0
        shutil.rmtree(first.data)
        first.format(cluster_id, "--no-initial-controllers")
        first.start()
        eventually(lambda: first.id in [one.key.id for one in quorum.described().observers])
        refused = kraft("quorum", "add-controller", "-c", first.file, *bootstrap)
        assert refused.returncode == 1
        (removal,) = re.findall(r"kraft (quorum remove-controller .*)\)$", refused.stderr, re.M)
        assert f"--controller-directory-id {old!s}" in removal
        assert printed(*removal.split()).startswith(f"Removed KRaft controller {first.id}")
        printed("quorum", "add-controller", "-c", first.file, *bootstrap)
        assert voter_ids(quorum) == [1, 2, 3]

        for node in (first, second):
            node.stop(signal.SIGKILL)
        # The leader resigns soon, since no voter fetches.
        describe = ("quorum", "describe", "--status", *bootstrap)
        eventually(lambda: kraft(*describe).returncode == 1)
        began = time.monotonic()
        lost = kraft(*describe)
        assert "1 of 3 controllers answered" in lost.stderr
        assert "no controller leads" in lost.stderr
        assert "the deadline has passed" not in lost.stderr
        assert time.monotonic() - began < 25


def voter_ids(quorum: Controllers) -> list[int]:
    return sorted(voter.key.id for voter in quorum.described().voters)


def test_describe_prints_text_and_json_and_repeats_with_watch(tmp_path: Path) -> None:
    with Controllers(tmp_path, 1) as quorum:
        quorum.form(quorum.all)
        describe = ("quorum", "describe", "--bootstrap-controller", quorum.bootstrap)
        output = printed(*describe, "--status")
        assert re.match(r"ClusterId: +\S{22}\nLeaderId: +1\nLeaderEpoch: +1\n", output)
        rows = printed(*describe, "--replication").splitlines()
        assert rows[0].split() == [
            *("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp"),
            *("LastCaughtUpTimestamp", "Status"),
        ]
        assert (rows[1].split()[0], rows[1].split()[-1]) == ("1", "Leader")
        assert "ms ago" in printed(*describe, "--replication", "--human-readable")

        watching = [*KRAFT, *describe, "--replication", "--json", "--watch", "--interval", "0.1"]
        with subprocess.Popen(
            watching,
            stdout=subprocess.PIPE,
            env=PLAIN,
            text=True,
            preexec_fn=heed_interrupts,
        ) as process:
            assert process.stdout is not None
            for _ in range(3):
                (row,) = json.loads(process.stdout.readline())
                assert (row["NodeId"], row["Status"], row["Lag"]) == (1, "Leader", 0)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130


def test_damage_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with Controllers(tmp_path, 1) as quorum:
        (node,) = quorum.all
        quorum.form([node])
        quorum.described()
        assert node.stop(signal.SIGTERM) == 0
        (log,) = node.metadata_log.glob("*.log")
        data = bytearray(log.read_bytes())
        data[70] ^= 1
        log.write_bytes(data)
        refused = kraft("server", "start", node.file)
        assert refused.returncode == 1
        assert f"file {log}, offset 0" in refused.stderr
        assert "Keep a copy of the directory" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert log.read_bytes() == data
