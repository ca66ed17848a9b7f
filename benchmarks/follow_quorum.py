"""One controller on loopback whose metadata is a snapshot: for the suite `follow`."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from compileall import compile_dir
from contextlib import contextmanager, suppress
from pathlib import Path

import kraft
from benchmarks import generate
from kraft.network.controller_connection import Address
from kraft.network.quorum_client import QuorumClient, QuorumUnreachableError
from kraft.records import Partition, Topic, Uuid
from kraft.records.batches import encode_records
from kraft.server.local_quorum import LocalQuorum

#: No record is written while nobody asks for one, and no broker of the snapshot is fenced.
_SETTINGS = {"metadata.max.idle.interval.ms": "0", "broker.session.timeout.ms": "36000000"}
_START_S = 120.0


@contextmanager
def running_on(snapshot: Path, directory: Path) -> Iterator[str]:
    """Yield the address of a controller that has this snapshot and nothing else."""
    # As for an installed package, where PYTHONDONTWRITEBYTECODE is set.
    compile_dir(Path(kraft.__file__).parent, quiet=2)
    with LocalQuorum(directory, 1, _SETTINGS, is_static=True) as quorum:
        [node] = quorum.nodes
        log = node.config_path.parent / "data" / "__cluster_metadata-0"
        log.mkdir(exist_ok=True)
        shutil.copy(snapshot, log / snapshot.name)
        quorum.start_node(node)
        host, port = node.endpoint.split(":")
        end = time.monotonic() + _START_S
        while high_watermark((host, int(port))) < 0:
            assert node.is_running, node.log_path.read_text()
            assert time.monotonic() < end, node.log_path.read_text()
            time.sleep(0.05)
        yield node.endpoint


def high_watermark(address: Address) -> int:
    """Return what the controller has committed; -1 while it does not lead."""
    with suppress(QuorumUnreachableError), QuorumClient([address], timeout_s=2.0) as client:
        return client.describe_quorum().high_watermark
    return -1


def snapshot_of_topics(count: int, directory: Path) -> Path:
    """Write a snapshot with this many topics of one partition; return its path."""
    base, _ = generate.make("uniform", 1000)
    metadata = kraft.open_metadata(base)
    brokers = sorted(metadata.brokers)
    for first in range(0, count, 10_000):
        records: list[Topic | Partition] = []
        for number in range(first, min(first + 10_000, count)):
            topic_id = Uuid(b"many" + number.to_bytes(12, "big"))
            replicas = [brokers[(number + place) % len(brokers)] for place in range(3)]
            records.append(Topic(name=f"many-topics.{number:06}", topic_id=topic_id))
            records.append(
                Partition(
                    partition_id=0, topic_id=topic_id, replicas=replicas, isr=replicas,
                    leader=replicas[0], directories=[Uuid(bytes(15) + b"\1")] * 3,
                )
            )  # fmt: skip
        metadata.apply(encode_records(records, metadata_version=generate.METADATA_VERSION))
    directory.mkdir()
    return metadata.write_snapshot(directory, columns=False)


def environment() -> dict[str, str]:
    """Return the environment of commands, with buffered output as for an installed package."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
