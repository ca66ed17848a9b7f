"""The scenario of a million partitions: grow a seed cluster, fail brokers, recover, write, reload.

Defines the stages and their order; ``Scenario`` measures them. Every change is a request of a
broker or client to the controller, on disk before it is answered; ``StripedPlacer`` places
replicas; codec, table, log and checkpoints are those of the library.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft._core.log.log import Log
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.controller.topics.elections import ElectionType
from kraft.controller.topics.isr_changes import expand_isrs
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import InvalidRequestError, KraftError
from kraft.lab.active_controller import ActiveController, TimedPlacer
from kraft.lab.growth_requests import creation_requests, rack_names, registrations
from kraft.lab.memory import peak_resident_size
from kraft.lab.report import LoadCheck, Report
from kraft.lab.scenario import Bars, Clock, Scenario, ScenarioSettings
from kraft.lab.state_comparison import StateColumns
from kraft.lab.trace import TraceWriter
from kraft.lab.workspace import workspace
from kraft.metadata.directory import META_PROPERTIES
from kraft.metadata.facade import Metadata, open_metadata
from kraft.metadata.snapshots import save_snapshot_columns

#: Rows whose ISRs one operation expands, with one write and one fsync.
GROUP_ROWS = 10_000


def run(
    settings: ScenarioSettings,
    bars: Bars,
    on_seed: Callable[[Metadata], None] | None = None,
    trace: TraceWriter | None = None,
) -> Report:
    """Run every stage; the report says whether the loaded state equals the dropped one.

    ``on_seed`` is called with the opened seed; ``trace`` receives every event. Raises
    :class:`KraftError` for settings or a seed that cannot be used. Ctrl-C raises KeyboardInterrupt
    after a temporary directory was removed.
    """
    began = time.perf_counter()
    keep = settings.keep
    with workspace(settings.directory, keep=keep, needed_size=settings.written_size) as path:
        scenario = Scenario(settings, path, bars, trace)
        report = scenario.report
        try:
            open_seed(scenario)
            if on_seed is not None:
                on_seed(scenario.metadata)
            for stage in STAGES:
                stage(scenario)
        finally:
            scenario.drop()
        # The system's maximum may lag a few pages behind.
        sizes = [stage.resident_size for stage in report.stages]
        report.peak_resident_size = max(peak_resident_size(), *sizes)
        report.seconds = time.perf_counter() - began
        if keep or settings.directory is not None:
            report.directory = str(path)
    return report


def open_seed(scenario: Scenario) -> None:
    """Open the cluster that Kafka wrote, as of its last record."""
    with scenario.stage("open the seed", "partitions") as clock:
        metadata = open_metadata(scenario.settings.source)
        scenario.metadata = metadata
        clock.advance(len(metadata.partitions))
    if metadata.source is not None and metadata.source.is_partial:
        raise InvalidRequestError(
            f"{scenario.settings.source} begins in the middle of a log: its state is unknown"
        )
    for name, count in (
        ("partitions", len(metadata.partitions) + 1),
        ("brokers", len(metadata.brokers)),
    ):
        if getattr(scenario.settings, name) < count:
            raise InvalidRequestError(
                f"a cluster grown from this seed needs at least {count} {name}"
            )


def begin_log(scenario: Scenario) -> None:
    """Start a log at the end offset of the seed, with a snapshot of the seed."""
    with scenario.stage("start a log after it", "partitions") as clock:
        metadata = scenario.metadata
        scenario.log = Log.open(scenario.log_directory)
        scenario.log.truncate_fully_and_start_at(metadata.next_offset)
        path = metadata.write_snapshot(scenario.log_directory, columns=False)
        clock.bytes_written += _size_of(path)
        clock.advance(len(metadata.partitions))
    scenario.controller = ActiveController(
        metadata.cluster,
        scenario.log,
        epoch=metadata.epoch,
        now_ms=metadata.newest_timestamp_ms,
        placer=TimedPlacer(StripedPlacer(JavaRandom(scenario.settings.seed))),
        random=scenario.random,
        trace=scenario.trace,
    )
    seed = metadata.source.directory.log_dir if metadata.source is not None else None
    if seed is not None and (seed / META_PROPERTIES).exists():
        # The log continues that of the same node of the same cluster.
        shutil.copyfile(seed / META_PROPERTIES, scenario.workspace / META_PROPERTIES)


def register_brokers(scenario: Scenario) -> None:
    """Register and unfence the requested number of brokers, spread over the racks."""
    settings, metadata = scenario.settings, scenario.metadata
    racks = rack_names(metadata, settings.racks)
    joining = list(registrations(metadata, settings.brokers, racks, scenario.random))
    # The seed's cluster has stopped: its brokers register again with new incarnation ids.
    scenario.controller.end_sessions()
    with scenario.stage("register brokers", "brokers", settings.brokers) as clock:
        for request in joining:
            scenario.ask(clock, requests.register_broker(request))
            scenario.ask(clock, scenario.controller.heartbeat(request.broker_id))
            clock.advance(1)


def create(scenario: Scenario) -> None:
    """Create topics, in requests of up to 10,000 records: decided, applied, written and fsynced.

    Placement is part of deciding; the report shows its time separately.
    """
    settings, metadata = scenario.settings, scenario.metadata
    total = settings.partitions - len(metadata.partitions)
    wanted = creation_requests(metadata, total, settings.replication_factor, scenario.random)
    with scenario.stage("create", "partitions", total) as clock:
        for topics in wanted:
            before = len(metadata.partitions)
            for result in scenario.ask(clock, requests.create_topics(topics)).values():
                if isinstance(result, KraftError):
                    raise result
            clock.advance(len(metadata.partitions) - before)
    scenario.report.split_off("place", within="decide")


def fence_one(scenario: Scenario) -> None:
    """Fence a broker: it leaves every ISR, and others lead its partitions."""
    with scenario.stage("fence a broker", "partitions") as clock:
        clock.advance(_fence(scenario, clock, scenario.rack_brokers()[0]))


def lose_rack(scenario: Scenario) -> None:
    """Fence the rest of its rack, one broker after another."""
    broker_ids = scenario.rack_brokers()[1:]
    with scenario.stage("lose the rest of its rack", "partitions", len(broker_ids)) as clock:
        for done, broker_id in enumerate(broker_ids, 1):
            clock.count += _fence(scenario, clock, broker_id)
            clock.advance_bar(done)


def bring_rack_back(scenario: Scenario) -> None:
    """Unfence the rack's brokers and expand the ISRs."""
    broker_ids = scenario.rack_brokers()
    table = scenario.metadata.cluster.table
    with scenario.stage("bring the rack back", "partitions", table.partition_count) as clock:
        for broker_id in broker_ids:
            clock.advance(_unfence(scenario, clock, broker_id))
        for rows in _groups(table.live_rows()):
            clock.advance(_expand(scenario, clock, rows))


