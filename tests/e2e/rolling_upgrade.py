"""A rolling upgrade and downgrade of a running quorum between two versions of kraft.

``python -m tests.e2e.rolling_upgrade --from COMMIT [--rounds 2] [--seed N] [--work DIR]``
(``make upgrade FROM=COMMIT``). The older version is built from a commit of this repository
(`built_version`). It formats three controllers, on which light brokers are registered and clients
change topics and configurations (`admin_load`). Each round restarts node by node in the present
version, and then node by node in the older one, first with SIGTERM, in the next round with SIGKILL.
In every mixture of versions, nodes of both lead. The checks:

- all acknowledged operations are there: the history is linearizable and ends with the state of all
  nodes, which is the same;
- no broker was fenced, and none registered again;
- each version reads the snapshots and column checkpoints that the other one writes.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kraft._core.bytes.batch_records import iterate
from kraft._core.log.log import Log
from kraft.metadata.identifiers import random_uuid
from kraft.records import BrokerRegistrationChange, RegisterBroker, decode_value
from kraft.server.local_quorum import LOOPBACK
from tests.e2e.admin_chaos import PROGRESS_TIMEOUT_S, AdminChaos, failover_lines
from tests.e2e.admin_load import REPLICATION_FACTOR
from tests.e2e.built_version import PRESENT, BuiltVersion, build
from tests.e2e.proxied_quorum import ProxiedQuorum
from tests.harness.nodes import Controller

NODES = 3
#: More than one where the clients write nothing while a voter is paused.
_MOST_MOVES = 20
#: For so long a voter is paused while the clients write.
_BEHIND_S = 0.2
_LOOK_EVERY_S = 0.02
_FENCED = 1


class VersionedQuorum(ProxiedQuorum):
    """Controllers that ``version`` formats and starts; ``format_options`` are the command's."""

    def __init__(self, directory: Path, version: BuiltVersion, *format_options: str) -> None:
        self._version = version
        self._format_options = format_options
        super().__init__(directory, NODES)
        for node in self.nodes.values():
            # Several snapshots of each version.
            small = {"metadata.log.max.record.bytes.between.snapshots": "20000"}
            node.settings = {**node.settings, **small}
            node.write()

    def _format(self, ports: Mapping[int, int]) -> None:
        voters = ",".join(f"{id}@{LOOPBACK}:{port}:{random_uuid()!s}" for id, port in ports.items())
        for node in self.nodes.values():
            node.program = self._version.program
            self._version.run(
                *("storage", "format", "-t", self.cluster_id, "-c", node.file),
                *("--initial-controllers", voters, *self._format_options),
            )


