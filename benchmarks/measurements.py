"""The measurements of one run of pytest-benchmark, by work and size of cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Prefixes of the works of Kafka's classes and quorums.
PEER = "kafka_"


@dataclass(frozen=True)
class Measurement:
    """One work of one run: seconds for `count` items, and the bytes that it moves."""

    work: str
    unit: str
    count: int
    median_s: float
    worst_s: float
    bytes: int = 0
    total: int = 0  # partitions in the whole cluster, if different from the count
    heap: str = ""
    p99_s: float = 0.0  # if the items were timed one by one
    p999_s: float = 0.0
    missed: int = 0  # heartbeats without a response in time
    steal_s: float = 0.0  # time of this machine's processors that its host gave to others
    cpu_s: float = 0.0  # CPU time of an average round, all threads and child processes

    @property
    def item_s(self) -> float:
        return self.median_s / self.count

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.median_s


class Run:
    """The measurements of one run, by work and (if given) by the cluster's partitions."""

    def __init__(self, json: dict[str, Any]) -> None:
        self.quick = bool(json.get("quick"))
        self.machine = json.get("machine_info", {})
        self.partitions = json.get("partitions", 0)
        entries = [each for each in json["benchmarks"] if "work" in each["extra_info"]]
        measured = [_benchmark(each) for each in entries]
        measured += [_figure(each) for each in json.get("figures", [])]
        self.kraft = [each for each in measured if not each.work.startswith(PEER)]
        self.peers = [each for each in measured if each.work.startswith(PEER)]
        infos = (each["extra_info"] for each in entries)
        self.java = next((info["java"] for info in infos if "java" in info), None)

    def of(self, work: str, total: int | None = None) -> Measurement | None:
        """Return the measurement of `work` on kraft's side or the peers'; None if it did not run.

        Without a `total`, that of the run's usual size of cluster.
        """
        wanted = (0, self.partitions) if total is None else (total,)
        found = [each for each in self.kraft + self.peers if each.work == work]
        return next((each for each in found if each.total in wanted), None)

    def all_of(self, work: str) -> list[Measurement]:
        found = [each for each in self.kraft + self.peers if each.work == work]
        return sorted(found, key=lambda each: each.total)


def _benchmark(entry: dict[str, Any]) -> Measurement:
    info, stats = entry["extra_info"], entry["stats"]
    return Measurement(
        work=info.get("work", entry["name"]),
        unit=info.get("unit", "calls"),
        count=info.get("count", 1),
        median_s=stats["median"],
        worst_s=stats["max"],
        bytes=info.get("bytes", 0),
        total=info.get("total", 0),
        heap=info.get("heap", ""),
        p99_s=info.get("p99_s", 0.0),
        p999_s=info.get("p999_s", 0.0),
        missed=info.get("missed", 0),
        steal_s=info.get("steal_s", 0.0),
        cpu_s=info.get("cpu_s", 0.0),
    )


def _figure(line: dict[str, Any]) -> Measurement:
    """Return a figure that was not timed: bytes for a number of items."""
    return Measurement(
        work=line["work"],
        unit=line["unit"],
        count=line["count"],
        median_s=0.0,
        worst_s=0.0,
        bytes=line["bytes"],
        heap=line.get("heap", ""),
    )
