"""``compare``: the script in every mode at every size, and what the runs show together.

Checks the request before anything starts. A run's failure or time limit ends that run only; the
larger sizes of a mode whose run timed out are not tried.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraft.errors import InvalidConfigError, InvalidRequestError, StorageError
from kraft.fleet.limits import FleetNeeds, check_limits, heap_bytes
from kraft.fleet.own_quorum import KafkaQuorum, OwnQuorum, kafka_jars, kafka_java
from kraft.fleet.trace import machine_info
from kraft.generations.candidates import KafkaCandidate, OwnCandidate
from kraft.generations.curves import Curve, curves_of
from kraft.generations.measures import Deadline, Outcome, RunResult
from kraft.generations.modes import Mode, Store
from kraft.generations.quorum_cluster import QuorumCluster
from kraft.generations.script import GenerationCluster, run_script
from kraft.generations.zk_cluster import FIRST_CANDIDATE_ID, ZkCluster
from kraft.java import find_java
from kraft.zookeeper.server import DEFAULT_TICK_MS, zookeeper_jars
from kraft.zookeeper.settings import ZkEra

_CONTROLLERS = 3
_CANDIDATES = 2
#: Brokers that lead, shut down and crash must be different, and one must be left.
_FEWEST_BROKERS = 3
#: Below the ids of candidates.
_MOST_BROKERS = 500
#: Leaders move only where the script moves them.
_QUORUM_SETTINGS = {"auto.leader.rebalance.enable": "false"}


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """What to compare. ``homes``: release of Apache Kafka -> its directory.

    ``out`` is a new or empty directory; None: no files are kept.
    """

    modes: tuple[Mode, ...]
    sizes: tuple[int, ...]
    brokers: int = 10
    replication_factor: int = 3
    partitions_per_topic: int = 1000
    time_limit_s: float = 600.0
    session_timeout_ms: int = 6000
    heap: str = "2g"
    seed: int = 0
    homes: Mapping[str, Path] = field(default_factory=dict)
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """The runs, and the curves through them."""

    run: str
    request: ComparisonRequest
    runs: tuple[RunResult, ...]
    curves: tuple[Curve, ...]
    machine: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document of ``kraft lab compare --json``."""
        request = self.request
        return {
            "run": self.run,
            "brokers": request.brokers,
            "replicationFactor": request.replication_factor,
            "partitionsPerTopic": request.partitions_per_topic,
            "sessionTimeoutMs": request.session_timeout_ms,
            "timeLimitSeconds": request.time_limit_s,
            "machine": dict(self.machine),
            "runs": [run.as_dict() for run in self.runs],
            "curves": [curve.as_dict() for curve in self.curves],
        }


def compare(
    request: ComparisonRequest,
    on_step: Callable[[RunResult, str], object] = lambda run, step: None,
    on_run: Callable[[RunResult], object] = lambda run: None,
) -> ComparisonReport:
    """Run the script in every mode at every size; return what was measured.

    ``on_step`` is called with the run and the name of each step that begins, ``on_run`` with each
    run that has ended. Raises InvalidRequestError, InvalidConfigError, MissingJavaError and
    MissingPackageError before anything starts.
    """
    check_request(request)
    runs: list[RunResult] = []
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="kraft-compare-"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        for mode in request.modes:
            too_long: int | None = None
            for size in request.sizes:
                result = RunResult(mode.name, size)
                if size > mode.largest:
                    result.outcome = Outcome.SKIPPED
                    result.reason = f"this mode is measured up to {mode.largest:,} partitions"
                elif too_long is not None:
                    result.outcome = Outcome.SKIPPED
                    result.reason = f"{too_long:,} partitions took longer than the time limit"
                else:
                    _run(request, mode, result, home / f"{mode.name}-{size}", on_step)
                    if result.outcome is Outcome.TIMED_OUT:
                        too_long = size
                runs.append(result)
                on_run(result)
    return report_of(request, runs)


def report_of(request: ComparisonRequest, runs: Sequence[RunResult]) -> ComparisonReport:
    """Return the report of these runs, of a comparison that was interrupted too."""
    return ComparisonReport(
        secrets.token_hex(6), request, tuple(runs), tuple(curves_of(runs, request.brokers)),
        machine_info(),
    )  # fmt: skip