def elect_preferred(scenario: Scenario) -> None:
    """Elect each partition's first replica."""
    with scenario.stage("elect preferred leaders", "partitions") as clock:
        results = scenario.ask(clock, requests.elect_leaders(ElectionType.PREFERRED))
        clock.advance(int((results.errors == 0).sum()))


def remove_topic(scenario: Scenario) -> None:
    """Delete the largest of the new topics."""
    topics = scenario.metadata.topics
    topic = max(topics.values(), key=lambda topic: topic.partition_count)
    with scenario.stage("delete a topic", "partitions") as clock:
        scenario.ask(clock, requests.delete_topics([TopicToDelete(topic.name)]))
        clock.advance(topic.partition_count)


def write_snapshot(scenario: Scenario) -> None:
    """Write Kafka's snapshot as of the last record, and the column checkpoint beside it."""
    metadata = scenario.metadata
    with scenario.stage("write a snapshot", "partitions") as clock:
        path = metadata.write_snapshot(
            scenario.log_directory,
            columns=False,
            timestamp_ms=scenario.controller.newest_timestamp_ms,
        )
        clock.bytes_written += _size_of(path)
        clock.advance(len(metadata.partitions))
    with scenario.stage("write its columns", "partitions") as clock:
        clock.bytes_written += _size_of(save_snapshot_columns(path, metadata.cluster))
        clock.advance(len(metadata.partitions))


