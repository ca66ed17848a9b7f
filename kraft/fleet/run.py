"""``FleetRunner``: carry out a scenario's steps with a fleet, and check what became of it.

Each step waits for its own end, and writes what it measured to the trace. After the last step the
conservation check compares every broker with the controllers: `Conservation` says what it found.

An error of the fleet (`FleetFaultError`) is told apart from a step that did not end in its time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kraft.admin import (
    BlockingAdmin,
    ConfigChange,
    ConfigResourceType,
    ElectionType,
    TopicSpec,
)
from kraft.admin.results import ItemResult
from kraft.admin.settings import AdminSettings
from kraft.admin.topics import TopicCreated
from kraft.errors import (
    ELECTION_NOT_NEEDED,
    TOPIC_ALREADY_EXISTS,
    InvalidRequestError,
    KraftError,
)
from kraft.fleet import scenario as steps
from kraft.fleet.fleet import CatchUp, Fleet, FleetTimeoutError, Loss
from kraft.fleet.own_cost import StepUse, step_use
from kraft.fleet.own_quorum import OwnQuorum
from kraft.fleet.partition_rules import table_digest
from kraft.fleet.scenario import FleetScenario, Step
from kraft.fleet.trace import FleetTrace
from kraft.fleet.worker import MARKER_SETTING, MARKER_TOPIC
from kraft.metadata.facade import Metadata
from kraft.metadata.quorum_reader import read_metadata
from kraft.network.quorum_client import QuorumClient
from kraft.raft.voters import Endpoint, ReplicaKey
from kraft.server.local_quorum import LISTENER, LOOPBACK

#: Kafka's controllers reject a request that writes more records (10,000).
_PARTITIONS_PER_REQUEST = 9000
_TOPICS_PER_DELETION = 100
_REASSIGNED_PER_REQUEST = 2000
_TOPIC_PREFIX = "kraft-fleet-"
_MARKER_TIMEOUT_S = 60.0
_SETTLE_TIMEOUT_S = 300.0
_POLL_S = 0.1
_DIGEST_ATTEMPTS = 20


@dataclass(slots=True)
class Conservation:
    """What the check after a scenario found; empty ``problems``: nothing is wrong."""

    offset: int = -1
    checked_brokers: int = 0
    partitions: int = 0
    problems: list[str] = field(default_factory=list)


class FleetRunner:
    """Runs the steps. ``on_step`` is called with each step before it begins.

    ``bytes_per_s`` is the rate of copying on this machine, None where it is not measured.
    """

    def __init__(
        self,
        fleet: Fleet,
        admin_settings: AdminSettings,
        trace: FleetTrace,
        partitions: int,
        seed: int,
        *,
        quorum: OwnQuorum | None = None,
        on_step: Callable[[Step], object] = lambda step: None,
        bytes_per_s: float | None = None,
    ) -> None:
        self._fleet = fleet
        self._settings = admin_settings
        self._admin = BlockingAdmin(admin_settings)
        self._trace = trace
        self._partitions = partitions
        self._random = random.Random(seed)
        self._quorum = quorum
        self._on_step = on_step
        self._bytes_per_s = bytes_per_s
        self._marker = 0
        self._lost: set[int] = set()
        #: The created topics with their numbers of partitions.
        self._topics: list[tuple[str, int]] = []
        self._has_marker_topic = False
        #: What the fleet itself used in each step so far.
        self.uses: list[StepUse] = []
        #: How brokers that start again got the log that they missed; None for others.
        self.catch_up: CatchUp | None = None

    def run(self, scenario: FleetScenario) -> Conservation:
        """Carry out all steps; return what the check after them found."""
        carry_out: dict[type[Step], Callable[[Any], None]] = {
            steps.Start: self._start,
            steps.CreateTopics: self._create_topics,
            steps.DeleteTopics: self._delete_topics,
            steps.Steady: self._steady,
            steps.Lose: self._lose,
            steps.ComeBack: self._come_back,
            steps.Flap: self._flap,
            steps.RollingRestart: self._rolling_restart,
            steps.Reassign: self._reassign,
            steps.ElectPreferred: self._elect_preferred,
            steps.IsrStorm: self._isr_storm,
            steps.SlowObservers: self._slow_observers,
            steps.KillController: self._kill_controller,
            steps.PauseController: self._pause_controller,
            steps.ReplaceController: self._replace_controller,
        }
        try:
            counts = self._fleet.counts(_MARKER_TIMEOUT_S)
            for step in scenario.steps:
                self._trace.step = step.name
                self._on_step(step)
                self._trace.event("step_started")
                begun_s = time.monotonic()
                carry_out[type(step)](step)
                self._trace.event("step_ended", value=time.monotonic() - begun_s)
                before, counts = counts, self._fleet.counts(_MARKER_TIMEOUT_S)
                self._note_use(step_use(step.name, before, counts))
            self._trace.step = "check"
            return self._check()
        finally:
            self._admin.close()

    def _note_use(self, use: StepUse) -> None:
        """Keep what the fleet used in a step, and write it to the trace."""
        self.uses.append(use)
        self._trace.event("own_delay", value=use.delay_ms)
        self._trace.event("own_delay_error", value=use.error_ms)
        self._trace.event("own_applying", value=use.applying_ms)
        if self._bytes_per_s is not None:
            self._trace.event("copy_floor", value=use.received_bytes / self._bytes_per_s * 1000)

    # -- brokers

    def _start(self, step: steps.Start) -> None:
        begun_s = time.monotonic()
        fleet, ids = self._fleet, self._fleet.settings.broker_ids

        def note(name: str) -> None:
            now = time.monotonic()
            self._trace.event(name, value=(now - begun_s) * 1000, at_s=now)

        caught_up = fleet.catch_up(step.timeout_s)
        if caught_up is not None:
            self.catch_up = caught_up
            note("caught_up")
        fleet.start(ids, step.spread_s, step.at_once, is_held=step.together)
        if step.together:
            self._await_caught_up(step.timeout_s)
            fleet.release(ids)
        self._await_unfenced(step.timeout_s)
        note("all_unfenced")
        if step.until_in_sync:
            self._await_in_sync(step.timeout_s)
            fleet.await_offset(self._committed_offset(), step.timeout_s)
            note("in_sync_everywhere")
        self._create_marker_topic()

    def _await_caught_up(self, timeout_s: float) -> None:
        """Wait until every broker has applied its own registration."""
        fleet = self._fleet
        wanted = fleet.settings.brokers - len(fleet.down)
        fleet.wait(
            lambda: len(fleet.caught_up) >= wanted,
            timeout_s,
            lambda: (
                f"{len(fleet.caught_up)} of {wanted} brokers have applied their registrations"
                f"{self._failures()}"
            ),
        )

    def _await_unfenced(self, timeout_s: float) -> None:
        fleet = self._fleet
        wanted = fleet.settings.brokers - len(fleet.down)
        fleet.wait(
            lambda: len(fleet.unfenced) >= wanted,
            timeout_s,
            lambda: f"{len(fleet.unfenced)} of {wanted} brokers are unfenced{self._failures()}",
        )

    def _failures(self) -> str:
        most = self._fleet.failures.most_common(3)
        return "; failed requests: " + ", ".join(f"{n} {name}" for name, n in most) if most else ""

    def _chosen(self, step: Any) -> list[int]:
        return self._fleet.settings.choose(
            rack=step.rack, region=step.region, brokers=step.brokers, random=self._random
        )

    def _lose(self, step: steps.Lose) -> None:
        ids, fleet = self._chosen(step), self._fleet
        if fleet.down | set(ids) >= set(fleet.settings.broker_ids):
            raise InvalidRequestError(
                f"step {step.name} would stop the last brokers: none is left to see what becomes "
                "of their partitions"
            )
        self._lost |= set(ids)
        self._await_loss(fleet.kill(ids), step.timeout_s)

    def _await_loss(self, loss: Loss, timeout_s: float) -> None:
        """Wait until other brokers lead, and every running broker has applied that."""
        self._fleet.wait(
            lambda: loss.is_over,
            timeout_s,
            lambda: (
                f"{len(loss.decided)} of {len(loss.watching)} processes have seen that no lost "
                f"broker leads, and in {len(loss.everywhere)} every broker has applied it"
            ),
        )
        decided, everywhere = min(loss.decided.values()), max(loss.everywhere.values())
        trace = self._trace
        trace.event("committed", value=loss.offset, at_s=decided)
        trace.event("decided", value=(decided - loss.begun_s) * 1000, at_s=decided)
        trace.event("applied_everywhere", value=(everywhere - loss.begun_s) * 1000, at_s=everywhere)

    def _come_back(self, step: steps.ComeBack) -> None:
        self._fleet.start(self._lost, step.spread_s)
        self._lost.clear()
        self._await_unfenced(step.timeout_s)
        self._await_in_sync(step.timeout_s)

    def _await_in_sync(self, timeout_s: float) -> None:
        """Wait until every replica of the committed metadata is in sync."""
        deadline = time.monotonic() + timeout_s
        while behind := self._fleet.rows_out_of_sync(timeout_s):
            if time.monotonic() > deadline:
                raise FleetTimeoutError(
                    f"after {timeout_s:g} s {behind} partitions have replicas out of sync"
                )
            self._fleet.pause(_POLL_S)

    def _flap(self, step: steps.Flap) -> None:
        ids = self._chosen(step)
        for _ in range(step.times):
            self._fleet.kill(ids)
            self._fleet.pause(step.down_s)
            self._fleet.start(ids, 0.0)
            self._fleet.pause(step.up_s)
        self._await_unfenced(_SETTLE_TIMEOUT_S)

    def _rolling_restart(self, step: steps.RollingRestart) -> None:
        fleet, ids = self._fleet, self._chosen(step)
        for at in range(0, len(ids), step.at_once):
            group = set(ids[at : at + step.at_once])
            fleet.stop(group)
            fleet.wait(
                lambda group=group: group <= fleet.down,  # type: ignore[misc]
                step.timeout_s,
                lambda group=group: (  # type: ignore[misc]
                    f"{len(group - fleet.down)} of {len(group)} stopping brokers may not stop yet"
                ),
            )
            fleet.start(group, 0.0)
            self._await_unfenced(step.timeout_s)
            # An operator restarts no broker before all replicas are in sync again.
            self._await_in_sync(step.timeout_s)

    def _isr_storm(self, step: steps.IsrStorm) -> None:
        ids = self._chosen(step)
        self._fleet.set_lagging(ids, is_lagging=True)
        self._fleet.pause(self._fleet.settings.lag_ms / 1000 + step.seconds)
        self._fleet.set_lagging(ids, is_lagging=False)
        self._await_in_sync(step.timeout_s)

    def _slow_observers(self, step: steps.SlowObservers) -> None:
        ids = self._chosen(step)
        self._fleet.set_fetch_delay(ids, step.delay_ms)
        self._mark()
        self._fleet.pause(step.seconds)
        self._fleet.set_fetch_delay(ids, 0.0)

    # -- topics

    def _replication(self, wanted: int) -> int:
        return min(wanted, self._fleet.settings.brokers)

    def _create_topics(self, step: steps.CreateTopics) -> None:
        wanted = step.partitions or self._partitions
        have = sum(count for _, count in self._topics)
        batch: list[TopicSpec] = []
        begun, created = time.monotonic(), 0
        while have < wanted:
            count = min(step.partitions_per_topic, wanted - have)
            name = f"{_TOPIC_PREFIX}{self._random.getrandbits(64):016x}"
            batch.append(TopicSpec(name, count, self._replication(step.replication_factor)))
            self._topics.append((name, count))
            have, created = have + count, created + 1
            pending = sum(topic.num_partitions for topic in batch) + len(batch)
            is_full = pending + step.partitions_per_topic + 1 > _PARTITIONS_PER_REQUEST
            if is_full or step.per_second or have >= wanted:
                check_created(self._admin.create_topics(batch))
                batch = []
            if step.per_second:
                self._fleet.pause(max(0.0, begun + created / step.per_second - time.monotonic()))
        self._await_committed()

    def _await_committed(self) -> None:
        """Wait until every broker in service has applied what is committed now."""
        self._fleet.await_offset(self._committed_offset(), _SETTLE_TIMEOUT_S)

    def _committed_offset(self) -> int:
        """Return the end of what the controllers have committed."""
        with self._client() as client:
            return client.describe_quorum().high_watermark

    def _delete_topics(self, step: steps.DeleteTopics) -> None:
        count = round(len(self._topics) * step.share)
        names = [name for name, _ in self._topics[len(self._topics) - count :]]
        del self._topics[len(self._topics) - count :]
        at_once = 1 if step.per_second else _TOPICS_PER_DELETION
        begun = time.monotonic()
        for at in range(0, len(names), at_once):
            self._admin.delete_topics(names[at : at + at_once]).all()
            if step.per_second:
                self._fleet.pause(max(0.0, begun + (at + 1) / step.per_second - time.monotonic()))
        self._await_committed()

    def _elect_preferred(self, step: steps.ElectPreferred) -> None:
        timeout_ms = int(step.timeout_s * 1000)
        settings = replace(
            self._settings, request_timeout_ms=timeout_ms, default_api_timeout_ms=timeout_ms
        )
        every = [(name, number) for name, count in self._topics for number in range(count)]
        with BlockingAdmin(settings) as admin:
            # Kafka's controllers reject one election of all partitions that writes more records.
            for at in range(0, len(every), _PARTITIONS_PER_REQUEST):
                part = every[at : at + _PARTITIONS_PER_REQUEST]
                results = admin.elect_leaders(ElectionType.PREFERRED, part)
                for partition, result in results.items():
                    if result.error is None or result.error.kafka_code == ELECTION_NOT_NEEDED:
                        continue
                    raise KraftError(
                        f"electing the preferred leader of {partition}: {result.error}"
                    )
        self._await_committed()

    def _reassign(self, step: steps.Reassign) -> None:
        """Replace the last replica of partitions by a broker that has none of it."""
        metadata = self._read_metadata()
        running = sorted(self._fleet.unfenced)
        moves: dict[tuple[str, int], list[int]] = {}
        for name, _ in self._topics:
            rows = metadata.topics[name].rows[: step.partitions - len(moves)]
            for each in metadata.partitions.rows(rows):
                others = [id for id in running if id not in each.replicas]
                if others:
                    kept = each.replicas[:-1]
                    moves[name, each.partition] = [*kept, self._random.choice(others)]
        if not moves:
            raise InvalidRequestError(
                f"step {step.name} can move no replica: the run has no topics yet, or every "
                f"running broker has a replica of each partition"
            )
        items = list(moves.items())
        for at in range(0, len(items), _REASSIGNED_PER_REQUEST):
            part = dict(items[at : at + _REASSIGNED_PER_REQUEST])
            self._admin.alter_partition_reassignments(part).all()
        deadline = time.monotonic() + step.timeout_s
        while left := self._admin.list_partition_reassignments():
            if time.monotonic() > deadline:
                raise FleetTimeoutError(
                    f"after {step.timeout_s:g} s {len(left)} reassignments are not complete"
                )
            self._fleet.pause(_POLL_S)

    def _client(self) -> QuorumClient:
        settings = self._settings
        return QuorumClient(settings.bootstrap_controllers, security=settings.security)

    def _read_metadata(self) -> Metadata:
        with self._client() as client:
            return read_metadata(client)

    # -- markers

    def _create_marker_topic(self) -> None:
        if self._has_marker_topic:
            return
        topic = TopicSpec(MARKER_TOPIC, 1, self._replication(3))
        for result in self._admin.create_topics([topic]).values():
            if result.error is not None and result.error.kafka_code != TOPIC_ALREADY_EXISTS:
                raise result.error
        self._has_marker_topic = True

    def _write_marker(self, admin: BlockingAdmin | None = None) -> None:
        """Change the marker topic; return once the controller has committed that."""
        self._marker += 1
        change = ConfigChange(MARKER_SETTING, str(self._marker))
        resource = (ConfigResourceType.TOPIC, MARKER_TOPIC)
        (admin or self._admin).incremental_alter_configs({resource: [change]}).all()

    def _mark(self) -> None:
        """Time how long the commit of one change takes to every broker.

        The commit is as old as its earliest sign: the response, or the first broker that has it.
        """
        self._fleet.expect_marker(self._marker + 1, _MARKER_TIMEOUT_S)
        self._write_marker()
        answered_s = time.monotonic()
        arrived = self._fleet.marker_arrivals(self._marker, _MARKER_TIMEOUT_S)
        committed_s = min([answered_s, *(at_s for _, at_s in arrived)])
        for broker, at_s in arrived:
            value = (at_s - committed_s) * 1000
            self._trace.event("applied", broker=broker, value=value, at_s=at_s)

    def _steady(self, step: steps.Steady) -> None:
        begun = time.monotonic()
        for number in range(step.markers):
            due = begun + step.seconds * number / step.markers
            self._fleet.pause(max(0.0, due - time.monotonic()))
            self._mark()
        self._fleet.pause(max(0.0, begun + step.seconds - time.monotonic()))

    # -- controllers

    def _own_quorum(self) -> OwnQuorum:
        if self._quorum is None:
            raise KraftError(
                "a step of this scenario stops a controller: only a run that starts its own "
                "quorum may do so (kraft lab fleet)"
            )
        return self._quorum

    def _await_first_write(self, fault_s: float, timeout_s: float) -> None:
        """Write until a controller accepts it; the controllers elect another leader meanwhile."""
        deadline = time.monotonic() + timeout_s
        while True:
            with suppress(KraftError), BlockingAdmin(self._settings) as admin:
                self._write_marker(admin)
                break
            if time.monotonic() > deadline:
                raise FleetTimeoutError(f"no write was accepted within {timeout_s:g} s")
            self._fleet.pause(_POLL_S)
        now = time.monotonic()
        self._trace.event("first_write", value=(now - fault_s) * 1000, at_s=now)

    def _kill_controller(self, step: steps.KillController) -> None:
        quorum = self._own_quorum()
        node = quorum.active()
        fault_s = time.monotonic()
        quorum.kill(node)
        try:
            self._await_first_write(fault_s, step.timeout_s)
        finally:
            quorum.start_node(node)
        self._await_unfenced(step.timeout_s)

    def _pause_controller(self, step: steps.PauseController) -> None:
        quorum = self._own_quorum()
        node = quorum.active()
        fault_s = time.monotonic()
        quorum.pause(node)
        try:
            self._await_first_write(fault_s, step.timeout_s)
            self._fleet.pause(max(0.0, fault_s + step.seconds - time.monotonic()))
        finally:
            quorum.resume(node)
        self._await_unfenced(step.timeout_s)

    def _replace_controller(self, step: steps.ReplaceController) -> None:
        quorum = self._own_quorum()
        active = quorum.active()
        node = next(each for each in quorum.nodes if each is not active)
        with self._client() as client:
            voters = client.describe_quorum().voters
            cluster_id = client.describe_cluster().cluster_id
        quorum.kill(node)
        self._admin.remove_raft_voter(next(each.key for each in voters if each.key.id == node.id))
        quorum.empty(node, cluster_id)
        quorum.start_node(node)
        joined = self._await_observer(node.id, step.timeout_s)
        self._admin.add_raft_voter(joined, [Endpoint(LISTENER, LOOPBACK, node.port)])

    def _await_observer(self, id: int, timeout_s: float) -> ReplicaKey:
        """Wait until a controller has fetched the log as an observer; return its key."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._client() as client:
                described = client.describe_quorum()
            for each in described.observers:
                if each.key.id == id and each.log_end_offset >= described.high_watermark > 0:
                    return each.key
            if time.monotonic() > deadline:
                raise FleetTimeoutError(
                    f"controller {id} has not fetched the log within {timeout_s:g} s"
                )
            self._fleet.pause(_POLL_S)

    # -- the check

    def _check(self) -> Conservation:
        """Compare the table of each process with the controllers', and each broker's offset."""
        found = Conservation()
        for attempt in range(_DIGEST_ATTEMPTS):
            metadata = self._read_metadata()
            expected, offset = table_digest(metadata.cluster.table), metadata.next_offset
            digests = self._fleet.digests(_MARKER_TIMEOUT_S)
            behind = [
                id
                for each in digests.values()
                for id, applied in each["applied"]
                if applied < offset
            ]
            found = Conservation(
                offset,
                sum(len(each["applied"]) for each in digests.values()),
                len(metadata.partitions),
            )
            for number, each in sorted(digests.items()):
                if each["value"] != expected:
                    found.problems.append(
                        f"process {number} has another table at offset {each['offset']} than the "
                        f"controllers at {offset}"
                    )
            if behind:
                found.problems.append(
                    f"{len(behind)} brokers have not applied offset {offset}, such as {behind[0]}"
                )
            waiting = [id for each in digests.values() for id in each["waiting"]]
            if waiting:
                found.problems.append(
                    f"{len(waiting)} brokers run and are not in service, such as {waiting[0]}"
                )
            if not found.problems:
                break
            # Records that were committed between the two readings differ; try again at rest.
            self._fleet.pause(_POLL_S * (attempt + 1))
        found.problems += breach_problems(digests.values())
        return found


def check_created(results: Mapping[str, ItemResult[TopicCreated]]) -> None:
    """Raise the error of a topic that was not created.

    A topic exists already where a controller ended after it had created it: the client had no
    response, and asked the next controller again.
    """
    for result in results.values():
        error = result.error
        if error is None or (result.is_repeated and error.kafka_code == TOPIC_ALREADY_EXISTS):
            continue
        raise error


def breach_problems(digests: Collection[Mapping[str, Any]]) -> list[str]:
    """Return the rules that partitions broke, each once, by the replies of the processes."""
    shown = dict.fromkeys(text for each in digests for text in each["breaches"])
    problems = [f"a partition broke a rule: {text}" for text in shown]
    most = max((each["breach_count"] for each in digests), default=0)
    if most > len(shown):
        problems.append(f"partitions broke rules {most} times in all")
    return problems
