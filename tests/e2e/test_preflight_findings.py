"""The findings of ``kraft preflight`` that need a fault, on running controllers.

Each test provokes several findings on one quorum, does literally what a finding says, and checks
that the finding is gone or the change works. Findings about registrations and releases:
``test_preflight.py``.
"""

from __future__ import annotations

import shlex
import shutil
import threading
from pathlib import Path
from subprocess import DEVNULL, run
from types import TracebackType
from typing import Self

import pytest

from kraft.admin import connect_blocking
from kraft.metadata.identifiers import random_uuid
from kraft.network.quorum_client import QuorumClient
from kraft.raft.rpc import FetchRequest, FetchResponse
from kraft.server.local_quorum import LocalQuorum
from kraft.testing.cluster import QuorumForTests
from tests.e2e.quorum_intruder import Intruder
from tests.harness.commands import PATIENCE_S, eventually, kraft, printed
from tests.harness.preflight import (
    addresses,
    await_rules,
    finding,
    own_controller,
    preflight,
    rules,
    type_kraft,
    until,
)
from tests.harness.small_disk import fill, small_disk

pytestmark = pytest.mark.nodes

#: A leader keeps its office for 1.5 times as long without a majority of fetches.
LONG_FETCH_TIMEOUT = {"controller.quorum.fetch.timeout.ms": "30000"}
LEVEL_4_0_IV0, LEVEL_4_0_IV1 = 22, 23


def config_of(cluster: QuorumForTests, id: int) -> Path:
    return cluster.metadata_directory(id).parent / "controller.properties"


def change_line(config: Path, name: str, value: str) -> None:
    """Set one property of a controller's file."""
    kept = [line for line in config.read_text().splitlines() if not line.startswith(f"{name}=")]
    config.write_text("\n".join([*kept, f"{name}={value}", ""]))


def with_file(command: str, config: Path) -> list[str]:
    """Return the words of a printed kraft command, with the reader's file in place of FILE."""
    program, *words = shlex.split(command)
    assert program == "kraft"
    return [str(config) if word == "FILE" else word for word in words]


# -- levels


def test_a_level_is_raised_together_with_the_one_it_depends_on(tmp_path: Path) -> None:
    node = own_controller(tmp_path, 1, "127.0.0.1:1")
    node.bootstrap = node.address
    node.write().format(str(random_uuid()), "--standalone", "-r", "4.0-IV0")
    node.start()
    try:
        at = ("--bootstrap-controller", node.address)
        words = ("upgrade", "--feature", "eligible.leader.replicas.version=1")
        until(("quorum", *at), "unregistered-voter", is_there=False)
        code, document = preflight(*words, *at)
        assert (code, rules(document)) == (
            4,
            {("dependency", "eligible.leader.replicas.version")},
        )
        refused = kraft("features", *words, *at)
        assert refused.returncode == 1
        added = finding(document, "dependency")["steps"][0]["text"]
        *_, option, level = added.rstrip(".").split()
        assert (option, level) == ("--feature", f"metadata.version={LEVEL_4_0_IV1}")
        code, document = preflight(*words, option, level, *at)
        assert (code, rules(document)) == (0, set())
        type_kraft(*document["steps"])
        with connect_blocking(node.address) as admin:
            finalized = admin.describe_features().finalized
        assert finalized["eligible.leader.replicas.version"] == 1
        assert finalized["metadata.version"] == LEVEL_4_0_IV1
        # Typed again, by mistake.
        code, document = preflight(*words, option, level, *at)
        assert code == 0
        subject = "eligible.leader.replicas.version, metadata.version"
        assert ("level-is-set", subject) in rules(document, "note")
        printed("features", *words, option, level, *at)
    finally:
        assert node.running is not None
        with node.running:
            pass


