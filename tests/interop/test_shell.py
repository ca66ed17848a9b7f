"""``kraft shell`` prints what kafka-metadata-shell 4.3.1 prints for the same snapshots.

Different by design: the provenance (Kafka's shell counts the records of the file, kraft names the
offset in the log), ``/local`` (the build of each shell), and the words of ``help`` and ``man``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft
from kraft.live.metadata import follow
from kraft.testing.cluster import QuorumForTests
from tests.harness.commands import KRAFT, PLAIN
from tests.harness.kafka_jars import KAFKA_4, PROJECT, kafka
from tests.interop.keep import shell_readable
from tests.interop.tools import MetadataShell

pytestmark = pytest.mark.interop

_END = "no-such-node"
DATA = PROJECT / "tests" / "data"
NEWEST = sorted((DATA / "kafka-4.3" / "controller-103").glob("*/*.checkpoint"))[-1]
#: Each is run in the directory that the lines before it left.
LINES = (
    "ls",
    "ls /",
    "ls image local",
    "pwd",
    "cd image",
    "pwd",
    "ls",
    "ls *",
    "ls cluster/brokers c*",
    "ls {acls,scram}/* producerIds/nextProducerId",
    "cd topics/byName",
    "pwd",
    "ls",
    "ls payments",
    "ls {clicks,payments,nope} x?y",
    "tree payments",
    "cat payments/0 payments/id */name",
    "cat payments",
    "cat payments/99",
    "cat */id",
    "find payments solo",
    "find ../../features",
    "find nope",
    "tree nope",
    "cd payments/id",
    "cd nope",
    "cd ../../../cluster",
    "ls brokers",
    "tree brokers",
    "tree controllers",
    "cat brokers/1 brokers/7",
    "cd",
    "pwd",
    "tree /image/acls",
    "tree /image/clientQuotas",
    "tree '/image/clientQuotas/user(alice)'",
    "tree /image/configs",
    "cat /image/configs/TOPIC:orders/retention.ms",
    "tree /image/delegationToken",
    "tree /image/features",
    "tree /image/producerIds",
    "tree /image/scram",
    "tree /image/topics",
    "find /image/cluster /image/scram",
    "bogus",
    "ls -x",
    "cat",
    "cd a b",
    "history 3",
)


def own_lines(*source: object) -> list[list[str]]:
    """Return what ``kraft shell`` prints for each of `LINES`, in one process."""
    typed = "\n".join(f"{line}\nls {_END}" for line in LINES)
    ran = subprocess.run(
        [*KRAFT, "shell", *map(str, source), "--show-secrets"],
        input=f"{typed}\nexit\nls\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=PLAIN,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 1
    parts = ran.stdout.split(f"ls: {_END}: no such file or directory.\n")
    assert parts.pop() == ""
    return [[line for line in part.splitlines() if line] for part in parts]


@pytest.fixture(scope="module")
def theirs() -> Iterator[MetadataShell]:
    with MetadataShell(kafka(KAFKA_4), NEWEST) as shell:
        yield shell


def test_each_command_prints_the_same(theirs: MetadataShell) -> None:
    own = own_lines("--from", NEWEST)
    assert len(own) == len(LINES)
    for line, printed in zip(LINES, own, strict=True):
        said = list(theirs.ask(line))
        if line.startswith("history"):
            # The harness of Kafka's shell ends an answer at its own line, and asks more than these.
            printed = printed[: next(i for i, each in enumerate(printed) if _END in each)]
            assert len(printed) == 1
            said, printed = ([each[7:] for each in lines] for lines in (said, printed))
        assert printed == said, line


@pytest.mark.parametrize(
    "checkpoint",
    [
        pytest.param(path, id=path.relative_to(DATA).as_posix())
        for release in ("kafka-3.9", "kafka-4.0", "kafka-4.3")
        for node in sorted((DATA / release).glob("controller-*"))
        for path in shell_readable(node)
    ],
)
def test_the_whole_tree_is_the_same(checkpoint: Path) -> None:
    command = [*KRAFT, "shell", "--from", str(checkpoint), "--show-secrets", "tree", "/"]
    own = subprocess.run(command, capture_output=True, text=True, env=PLAIN, check=True).stdout
    with MetadataShell(kafka(KAFKA_4), checkpoint) as shell:
        said = list(shell.ask("tree /"))
    assert without_own([line for line in own.splitlines() if line]) == without_own(said)


def without_own(lines: list[str]) -> list[str]:
    """Return a tree without the provenance and what the shells print of themselves."""
    kept = [line for line in lines if not line.startswith("    offset ")]
    return kept[: kept.index("local:")]


@pytest.mark.kraft_cluster(controllers=1, light_brokers=3)
def test_a_snapshot_of_a_running_quorum_is_the_same(
    kraft_cluster: QuorumForTests, tmp_path: Path
) -> None:
    """The tree of the live quorum, and Kafka's of a snapshot that is written of it."""
    kraft_cluster.create_topic("live", 12, 3)
    at = kraft_cluster.bootstrap_controllers
    with follow(at) as live:
        snapshot = live.write_snapshot(tmp_path, columns=False)
    command = [*KRAFT, "shell", "--bootstrap-controller", at, "tree", "/image/topics"]
    own = subprocess.run(command, capture_output=True, text=True, env=PLAIN, check=True).stdout
    with MetadataShell(kafka(KAFKA_4), snapshot) as shell:
        assert own.splitlines() == list(shell.ask("tree /image/topics"))
    assert "live" in kraft.open_metadata(snapshot).topics