def change_after(scenario: Scenario) -> None:
    """Change partitions after the snapshot, so that the log has records after it."""
    first, second = scenario.rack_brokers()[0], scenario.rack_brokers()[-1]
    with scenario.stage("fence two, unfence one", "partitions") as clock:
        clock.advance(_fence(scenario, clock, first))
        clock.advance(_fence(scenario, clock, second))
        clock.advance(_unfence(scenario, clock, first))
        rows = scenario.metadata.cluster.table.broker_rows(first)
        clock.advance(_expand(scenario, clock, rows))


def drop_and_load(scenario: Scenario) -> None:
    """Drop everything and load it from disk, once from each kind of snapshot."""
    aside = scenario.workspace / "dropped"
    aside.mkdir()
    try:
        with scenario.stage("save columns, drop the state", "partitions") as clock:
            dropped = StateColumns.take(scenario.metadata, aside)
            clock.bytes_written += sum(_size_of(path) for path in aside.iterdir())
            clock.advance(len(scenario.metadata.partitions))
            scenario.drop()
            gc.collect()
        for name, use_columns in (("snapshot", False), ("columns", True)):
            _load_and_check(scenario, dropped, f"{name} and the log's tail", use_columns)
    finally:
        shutil.rmtree(aside)


def _load_and_check(
    scenario: Scenario, dropped: StateColumns, name: str, use_columns: bool
) -> None:
    with scenario.stage(f"load {name}", "partitions") as clock:
        metadata = open_metadata(scenario.workspace, use_column_cache=use_columns)
        scenario.metadata = metadata
        clock.advance(len(metadata.partitions))
    with scenario.stage("compare with the dropped state", "partitions") as clock:
        difference = dropped.first_difference(StateColumns.take(metadata))
        clock.advance(len(metadata.partitions))
    scenario.report.checks.append(LoadCheck(name, len(metadata.partitions), difference))
    scenario.drop()


#: The stages in order.
STAGES: tuple[Callable[[Scenario], None], ...] = (
    begin_log,
    register_brokers,
    create,
    fence_one,
    lose_rack,
    bring_rack_back,
    elect_preferred,
    remove_topic,
    write_snapshot,
    change_after,
    drop_and_load,
)


def _groups(rows: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    for first in range(0, len(rows), GROUP_ROWS):
        yield rows[first : first + GROUP_ROWS]


def _fence(scenario: Scenario, clock: Clock, broker_id: int) -> int:
    """Send the broker's request to be fenced; return the number of partitions changed."""
    return (
        _records_of(scenario, clock, scenario.controller.heartbeat(broker_id, wants_fence=True)) - 1
    )


def _unfence(scenario: Scenario, clock: Clock, broker_id: int) -> int:
    """Send the broker's heartbeat; return the number of partitions changed."""
    return _records_of(scenario, clock, scenario.controller.heartbeat(broker_id)) - 1


def _expand(scenario: Scenario, clock: Clock, rows: NDArray[np.int32]) -> int:
    """Expand the ISRs of these partitions to all live replicas; return the number of records."""
    expand = Operation(
        "alter partition", lambda context: expand_isrs(context.cluster, rows, context.settings)
    )
    return _records_of(scenario, clock, expand)


def _records_of(scenario: Scenario, clock: Clock, operation: Operation) -> int:
    before = clock.records
    scenario.ask(clock, operation)
    return clock.records - before


def _size_of(path: str | Path) -> int:
    return Path(path).stat().st_size
