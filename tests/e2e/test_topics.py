"""``kraft topics`` on a quorum of processes: topics stay, whatever happens to the leader."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kraft.network.quorum_client import QuorumClient
from tests.harness.commands import (
    KRAFT,
    PATIENCE_S,
    PLAIN,
    Foreground,
    eventually,
    heed_interrupts,
    kraft,
)

pytestmark = pytest.mark.nodes

#: The timeouts stay Kafka's: with shorter ones a standstill of the machine is an election.
QUICK = (
    *("--setting", "controller.quorum.append.linger.ms=0"),
    # A large topic is one metadata transaction, which may take a third of this.
    *("--setting", "broker.session.timeout.ms=90000"),
)
BIG, COUNT = 50_000, 5000


def test_topics_are_created_while_the_leader_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setitem(PLAIN, "TMPDIR", str(place))
    command = ["up", "--controllers", 3, "--light-brokers", 6, "--json", *QUICK]
    with Foreground(command, tmp_path / "up.err") as quorum:
        document = quorum.announced()
        assert document["lightBrokers"] == 6
        at = ("--bootstrap-controller", document["bootstrapControllers"])

        # The command continues to create topics after the leader is killed.
        bulk = ("--count", COUNT, "--name-pattern", "t{}")
        servers = [address(each) for each in document["controllers"]]
        with QuorumClient(servers) as client:
            before = client.describe_quorum().high_watermark
            creating = subprocess.Popen(
                [*KRAFT, "topics", "create", *map(str, bulk), *at, "--json"],
                stdout=subprocess.PIPE,
                text=True,
                env=PLAIN,
            )
            # A topic has two records.
            eventually(lambda: client.describe_quorum().high_watermark > before + 400)
        leader = next(
            each for each in document["controllers"] if each["nodeId"] == document["leaderId"]
        )
        os.kill(leader["pid"], signal.SIGKILL)
        output, _ = creating.communicate(timeout=2 * PATIENCE_S)
        assert creating.returncode == 0
        outcomes = {each["outcome"] for each in json.loads(output)["topics"]}
        assert "created" in outcomes
        assert outcomes <= {"created", "done already"}

        big = ("--topic", "big", "--partitions", BIG, "--replication-factor", 3)
        made = json.loads(run("create", *big, *at, "--json"))["topics"]
        # If the two controllers elect anew meanwhile, the request is repeated. The description
        # below has the partitions in either case.
        assert made[0]["outcome"] in ("created", "done already")
        assert len(run("list", *at).splitlines()) == COUNT + 1
        (described,) = json.loads(run("describe", "--topic", "big", *at, "--json"))
        assert len(described["partitions"]) == BIG
        assert {len(each["isr"]) for each in described["partitions"]} == {3}
        assert run("describe", "--unavailable-partitions", *at) == ""

        interrupted = subprocess.Popen(
            [*KRAFT, "topics", "delete", *map(str, bulk), *at],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=PLAIN,
            preexec_fn=heed_interrupts,
        )
        with QuorumClient(servers) as client:
            before = client.describe_quorum().high_watermark
            eventually(lambda: client.describe_quorum().high_watermark > before + 100)
        interrupted.send_signal(signal.SIGINT)
        _, said = interrupted.communicate(timeout=PATIENCE_S)
        left = len(run("list", *at).splitlines())
        if interrupted.returncode:
            # The command was still deleting; each finished request deleted 100 topics.
            assert interrupted.returncode == 130, said
            assert f"of {COUNT:,} topics have an answer" in said
            assert left % 100 == 1
        else:
            assert left == 1
        run("delete", *bulk, "--if-exists", *at)
        assert run("list", *at) == "big\n"
        assert quorum.end(signal.SIGINT) == 130


def address(controller: dict[str, Any]) -> tuple[str, int]:
    host, _, port = controller["endpoint"].partition(":")
    return host, int(port)


def run(*words: object) -> str:
    """Return the output of a topics command that must succeed."""
    ran = kraft("topics", *words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
