"""Run every stage of the scenario of a million partitions with 5,000 partitions on 12 brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kraft
from kraft._core.bytes.batch import scan
from kraft._core.log.log import Log
from kraft.errors import InvalidReplicationFactorError, InvalidRequestError, StorageError
from kraft.lab import million
from kraft.lab.report import Report
from kraft.lab.scenario import Scenario, ScenarioSettings
from kraft.lab.trace import Trace, TraceHeader, TraceWriter
from kraft.lab.trace_summary import TraceSummary

pytestmark = pytest.mark.usefixtures("temporary_place")


SEED = Path(__file__).parents[2] / "data" / "kafka-4.3" / "controller-101"
STAGE_NAMES = (
    "open the seed",
    "start a log after it",
    "register brokers",
    "place",
    "create",
    "fence a broker",
    "lose the rest of its rack",
    "bring the rack back",
    "elect preferred leaders",
    "delete a topic",
    "write a snapshot",
    "write its columns",
    "fence two, unfence one",
    "save columns, drop the state",
    "load snapshot and the log's tail",
    "compare with the dropped state",
    "load columns and the log's tail",
    "compare with the dropped state",
)
OPERATION_NAMES = (
    "broker registration",
    "broker heartbeat",
    "create topics",
    "alter partition",
    "elect leaders",
    "delete topics",
)


@contextmanager
def no_bars(description: str, total: float | None) -> Iterator[Callable[[float], None]]:
    yield lambda done: None


def small(**changed: Any) -> ScenarioSettings:
    return ScenarioSettings(**{"source": SEED, "partitions": 5000, "brokers": 12, **changed})


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    """Return the report of a whole run, and the directory that it wrote and kept."""
    directory = tmp_path_factory.mktemp("lab") / "kept"
    return million.run(small(directory=directory), no_bars), directory


def test_a_run_has_every_stage_and_loads_the_state_that_it_dropped(
    kept: tuple[Report, Path],
) -> None:
    """The report has all stages, and the loaded states equal the state that was dropped."""
    report, directory = kept
    assert tuple(stage.name for stage in report.stages) == STAGE_NAMES
    assert report.is_equal
    assert [check.difference for check in report.checks] == [None, None]
    assert report.directory == str(directory)
    stages = {stage.name: stage for stage in report.stages}
    seeded = stages["open the seed"].count
    assert stages["create"].count == stages["place"].count == 5000 - seeded
    assert stages["create"].records > stages["create"].count
    deleted = stages["delete a topic"].count
    assert {check.partitions for check in report.checks} == {5000 - deleted}
    for name in ("create", "fence a broker", "write a snapshot", "write its columns"):
        assert stages[name].bytes_written > 0
    assert 0 < stages["create"].bytes_a_partition < 200
    assert report.peak_resident_size >= max(stage.resident_size for stage in report.stages)
    assert min(stage.resident_size for stage in report.stages) > 0


def test_a_run_writes_an_ordinary_metadata_directory(kept: tuple[Report, Path]) -> None:
    report, directory = kept
    seed = kraft.open_metadata(SEED)
    grown = kraft.open_metadata(directory)
    assert grown.cluster_id == seed.cluster_id
    assert len(grown.partitions) == report.checks[0].partitions
    assert len(grown.brokers) == 12
    # Everything else of the seed is unchanged.
    assert grown.features == seed.features
    assert grown.configs == seed.configs
    assert set(seed.topics) <= set(grown.topics)
    # Every record after the end of the seed is available.
    offsets = [record.offset for record in grown.records()]
    assert offsets == list(range(seed.next_offset, grown.next_offset))
    # States between stages are available too.
    assert len(grown.at(seed.next_offset).partitions) == len(seed.partitions)


def test_written_batches_hold_at_most_ten_thousand_records(kept: tuple[Report, Path]) -> None:
    with Log.open(kept[1] / "__cluster_metadata-0", read_only=True) as log:
        counts = scan(log.fetch(log.log_start_offset, 1 << 40)).record_counts
    assert 1000 < counts.max() <= 10_000


def test_the_same_seed_writes_the_same_bytes(kept: tuple[Report, Path], tmp_path: Path) -> None:
    again = tmp_path / "again"
    other = tmp_path / "other"
    million.run(small(directory=again), no_bars)
    million.run(small(directory=other, seed=1), no_bars)

    def logs(directory: Path) -> list[bytes]:
        return [path.read_bytes() for path in sorted(directory.rglob("*.log"))]

    assert logs(kept[1]) == logs(again)
    assert logs(kept[1]) != logs(other)


def test_a_grown_cluster_can_be_the_seed_of_a_bigger_one(kept: tuple[Report, Path]) -> None:
    report = million.run(small(source=kept[1], partitions=7000, brokers=15), no_bars)
    assert report.is_equal
    assert report.stages[0].count == kept[0].checks[0].partitions


@pytest.mark.parametrize(
    ("racks", "replication_factor"), [(1, 1), (1, 3), (2, 3), (4, 4), (12, 8), (3, 12)]
)
def test_clusters_of_any_racks_and_replication_factor_load_equal(
    racks: int, replication_factor: int
) -> None:
    settings = small(partitions=1500, racks=racks, replication_factor=replication_factor)
    assert million.run(settings, no_bars).is_equal


def test_each_stage_changes_the_cluster_as_described(tmp_path: Path) -> None:
    scenario = Scenario(small(), tmp_path, no_bars)
    million.open_seed(scenario)
    seeded = len(scenario.metadata.partitions)
    million.begin_log(scenario)
    million.register_brokers(scenario)
    million.create(scenario)
    partitions = scenario.metadata.partitions
    new = np.arange(len(partitions.topic)) >= seeded
    rack_of = {broker.id: broker.rack for broker in scenario.metadata.brokers.values()}
    racks = np.vectorize(rack_of.get)(partitions.replica_matrix()[new][:, :3])
    # With three racks and three replicas, each rack must have one replica.
    assert all(len(set(row)) == 3 for row in racks)
    assert (partitions.leader[new] == partitions.replicas[new][:, 0]).all()
    lost = scenario.rack_brokers()
    assert len(lost) == 4

    million.fence_one(scenario)
    assert lost[0] not in partitions.leader
    assert lost[1] in partitions.leader

    million.lose_rack(scenario)
    assert not np.isin(partitions.leader, lost).any()
    assert not np.isin(partitions.members("isr")[new], lost).any()
    assert (partitions.isr_size()[new] == 2).all()
    assert (partitions.leader[new] >= 0).all()

    million.bring_rack_back(scenario)
    assert (partitions.isr_size()[new] == 3).all()
    assert (partitions.leader[new] != partitions.replicas[new][:, 0]).any()

    million.elect_preferred(scenario)
    assert (partitions.leader[new] == partitions.replicas[new][:, 0]).all()

    before = dict(scenario.metadata.topics)
    million.remove_topic(scenario)
    (gone,) = set(before) - set(scenario.metadata.topics)
    assert scenario.report.stages[-1].count == before[gone].partition_count
    # Committed records are in the log, and the journal is empty.
    assert scenario.log.log_end_offset == scenario.metadata.next_offset
    assert scenario.log.synced_offset == scenario.metadata.next_offset
    assert scenario.metadata.cluster.table.journal_length == 0
    scenario.drop()


@pytest.mark.parametrize("column", ["leader", "isr", "directories", "partition_epoch"])
def test_a_tampered_column_is_found_and_named(column: str, temporary_place: Path) -> None:
    @contextmanager
    def tampering(description: str, total: float | None) -> Iterator[Callable[[float], None]]:
        yield lambda done: None
        if description == "save columns, drop the state":
            (path,) = temporary_place.glob(f"kraft-lab-*/dropped/{column}.npy")
            values = np.load(path, mmap_mode="r+")
            values.reshape(-1)[0] += 1
            values.flush()

    report = million.run(small(partitions=1500), tampering)

    assert not report.is_equal
    assert [check.difference.column for check in report.checks if check.difference] == [column] * 2
    assert list(temporary_place.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in STAGE_NAMES if name != "place"])
def test_ctrl_c_in_any_stage_leaves_nothing(name: str, temporary_place: Path) -> None:
    interrupted = []

    @contextmanager
    def interrupting(description: str, total: float | None) -> Iterator[Callable[[float], None]]:
        yield lambda done: None
        if description == name:
            interrupted.extend(temporary_place.iterdir())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        million.run(small(partitions=600, keep=True), interrupting)
    assert len(interrupted) == 1
    assert list(temporary_place.iterdir()) == []


def test_impossible_settings_are_rejected(temporary_place: Path) -> None:
    for settings, words in (
        ({"racks": 13}, "cannot fill 13 racks"),
        ({"replication_factor": 13}, "replication factor 13"),
        ({"partitions": 0}, "partitions must be at least 1"),
    ):
        with pytest.raises(InvalidRequestError, match=words):
            small(**settings)
    for settings, words in (({"partitions": 5}, "partitions"), ({"brokers": 2, "racks": 1}, "")):
        with pytest.raises(InvalidRequestError, match=f"grown from this seed needs.*{words}"):
            million.run(small(**{"replication_factor": 1, **settings}), no_bars)
    assert list(temporary_place.iterdir()) == []


def test_a_missing_seed_is_an_error_and_leaves_no_files(
    tmp_path: Path, temporary_place: Path
) -> None:
    with pytest.raises(StorageError, match="no such file or directory"):
        million.run(small(source=tmp_path / "nowhere"), no_bars)
    assert list(temporary_place.iterdir()) == []


def test_a_segment_from_the_middle_of_a_log_is_rejected_as_seed(
    kept: tuple[Report, Path], temporary_place: Path
) -> None:
    (segment,) = kept[1].rglob("*.log")
    with pytest.raises(InvalidRequestError, match="begins in the middle of a log"):
        million.run(small(source=segment), no_bars)
    assert list(temporary_place.iterdir()) == []


def test_a_rejected_topic_ends_the_run(tmp_path: Path) -> None:
    scenario = Scenario(small(), tmp_path, no_bars)
    million.open_seed(scenario)
    million.begin_log(scenario)
    # No broker was added: the seed's three brokers cannot hold twelve replicas.
    scenario.settings = small(replication_factor=12)
    with pytest.raises(InvalidReplicationFactorError):
        million.create(scenario)
    scenario.drop()


def test_a_trace_has_every_operation_and_its_parts(tmp_path: Path) -> None:
    header = TraceHeader.of("lab million")
    with TraceWriter(tmp_path / "trace", header) as trace:
        report = million.run(small(partitions=1500), no_bars, trace=trace)
    kinds = {kind.what: kind for kind in TraceSummary.of([Trace(tmp_path / "trace")]).kinds}
    stages = {stage.name: stage for stage in report.stages}
    assert kinds["broker registration"].events == 12
    assert kinds["create topics"].count == stages["create"].records
    assert kinds["stage: create"].count == stages["create"].count
    # Each operation is decided once; turns of the controller handle all of its records.
    asked = [kinds[name] for name in OPERATION_NAMES]
    assert kinds["decide"].events == sum(kind.events for kind in asked)
    assert kinds["controller turn"].count == sum(kind.count for kind in asked)
    assert kinds["controller turn"].events >= kinds["append"].events == kinds["apply"].events
    parts = sum(stage.parts.get("append", 0) for stage in report.stages)
    assert kinds["append"].total == pytest.approx(parts)
