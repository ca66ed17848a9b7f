"""The metadata of a running quorum into a backup, and a new quorum from it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from kraft.metadata.diff import diff
from kraft.metadata.facade import open_metadata
from kraft.network.quorum_client import QuorumClient
from kraft.protocol.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequestData,
    AlterClientQuotasResponseData,
    QuotaEntity,
    QuotaEntry,
    QuotaOp,
)
from kraft.server.local_quorum import LOOPBACK
from tests.harness.commands import Foreground, eventually, heed_interrupts, kraft, printed
from tests.harness.nodes import Controller, Controllers

pytestmark = pytest.mark.nodes

USER = "user-{}"


class Changes:
    """Sets a quota of a new user again and again, until the block ends."""

    def __init__(self, quorum: Controllers) -> None:
        self._servers = [(LOOPBACK, node.port) for node in quorum.all]
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        #: The number of acknowledged changes.
        self.count = 0

    def _run(self) -> None:
        with QuorumClient(self._servers) as client:
            while not self._is_ended.is_set():
                entity = [QuotaEntity(entity_type="user", entity_name=USER.format(self.count))]
                ops = [QuotaOp(key="producer_byte_rate", value=float(self.count + 1))]
                answer = client.call(
                    ALTER_CLIENT_QUOTAS,
                    AlterClientQuotasRequestData(entries=[QuotaEntry(entity=entity, ops=ops)]),
                    AlterClientQuotasResponseData,
                    lambda response: response.entries[0].error_code,
                ).response
                assert answer.entries[0].error_code == 0
                self.count += 1

    def __enter__(self) -> Changes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended.set()
        self._thread.join()


def test_a_backup_under_changes_is_the_state_at_its_offset(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with Controllers(tmp_path, 3) as quorum:
        quorum.form(quorum.all)
        cluster_id = quorum.status()["ClusterId"]
        with Changes(quorum) as changes:
            eventually(lambda: changes.count > 50)
            before = changes.count
            manifest = json.loads(
                printed(
                    *("backup", "--bootstrap-controller", quorum.bootstrap),
                    *("--to", backup, "--json"),
                )
            )
            # A backup may be quicker than a change on a slow disk; none may end the changes.
            eventually(lambda: changes.count > before)
        for node in quorum.all:
            node.stop(signal.SIGTERM)
        assert manifest["clusterId"] == cluster_id
        saved = open_metadata(backup / manifest["snapshot"])
        for node in quorum.all:
            there = open_metadata(node.data, at=manifest["offset"])
            assert list(diff(there, saved)) == []
        assert len(saved.client_quotas) >= before

    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in backup.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    os.truncate(damaged / manifest["snapshot"], manifest["size"] - 1)
    ran = kraft("restore", damaged, "--to", tmp_path / "never", "-c", node.file)
    assert ran.returncode == 1
    assert f"and {manifest['size']:,} when the backup was made" in ran.stderr
    assert not (tmp_path / "never").exists()

    # The new quorum, on another port, as another cluster.
    (tmp_path / "new").mkdir()
    with Controllers(tmp_path / "new", 1) as quorum:
        (node,) = quorum.all
        said = printed(
            *("restore", backup, "--to", node.data, "-c", node.file),
            *("-t", "bmV3IG9uZSBmb3IgYSB0ZQ"),
        )
        assert "Not restored" in said
        node.start()
        status = quorum.status()
        assert status["ClusterId"] == "bmV3IG9uZSBmb3IgYSB0ZQ"
        assert status["LeaderId"] == 1
        assert status["LeaderEpoch"] > manifest["epoch"] + 1000
        again = tmp_path / "again"
        printed("backup", "--bootstrap-controller", quorum.bootstrap, "--to", again)
        restored = open_metadata(max(again.glob("*.checkpoint")))
        assert restored.client_quotas == saved.client_quotas
        assert restored.features == saved.features


def fill_disk() -> None:
    """For ``preexec_fn``: let no file grow beyond 512 bytes, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))


def test_an_interrupted_backup_and_a_full_disk_leave_nothing(tmp_path: Path) -> None:
    output = tmp_path / "stderr"
    with Controllers(tmp_path, 1) as quorum:
        quorum.form(quorum.all)
        parent = tmp_path / "backups"
        parent.mkdir()
        command = ["backup", "--bootstrap-controller", quorum.bootstrap, "--to"]
        times_s = []
        for _ in range(3):
            shutil.rmtree(parent / "whole", ignore_errors=True)
            started = time.monotonic()
            printed(*command, parent / "whole")
            times_s.append(time.monotonic() - started)
        # A standstill of the machine may have prolonged the others.
        took_s = min(times_s)

        with Foreground([*command, parent / "full"], output, preexec=fill_disk) as running:
            assert running.process.wait(60) == 1
            assert "File too large" in running.text
        assert [path.name for path in parent.iterdir()] == ["whole"]

        codes = []
        for step in range(8):
            target = parent / f"interrupted-{step}"
            with Foreground([*command, target], output, preexec=heed_interrupts) as running:
                time.sleep(took_s * (0.4 + step / 10))
                codes.append(running.end(signal.SIGINT))
            if target.exists():
                printed("restore", target)
            assert not list(parent.glob("*.part"))
        assert any(codes), "no backup was interrupted"


#: The command, killed just before its directory gets its name.
KILLED = """
import os, runpy, signal, sys

def kill(event, arguments):
    if event == "os.rename":
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
runpy.run_module("kraft", run_name="__main__")
"""


