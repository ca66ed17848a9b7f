"""Clusters in Spark: the rows equal the state that the library loads."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kraft.metadata.facade import open_metadata
from kraft.metadata.log_records import read_records
from kraft.metadata.source import MetadataSource
from tests.harness.partition_rows import partition_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA = Path(__file__).parents[2] / "data"
CLUSTER = DATA / "kafka-4.3" / "controller-101"
OLDER = DATA / "kafka-3.9" / "controller-101"
TRANSACTION = DATA / "kafka-4.3-transaction"


def load(spark: SparkSession, path: Any, **options: Any) -> DataFrame:
    paths = [str(each) for each in path] if isinstance(path, list) else str(path)
    return spark.read.format("kraft-metadata").options(**options).load(paths)


def is_pushed(frame: DataFrame) -> bool:
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return re.search(r"\bFilter\b", plan) is None


def library_rows(path: Path, at: int | None = None) -> list[dict[str, Any]]:
    """Return the partitions that `open_metadata` loads, as rows."""
    rows = partition_rows(open_metadata(path, at=at))
    return [{"source": str(path)} | row for row in rows]


def by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["source"], row["topic"], row["partition"]))


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    return by_place([row.asDict() for row in frame.collect()])


def test_partitions_are_those_of_the_library(spark: SparkSession) -> None:
    assert collected(load(spark, CLUSTER)) == by_place(library_rows(CLUSTER))
    # Two clusters at once, as of an offset, in many tasks.
    several = load(spark, [CLUSTER, OLDER], offset=1746, maxPartitionBytes=20_000)
    assert several.rdd.getNumPartitions() > 8
    assert collected(several) == by_place(library_rows(CLUSTER, 1746) + library_rows(OLDER, 1746))


def test_one_dataframe_serves_many_queries(spark: SparkSession) -> None:
    # Spark plans a Python source once per load: a pushed filter would apply to all queries.
    partitions = load(spark, CLUSTER)
    rows = library_rows(CLUSTER)
    led = Counter(row["leader"] for row in rows)
    first, second = partitions.where("leader = 1"), partitions.where("leader = 2")
    assert (first.count(), partitions.count()) == (led[1], len(rows))
    assert first.union(second).union(partitions).count() == led[1] + led[2] + len(rows)


def test_filters_on_partitions_are_evaluated_on_columns(spark: SparkSession) -> None:
    rows = load(spark, [CLUSTER, OLDER]).localCheckpoint()
    some = library_rows(CLUSTER)[50]
    for condition in (
        f"topic = '{some['topic']}'",
        f"topic_id = '{some['topic_id']}' and partition in (0, 1, 2)",
        "topic like 'or%' and not (leader = 1)",
        "leader < 0",
        f"source = '{OLDER}' and leader_epoch >= 2",
        "topic = 'no such topic'",
        "leader_recovery_state = 0 and partition_epoch between 1 and 3",
    ):
        kept = load(spark, [CLUSTER, OLDER], pushdown=True).where(condition)
        assert collected(kept) == collected(rows.where(condition)), condition
        assert is_pushed(kept), condition
    lists = "array_contains(isr, 2) and size(isr) < size(replicas)"
    kept = load(spark, [CLUSTER, OLDER], pushdown=True).where(lists)
    assert collected(kept) == collected(rows.where(lists))


def test_only_the_columns_of_the_schema_are_read(spark: SparkSession) -> None:
    reader = spark.read.format("kraft-metadata").schema("leader int, topic string")
    rows = reader.load(str(CLUSTER)).groupBy("leader").count().collect()
    assert {row.leader: row["count"] for row in rows} == Counter(
        row["leader"] for row in library_rows(CLUSTER)
    )


def test_the_views_topics_and_brokers_equal_the_library(spark: SparkSession) -> None:
    metadata = open_metadata(CLUSTER)
    topics = {row.topic: row for row in load(spark, CLUSTER, view="topics").collect()}
    assert topics.keys() == set(metadata.topics)
    for name, row in topics.items():
        assert row.partitions == metadata.topics[name].partition_count
        assert row.topic_id == str(metadata.topics[name].id)
        assert row.configs == dict(metadata.configs.topic(name))
    (orders,) = load(spark, CLUSTER, view="topics").where("topic = 'orders'").collect()
    assert orders == topics["orders"]
    brokers = load(spark, CLUSTER, view="brokers", offset=1200).collect()
    then = open_metadata(CLUSTER, at=1200).brokers
    assert {row.broker: (row.rack, row.fenced, row.broker_epoch) for row in brokers} == {
        broker.id: (broker.rack, broker.fenced, broker.epoch) for broker in then.values()
    }
    assert json.loads(brokers[0].endpoints)
    fenced = load(spark, CLUSTER, view="brokers").where("fenced").collect()
    assert {row.broker for row in fenced} == {
        broker.id for broker in metadata.brokers.values() if broker.fenced
    }


def files_of(path: Path) -> list[Path]:
    directory = MetadataSource(path).directory
    found = [each.path for each in (*directory.segments, *directory.snapshots) if each.size]
    if directory.bootstrap_checkpoint is not None:
        found.append(directory.bootstrap_checkpoint.path)
    return found


@pytest.mark.parametrize("path", [CLUSTER, OLDER], ids=["4.3", "3.9"])
def test_records_equal_the_output_of_kafkas_dump_tool(spark: SparkSession, path: Path) -> None:
    rows = load(spark, path, view="records", maxPartitionBytes=10_000).collect()
    for file in files_of(path):
        text = kafkas_dump(file)
        printed = {
            int(offset): json.loads(payload)
            for offset, payload in re.findall(
                r'^\| offset: (\d+) .*?payload: (\{"type".*\})$', text, re.MULTILINE
            )
        }
        here = {row.offset: row for row in rows if row.file == str(file) and not row.is_control}
        assert here.keys() == printed.keys()
        types = Counter(kafkas_name(row.type) for row in here.values())
        assert types == Counter(each["type"] for each in printed.values())
        # Every value is as Kafka prints it, except secrets.
        for offset, row in here.items():
            assert row.version == printed[offset]["version"]
            if row.type not in ("UserScramCredential", "Config"):
                assert json.loads(row.value) == printed[offset]["data"], row


def kafkas_name(record_type: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", record_type).upper() + "_RECORD"


def kafkas_dump(file: Path) -> str:
    """Return what kafka-dump-log printed for a file."""
    (root,) = [parent for parent in file.parents if (parent / "text").is_dir()]
    text = root / "text" / file.relative_to(root)
    plain = text.with_name(text.name + ".txt")
    if plain.exists():
        return plain.read_text()
    return gzip.decompress(text.with_name(text.name + ".txt.gz").read_bytes()).decode()


def test_records_have_position_and_resource(spark: SparkSession) -> None:
    rows = load(spark, CLUSTER, view="records").where("kind = 'log'").orderBy("offset").collect()
    expected = [
        each for piece in MetadataSource(CLUSTER).slices() for each in read_records(piece.data)
    ]
    assert len(rows) == len(expected)
    for row, each in zip(rows, expected, strict=True):
        record: Any = each.record
        assert (row.offset, row.epoch, row.type) == (
            each.offset,
            each.epoch,
            type(record).__name__,
        )
        assert row.version == record.version
        assert int(row.timestamp.timestamp() * 1000 + 0.5) == each.timestamp_ms
        topic_id = getattr(record, "topic_id", None)
        assert row.topic_id == (None if topic_id is None else str(topic_id))
        assert row.partition == getattr(record, "partition_id", None)
        if row.type in ("FenceBroker", "UnfenceBroker"):
            assert row.broker == record.id
        elif row.type != "ProducerIds":
            assert row.broker == getattr(record, "broker_id", None)
        assert row.topic == (record.name if row.type == "Topic" else row.topic)


def test_filters_on_records_are_evaluated_before_anything_is_decoded(spark: SparkSession) -> None:
    paths = [CLUSTER, TRANSACTION / "controller-201"]
    rows = load(spark, paths, view="records").localCheckpoint()

    def filtered(condition: str) -> DataFrame:
        frame = load(spark, paths, view="records", maxPartitionBytes=5000, pushdown=True)
        return frame.where(condition)

    topic_id = open_metadata(CLUSTER).topics["orders"].id
    for condition in (
        "type = 'PartitionChange' and partition = 3",
        f"topic_id = '{topic_id}'",
        "offset between 700 and 800 and kind = 'log'",
        "broker is not null and type <> 'ProducerIds'",
        "transaction <> 'ended' and not is_control",
        "partition is null and epoch >= 2",
        "timestamp >= '2020-01-01' and type like '%Broker'",
        "kind = 'snapshot' and version > 0",
    ):
        kept = filtered(condition)
        found = sorted(map(str, kept.collect()))
        assert found == sorted(map(str, rows.where(condition).collect())), condition
        assert found, condition
        assert is_pushed(kept), condition
    # Files and offset ranges without matching records get no tasks.
    assert filtered("offset < 100 and kind = 'log'").rdd.getNumPartitions() == 4
    assert filtered("offset >= 0").rdd.getNumPartitions() > 40


def test_transactions_are_marked_by_how_they_ended(spark: SparkSession) -> None:
    for node, outcome in (("controller-201-open", "open"), ("controller-201", "aborted")):
        records = load(spark, TRANSACTION / node, view="records", maxPartitionBytes=300)
        rows = records.where("kind = 'log'").orderBy("offset").collect()
        inside = [row for row in rows if row.transaction == outcome]
        assert inside[0].type == "BeginTransaction"
        assert (inside[-1].type == "AbortTransaction") == (outcome == "aborted")
        begun = next(row.offset for row in reversed(rows) if row.type == "BeginTransaction")
        assert inside[0].offset == begun
        assert [row.offset for row in inside] == list(range(begun, inside[-1].offset + 1))


def test_secrets_are_shown_only_on_request(spark: SparkSession) -> None:
    scram = load(spark, CLUSTER, view="records").where("type = 'UserScramCredential'")
    assert all(json.loads(row.value)["salt"] == "[hidden]" for row in scram.collect())
    shown = load(spark, CLUSTER, view="records", showSecrets="true")
    shown = shown.where("type = 'UserScramCredential'")
    assert all(json.loads(row.value)["salt"] != "[hidden]" for row in shown.collect())


def test_damage_is_rejected_with_its_position_or_omitted(
    spark: SparkSession, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(CLUSTER, damaged)
    segment = min((damaged / "__cluster_metadata-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    position = len(data) // 2
    data[position] ^= 0xFF
    segment.write_bytes(data)
    for view in ("records", "partitions"):
        with pytest.raises(Exception, match=rf"file .*{segment.name}, offset \d+, byte \d+"):
            load(spark, damaged, view=view).count()
    both = load(spark, [damaged, OLDER], view="records", mode="PERMISSIVE")
    whole = (
        load(spark, CLUSTER, view="records").count() + load(spark, OLDER, view="records").count()
    )
    assert 0 < whole - both.count() < 200
    # An error also names a path without any cluster.
    (tmp_path / "empty").mkdir()
    with pytest.raises(Exception, match=r"empty has no metadata log"):
        load(spark, tmp_path / "empty").count()
    permissive = load(spark, [tmp_path / "empty", OLDER], mode="PERMISSIVE")
    assert permissive.count() == len(library_rows(OLDER))
    # An incomplete last batch is not damage.
    torn = tmp_path / "torn"
    shutil.copytree(OLDER, torn)
    last = max((torn / "__cluster_metadata-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-10])
    less = load(spark, torn, view="records").where("kind = 'log'").count()
    assert less == load(spark, OLDER, view="records").where("kind = 'log'").count() - 1


def test_a_damaged_snapshot_is_named(spark: SparkSession, tmp_path: Path) -> None:
    source = max((CLUSTER / "__cluster_metadata-0").glob("*.checkpoint"))
    path = tmp_path / source.name
    data = bytearray(source.read_bytes())
    data[len(data) - 50] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=rf"file .*{path.name}, byte \d+"):
        load(spark, path, view="records").count()
    left = load(spark, path, view="records", mode="PERMISSIVE").count()
    assert 0 < left < load(spark, source, view="records").count()


def test_invalid_options_are_rejected(spark: SparkSession) -> None:
    for options, words in (
        ({"view": "leaders"}, "unknown view 'leaders'; known: records, partitions"),
        ({"view": "records", "offset": "5"}, "the view records has no option offset"),
        ({"offset": "yesterday"}, "offset is a whole number, not 'yesterday'"),
        ({"offset": "99999999"}, "no state is available as of offset 99999999"),
    ):
        with pytest.raises(Exception, match=words):
            load(spark, CLUSTER, **options).count()
