"""A log of kraft with the calls and answers of the oracle (`log_oracle`), and its files."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from kraft._core.log.segment import SegmentPool
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.settings import LogSettings
from kraft.broker.produce_validation import ProduceRules, check
from kraft.broker.producer_snapshots import decode_snapshot
from kraft.broker.replication.replica_fetching import up_to_epoch
from kraft.errors import KraftError
from tests.harness.produced_batches import NOW_MS


class OwnLog:
    """A log of kraft, with the calls and answers of the oracle."""

    def __init__(self, home: Path, configs: dict[str, str]) -> None:
        self.home = home
        self.configs = configs
        self.now_ms = NOW_MS
        self.directory: LogDirectory
        self.log: PartitionLog

    def open(self, *, start: int = 0, recovery: int = 0, clean: bool = False) -> dict[str, Any]:
        self.directory = LogDirectory(
            str(self.home), now_ms=lambda: self.now_ms, pool=SegmentPool(3), random=Random(1)
        )
        self.log = PartitionLog(
            self.directory,
            "t",
            0,
            LogSettings.from_configs(self.configs),
            name="t-0",
            start_offset=start,
            recovery_point=recovery,
            is_clean=clean,
        )
        self.log.open()
        return self.state()

    def state(self) -> dict[str, Any]:
        core = self.log.core
        facts = [core.segment_facts(index) for index in range(core.segment_count)]
        producers = self.log.producers.producers.values()
        return {
            "start": self.log.start_offset,
            "end": self.log.end_offset,
            "segments": [[one.base_offset, one.size, one.max_timestamp] for one in facts],
            "epochs": [list(entry) for entry in core.epochs],
            "producers": sorted([entry.producer_id, entry.last_sequence] for entry in producers),
        }

    def leader(self, records: bytes, epoch: int) -> dict[str, Any]:
        try:
            batch = check(
                bytearray(records),
                ProduceRules.from_configs(self.configs),
                "t-0",
                now_ms=self.now_ms,
            )
            found = self.log.append_as_leader(batch.data, epoch)
        except KraftError as error:
            return {"code": error.kafka_code}
        return {**self.state(), "first": found.first_offset, "last": found.last_offset}

    def follower(self, records: bytes, epoch: int) -> dict[str, Any]:
        known = up_to_epoch(records, epoch)
        if len(known):
            self.log.append_as_follower(known)
        return self.state()

    def files(self) -> dict[str, Any]:
        return files(self.home / "t-0")


def files(directory: Path) -> dict[str, Any]:
    """Return the files of a closed log that both implementations write alike."""
    found = {
        path.name: sorted(decode_snapshot(path.read_bytes()))
        if path.suffix == ".snapshot"
        else path.read_bytes()
        for path in sorted(directory.iterdir())
        if not path.name.endswith(".deleted")
        and path.stat().st_size
        # An empty transaction index and Kafka's partition.metadata are not the log's.
        and path.suffix != ".txnindex"
    }
    # Kafka writes one more when it loads a log, and none of a log that was loaded empty.
    last = max((name for name in found if name.endswith(".snapshot")), default="")
    for name in [name for name in found if name.endswith(".snapshot")]:
        if not found[name] or (name != last and f"{name[:20]}.log" not in found):
            del found[name]
    return found


def sorted_state(answer: dict[str, Any]) -> dict[str, Any]:
    answer = {key: value for key, value in answer.items() if key != "message"}
    if "producers" in answer:
        answer["producers"].sort()
    return answer