def _run(
    request: ComparisonRequest,
    mode: Mode,
    result: RunResult,
    home: Path,
    on_step: Callable[[RunResult, str], object],
) -> None:
    home.mkdir()
    try:
        with ExitStack() as stack:
            cluster = _cluster(request, mode, home, stack)
            deadline = Deadline(request.time_limit_s)
            run_script(cluster, result, deadline, lambda step: on_step(result, step))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _cluster(
    request: ComparisonRequest, mode: Mode, home: Path, stack: ExitStack
) -> GenerationCluster:
    if mode.store is Store.QUORUM:
        directory = home / "quorum"
        quorum = (
            KafkaQuorum(
                directory,
                _CONTROLLERS,
                _QUORUM_SETTINGS,
                home=_home_of(request, mode),
                heap=request.heap,
            )
            if mode.release
            else OwnQuorum(directory, _CONTROLLERS, _QUORUM_SETTINGS)
        )
        return stack.enter_context(
            QuorumCluster(
                home,
                request.brokers,
                quorum,
                replication_factor=request.replication_factor,
                partitions_per_topic=request.partitions_per_topic,
                seed=request.seed,
            )
        )

    ids = range(FIRST_CANDIDATE_ID, FIRST_CANDIDATE_ID + _CANDIDATES)

    def candidates(address: str, directory: Path) -> list[OwnCandidate] | list[KafkaCandidate]:
        if not mode.release:
            return [
                OwnCandidate(
                    id,
                    directory,
                    address,
                    request.session_timeout_ms,
                    era=mode.era,
                    pipelines=mode.pipelines,
                )
                for id in ids
            ]
        jars, _ = kafka_jars(_home_of(request, mode))
        return [
            KafkaCandidate(
                id,
                directory,
                address,
                request.session_timeout_ms,
                jars=jars,
                heap=request.heap,
                settings=mode.settings or {},
            )
            for id in ids
        ]

    return stack.enter_context(
        ZkCluster(
            home,
            request.brokers,
            candidates=candidates,
            replication_factor=request.replication_factor,
            partitions_per_topic=request.partitions_per_topic,
            session_timeout_ms=request.session_timeout_ms,
            seed=request.seed,
            is_0_8=mode.era is ZkEra.V0_8,
        )
    )


# -- checks before anything starts


def check_request(request: ComparisonRequest) -> None:
    """Raise InvalidRequestError or InvalidConfigError for a request that cannot be carried out,
    MissingJavaError and MissingPackageError for what the machine lacks.
    """
    if not request.modes or not request.sizes:
        raise InvalidRequestError("name at least one mode and one number of partitions")
    if request.brokers < _FEWEST_BROKERS:
        raise InvalidRequestError(
            f"the script stops one broker and kills another: at least {_FEWEST_BROKERS} are "
            f"needed, not {request.brokers} (--brokers)"
        )
    if request.brokers > _MOST_BROKERS:
        raise InvalidRequestError(
            f"{request.brokers} brokers are too many: at most {_MOST_BROKERS} (--brokers)"
        )
    if not 2 <= request.replication_factor <= request.brokers:
        raise InvalidRequestError(
            f"a replication factor of {request.replication_factor} does not fit: leaders can only "
            f"move with 2 or more, and there are {request.brokers} brokers (--replication-factor)"
        )
    if request.time_limit_s <= 0:
        raise InvalidRequestError("the time limit must be above 0 s (--time-limit-s)")
    if request.partitions_per_topic < 1:
        raise InvalidRequestError("a topic has at least 1 partition (--partitions-per-topic)")
    shortest, longest = (count * DEFAULT_TICK_MS for count in (2, 20))
    if not shortest <= request.session_timeout_ms <= longest:
        raise InvalidRequestError(
            f"ZooKeeper grants session timeouts of {shortest} to {longest} ms, not "
            f"{request.session_timeout_ms} (--session-timeout-ms)"
        )
    heap_bytes(request.heap)
    for mode in request.modes:
        if mode.release:
            kafka_java()
            _home_of(request, mode)
    if any(mode.store is Store.ZOOKEEPER for mode in request.modes):
        find_java("ZooKeeper")
        zookeeper_jars()
    for mode in request.modes:
        measured = [size for size in request.sizes if size <= mode.largest]
        if mode.store is Store.QUORUM and measured:
            check_limits(
                FleetNeeds(
                    request.brokers,
                    max(measured),
                    1,
                    _CONTROLLERS,
                    request.heap if mode.release else "",
                ),
                Path(tempfile.gettempdir()),
            )
    _check_out(request.out)


def _home_of(request: ComparisonRequest, mode: Mode) -> Path | None:
    """Return the directory of a mode's release, None for KAFKA_HOME. Raises InvalidConfigError."""
    given = request.homes.get(mode.release)
    advice = f"name its directory (--kafka-home {mode.release}=DIR)"
    if given is None and "KAFKA_HOME" not in os.environ:
        raise InvalidConfigError(f"mode {mode.name} needs Apache Kafka {mode.release}: {advice}")
    _, version = kafka_jars(given)
    if version != mode.release and not version.startswith(f"{mode.release}."):
        where = "KAFKA_HOME" if given is None else str(given)
        raise InvalidConfigError(
            f"mode {mode.name} needs Apache Kafka {mode.release}, and {where} has {version}: "
            f"{advice}"
        )
    return given


def _check_out(out: Path | None) -> None:
    if out is None:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InvalidRequestError(f"{out} is not empty: name a new directory (--out)")
    except OSError as error:
        raise StorageError(f"cannot use {out}: {error}") from None
