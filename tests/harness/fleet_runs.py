"""Run directories of a fleet, generated from a seed: for tests of what reads them.

The times follow planted laws, so that a test knows the exponents. No figure of these files is a
measurement.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: The steps of a generated scenario and their lengths in seconds.
STEPS = {
    "start up": 12.0,
    "steady": 20.0,
    "rack lost": 30.0,
    "recovery": 18.0,
    "controller killed": 15.0,
}


@dataclass(frozen=True)
class Planted:
    """The laws of a generated run: the median of ``applied`` and the one ``decided``, in ms.

    applied ~ 2 * (brokers / 100) ** applied_exponent, with ``after_knee`` as its exponent above
    ``knee`` brokers; decided ~ 40 * (partitions / 10_000) ** decided_exponent; both times
    ``factor``, scattered by ``noise`` (standard deviation of the logarithm).
    """

    applied_exponent: float = 0.5
    knee: float = float("inf")
    after_knee: float = 0.0
    decided_exponent: float = 1.0
    factor: float = 1.0
    noise: float = 0.0

    def applied_ms(self, brokers: int) -> float:
        """Return the median of ``applied``."""
        low = min(brokers, self.knee)
        value = 2 * (low / 100) ** self.applied_exponent
        return float(self.factor * value * (brokers / low) ** self.after_knee)

    def decided_ms(self, partitions: int) -> float:
        """Return ``decided`` after the loss of a rack."""
        return float(self.factor * 40 * (partitions / 10_000) ** self.decided_exponent)


def write_run(
    directory: Path,
    *,
    quorum: str = "kraft",
    brokers: int = 30,
    partitions: int = 10_000,
    seed: int = 1,
    scenario: str = "rack-loss",
    planted: Planted | None = None,
    extra_lines: tuple[str, ...] = (),
) -> Path:
    """Write the files of a run; return the directory. The same arguments write the same bytes."""
    law = planted or Planted()
    random = np.random.default_rng([seed, brokers, partitions, len(quorum)])
    directory.mkdir(parents=True)
    info = {
        "run": f"{quorum}-{brokers}-{partitions}-{seed}",
        "quorum": quorum,
        "controllers": 3,
        "brokers": brokers,
        "partitions": partitions,
        "scenario": scenario,
        "seed": seed,
        "kraft_version": "0.1.0",
        "started_at": f"2026-11-26T10:{seed % 60:02d}:00+00:00",
        "processes": 2,
        "machine": {"cpu": "generated", "cores": 2},
    }
    (directory / "run.json").write_text(json.dumps(info), encoding="utf-8")
    events = sorted(_events(random, law, brokers, partitions), key=lambda each: each["at_ms"])
    lines = [json.dumps(each) for each in events]
    (directory / "trace.jsonl").write_text(
        "\n".join([*lines, *extra_lines]) + "\n", encoding="utf-8"
    )
    (directory / "benchmark.json").write_text(
        json.dumps(_benchmark(info, events)), encoding="utf-8"
    )
    return directory


def interrupted(place: Path, **options: Any) -> Path:
    """Write a run that was interrupted in its third step."""
    run = write_run(place, **options)
    trace = run / "trace.jsonl"
    lines = trace.read_text().splitlines(keepends=True)
    cut = next(at for at, text in enumerate(lines) if '"rack lost"' in text and "cpu" in text)
    trace.write_text("".join(lines[: cut + 1]))
    return run


def _events(
    random: np.random.Generator, law: Planted, brokers: int, partitions: int
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def add(
        at_s: float, step: str, name: str, value: float | None = None, broker: int | None = None
    ) -> None:
        number = None if value is None else float(value)
        event = {"at_ms": round(at_s * 1000, 3), "step": step, "name": name}
        found.append({**event, "broker": broker, "value": number})

    def noisy(value: float) -> float:
        return float(value * np.exp(random.normal(0, law.noise))) if law.noise else value

    scale = noisy(1.0)
    counters = {"network_bytes": 0.0, "disk_bytes": 5e5}
    begin = 0.0
    offset = 100.0
    lost = range(brokers // 3)
    for step, length in STEPS.items():
        add(begin, step, "step_started")
        load = {"start up": 3.0, "rack lost": 8.0, "recovery": 4.0}.get(step, 1.0)
        for second in range(int(length)):
            at = begin + second + 0.5
            busy = load if 2 <= second < length / 2 else 1.0
            cpu = 0.02 + 0.00012 * brokers * busy
            add(at, step, "controller_cpu", cpu * random.uniform(0.9, 1.1))
            add(at, step, "fleet_cpu", 0.00009 * brokers * busy * random.uniform(0.9, 1.1))
            add(at, step, "controller_rss", 9e7 + 120 * partitions + 2e5 * at)
            add(at, step, "fleet_rss", 5e7 + 70 * partitions)
            counters["network_bytes"] += 900.0 * brokers * busy
            counters["disk_bytes"] += 4000.0 * busy
            for name, value in counters.items():
                add(at, step, name, value)
            add(at, step, "queue_time_p99", 0.3 * busy * random.uniform(0.8, 1.3))
            add(at, step, "applied_lag_records", float(int(busy * random.integers(0, 40))))
            offset += busy
            add(at, step, "committed", offset)
            for broker in random.choice(brokers, min(8, brokers), replace=False):
                median = law.applied_ms(brokers) * scale * (1 + 0.4 * (busy - 1))
                applied = median * random.lognormal(0, 0.3)
                add(at + 0.01, step, "applied", applied, int(broker))
        if step == "start up":
            for broker in range(brokers):
                at = begin + 0.5 + 4 * broker / brokers
                add(at, step, "broker_registered", broker=broker)
                add(at + 0.4, step, "broker_unfenced", broker=broker)
        elif step == "rack lost":
            fault = begin + 2
            fenced_ms = 9000 + random.uniform(0, 1100, len(lost))
            for broker, after in zip(lost, fenced_ms, strict=True):
                add(fault + after / 1000, step, "broker_fenced", broker=broker)
                add(fault + after / 1000, step, "fenced_after", after, broker)
            decided = noisy(law.decided_ms(partitions))
            add(fault + decided / 1000, step, "decided", decided)
            add(fault + 1.4 * decided / 1000, step, "applied_everywhere", 1.4 * decided)
        elif step == "recovery":
            for place, broker in enumerate(lost):
                add(
                    begin + 1 + 5 * place / max(len(lost), 1),
                    step,
                    "broker_unfenced",
                    broker=broker,
                )
        elif step == "controller killed":
            after = noisy(900 * law.factor)
            add(begin + 3 + 0.7 * after / 1000, step, "controller_elected", broker=None)
            add(begin + 3 + after / 1000, step, "first_write", after)
            add(begin + 4.5, step, "heartbeat_late", 240 * law.factor, 3 % brokers)
        begin += length
        add(begin, step, "step_ended", length)
    return found


def _benchmark(info: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run's times as a result of pytest-benchmark, with sizes as parameters."""
    benchmarks = []
    params = {
        "brokers": info["brokers"],
        "partitions": info["partitions"],
        "quorum": info["quorum"],
    }
    for name in ("applied", "decided", "first_write"):
        rounds = [each["value"] / 1000 for each in events if each["name"] == name]
        benchmarks.append(
            {
                "group": info["scenario"],
                "name": name,
                "fullname": f"fleet/{info['scenario']}::{name}",
                "params": params,
                "param": None,
                "extra_info": {"seed": info["seed"]},
                "stats": {
                    "min": min(rounds), "max": max(rounds), "mean": float(np.mean(rounds)),
                    "stddev": float(np.std(rounds)), "rounds": len(rounds), "iterations": 1,
                    "median": float(np.median(rounds)), "data": rounds,
                },
            }
        )  # fmt: skip
    return {
        "machine_info": {"node": "generated", "machine": "x86_64", "system": "Linux",
                         "python_version": "3.11", "cpu": {"brand_raw": "generated", "count": 2}},
        "commit_info": {"id": "c0ffee0" * 5, "dirty": False, "branch": "main", "project": "kraft"},
        "benchmarks": benchmarks,
        "datetime": info["started_at"],
        "version": "5.1.0",
    }  # fmt: skip