class RollingUpgrade(AdminChaos):
    """One run; every node runs one of the two versions."""

    def __init__(
        self,
        quorum: VersionedQuorum,
        older: BuiltVersion,
        newer: BuiltVersion,
        seed: int,
        report: Callable[[str], None],
    ) -> None:
        super().__init__(quorum, seed, report)
        self.versions = dict.fromkeys(quorum.nodes, older)
        self.older, self.newer = older, newer
        #: How often a node of a version led while another node ran the other version.
        self.mixed_leaders: dict[str, int] = {older.name: 0, newer.name: 0}
        self.checked_columns = 0
        #: Whether nodes of both versions lead in every mixture, or only while one node has moved.
        self.is_thorough = True

    def upgrade_and_downgrade(self, rounds: int) -> None:
        """Run ``rounds`` upgrades, each with its downgrade."""
        self.quorum.await_brokers(PROGRESS_TIMEOUT_S)
        self._begin_round()
        for number in range(rounds):
            end = (signal.SIGTERM, signal.SIGKILL)[number % 2]
            for version in (self.newer, self.older):
                self.move_all(version, end)
                self._end_round()
                self._check_brokers()
                self._check_columns(version, self._other(version))
                self.report(
                    f"round {number + 1}: all nodes run {version.name} (by {end.name}); "
                    f"{self.history.acknowledged} acknowledged, all there; {self.operations} "
                    "operations in linearizable histories"
                )
                self._begin_round()
        self._end_round()
        self._stop_all()

    def move_all(self, version: BuiltVersion, end: signal.Signals = signal.SIGTERM) -> None:
        """Restart all nodes in ``version``, one after the other: the followers first."""
        remaining = set(self.quorum.nodes)
        while remaining:
            leader = self.leader().id
            id = self.draw.choice(sorted(remaining - {leader}) or [leader])
            self._restart(self.quorum.nodes[id], version, end)
            remaining.discard(id)
            if len(remaining) == NODES - 1 or (remaining and self.is_thorough):
                for one in (version, self._other(version)):
                    self._let_lead(one)
                    self.mixed_leaders[one.name] += 1

    def _restart(self, node: Controller, version: BuiltVersion, end: signal.Signals) -> None:
        """Restart one node, and wait until it has everything that is committed."""
        name = "a leader's restart" if node is self.leader() else "a follower's restart"
        begin = time.monotonic()
        self._begin_measuring()
        self._stop(node, end)
        node.program, self.versions[node.id] = version.program, version
        node.launch()
        node.await_port()
        self._measure(name, begin)
        assert node.running is not None
        assert version.runs_in(node.running.process.pid), f"node {node.id} is not {version.name}"
        self._await_caught_up()

    def _stop(self, node: Controller, end: signal.Signals) -> None:
        code = node.stop(end)
        allowed = 0 if end is signal.SIGTERM else -signal.SIGKILL
        assert code == allowed, f"{end.name} ended node {node.id} with exit code {code}"

    def _let_lead(self, version: BuiltVersion) -> None:
        """Stop leaders until a node of this version leads, and wait until it accepts a write.

        A leader that stops names the voters with the longest logs as the next ones, and of two
        with the same log always the same: the nodes of the other version have to stay behind.
        """
        for _ in range(_MOST_MOVES):
            leader = self.leader()
            if self.versions[leader.id] is version:
                self._begin_measuring()
                self._await_write()
                return
            others = [
                node.running.process
                for node in self.quorum.nodes.values()
                if node.running is not None
                and node is not leader
                and self.versions[node.id] is not version
            ]
            for process in others:
                process.send_signal(signal.SIGSTOP)
            try:
                time.sleep(_BEHIND_S)
                self._stop(leader, signal.SIGTERM)
            finally:
                for process in others:
                    process.send_signal(signal.SIGCONT)
            leader.launch()
            leader.await_port()
            self._await_caught_up()
        raise AssertionError(f"{_MOST_MOVES} leaders, and none of {version.name}")

    def _await_caught_up(self) -> None:
        """Wait until every voter has what is committed now."""
        committed = self.quorum.described().high_watermark
        give_up = time.monotonic() + PROGRESS_TIMEOUT_S
        while True:
            self._check()
            said = self.quorum.described()
            # A leader knows of nothing committed until a record of its epoch is.
            committed = committed if committed > 0 else said.high_watermark
            ends = [voter.log_end_offset for voter in said.voters]
            if len(ends) == len(self.quorum.nodes) and min(ends) >= committed > 0:
                return
            assert time.monotonic() < give_up, f"a voter stays behind {committed}: {said}"
            time.sleep(_LOOK_EVERY_S)

    def _other(self, version: BuiltVersion) -> BuiltVersion:
        return self.older if version is self.newer else self.newer

    # -- checks at the end of a round, while no client sends requests

    def _check_brokers(self) -> None:
        """No broker was fenced after its first heartbeat, and none registered a second time."""
        assert self.quorum.brokers.unfenced_count == REPLICATION_FACTOR, self.quorum.brokers.failure
        registered, fenced = broker_events(self.quorum.controllers.all[0].metadata_log)
        assert registered <= REPLICATION_FACTOR, f"{registered} registrations of brokers"
        assert not fenced, f"fenced while controllers were restarted: {fenced}"

    def _check_columns(self, writer: BuiltVersion, reader: BuiltVersion) -> None:
        """A snapshot with columns of one version is the same state for the other."""
        directory = Path(tempfile.mkdtemp(dir=self.quorum.controllers.all[0].directory))
        log = self.quorum.controllers.all[0].metadata_log
        said = json.loads(
            writer.run("snapshot", "write", "--from", log, "--to", directory, "--json")
        )
        (verified,) = json.loads(reader.run("snapshot", "verify", directory, "--json"))
        assert (verified["result"], verified["columns"]) == ("ok", "ok"), verified
        snapshot = said["files"][0]["path"]
        reader.run("snapshot", "diff", snapshot, log, "--at-b", said["endOffset"], "--json")
        self.checked_columns += 1


def broker_events(metadata_log: Path) -> tuple[int, list[int]]:
    """Return the number of registrations in a log, and the brokers that were fenced in it."""
    registered, fenced = 0, []
    with Log.open(metadata_log, read_only=True) as log:
        for segment in log.segments:
            if not segment.size:
                continue
            for batch in iterate(log.fetch(segment.base_offset, 1 << 40)):
                for record in batch:
                    if record.is_control or record.value is None:
                        continue
                    change = decode_value(record.value)
                    if isinstance(change, RegisterBroker):
                        registered += 1
                    elif isinstance(change, BrokerRegistrationChange) and change.fenced == _FENCED:
                        fenced.append(change.broker_id)
    return registered, fenced


def run(
    directory: Path,
    older: BuiltVersion,
    newer: BuiltVersion,
    *,
    rounds: int,
    seed: int,
    report: Callable[[str], None],
) -> RollingUpgrade:
    """Raises AssertionError for a failed check; the directory then has all files."""
    report(f"seed {seed}, {NODES} nodes, {rounds} rounds between {older.name} and {newer.name}")
    with VersionedQuorum(directory, older) as quorum:
        upgrade = RollingUpgrade(quorum, older, newer, seed, report)
        try:
            upgrade.upgrade_and_downgrade(rounds)
        finally:
            for client in upgrade.clients:
                client.stop()
    return upgrade


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--from", dest="older", required=True, metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "kraft-versions")
    given = parser.parse_args()
    begin = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - begin:8.1f} s  {line}", flush=True)

    older = build(given.older, given.work, report)
    # After a failed check the directory is kept.
    directory = Path(tempfile.mkdtemp(prefix="rolling-upgrade-"))
    report(f"in {directory}")
    upgrade = run(directory, older, PRESENT, rounds=given.rounds, seed=given.seed, report=report)
    shutil.rmtree(directory)
    for line in failover_lines(upgrade.failovers):
        report(line)
    history = upgrade.history
    report(
        f"0 of {history.acknowledged} acknowledged writes lost; {upgrade.operations} operations, "
        f"{history.without_response} of them attempts without a response; leaders among both "
        f"versions: {upgrade.mixed_leaders}; {upgrade.checked_columns} column checkpoints read by "
        "the other version"
    )


if __name__ == "__main__":
    sys.exit(main())