def test_after_a_killed_backup_the_same_command_works(tmp_path: Path) -> None:
    parent = tmp_path / "backups"
    parent.mkdir()
    with Controllers(tmp_path, 1) as quorum:
        quorum.form(quorum.all)
        target = parent / "nightly"
        command = ["backup", "--bootstrap-controller", quorum.bootstrap, "--to", target]
        for _ in range(2):
            killed = kraft(*command, program=(sys.executable, "-c", KILLED))
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            assert [path.name for path in parent.iterdir()] == ["nightly.part"]
        printed(*command)
        printed("restore", target)
        assert [path.name for path in parent.iterdir()] == ["nightly"]


@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
def test_a_restored_quorum_survives_a_wiped_disk_beside_a_crash(
    is_static: bool, tmp_path: Path
) -> None:
    """The two other controllers join; then one loses its disk while the other is killed."""
    backup = tmp_path / "backup"
    (tmp_path / "old").mkdir()
    with Controllers(tmp_path / "old", 1) as quorum:
        quorum.form(quorum.all)
        cluster_id = quorum.status()["ClusterId"]
        with Changes(quorum) as changes:
            eventually(lambda: changes.count > 50)
        printed("backup", "--bootstrap-controller", quorum.bootstrap, "--to", backup)

    (tmp_path / "new").mkdir()
    settings = {"metadata.log.max.record.bytes.between.snapshots": "5000"}
    with Controllers(tmp_path / "new", 3, settings) as quorum:
        first, crashed, wiped = quorum.all
        at = ("--bootstrap-controller", quorum.bootstrap)
        if is_static:
            voters = ",".join(f"{node.id}@{node.address}" for node in quorum.all)
            for node in quorum.all:
                node.settings = {**settings, "controller.quorum.voters": voters}
                node.write()

        def join(node: Controller) -> None:
            node.format(cluster_id, *([] if is_static else ["--no-initial-controllers"]))
            node.start()
            if not is_static:
                add = ("quorum", "add-controller", "-c", node.file, *at)
                # On a busy machine it may not catch up with the changes in time at once.
                eventually(lambda: kraft(*add), until=lambda ran: ran.returncode == 0)

        printed("restore", backup, "--to", first.data, "-c", first.file)
        if is_static:
            # Empty controllers must not be the majority: one of them could lead.
            first.launch()
            join(crashed)
            assert quorum.described().leader_id == first.id
        else:
            first.start()
            join(crashed)
        join(wiped)
        with Changes(quorum) as changes:
            eventually(lambda: changes.count > 100)
            lost = wiped.directory_id
            crashed.stop(signal.SIGKILL)
            wiped.stop(signal.SIGKILL)
            shutil.rmtree(wiped.data)
            crashed.start()
            if not is_static:
                printed("quorum", "remove-controller", "-i", wiped.id, "-d", lost, *at)
            join(wiped)
            before = changes.count
            eventually(lambda: changes.count > before + 100)
        end = quorum.described().high_watermark
        eventually(lambda: all(node.log_end >= end for node in quorum.all))
        for node in quorum.all:
            node.stop(signal.SIGTERM)
        printed("verify", *(node.data for node in quorum.all))
        states = [open_metadata(node.data, at=end) for node in quorum.all]
        for state in states:
            assert list(diff(states[0], state)) == []
            assert len(state.client_quotas) >= changes.count
        assert states[0].state.quorum.voter_ids == (() if is_static else (1, 2, 3))


def test_a_second_restore_and_the_restore_of_a_restored_quorum(tmp_path: Path) -> None:
    with Controllers(tmp_path, 1) as quorum:
        (node,) = quorum.all
        quorum.form(quorum.all)
        at = ("--bootstrap-controller", quorum.bootstrap)
        with Changes(quorum) as changes:
            eventually(lambda: changes.count > 20)
        printed("backup", *at, "--to", tmp_path / "first")
        node.stop(signal.SIGKILL)
        node.settings = {"log.dirs": str(tmp_path / "restored")}
        node.write()
        command = ("restore", tmp_path / "first", "--to", tmp_path / "restored", "-c", node.file)
        printed(*command)
        node.start()
        with Changes(quorum) as later:
            eventually(lambda: later.count > 20)

        ran = kraft(*command)
        assert ran.returncode == 1
        assert f"{tmp_path / 'restored'} already exists: name a new directory" in ran.stderr
        second = json.loads(printed("backup", *at, "--to", tmp_path / "second", "--json"))
        node.stop(signal.SIGKILL)
        assert kraft(*command).returncode == 1
        before = open_metadata(node.directory / "restored", at=second["offset"])

        node.settings = {"log.dirs": str(tmp_path / "again")}
        node.write()
        printed("restore", tmp_path / "second", "--to", tmp_path / "again", "-c", node.file)
        node.start()
        status = quorum.status()
        assert status["LeaderEpoch"] > second["epoch"] + 1000
        node.stop(signal.SIGTERM)
        after = open_metadata(tmp_path / "again")
        assert after.client_quotas == before.client_quotas
        assert len(after.client_quotas) >= max(changes.count, later.count)


def test_a_quorum_that_does_not_answer(tmp_path: Path) -> None:
    ran = kraft("backup", "--bootstrap-controller", "127.0.0.1:1", "--to", tmp_path / "backup")
    assert ran.returncode == 1
    assert "127.0.0.1:1" in ran.stderr
    assert not (tmp_path / "backup").exists()
