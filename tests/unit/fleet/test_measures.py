"""Measures of steps and runs, their order, and two runs side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kraft.fleet.measures import STATISTICS, WHOLE_RUN, measures_of, table_of
from kraft.fleet.texts import number_text, ratio_text, value_text
from kraft.fleet.timelines import (
    MOST_POINTS,
    MOST_WINDOWS,
    broker_counts,
    percentiles,
    rates,
    samples,
)
from kraft.fleet.traces import EVENTS, TraceColumns, read_run
from tests.harness.fleet_runs import STEPS, Planted, write_run
from tests.harness.fleet_traces import ended, line, started, trace_of


def test_every_statistic_is_of_a_known_event() -> None:
    assert STATISTICS.keys() <= EVENTS.keys()


def test_percentiles_are_measured_values() -> None:
    values = np.random.default_rng(1).permutation(np.arange(1.0, 201.0))
    lines = [line(at_ms=at, value=float(value)) for at, value in enumerate(values)]
    trace = trace_of(started("steady", 0), *lines, ended("steady", 1000))
    found = {
        each.statistic: each for each in measures_of(trace)
        if (each.name, each.step) == ("applied", "steady")
    }  # fmt: skip
    assert {name: each.value for name, each in found.items()} == {
        "p50": 100, "p99": 198, "worst": 200,
    }  # fmt: skip
    assert {each.events for each in found.values()} == {200}
    assert {each.unit for each in found.values()} == {"ms"}


def test_one_value_is_the_worst_alone() -> None:
    decided = line(name="decided", value=40, broker=None)
    found = measures_of(trace_of(started("steady", 0), decided, ended("steady", 10)))
    assert [each.title for each in found if each.step == "steady"] == [
        "step length", "decided worst",
    ]  # fmt: skip


def test_steps_of_one_name_count_as_one_and_the_run_comes_last() -> None:
    trace = trace_of(
        started("a", 0), ended("a", 1000), started("b", 1000), ended("b", 1500),
        started("a", 1500), ended("a", 3500),
    )  # fmt: skip
    lengths = [(each.step, each.value) for each in measures_of(trace)]
    assert lengths == [("a", 3.0), ("b", 0.5), (WHOLE_RUN, 3.5)]
    assert measures_of(trace_of()) == []


def test_measures_of_an_interrupted_run_say_so() -> None:
    trace = trace_of(started("a", 0), ended("a", 1000), started("b", 1000), line(at_ms=1200))
    assert trace.unfinished_steps == ("b",)
    complete = {each.step: each.is_complete for each in measures_of(trace)}
    assert complete == {"a": True, "b": False, WHOLE_RUN: False}
    whole = trace_of(started("a", 0), ended("a", 1000))
    assert all(each.is_complete for each in measures_of(whole))


def test_the_generated_run_has_its_planted_times(tmp_path: Path) -> None:
    law = Planted(factor=3)
    run = read_run(write_run(tmp_path / "a", brokers=60, partitions=20_000, planted=law))
    found = {(each.step, each.title): each.value for each in measures_of(run.trace)}
    assert found["rack lost", "decided worst"] == pytest.approx(3 * 80, rel=1e-6)
    assert found["steady", "applied p50"] == pytest.approx(law.applied_ms(60), rel=0.15)
    assert found["start up", "broker_registered count"] == 60


def test_two_runs_are_side_by_side(tmp_path: Path) -> None:
    first = read_run(write_run(tmp_path / "a"))
    second = read_run(write_run(tmp_path / "b", quorum="kafka-4.3.1", planted=Planted(factor=4)))
    rows = table_of([first, second])
    assert list(dict.fromkeys(row.step for row in rows)) == [*STEPS, WHOLE_RUN]
    decided = next(row for row in rows if row.name == "decided" and row.step == "rack lost")
    assert decided.ratio == pytest.approx(4)
    alone = table_of([first])
    assert {row.ratio for row in alone} == {None}
    assert [row[:4] for row in alone] == [row[:4] for row in rows]


def test_a_measure_that_one_run_lacks_has_no_ratio() -> None:
    class Run:
        def __init__(self, trace: TraceColumns) -> None:
            self.trace = trace

    lines = [started("s", 0), line(step="s"), ended("s", 1)]
    rows = table_of([Run(trace_of(*lines)), Run(trace_of(lines[0], lines[2]))])  # type: ignore[list-item]
    (row,) = [row for row in rows if row.name == "applied" and row.step == "s"]
    assert row.values == (2.0, None)
    assert row.ratio is None


def test_brokers_are_counted_by_their_last_state() -> None:
    def event(at_ms: float, state: str, broker: int) -> bytes:
        return line(at_ms=at_ms, name=f"broker_{state}", broker=broker, value=None)

    counts = broker_counts(
        trace_of(
            event(0, "registered", 1), event(1000, "registered", 2), event(2000, "unfenced", 1),
            event(2500, "unfenced", 1), event(3000, "unfenced", 2), event(4000, "fenced", 1),
            event(5000, "stopped", 2),
        )
    )  # fmt: skip
    assert counts.seconds.tolist() == [0, 1, 2, 2.5, 3, 4, 5, 5]
    assert counts.unfenced.tolist() == [0, 0, 1, 1, 2, 1, 0, 0]
    assert counts.fenced.tolist() == [1, 2, 1, 1, 0, 1, 2, 2]
    assert not len(broker_counts(trace_of()).seconds)


def counted(*samples: tuple[float, float, str]) -> TraceColumns:
    return trace_of(
        *(line(at_ms=at, name="network_bytes", value=value, broker=None, step=step)
          for at, value, step in samples)
    )  # fmt: skip


def test_the_rate_of_a_counter_is_its_growth_over_time() -> None:
    trace = counted((0, 7, "a"), (1000, 507, "a"), (3000, 1007, "a"), (3000, 1010, "a"))
    assert rates(trace, "network_bytes").values.tolist() == [500, 250]
    assert not len(rates(trace_of(), "network_bytes"))
    assert not len(rates(counted((0, 7, "a")), "network_bytes"))


def test_the_total_of_a_counter_is_its_growth_in_the_step() -> None:
    trace = counted((0, 1000, "a"), (1000, 1300, "a"), (2000, 1310, "b"), (3000, 40, "b"),
                    (4000, 45, "b"))  # fmt: skip
    rows, grown = trace.increments("network_bytes")
    assert (rows.tolist(), grown.tolist()) == ([1, 2, 3, 4], [300, 10, 0, 5])
    assert trace.increments("network_bytes", "b")[1].tolist() == [10, 0, 5]
    found = {each.step: each.value for each in measures_of(trace) if each.name == "network_bytes"}
    assert found == {WHOLE_RUN: 315}


def test_long_series_are_thinned_and_keep_their_extremes() -> None:
    values = np.random.default_rng(2).uniform(1, 2, 20_000)
    values[777], values[15_001] = 9, 0.5
    lines = [
        line(at_ms=at * 1000.0, name="queue_time_p99", value=float(value), broker=None)
        for at, value in enumerate(values)
    ]
    found = samples(trace_of(*lines), "queue_time_p99")
    assert len(found) <= MOST_POINTS
    assert (found.values.min(), found.values.max()) == (0.5, 9)
    assert (np.diff(found.seconds) > 0).all()


def test_windows_have_at_least_a_second_and_are_few() -> None:
    short = trace_of(*(line(at_ms=at * 100.0, value=float(at)) for at in range(30)))
    found = percentiles(short, "applied")
    assert found.seconds.tolist() == [0.5, 1.5, 2.5]
    assert found.worst.tolist() == [9, 19, 29]
    assert found.p50.tolist() == [4, 14, 24]
    hours = trace_of(*(line(at_ms=at * 1000.0) for at in range(5000)))
    assert len(percentiles(hours, "applied").seconds) <= MOST_WINDOWS + 1
    assert not len(percentiles(short, "decided").seconds)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "ms", "0 ms"),
        (0.0123, "ms", "12.3 us"),
        (12.34, "ms", "12.3 ms"),
        (999.9, "ms", "1.00 s"),
        (90_000, "ms", "1.50 min"),
        (1536.0, "bytes", "1.50 KiB"),
        (3.0e12, "bytes", "2.73 TiB"),
        (2048.0, "bytes/s", "2 KiB/s"),
        (0.0775, "cores", "0.0775 cores"),
        (123_456, "records", "123,456"),
        (7200, "s", "2 h"),
        (None, "ms", "-"),
        (float("nan"), "ms", "-"),
    ],
)
def test_values_have_three_digits_and_a_unit(value: float | None, unit: str, text: str) -> None:
    assert value_text(value, unit) == text


def test_numbers_and_ratios() -> None:
    assert number_text(1.23456e-9) == "1.23e-09"
    assert number_text(1_234_567.0) == "1,234,567"
    assert number_text(3.14159) == "3.14"
    assert ratio_text(None) == "-"
    assert ratio_text(4.0) == "x4"
    assert ratio_text(0.25) == "x0.250"