def test_a_level_at_which_controllers_serve_no_clients(tmp_path: Path) -> None:
    with LocalQuorum(tmp_path / "old", 1, is_static=True) as quorum:
        (node,) = quorum.nodes
        shutil.rmtree(node.config_path.parent / "data")
        printed(
            *("storage", "format", "-t", str(random_uuid()), "-c", node.config_path),
            *("-r", "3.6-IV2"),
        )
        quorum.start_node(node)
        words = ("upgrade", "--release-version", "3.7", "--bootstrap-controller", node.endpoint)
        # Until the controller listens, and leads.
        refused = eventually(
            lambda: kraft("preflight", *words),
            until=lambda ran: "metadata.version 3.6-IV2 is too old" in ran.stderr,
        )
        assert refused.returncode == 1
        assert "kraft features upgrade --release-version 3.7" in refused.stderr
        printed("features", *words)
        until(("quorum", *words[3:]), "unregistered-voter", is_there=False)


# -- voters


class LaggingReplica:
    """A replica that fetches all the time, and always from the same offset; a context manager."""

    def __init__(self, cluster: QuorumForTests, id: int) -> None:
        with QuorumClient(addresses(cluster.bootstrap_controllers)) as client:
            quorum = client.describe_quorum()
        (state,) = (each for each in quorum.voters if each.key.id == id)
        port = addresses(cluster.bootstrap_controllers)[quorum.leader_id - 1][1]
        self._connection = Intruder(port)
        self._request = FetchRequest(
            cluster.cluster_id, state.key, quorum.epoch, state.log_end_offset, quorum.epoch
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.errors: set[int] = set()

    def _run(self) -> None:
        while not self._is_over.wait(0.2):
            response = self._connection.ask(self._request)
            assert isinstance(response, FetchResponse)
            self.errors.add(response.error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        with self._connection:
            pass


@pytest.mark.kraft_cluster(controllers=3, settings=LONG_FETCH_TIMEOUT)
def test_a_voter_lags_and_a_change_of_the_voters_is_pending(
    kraft_cluster: QuorumForTests, tmp_path: Path
) -> None:
    """One voter lags; another gets a new disk while a majority of the new voters is silent."""
    bootstrap, cluster_id = kraft_cluster.bootstrap_controllers, kraft_cluster.cluster_id
    at = ("--bootstrap-controller", bootstrap)
    leader = kraft_cluster.wait_for_leader()
    slow, replaced = (id for id in kraft_cluster.controller_ids if id != leader)
    # Every voter has fetched the leader's records.
    eventually(lambda: preflight("quorum", *at)[0] == 0)
    kraft_cluster.kill(slow)
    with LaggingReplica(kraft_cluster, slow) as replica:
        lags = {("lagging-voter", f"controller {slow}")}
        code, document = await_rules(("quorum", *at), lags)
        assert code == 3
        assert replica.errors == {0}
        # The command of the finding shows the lag.
        described = printed(
            *shlex.split(finding(document, "lagging-voter")["steps"][1]["kraft"])[1:]
        )
        (row,) = (line.split() for line in described.splitlines() if line.split()[0] == str(slow))
        assert int(row[3]) > 0
    kraft_cluster.start(slow)
    assert await_rules(("quorum", *at), set())[0] == 0

    # The configuration of the voter itself, as if its disk were the new one.
    own = config_of(kraft_cluster, replaced)
    words: tuple[object, ...] = ("replace-controller", "-i", replaced, *at, "-c")
    code, document = preflight(*words, own)
    assert code == 4
    assert {rule for rule, _ in rules(document)} == {"same-directory"}
    assert "format the new one" in finding(document, "same-directory")["steps"][0]["text"]
    new = tmp_path / "new-disk.properties"
    new.write_text(own.read_text())
    change_line(new, "log.dirs", str(tmp_path / "new-disk"))
    printed("storage", "format", "-t", cluster_id, "-c", new, "--no-initial-controllers")
    code, document = preflight(*words, new)
    assert {rule for rule, _ in rules(document)} == {"replacement-not-running"}

    # It cannot replace another voter while the old directory is a voter.
    words = ("replace-controller", "-i", slow, *at, "-c", new)
    code, document = preflight(*words)
    assert code == 4
    assert {rule for rule, _ in rules(document, "blocks")} == {
        "duplicate-voter",
        "replacement-not-running",
    }
    (step,) = finding(document, "duplicate-voter")["steps"]
    # The new voters are the leader and one that is silent.
    kraft_cluster.pause(slow)
    removal = kraft(*with_file(step["kraft"], Path()))
    assert removal.returncode == 1
    assert "it may still be committed" in removal.stderr
    code, document = preflight("quorum", *at)
    assert code == 4
    pending = finding(document, "pending-change")
    assert f"{replaced}/" in pending["found"]
    type_kraft(*pending["steps"])
    kraft_cluster.resume(slow)
    until(("quorum", *at), "pending-change", is_there=False)
    eventually(
        lambda: {rule for rule, _ in rules(preflight(*words)[1], "blocks")},
        until=lambda found: found == {"replacement-not-running"},
    )

    # Then the change works.
    kraft_cluster.stop(replaced)
    shutil.copy(new, own)
    kraft_cluster.start(replaced)
    code, document = await_rules(words, {("keep-running", f"controller {slow}")})
    assert code == 3
    type_kraft(*document["steps"])
    kraft_cluster.stop(slow)
    code, document = await_rules(("quorum", *at), set())
    assert (code, document["voters"]) == (0, sorted([leader, replaced]))


@pytest.mark.kraft_cluster(controllers=2, settings={"controller.quorum.auto.join.enable": "true"})
def test_the_last_voter_is_replaced_after_one_that_would_join_again(
    kraft_cluster: QuorumForTests, tmp_path: Path
) -> None:
    bootstrap = kraft_cluster.bootstrap_controllers
    at = ("--bootstrap-controller", bootstrap)
    leader = kraft_cluster.wait_for_leader()
    (old,) = (id for id in kraft_cluster.controller_ids if id != leader)
    words = ("replace-controller", "-i", old, *at)
    subject = f"controller {old}"
    code, document = await_rules(words, {("keep-running", subject), ("auto-join", subject)})
    assert code == 3
    assert ("replacement-unknown", "replacement") in rules(document, "note")
    check = finding(document, "replacement-unknown")["steps"][0]["kraft"]
    words_of_check = with_file(check, Path())[:4]
    assert words_of_check == ["preflight", "replace-controller", "--controller-id", str(old)]
    removal = document["steps"][0]
    assert "remove-controller" in removal["kraft"]
    # What the finding warns of.
    type_kraft(removal)
    eventually(lambda: preflight("quorum", *at)[1]["voters"] == [1, 2])
    # What it says: without the setting, the controller stays out.
    assert (
        "controller.quorum.auto.join.enable=false"
        in (finding(document, "auto-join")["steps"][0]["text"])
    )
    kraft_cluster.stop(old)
    change_line(config_of(kraft_cluster, old), "controller.quorum.auto.join.enable", "false")
    kraft_cluster.start(old)
    until(("quorum", *at), "silent-voter", is_there=False)
    code, document = await_rules(words, {("keep-running", subject)})
    assert code == 3
    type_kraft(document["steps"][0])
    kraft_cluster.stop(old)
    code, document = await_rules(("quorum", *at), set())
    assert (code, document["voters"]) == (0, [leader])

    # One voter is left.
    code, document = preflight("replace-controller", "-i", leader, *at)
    assert code == 4
    assert {rule for rule, _ in rules(document, "blocks")} == {"last-voter"}
    new = own_controller(tmp_path, 4, bootstrap)
    new.format(kraft_cluster.cluster_id, "--no-initial-controllers")
    new.start()
    try:
        (step,) = finding(document, "last-voter")["steps"]
        _, *check = with_file(step["kraft"], new.file)
        code, document = await_rules(tuple(check), {("auto-join", f"controller {leader}")})
        assert code == 3
        type_kraft(*document["steps"])
        kraft_cluster.stop(leader)
        code, document = await_rules(("quorum", "--bootstrap-controller", new.address), set())
        assert (code, document["voters"]) == (0, [4])
    finally:
        assert new.running is not None
        with new.running:
            pass


def test_static_voters_with_another_listener(tmp_path: Path) -> None:
    """One voter has no listener of the leader's name; then the leader has not heard of it yet."""
    settings = {
        "controller.quorum.fetch.timeout.ms": "8000",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
    }
    with LocalQuorum(tmp_path / "static", 3, settings, is_static=True) as quorum:
        first, second, other = quorum.nodes
        named = other.config_path.read_text()
        other.config_path.write_text(
            named.replace("listener.names=CONTROLLER", "listener.names=INTERNAL").replace(
                "listeners=CONTROLLER", "listeners=INTERNAL"
            )
        )
        at = ("--bootstrap-controller", f"{first.endpoint},{second.endpoint}")
        quorum.start_node(first)
        quorum.start_node(second)
        status = ("quorum", "describe", "--status", *at)
        eventually(lambda: kraft(*status).returncode == 0)
        quorum.start_node(other)
        replacement = ("replace-controller", "-i", other.id, *at)
        code, document = await_rules(replacement, {("static-voters", "voters")}, "blocks")
        assert code == 4
        (step,) = finding(document, "static-voters")["steps"]
        words = ("dynamic-quorum", *at)
        assert shlex.split(step["kraft"]) == ["kraft", "preflight", *words]
        code, document = await_rules(words, {("listener", f"controller {other.id}")}, "blocks")
        assert code == 4
        rejected = kraft("features", "upgrade", "--feature", "kraft.version=1", *at)
        assert rejected.returncode == 1
        (step,) = finding(document, "listener")["steps"]
        assert "to begin with CONTROLLER" in step["text"]

        quorum.stop(other)
        other.config_path.write_text(named)
        quorum.start_node(other)
        # It passes as soon as the leader has heard of the voter.
        code, document = await_rules(words, {("controller-rejects", "kraft.version")}, "blocks")
        assert code == 4
        wait, _ = finding(document, "controller-rejects")["steps"]
        assert wait["text"].startswith("Wait some seconds, and check again")
        code, document = until(words, "controller-rejects", is_there=False)
        assert {rule for rule, _ in rules(document)} == {"bootstrap-servers"}
        type_kraft(*document["steps"])
        assert preflight(*words)[1]["features"]["kraft.version"] == 1


# -- a disk


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """The disk fills up, the controller ends at its next write, and starts once space is free."""
    with small_disk(tmp_path, 32) as disk:
        node = own_controller(tmp_path, 1, "127.0.0.1:1")
        node.bootstrap, node.program = node.address, disk.program
        # A record without content every 20 ms.
        node.settings = {
            "log.dirs": str(disk.at / "data"),
            "metadata.max.idle.interval.ms": "20",
        }
        node.write()
        format_it = ("storage", "format", "-t", str(random_uuid()), "-c", node.file, "--standalone")
        run([*disk.program, *format_it], check=True, stdout=DEVNULL)
        node.start()
        try:
            at = ("--bootstrap-controller", node.address)
            data = disk.from_outside / "data"
            words = ("quorum", *at, "--directory", data, "--min-free", 8)
            until(("quorum", *at), "unregistered-voter", is_there=False)
            assert preflight(*words)[0] == 0
            ballast = disk.from_outside / "ballast"
            fill(ballast, left_kib=4096)
            code, document = preflight(*words)
            assert (code, finding(document, "disk-full")["severity"]) == (3, "warning")
            fill(ballast, left_kib=512)
            code, document = preflight(*words)
            full = finding(document, "disk-full")
            assert (code, full["severity"], full["subject"]) == (4, "blocks", str(data))
            assert full["found"].startswith("0 MiB are free;")
            # "A controller that cannot write its log or a snapshot ends."
            fill(ballast, left_kib=0)
            assert node.running is not None
            with node.running:
                assert node.running.process.wait(PATIENCE_S) == 1
                assert "No space left on device" in node.running.text
            # "Free space on that disk, and check again."
            ballast.unlink()
            node.start()
            assert await_rules(words, set())[0] == 0
        finally:
            if node.running is not None:
                with node.running:
                    pass
