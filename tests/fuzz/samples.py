"""Small inputs that Kafka wrote: the seeds of every target.

Chooses files from ``tests/data`` and cuts logs and snapshots at batches into runs of a few KiB,
because a fuzzer is fast on small inputs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from kraft import records
from kraft._core.bytes.batch import scan, split
from kraft._core.bytes.batch_records import iterate
from kraft.records import Uuid, decode_value
from kraft.records.batches import encode_records
from kraft.records.values import encode_value
from tests.reference.random_tables import batches_of, random_records

DATA = Path(__file__).parents[1] / "data"
RUN_SIZE = 6 * 1024
_ZERO = Uuid(bytes(16))


def files(pattern: str) -> list[Path]:
    """Return files of the recorded clusters that are not empty, ordered by path."""
    return sorted(path for path in DATA.glob(f"kafka-*/**/{pattern}") if path.stat().st_size)


def runs(path: Path, size: int = RUN_SIZE) -> Iterator[bytes]:
    """Cut a file into runs of whole batches of at most ``size`` bytes; a larger batch is a run."""
    for run in split(path.read_bytes(), size):
        yield bytes(run)


def log_runs() -> Iterator[bytes]:
    """Return the first runs of every recorded segment and snapshot."""
    for path in files("*.log") + files("*.checkpoint"):
        for number, run in enumerate(runs(path)):
            if number < 3:
                yield run


def small_logs() -> Iterator[bytes]:
    """Return batches from offset 0: starts of Kafka's logs, and tables of all shapes of rows."""
    for path in files("00000000000000000000.log") + files("*.checkpoint"):
        yield next(runs(path, 12 * 1024))
    for seed in range(8):
        log = random_records(seed, topics=4)
        yield bytes(batches_of([encode_value(record) for record in log + changes_of(log)]))


def clusters() -> Iterator[tuple[int, bytes]]:
    """Return the state of every recorded cluster as (number of its batches, all batches).

    The state has SCRAM users and several settings per resource. Records follow that remove and
    restore parts of the state.
    """
    for path in files("*-*.checkpoint"):
        content = path.read_bytes()
        headers = scan(content)
        made = [
            decode_value(record.value)
            for batch in iterate(content)
            for record in batch
            if record.value is not None and not batch.is_control
        ]
        end = int(headers.last_offsets[-1]) + 1
        if changes := list(_removals_of(made)):
            again = [record for record in made if isinstance(record, _REMOVABLE)]
            behind = encode_records(changes + again[::-1], base_offset=end)
            yield len(headers), content + bytes(behind)


_REMOVABLE = (
    records.Config,
    records.UserScramCredential,
    records.ClientQuota,
    records.AccessControlEntry,
    records.DelegationToken,
)


def _removals_of(made: list[records.Record]) -> Iterator[records.Record]:
    for record in made:
        match record:
            case records.Config():
                yield record.replace(value=None)
            case records.UserScramCredential():
                yield records.RemoveUserScramCredential(record.name, record.mechanism)
            case records.ClientQuota():
                yield record.replace(value=0.0, remove=True)
            case records.AccessControlEntry():
                yield records.RemoveAccessControlEntry(record.id)
            case records.DelegationToken():
                yield records.RemoveDelegationToken(record.token_id)


def changes_of(log: list[records.Record]) -> list[records.Record]:
    """Return a PartitionChange of every kind for the partitions that the records create."""
    changes: list[records.Record] = []
    made = [record for record in log if isinstance(record, records.Partition)]
    for number, partition in enumerate(made):
        change = records.PartitionChange(
            partition_id=partition.partition_id, topic_id=partition.topic_id, version=2
        )
        kinds: tuple[dict[str, object], ...] = (
            {"leader": -1},
            {"isr": partition.replicas[:1]},
            {"replicas": [7, 8, 9, 10], "directories": [_ZERO] * 4, "isr": [7]},
            {"adding_replicas": [44], "removing_replicas": partition.replicas[-1:]},
            {"eligible_leader_replicas": partition.replicas[1:], "last_known_elr": [3]},
            {"leader_recovery_state": 1, "leader": partition.replicas[0]},
        )
        changes.append(change.replace(**kinds[number % len(kinds)]))
    return changes


def values() -> list[bytes]:
    """Return Kafka's record values: of each type in each version, and of the recorded logs."""
    with gzip.open(DATA / "record-corpus-4.3.jsonl.gz", "rt") as lines:
        entries = [json.loads(line) for line in lines]
    found = dict.fromkeys(bytes.fromhex(entry["value"]) for entry in entries if "value" in entry)
    for path in files("*.checkpoint"):
        for batch in iterate(path.read_bytes()):
            for record in batch:
                if record.value is not None and not batch.is_control:
                    found[record.value] = None
    return [value for value in found if len(value) <= 4096]
