"""Traces in Spark: complete, growing and damaged files."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kraft.errors import InvalidRequestError, StorageError
from kraft.lab.trace import Trace, TraceHeader, TraceWriter
from kraft.lab.trace_summary import TraceSummary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STARTED_NS = 1_700_000_000 * 10**9


def header(scenario: str = "a test", commit: str | None = "c0ffee") -> TraceHeader:
    return TraceHeader(scenario, f"run of {scenario}", "a machine", commit, STARTED_NS)


def write(
    path: Path, count: int, *, block_events: int = 50, scenario: str = "a test", seed: int = 1
) -> list[int]:
    """Write a trace of ``count`` events of two kinds; return their durations in ns."""
    durations = np.random.default_rng(seed).integers(1, 10**6, count).tolist()
    with TraceWriter(
        path, header(scenario), block_events=block_events, block_age_ns=10**12
    ) as trace:
        for number, duration_ns in enumerate(durations):
            what = "append" if number % 4 == 0 else "turn"
            trace.event(what, time.perf_counter_ns(), duration_ns, number)
    return durations


def load(spark: SparkSession, path: Any, **options: Any) -> DataFrame:
    return spark.read.format("kraft-trace").options(**options).load(path)


def test_every_event_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    durations = write(tmp_path / "a.trace", 230)
    rows = load(spark, str(tmp_path / "a.trace"), maxPartitionBytes=2000).orderBy("count").collect()
    assert [row.duration_ns for row in rows] == durations
    assert [row["count"] for row in rows] == list(range(230))
    assert {row.what for row in rows} == {"append", "turn"}
    first = rows[0]
    assert (first.scenario, first.run_id, first.machine, first.commit) == (
        "a test",
        "run of a test",
        "a machine",
        "c0ffee",
    )
    assert first.file == str(tmp_path / "a.trace")
    blocks = list(Trace(tmp_path / "a.trace").blocks())
    began_ns = np.concatenate([block.began_ns for block in blocks]) + STARTED_NS
    assert [row.began_ns for row in rows] == began_ns.tolist()
    assert all(abs(row.began.timestamp() - row.began_ns / 1e9) < 2e-6 for row in rows)


def test_a_file_is_divided_into_ranges_of_frames(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a.trace", 1000)
    whole = load(spark, str(tmp_path / "a.trace"))
    cut = load(spark, str(tmp_path / "a.trace"), maxPartitionBytes=3000)
    assert whole.rdd.getNumPartitions() == 1
    assert cut.rdd.getNumPartitions() > 5
    assert sorted(cut.collect()) == sorted(whole.collect())


def test_folders_patterns_and_several_paths_are_read(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a.trace", 10, scenario="first")
    write(tmp_path / "b.trace", 20, scenario="second")
    (tmp_path / "notes.txt").write_text("no trace")
    paths = [str(tmp_path / "a.trace"), str(tmp_path / "b.trace")]
    assert load(spark, str(tmp_path)).count() == 30
    assert load(spark, str(tmp_path / "[ab].trace")).count() == 30
    assert load(spark, paths).count() == 30
    assert load(spark, f"file://{paths[1]}").count() == 20


def test_filters_are_evaluated_in_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a.trace", 500, scenario="first")
    write(tmp_path / "b.trace", 300, scenario="second", seed=2)
    rows = load(spark, str(tmp_path)).localCheckpoint()
    middle = rows.selectExpr("percentile(began_ns, 0.5)").head()
    assert middle is not None
    for condition, is_pushed in (
        ("what = 'append'", True),
        ("what <> 'append'", True),
        ("what in ('append', 'absent')", True),
        ("what like 'tu%'", True),
        ("scenario = 'second'", True),
        ("scenario = 'second' and what = 'turn' and duration_ns >= 500000", True),
        (f"began_ns > {int(middle[0])}", True),
        ("began >= '2023-11-14 00:00:00' and began < '2200-01-01'", True),
        ("count % 7 = 3", False),
        ("commit is null", True),
        ("file like '%b.trace'", True),
    ):
        kept = load(spark, str(tmp_path), pushdown=True).where(condition)
        expected = rows.where(condition)
        assert sorted(kept.collect()) == sorted(expected.collect()), condition
        plan = kept._jdf.queryExecution().executedPlan().toString()
        assert (re.search(r"\bFilter\b", plan) is None) == is_pushed, (condition, plan)


def test_a_query_that_names_its_columns_gets_only_those(
    spark: SparkSession, tmp_path: Path
) -> None:
    durations = write(tmp_path / "a.trace", 100)
    reader = spark.read.format("kraft-trace").schema("duration_ns bigint, what string")
    assert [tuple(row) for row in reader.load(str(tmp_path)).collect()][:2] == [
        (durations[0], "append"),
        (durations[1], "turn"),
    ]
    with pytest.raises(Exception, match="unknown column 'duration'"):
        spark.read.format("kraft-trace").schema("duration bigint").load(str(tmp_path)).collect()
    with pytest.raises(Exception, match="column count is bigint, not string"):
        spark.read.format("kraft-trace").schema("count string").load(str(tmp_path)).collect()


def test_percentiles_are_those_of_all_events(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a.trace", 5000, block_events=512)
    events = load(spark, str(tmp_path), maxPartitionBytes=20_000)
    found = events.groupBy("what").agg(*spark_percentiles()).collect()
    summary = {kind.what: kind for kind in TraceSummary.of([Trace(tmp_path / "a.trace")]).kinds}
    assert {row.what for row in found} == set(summary)
    for row in found:
        kind = summary[row.what]
        assert row.events == kind.events
        assert row.p50 == pytest.approx(kind.p50 * 1e9, abs=0.5)
        assert row.p99 == pytest.approx(kind.p99 * 1e9, abs=0.5)


def spark_percentiles() -> list[Any]:
    from pyspark.sql import functions

    return [
        functions.count("*").alias("events"),
        functions.expr("approx_percentile(duration_ns, 0.5, 10000)").alias("p50"),
        functions.expr("approx_percentile(duration_ns, 0.99, 10000)").alias("p99"),
    ]


def test_a_torn_end_is_omitted_and_damage_is_rejected_or_omitted(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "good.trace", 100)
    write(tmp_path / "torn.trace", 100)
    torn = (tmp_path / "torn.trace").read_bytes()
    (tmp_path / "torn.trace").write_bytes(torn[:-1])
    assert load(spark, str(tmp_path)).count() == 150
    (tmp_path / "bad.trace").write_bytes(b'{"machine_info": {}}')
    with pytest.raises(Exception, match=r"not a trace: .*bad\.trace, byte 0"):
        load(spark, str(tmp_path)).count()
    assert load(spark, str(tmp_path), mode="PERMISSIVE").count() == 150
    # A damaged block in the middle of a file is found when it is read.
    frame = Trace(tmp_path / "good.trace").frames[0]
    data = bytearray((tmp_path / "good.trace").read_bytes())
    data[frame + 30] ^= 1
    (tmp_path / "good.trace").write_bytes(data)
    with pytest.raises(Exception, match=rf"CRC of a frame is wrong .*good\.trace, byte {frame}"):
        load(spark, str(tmp_path / "good.trace")).count()
    assert load(spark, str(tmp_path / "good.trace"), mode="PERMISSIVE").count() == 0


def test_invalid_options_of_traces_are_rejected(tmp_path: Path) -> None:
    from kraft.spark.kraft_trace import EVENTS, KraftTraceSource

    def planned(path: str, **options: str) -> None:
        KraftTraceSource({"path": path, **options}).reader(EVENTS).partitions()

    write(tmp_path / "a.trace", 10)
    planned(str(tmp_path))
    for options, words in (
        ({"mode": "LENIENT"}, "mode is FAILFAST or PERMISSIVE"),
        ({"maxPartitionBytes": "0"}, "maxPartitionBytes is a positive whole number"),
    ):
        with pytest.raises(InvalidRequestError, match=words):
            planned(str(tmp_path), **options)
    with pytest.raises(InvalidRequestError, match="that the driver and all executors share"):
        planned("hdfs://somewhere/a.trace")
    with pytest.raises(InvalidRequestError, match="no path given"):
        KraftTraceSource({}).reader(EVENTS)
    with pytest.raises(StorageError, match="nothing matches"):
        planned(str(tmp_path / "*.none"))
    with pytest.raises(StorageError, match=r"cannot read .*absent"):
        planned(str(tmp_path / "absent"))


def test_a_stream_reads_complete_blocks_and_the_rest_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    watched, sink = tmp_path / "watched", tmp_path / "sink"
    watched.mkdir()

    def run() -> list[int]:
        """Restart the stream; return the events that all its runs have read so far."""
        events = spark.readStream.format("kraft-trace").load(str(watched))
        query = (
            events.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(sink))
        )
        assert query.awaitTermination(60)
        return sorted(row["count"] for row in spark.read.parquet(str(sink)).collect())

    durations = list(range(200))
    writer = TraceWriter(watched / "a.trace", header(), block_events=50, block_age_ns=10**12)
    for number in durations[:100]:
        writer.event("turn", 0, 1, number)
    assert run() == durations[:100]
    # A second file appears, still empty; the first ends with an incomplete frame.
    (watched / "b.trace").touch()
    for number in durations[100:150]:
        writer.event("turn", 0, 1, number)
    whole = (watched / "a.trace").read_bytes()
    (watched / "a.trace").write_bytes(whole[:-20])
    assert run() == durations[:100]
    (watched / "a.trace").write_bytes(whole)
    writer.event("turn", 0, 1, 150)
    writer.close()
    (watched / "b.trace").unlink()
    with TraceWriter(watched / "b.trace", header("second")) as second:
        for number in durations[151:]:
            second.event("turn", 0, 1, number)
    assert run() == durations


def test_a_stream_may_read_one_file_per_batch(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

    from kraft.spark.kraft_trace import EVENTS, KraftTraceSource

    for name in ("a", "b", "c"):
        write(tmp_path / f"{name}.trace", 60)
    options = {"path": str(tmp_path), "maxFilesPerTrigger": "1"}
    stream = KraftTraceSource(options).streamReader(EVENTS)
    assert stream.getDefaultReadLimit() == ReadMaxFiles(1)
    offset, seen = stream.initialOffset(), []
    while (later := stream.latestOffset(offset, ReadMaxFiles(1))) != offset:
        parts = stream.partitions(offset, later)
        seen.append(sum(batch.num_rows for part in parts for batch in stream.read(part)))
        offset = later
    assert seen == [60, 60, 60]
    assert stream.latestOffset({}, ReadAllAvailable()) == offset
    assert stream.partitions(offset, offset) == []
