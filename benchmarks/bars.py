"""The rows of the speed table: each names its peer and its required conditions."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.broker_bars import BROKER_ROWS
from benchmarks.broker_data_bars import BROKER_DATA_ROWS
from benchmarks.conditions import (
    Row,
    Verdict,
    at_least,
    at_least_a_second,
    at_most_bytes,
    at_most_gib,
    at_most_ms,
    at_most_s,
    at_most_times,
    same_cost,
    share_of,
    share_of_bytes,
    worst_at_most_ms,
    worst_within,
)
from benchmarks.data_loop_bars import DATA_LOOP_ROWS
from benchmarks.measurements import Run
from benchmarks.network_bars import NETWORK_ROWS

QUORUM_ROWS = (
    Row(
        "Log.append and fsync, 512 B",
        "append_sync_small",
        None,
        (at_most_times(1.2, "write_sync_small"),),
        floor="write_sync_small",
    ),
    Row(
        "Log.append and fsync, 1 MiB",
        "append_sync_1MiB",
        None,
        (at_most_times(1.2, "write_sync_1MiB"),),
        floor="write_sync_1MiB",
    ),
    Row(
        "one node, request to acknowledged",
        "single_commit",
        None,
        (at_most_times(2.5, "single_sync"),),
        floor="single_sync",
    ),
    Row(
        "one node, group commit: syncs a second while requests never stop",
        "single_group_commit",
        None,
        (at_most_times(1 / 0.9, "single_sync"), at_most_times(1 / 0.9, "single_group_sync")),
        floor="single_group_sync",
        note="a sync of a group's bytes takes longer than one of a single record's; beside both",
    ),
    Row(
        "one node, 1 MiB batches",
        "single_bandwidth",
        None,
        (share_of("single_sync_1MiB", 0.80),),
        floor="single_sync_1MiB",
    ),
    Row(
        "three nodes, light load, append to committed",
        "quorum_commit",
        "kafka_quorum_commit",
        (at_most_times(8, "quorum_sync"), at_least(1)),
        floor="quorum_sync",
        note="50 appends a second of one record of 200 B; linger 0 on both sides; "
        "the peer's JVMs: G1, 1 GiB each",
    ),
    Row(
        "three nodes, 1 MiB batches; bytes are those on all three disks",
        "quorum_bandwidth",
        "kafka_quorum_bandwidth",
        (share_of("bare_writers", 0.60), at_least(3)),
        floor="bare_writers",
        note="the floor is all that this disk takes, and bounds the ratio to the peer",
    ),
    Row(
        "the quorum's state machine, a mixed trace",
        "raft_steps",
        None,
        (at_least_a_second(100_000),),
        floor=None,
    ),
    Row(
        "a new node catches up 1M partitions by snapshot",
        "quorum_catch_up",
        None,
        (at_most_times(1.5, "catch_up_floor"),),
        floor="catch_up_floor",
        note="the floor is the slower of the same bytes written and synced, and sent over loopback",
    ),
)

ROWS = (
    Row(
        "partition records, CRC checked, mixed shapes -> columns",
        "decode",
        "kafka_decode_serde",
        (at_least(3.5), share_of("memcpy", 0.20)),
        note="the peer is the serde alone: values found beforehand, no CRC",
    ),
    Row(
        "the same; the peer checks CRCs and walks batches too",
        "decode",
        "kafka_decode_batches",
        (at_least(3.5),),
    ),
    Row(
        "columns -> partition records in batches with CRC",
        "encode",
        "kafka_encode_serde",
        (at_least(10), share_of("memcpy", 0.40)),
        note="the peer is the serde alone: no batches, no CRC",
    ),
    Row(
        "the same; the peer is MemoryRecordsBuilder",
        "encode",
        "kafka_encode_builder",
        (at_least(10),),
    ),
    Row(
        "the same; the peer is raft's BatchBuilder",
        "encode",
        "kafka_encode_raft",
        (at_least(10),),
    ),
    Row(
        "v2 batches -> Python objects",
        "read_kraft",
        "read_aiokafka",
        (at_least(1.3),),
        floor="memcpy_cached",
    ),
    Row(
        "v2 batches -> columns",
        "read_kraft_columns",
        "read_aiokafka",
        (at_least(8),),
        floor="memcpy_cached",
    ),
    Row(
        "Python objects -> v2 batches",
        "build_kraft",
        "build_aiokafka",
        (at_least(1.3),),
        floor="memcpy_cached",
    ),
    Row(
        "columns -> v2 batches",
        "build_kraft_columns",
        "build_aiokafka",
        (at_least(8),),
        floor="memcpy_cached",
    ),
    Row(
        "log append, 16 KiB batches, no fsync",
        "append",
        "kafka_append",
        (at_least(3), share_of("writev", 0.50)),
        floor="writev",
        note="the batches were sealed by this process: no second CRC",
    ),
    Row(
        "the same, each batch's CRC checked, as the peer does",
        "append_verified",
        "kafka_append",
        (at_least(3), share_of("writev", 0.50)),
        floor="writev",
    ),
    Row(
        "fetch of 1 MiB slices from the page cache, every byte copied into a buffer",
        "fetch_read",
        "kafka_read_bytes",
        (at_least(3), share_of("pread", 1)),
        floor="pread",
        note="both sides copy: bytes over memory bandwidth bound the ratio to the peer",
    ),
    Row(
        "the same, each page for the first time",
        "fetch_first_read",
        "kafka_read_bytes",
        (),
        floor="pread",
        note="no bar: the first read of a page costs the fault that maps it",
    ),
    Row(
        "fetch of 1 MiB slices, located only, as for sendfile",
        "fetch",
        "kafka_read_slice",
        (at_least(3),),
        floor=None,
    ),
    Row(
        "1M partitions, checkpoint bytes -> queryable",
        "load",
        "kafka_load",
        (at_least(8), worst_within(1.5)),
    ),
    Row(
        "1M partitions from the column checkpoint, mapped",
        "column_map",
        None,
        (at_most_ms(1),),
        floor=None,
    ),
    Row(
        "1M partitions from the column checkpoint, verified",
        "column_verify",
        None,
        (at_most_ms(10),),
        floor="crc32c",
    ),
    Row(
        "fence a broker with 10k of 1M partitions: decide, apply, encode, publish",
        "fence",
        "kafka_fence_apply",
        (at_least(10), same_cost(1.5)),
        total=1_000_000,
        note="the peer is TopicsDelta.apply alone",
    ),
    Row(
        "a tail of 1M partition changes -> columns",
        "changes",
        "kafka_changes",
        (),
    ),
    Row(
        "kraft.diff of two states, beside the replay between them",
        "diff",
        None,
        (at_most_times(2, "diff_replay"),),
        floor="diff_replay",
    ),
    Row(
        "one partition changed and published",
        "change_one",
        None,
        (same_cost(1.5),),
        floor=None,
        total=10_000_000,
    ),
    Row(
        "snapshot of 2M partitions beside the event thread: a slice",
        "snapshot_slices",
        None,
        (worst_at_most_ms(5),),
        floor=None,
        total=2_000_000,
    ),
    Row(
        "placement, 1M x RF 3 on 300 brokers in 3 racks",
        "place",
        "kafka_place",
        (at_least(4),),
    ),
    Row(
        "memory: the columns, RF 3 with directories",
        "memory_columns",
        "kafka_image_heap",
        (at_most_bytes(64),),
        floor=None,
    ),
    Row(
        "memory: columns and every index",
        "memory_all",
        "kafka_image_heap",
        (at_most_bytes(80),),
        floor=None,
    ),
)


CONTROLLER_ROWS = (
    Row(
        "create 1M partitions in one request and transaction: decide, apply, encode",
        "controller_create",
        "kafka_controller_create",
        (at_least_a_second(3_000_000), at_least(10)),
        note="topics of 8,000; the peer, ReplicationControlManager, in as many requests",
    ),
    Row(
        "create 100,000 topics of 10 partitions, 100 topics a request",
        "controller_create_small",
        "kafka_controller_create_small",
        (at_least(3),),
    ),
    Row(
        "a broker with 10k of 1M partitions is fenced: decide, apply, encode",
        "controller_fence",
        "kafka_controller_fence",
        (at_least(10),),
    ),
    Row(
        "zonal outage at 1M partitions: a third of 300 brokers, one by one",
        "controller_zone",
        "kafka_controller_zone",
        (at_least(10),),
    ),
    Row(
        "AlterPartition of 10k partitions, request bytes to record bytes",
        "controller_alter",
        "kafka_controller_alter",
        (at_least(5),),
        note="here to the bytes of the response too",
    ),
    Row(
        "preferred election over 1M partitions, 100k to move",
        "controller_elect",
        "kafka_controller_elect",
        (at_least(10),),
        note="the peer in requests of 50,000 partitions, as it refuses more than 10,000 elections",
    ),
    *(
        Row(
            f"the longest event of all rounds: {title}",
            f"controller_{name}_longest",
            None,
            (worst_at_most_ms(5),),
            floor=None,
        )
        for title, name in (
            ("creating 1M partitions", "create"),
            ("creating 100,000 topics", "create_small"),
            ("fencing", "fence"),
            ("a zonal outage", "zone"),
            ("AlterPartition", "alter"),
            ("preferred election", "elect"),
        )
    ),
    Row(
        "revert of a change to each of 1M partitions, against applying them",
        "revert",
        None,
        (at_most_times(2, "revert_apply"),),
    ),
    Row(
        "revert of 1M partitions that were created, against applying them",
        "revert_created",
        None,
        (at_most_times(2, "revert_created_apply"),),
    ),
    Row(
        "memory of the whole controller at 2M partitions: resident, against the peer's heap",
        "controller_memory",
        "kafka_controller_heap",
        (share_of_bytes("kafka_controller_heap", 1 / 5),),
        floor=None,
    ),
)

SECURITY_ROWS = tuple(
    Row(
        f"authorizer: {title}; DESCRIBE of 500 topics for one user",
        f"authorize_{layout}",
        f"kafka_authorize_{layout}",
        conditions,
        floor=None,
        note=note,
    )
    for title, layout, conditions, note in (
        ("7,000 ACLs of 7,000 users on `*`", "wildcard", (at_least(10),), ""),
        ("7,000 ACLs of 7,000 users on one prefix", "prefix", (at_least(10),), ""),
        (
            "7,000 ACLs on 500 names",
            "literal",
            (),
            "the peer's best case: it scans the 14 ACLs on the name",
        ),
    )
)

SWEEP_ROWS = (
    Row(
        "kraft sweep outages: every pair of 300 brokers lost on 1M partitions, start-up included",
        "sweep_command",
        None,
        (at_most_ms(120_000),),
        floor=None,
        total=1_000_000,
    ),
    Row(
        "the same by a process that has the metadata open",
        "sweep_pairs",
        None,
        (at_most_ms(120_000),),
        floor=None,
        total=1_000_000,
    ),
    Row(
        "one outage: two brokers lost, each of the 20,000 rows that they hold evaluated, one core",
        "sweep_outage",
        None,
        (at_most_ms(5),),
        floor=None,
        total=1_000_000,
    ),
)


FOLLOW_ROWS = (
    Row(
        "kraft.follow of 1M partitions, first state: fetched, checked, loaded",
        "follow_first_state",
        None,
        (at_most_times(2, "follow_copy"),),
        floor="follow_copy",
        note="the floor: a bare client receives the same parts from the same leader into one "
        "buffer; both in fresh processes, after their imports",
    ),
    Row(
        "the same snapshot copied as a file, and synced",
        "follow_copy_file",
        None,
        (),
        floor=None,
    ),
    Row(
        "kraft.follow: one topic created at 1M partitions, applied, with its differences",
        "follow_delta",
        None,
        (same_cost(2),),
        floor=None,
        total=1_000_000,
    ),
    Row(
        "kraft topics list of 100,000 topics of a running controller, start-up included",
        "follow_topics_list",
        None,
        (at_most_s(2),),
        floor=None,
    ),
    Row(
        "kraft topics describe of 1M partitions of a running controller, start-up included",
        "follow_describe",
        None,
        (),
        floor=None,
    ),
    Row(
        "the same: the largest memory of the command",
        "follow_describe_memory",
        None,
        (at_most_gib(0.25),),
        floor=None,
    ),
)


HISTORY_ROWS = (
    Row(
        "kraft bench ingest: 10,000 runs x 200 benchmarks, 20M round values, by Spark",
        "ingest_spark",
        "ingest_json",
        (at_most_s(90),),
        floor="ingest_bytes",
        total=10_000,
        note="two cores, the session up; the peer is json.loads of the same files on one core",
    ),
    Row(
        "kraft regress over all of them, Spark's start included",
        "regress_command",
        "regress_otava",
        (at_most_s(90),),
        floor=None,
        total=10_000,
        note="two cores; the peer is Otava's change points alone, on one",
    ),
    Row(
        "kraft regress compare of two files of 200 benchmarks",
        "compare_command",
        None,
        (at_most_s(2),),
        floor=None,
    ),
)

METADATA_CACHE_ROWS = (
    Row(
        "Metadata of 5,000 topics with 50 partitions, request bytes -> response bytes",
        "metadata_all",
        "kafka_metadata_all",
        (at_least(10),),
        floor="metadata_memcpy",
    ),
    Row(
        "the same while one broker of 60 is fenced",
        "metadata_fenced",
        "kafka_metadata_fenced",
        (at_least(10),),
        floor="metadata_memcpy",
    ),
    Row(
        "Metadata of one topic of them, a thousand requests",
        "metadata_one",
        "kafka_metadata_one",
        (at_least(1),),
        floor=None,
    ),
    Row(
        "a page of DescribeTopicPartitions: 2,000 partitions",
        "describe_page",
        "kafka_describe_page",
        (at_least(1),),
        floor=None,
    ),
)

PRODUCE_ROWS = (
    *(
        Row(
            f"validate a produced batch, {codec}, {size} of records",
            f"validate_{codec}_{size}",
            None,
            (),
            floor=f"crc_{codec}_{size}" if codec == "none" else f"inflate_{codec}_{size}",
        )
        for codec in ("none", "lz4", "zstd")
        for size in ("16KiB", "1MiB")
    ),
    *(
        Row(
            f"the same, lz4 for a topic of zstd, {size}",
            f"validate_lz4_to_zstd_{size}",
            None,
            (),
            floor=f"inflate_lz4_{size}",
            note="compression is not part of the floor",
        )
        for size in ("16KiB", "1MiB")
    ),
)

MESSAGE_ROWS = (
    Row(
        "Fetch request of 1,000 partitions in a topic each -> objects",
        "fetch_request",
        None,
        (at_most_ms(1),),
        floor=None,
    ),
    Row(
        "Fetch response of 1,000 partitions, made and encoded around its records",
        "fetch_response",
        None,
        (at_most_ms(2),),
        floor=None,
    ),
    Row(
        "Produce request of 1,000 partitions -> objects with views of records",
        "produce_request",
        None,
        (at_most_ms(1),),
        floor=None,
    ),
)


def judged(
    run: Run,
    rows: tuple[Row, ...] = ROWS
    + CONTROLLER_ROWS
    + SECURITY_ROWS
    + QUORUM_ROWS
    + NETWORK_ROWS
    + BROKER_ROWS
    + BROKER_DATA_ROWS
    + DATA_LOOP_ROWS
    + FOLLOW_ROWS
    + SWEEP_ROWS
    + HISTORY_ROWS
    + METADATA_CACHE_ROWS
    + PRODUCE_ROWS
    + MESSAGE_ROWS,
) -> Iterator[tuple[Row, list[Verdict]]]:
    """Return every row with the verdicts of its conditions."""
    for row in rows:
        yield row, [condition(run, row) for condition in row.conditions]
