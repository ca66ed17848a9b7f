"""``kraft open`` and ``kraft snapshot diff --watch`` at a running quorum."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kraft
from kraft.testing.cluster import QuorumForTests
from tests.harness import commands
from tests.harness.commands import KRAFT, PATIENCE_S, PLAIN, eventually, heed_interrupts

pytestmark = pytest.mark.nodes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumForTests]:
    directory = tmp_path_factory.mktemp("watched")
    with QuorumForTests(directory, 1, light_brokers=3) as made:
        made.create_topic("first", 3, 3)
        yield made


@contextmanager
def watching(
    cluster: QuorumForTests, directory: Path, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """Run the command, and wait until it has its first state."""
    words = ["snapshot", "diff", "--watch", *options]
    words += ["--bootstrap-controller", cluster.bootstrap_controllers]
    notes = directory / "notes"
    with notes.open("w") as errors:
        process = subprocess.Popen(
            [*KRAFT, *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=PLAIN,
            text=True,
            preexec_fn=heed_interrupts,
        )
    try:
        eventually(lambda: "watching cluster" in notes.read_text())
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def test_changes_are_printed_as_they_are_committed(cluster: QuorumForTests, tmp_path: Path) -> None:
    with watching(cluster, tmp_path) as process:
        cluster.create_topic("watched", 2, 3)
        created, summary = next_line(process), next_line(process)
        cluster.delete_topic("watched")
        removed, _ = next_line(process), next_line(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert next_line(process) == ""
        notes = (tmp_path / "notes").read_text()
    assert created.startswith("+ topic watched: ")
    assert "(Topic at offset " in created
    assert summary.startswith("differences from offset ")
    assert summary.endswith(": 1 topic")
    assert removed.startswith("- topic watched: ")
    assert len(notes.splitlines()) == 1, notes


def test_each_change_is_a_json_object_a_line(cluster: QuorumForTests, tmp_path: Path) -> None:
    with watching(cluster, tmp_path, "--json") as process:
        cluster.create_topic("as-json", 2, 3)
        found = json.loads(next_line(process))
        cluster.delete_topic("as-json")
        then = json.loads(next_line(process))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert [each["key"] for each in found["differences"]] == ["as-json"]
    assert found["differences"][0]["cause"]["type"] == "Topic"
    assert found["fromOffset"] < found["offset"] <= then["fromOffset"] < then["offset"]
    # The same as the comparison of the controller's files at these offsets.
    directory = cluster.metadata_directory(1)
    offsets = ("--at-a", found["fromOffset"], "--at-b", found["offset"])
    said = commands.kraft("snapshot", "diff", directory, *offsets, "--json")
    assert json.loads(said.stdout)["differences"] == found["differences"]


def test_a_closed_pipe_ends_it_also_while_nothing_changes(
    cluster: QuorumForTests, tmp_path: Path
) -> None:
    with watching(cluster, tmp_path) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 141
        assert len((tmp_path / "notes").read_text().splitlines()) == 1


def test_open_prints_the_same_of_a_quorum_as_of_its_directory(cluster: QuorumForTests) -> None:
    at = ("--bootstrap-controller", cluster.bootstrap_controllers)
    said = commands.kraft("open", *at, "--json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    offset = found["offsets"]["asOf"]
    files = commands.kraft("open", cluster.metadata_directory(1), "--at", offset, "--json")
    expected = json.loads(files.stdout)
    files_only = {"path", "nodeId", "directoryId", "offsets", "records", "openedMs"}
    for name in expected.keys() - files_only:
        if name == "quorum":
            # Only a directory has the node's quorum-state file.
            expected["quorum"]["quorumState"] = None
        assert found[name] == expected[name], name
    counts = kraft.open_metadata(cluster.metadata_directory(1), at=offset).record_counts
    assert found["records"]["state"]["records"] == sum(counts.values())
    text = commands.kraft("open", *at).stdout
    assert f"BootstrapControllers  {cluster.bootstrap_controllers}" in text
    assert "State                 as of offset " in text


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("open",), "give either a path or --bootstrap-controller"),
        (("open", "x", "--bootstrap-controller", "localhost:1"), "give either a path or"),
        (("open", "--bootstrap-controller", "localhost:1", "--at", "5"), "need a path"),
        (("open", "x", "--command-config", "y"), "needs --bootstrap-controller"),
        (("open", "--bootstrap-controller", "localhost"), "the address of a controller"),
        (("snapshot", "diff"), "give a metadata directory, segment or snapshot, or --watch"),
        (("snapshot", "diff", "--watch"), "--watch needs --bootstrap-controller"),
        (("snapshot", "diff", "--bootstrap-controller", "localhost:1"), "need --watch"),
        (("snapshot", "diff", "x", "--watch", "--bootstrap-controller", "localhost:1"), "no files"),
        (("snapshot", "diff", "--watch", "--bootstrap-controller", "x"), "the address of a"),
    ],
)
def test_wrong_usage_is_named(words: tuple[str, ...], wanted: str) -> None:
    said = commands.kraft(*words)
    assert said.returncode == 2
    assert wanted in " ".join(said.stderr.replace("│", " ").split())
