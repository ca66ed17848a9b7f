"""Kafka's own classes on the input of this run, in Java; their figures are the peers of kraft's.

Each program first checks its input: counts and sums must equal those that the generator of the file
recorded. Without Java or Maven the peers are skipped, each by its name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import generate, generate_changes
from benchmarks.conftest import Sizes
from benchmarks.java_peers import Line, Peers
from tests.harness.kafka_jars import MissingToolError

pytestmark = pytest.mark.peer


def rounds_of(sizes: Sizes, is_slow: bool) -> tuple[int, int]:
    """Return counted rounds and warm-up rounds: the same for kraft and for its peer."""
    if is_slow:
        return sizes.slow_rounds, sizes.slow_warmup
    return sizes.rounds, sizes.warmup


def run(
    peers: Peers, program: str, sizes: Sizes, *, is_slow: bool = False, **arguments: object
) -> dict[str, Line]:
    """Return one program's lines; skip with the peer's name and the missing tool if it cannot run.

    ``is_slow``: a round takes seconds, and both sides run fewer rounds.
    """
    rounds, warmup = rounds_of(sizes, is_slow)
    try:
        return peers.run(program, iterations=rounds, warmup=warmup, **arguments)
    except MissingToolError as missing:
        pytest.skip(f"Java peer `{program}`: {missing}")


def test_serde_reads_every_record(peers: Peers, sizes: Sizes) -> None:
    path, expected = generate.make("mixed", sizes.partitions)
    lines = run(peers, "decode", sizes, file=path)
    assert lines["decode_batches"]["count"] == expected.records
    assert lines["decode_batches"]["partitions"] == expected.partitions
    assert lines["decode_serde"]["count"] == expected.records


def test_serde_writes_the_same_number_of_bytes(peers: Peers, sizes: Sizes) -> None:
    path, expected = generate.make("mixed", sizes.partitions)
    lines = run(peers, "encode", sizes, file=path)
    assert lines["encode_serde"]["count"] == expected.partitions
    assert lines["encode_serde"]["bytes"] == expected.partition_record_bytes


def test_topics_image_holds_what_the_checkpoint_says(peers: Peers, sizes: Sizes) -> None:
    path, expected = generate.make("mixed", sizes.partitions)
    line = run(peers, "load", sizes, file=path)["load"]
    for name in ("partitions", "topics", "state_check", "directory_check"):
        assert line[name] == getattr(expected, name), name


@pytest.mark.partitions(100_000, 1_000_000, 2_000_000)
def test_topics_delta_publishes_a_fenced_broker(
    peers: Peers, sizes: Sizes, partitions: int
) -> None:
    path, expected = generate.make("uniform", partitions)
    line = run(peers, "fence", sizes, file=path, broker=0)["fence_apply"]
    assert line["count"] == generate.HELD_PER_BROKER
    assert line["partitions"] == expected.partitions


def test_topics_image_follows_a_tail_of_changes(peers: Peers, sizes: Sizes) -> None:
    path, _ = generate.make("uniform", sizes.partitions)
    tail, expected = generate_changes.make_changes(sizes.partitions)
    line = run(peers, "changes", sizes, file=path, tail=tail)["changes"]
    for name in ("partitions", "state_check", "directory_check"):
        assert line[name] == getattr(expected, name), name


def test_topics_image_heap(peers: Peers, sizes: Sizes) -> None:
    path, expected = generate.make("uniform", sizes.partitions)
    line = run(peers, "heap", sizes, file=path)["image_heap"]
    assert line["count"] == expected.partitions
    assert line["bytes"] > 0


def test_striped_replica_placer(peers: Peers, sizes: Sizes) -> None:
    lines = run(peers, "place", sizes, partitions=sizes.partitions, brokers=300, racks=3)
    assert lines["place"]["count"] == sizes.partitions


def test_unified_log(peers: Peers, sizes: Sizes, tmp_path: Path) -> None:
    batch = generate.make_data_batch()
    lines = run(peers, "log", sizes, file=batch, directory=tmp_path, appends=sizes.appends)
    assert lines["append"]["count"] == sizes.appends
    assert lines["read_bytes"]["bytes"] == sizes.appends * batch.stat().st_size
