"""The live metadata, and commands over it, of a running controller with a million partitions.

``follow_first_state``  `kraft.follow` until its first state: snapshot fetched, checked and loaded
``follow_copy``         the floor: another process that fetches the same snapshot from the same
                        leader into one buffer (`snapshot_client`), in turns with the above
``follow_copy_file``    beside it: the same file copied and synced
``follow_delta``        one topic is created: the poll that applies it, and its differences, with
                        1,000 and with all partitions
``follow_topics_list``  ``kraft topics list`` of 100,000 topics, the whole process
``follow_describe``     ``kraft topics describe`` of all partitions, the whole process; its figure
                        of memory is the process's largest

Before each turn the machine's memory is warmed up: see `bench_raft_quorum`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kraft
from benchmarks import generate
from benchmarks.bench_raft_quorum import warm_memory
from benchmarks.conftest import FULL, Sizes
from benchmarks.follow_quorum import environment, running_on, snapshot_of_topics
from benchmarks.timings import summary
from kraft.admin import TopicSpec, connect_blocking

Figure = Callable[..., None]

TURNS = 9
CHANGES = 15
SMALL = 1000
TOPICS = 100_000


def fetch_once(how: str, endpoint: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.snapshot_client", how, endpoint]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    line: dict[str, float] = json.loads(found.stdout)
    return line


def copy_file(source: Path, target: Path) -> float:
    """Copy and sync the file; return the seconds."""
    begin = time.perf_counter()
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        writer.flush()
        os.fsync(writer.fileno())
    seconds = time.perf_counter() - begin
    target.unlink()
    return seconds


def run_command(output: Path, *words: str) -> tuple[float, float, int, int]:
    """Run ``kraft``; return seconds, CPU seconds, largest memory in bytes, and lines printed."""
    begin = time.perf_counter()
    with output.open("wb") as file:
        command = [sys.executable, "-m", "kraft", *words]
        process = subprocess.Popen(command, stdout=file, env=environment())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    assert process.returncode == 0
    with output.open("rb") as file:
        lines = sum(1 for _ in file)
    output.unlink()
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, lines


def time_deltas(endpoint: str) -> list[float]:
    """Create topics, one by one; return the seconds to apply each and list its differences."""
    taken = []
    with connect_blocking(endpoint) as admin, kraft.follow(endpoint) as live:
        for number in range(CHANGES):
            name = f"new-{number}"
            admin.create_topics([TopicSpec(name, 1, 3)])[name].get()
            end = time.monotonic() + 60
            while True:
                assert time.monotonic() < end
                begin = time.perf_counter()
                delta = live.poll()
                if delta is not None:
                    found = delta.differences()
                    seconds = time.perf_counter() - begin
                    # Brokers of the snapshot are fenced meanwhile: their sessions expire.
                    if any(each.key == name for each in found):
                        taken.append(seconds)
                        break
                time.sleep(0.01)
    return taken


def bench_first_state(figure: Figure, sizes: Sizes, tmp_path: Path) -> None:
    source, expected = generate.make("uniform", sizes.partitions)
    works = {"follow": "follow_first_state", "copy": "follow_copy"}
    turns: dict[str, list[dict[str, float]]] = {how: [] for how in works}
    files = []
    with running_on(source, tmp_path / "quorum") as endpoint:
        for _ in range(TURNS if sizes == FULL else 2):
            for how, lines in turns.items():
                warm_memory(tmp_path / "warm", 2 * expected.bytes)
                lines.append(fetch_once(how, endpoint))
            files.append(copy_file(source, tmp_path / "copy"))
        assert {each["done"] for each in turns["follow"]} == {sizes.partitions}
        assert {each["done"] for each in turns["copy"]} == {expected.bytes}
        for how, work in works.items():
            cpu = sorted(each["cpu_s"] for each in turns[how])
            figure(
                work, unit="snapshots", count=1, bytes=expected.bytes, cpu_s=cpu[len(cpu) // 2],
                **summary([each["seconds"] for each in turns[how]]),
            )  # fmt: skip
        figure(
            "follow_copy_file", unit="snapshots", count=1, bytes=expected.bytes, **summary(files)
        )
        output = tmp_path / "described"
        seconds, cpu_s, peak, lines_printed = run_command(
            output, "topics", "describe", "--bootstrap-controller", endpoint
        )
        assert lines_printed == sizes.partitions + expected.topics
        figure(
            "follow_describe", unit="partitions", count=sizes.partitions, cpu_s=cpu_s,
            **summary([seconds]),
        )  # fmt: skip
        figure("follow_describe_memory", unit="processes", count=1, bytes=peak)
        note_deltas(figure, endpoint, sizes.partitions)
    small, _ = generate.make("uniform", SMALL)
    with running_on(small, tmp_path / "small") as endpoint:
        note_deltas(figure, endpoint, SMALL)


def note_deltas(figure: Figure, endpoint: str, partitions: int) -> None:
    figure(
        "follow_delta", unit="changes", count=1, total=partitions, **summary(time_deltas(endpoint))
    )


def bench_topics_list(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, tmp_path: Path
) -> None:
    count = TOPICS if sizes == FULL else TOPICS // 20
    source = snapshot_of_topics(count, tmp_path / "source")
    with running_on(source, tmp_path / "quorum") as endpoint:
        words = ("topics", "list", "--bootstrap-controller", endpoint)
        listed = benchmark.pedantic(
            run_command, (tmp_path / "listed", *words), rounds=5, warmup_rounds=1
        )
    assert listed[3] >= count
    measured("follow_topics_list", unit="topics", count=count)
