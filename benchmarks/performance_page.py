"""Write docs/performance.md and the README's table from the results in the repository.

``python -m benchmarks.performance_page`` (``make performance-page``) reads ``benchmarks/history``
and writes both. ``--keep RUN.json`` first stores a full run there in place of the previous one.
``--check`` writes nothing and fails if a page differs from the results.

All figures are computed: the speed table by `bars` and `report`, the change points by the functions
of ``kraft regress`` on the same files.

Each file of the history is one run of one commit (`history_run`). The file whose name begins with
``full`` is the newest run of all suites and their peers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks import report
from benchmarks.bars import (
    CONTROLLER_ROWS,
    FOLLOW_ROWS,
    HISTORY_ROWS,
    METADATA_CACHE_ROWS,
    NETWORK_ROWS,
    QUORUM_ROWS,
    ROWS,
    SWEEP_ROWS,
    judged,
)
from benchmarks.broker_bars import BROKER_ROWS
from benchmarks.broker_data_bars import BROKER_DATA_ROWS
from benchmarks.conditions import Row
from benchmarks.data_loop_bars import DATA_LOOP_ROWS
from benchmarks.kept import kept
from benchmarks.measurements import Run
from kraft.regression import multiple_testing, report_text, table_analysis
from kraft.regression.findings import ChangePoint, SeriesFinding, SeriesOutcome
from kraft.regression.results import read_run
from kraft.regression.runs import points_table
from kraft.regression.settings import AnalysisSettings

ROOT = Path(__file__).resolve().parents[1]
HISTORY = ROOT / "benchmarks" / "history"
PAGE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
BEGIN, END = "<!-- make performance-page: begin -->", "<!-- make performance-page: end -->"
MARKS = {True: "yes", False: "**no**", None: "not measured"}
GROUPS = (
    ("Bytes, columns and the state", ROWS),
    ("The controller", CONTROLLER_ROWS),
    ("The quorum", QUORUM_ROWS),
    ("Controllers over the network", NETWORK_ROWS),
    ("Apache Kafka's brokers on the controllers", BROKER_ROWS),
    ("The broker", BROKER_DATA_ROWS),
    ("A broker's connections", DATA_LOOP_ROWS),
    ("What a broker answers from its metadata", METADATA_CACHE_ROWS),
    ("Live metadata and commands", FOLLOW_ROWS),
    ("Sweeps", SWEEP_ROWS),
    ("Histories of benchmarks", HISTORY_ROWS),
)
HEAD = """# Performance

<!-- Written by `make performance-page` out of benchmarks/history; not to be edited. -->

On this page you see how fast kraft is beside its peers, and which commits changed a time or an
instruction count.
"""


class Kept(NamedTuple):
    """One file of the history: its path, parsed JSON and bytes."""

    path: Path
    result: dict[str, Any]
    data: bytes


def read(directory: Path) -> tuple[Kept | None, list[Kept]]:
    """Return the newest full run (None without one), and the other runs, oldest commit first."""
    found = []
    for path in sorted(directory.glob("*.json")):
        data = path.read_bytes()
        found.append(Kept(path, json.loads(data), data))
    full = [each for each in found if each.path.name.startswith("full")]
    runs = [each for each in found if not each.path.name.startswith("full")]
    runs.sort(key=lambda each: str(each.result["datetime"]))
    return (full[-1] if full else None), runs


def keep(path: Path, directory: Path, *later: Path) -> None:
    """Store this run as the newest full run.

    Measurements of ``later`` runs of single suites replace those of the full run; the result names
    these suites and their commits.
    """
    made = json.loads(path.read_text())
    for single in map(json.loads, (each.read_text() for each in later)):
        replaced = {each["fullname"] for each in single["benchmarks"]}
        rest = [each for each in made["benchmarks"] if each["fullname"] not in replaced]
        made["benchmarks"] = rest + single["benchmarks"]
        figures = single.get("figures", [])
        works = {each["work"] for each in figures}
        others = [each for each in made.get("figures", []) if each["work"] not in works]
        made["figures"] = others + figures
        suites = {each["group"] for each in single["benchmarks"]} - {"peers"}
        commits = dict.fromkeys(sorted(suites), single["commit_info"]["id"])
        made["by_themselves"] = made.get("by_themselves", {}) | commits
    if made.get("quick", True):
        raise SystemExit(f"{path}: no full run; a quick run's figures mean nothing")
    for old in directory.glob("full*.json"):
        old.unlink()
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"full-{str(made['commit_info']['id'])[:10]}.json"
    target.write_text(json.dumps(kept(made), separators=(",", ":")))


# -- tables


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return [*lines, *(f"| {' | '.join(cell(each) for each in row)} |" for row in rows), ""]


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


def machine_lines(machine: dict[str, Any]) -> list[str]:
    """Return a line with the machine of times, or with the toolchain of instruction counts."""
    if "toolchain" in machine:
        facts = [f"{name} {value}" for name, value in machine["toolchain"].items()]
        return [f"Counted on an emulated processor: {'; '.join(facts)}.", ""]
    processor = machine.get("cpu", {})
    cores = report_text.counted(processor.get("count", 0), "core")
    facts = [f"{processor.get('brand_raw', 'unknown processor')}, {cores}"]
    if "memory_bytes" in machine:
        facts.append(f"{machine['memory_bytes'] / 2**30:.0f} GiB")
    facts.append(f"{machine.get('system')} {machine.get('release')}")
    facts.append(f"{machine.get('python_implementation')} {machine.get('python_version')}")
    facts.append(str(machine.get("python_compiler")))
    facts += [f"{name} {machine[name]}" for name in ("libc", "numpy") if name in machine]
    return [f"Machine: {'; '.join(facts)}.", ""]


def speed(full: Kept) -> list[str]:
    """Return the page's section on one full run: the machine, and one table per group of rows."""
    run, commit = Run(full.result), full.result["commit_info"]
    dirty = ", with changes that were not committed" if commit.get("dirty") else ""
    when = str(full.result["datetime"])[:16].replace("T", " ")
    lines = [
        "## The newest full run",
        "",
        f"Commit {report_text.commit_text(commit.get('id'))}{dirty}, measured {when} UTC. Every"
        " work runs beside its peer, in the same run on the same machine; times are median / worst"
        " of all rounds, ratios those of medians. `make bench` makes such a run.",
        "",
        *machine_lines(run.machine),
    ]
    if alone := full.result.get("by_themselves"):
        suites = [f"{suite} (commit {report_text.commit_text(id)})" for suite, id in alone.items()]
        lines += [f"Run by themselves, after the rest: {', '.join(suites)}.", ""]
    if run.java:
        lines += [f"Peers: Kafka's own classes and quorums on Java {run.java}, warmed up.", ""]
    for title, rows in GROUPS:
        lines += [f"### {title}", "", *table(SPEED_HEAD, speed_rows(run, rows))]
    return lines


SPEED_HEAD = (
    "work",
    "kraft",
    "peer",
    "ratio",
    "CPU ratio",
    "bar",
    "came out",
    "met",
    "floor, and note",
)


def speed_rows(run: Run, rows: tuple[Row, ...]) -> Iterable[list[str]]:
    for row, verdicts in judged(run, rows):
        theirs = run.of(row.peer, row.total) if row.peer else None
        yield [
            row.title,
            report.figures(run.of(row.kraft, row.total)),
            f"{row.peer}\n{report.figures(theirs)}" if row.peer else "",
            report.ratio(run, row),
            report.cpu_ratio(run, row),
            "\n".join(each.asked for each in verdicts),
            "\n".join(each.came_out or "-" for each in verdicts),
            "\n".join(MARKS[each.met] for each in verdicts),
            report.floor(run, row),
        ]


#: Measurements that the README shows: what a visitor would ask for first.
README_WORKS = (
    *("load", "column_map", "fence", "place", "memory_all"),
    *("controller_create", "controller_create_small", "controller_zone"),
    *("quorum_commit", "quorum_bandwidth"),
    *("network_create", "network_create_small", "network_outage", "network_shrink"),
    *("network_failover", "network_cold_start", "network_memory"),
    *("sweep_command", "regress_command"),
)
README_HEAD = ("work", "kraft", "peer", "ratio", "CPU ratio", "note")


def readme_table(full: Kept) -> list[str]:
    """Return the README's table: works, medians, ratios and notes of `README_WORKS`."""
    run = Run(full.result)
    rows = {row.kraft: row for _, group in GROUPS for row in reversed(group)}
    shown = [rows[work] for work in README_WORKS if run.of(work, rows[work].total) is not None]
    return table(README_HEAD, brief(run, shown))


def brief(run: Run, rows: list[Row]) -> Iterable[list[str]]:
    for row in rows:
        ours, theirs = run.of(row.kraft, row.total), run.of(row.peer or "", row.total)
        medians = [report.figures(each).split("\n")[0].split(" / ")[0] for each in (ours, theirs)]
        ratios = (report.ratio(run, row), report.cpu_ratio(run, row))
        yield [row.title, medians[0], medians[1] if theirs else "", *ratios, row.note]


# -- the history


def points_of(runs: list[Kept], settings: AnalysisSettings) -> pa.Table:
    read_runs = [read_run(each.data, each.path.name) for each in runs]
    return table_analysis.prepared(points_table(read_runs, plain=True), settings)


def findings(runs: list[Kept], statistic: str) -> tuple[SeriesFinding, ...]:
    """Return what `kraft regress` finds in these runs.

    Changes of counts below 1 % are ignored: object addresses alone can cause them.
    """
    magnitude = 0.01 if statistic == "instructions" else 0.0
    settings = AnalysisSettings(statistic=statistic, min_magnitude=magnitude)
    looked = [
        each.finding for each in table_analysis.analyse_rows(points_of(runs, settings), settings)
    ]
    return multiple_testing.correct([each for each in looked if each.run_count], settings)


def history(runs: list[Kept]) -> list[str]:
    timed = [each for each in runs if "toolchain" not in each.result["machine_info"]]
    counted = [each for each in runs if "toolchain" in each.result["machine_info"]]
    commits = len({each.result["commit_info"]["id"] for each in runs})
    lines = [
        "## The history of this repository",
        "",
        f"{commits} commits of this repository, each run by the suites that it came with"
        " (`make history`), ingested and analysed as any project's:"
        " `kraft bench ingest benchmarks/history --store DIR && kraft regress --store DIR`."
        " The settings are the defaults: a change is reported if its p value, corrected for all"
        " tests, is small enough. Changes of instruction counts below 1 % are ignored"
        " (`--min-magnitude`), because the addresses of objects alone can cause them.",
        "",
    ]
    for title, part, statistic in (
        ("Times", timed, "median"),
        ("Instructions", counted, "instructions"),
    ):
        if part:
            lines += section(title, part, statistic)
    return lines


def section(title: str, runs: list[Kept], statistic: str) -> list[str]:
    found = findings(runs, statistic)
    subjects = {
        each.result["commit_info"]["id"]: each.result["commit_info"].get("subject", "")
        for each in runs
    }
    points = [(each, point) for each in found for point in each.change_points]
    points.sort(key=lambda pair: (pair[1].time_us, pair[1].ratio.value))
    lines = [f"### {title}: what changed, and where", ""]
    lines += machine_lines(runs[0].result["machine_info"])
    head = ("first commit of the new level", "benchmark", "before", "after", "change", "p")
    lines += table(head, (change_row(each, point, subjects) for each, point in points))
    stable = sum(each.outcome is SeriesOutcome.STABLE for each in found)
    short = sum(each.outcome is SeriesOutcome.TOO_LITTLE_DATA for each in found)
    lines += [
        f"{len(runs)} runs; {report_text.counted(len(found), 'benchmark')}, {stable} of them"
        f" without any change, {short} with too little data.",
        "",
        f"### {title}: level by level",
        "",
    ]
    return lines + levels(runs, found, statistic)


def change_row(
    finding: SeriesFinding, point: ChangePoint, subjects: dict[str, str]
) -> tuple[str, ...]:
    before, after = report_text.pair_text(point.mean_before, point.mean_after, point.statistic)
    commit = report_text.commit_text(point.commit_after)
    subject = subjects.get(str(point.commit_after), "")
    return (
        f"`{commit}` {subject}",
        name_of(finding),
        before,
        after,
        report_text.ratio_text(point.ratio),
        report_text.p_text(point.p_value),
    )


def name_of(finding: SeriesFinding) -> str:
    """Return `decode` or `fence 1000000`, without the suite's file, which may have been moved."""
    values = [str(value) for value in json.loads(finding.key.params).values()]
    values = [value for value in values if not value.startswith("UNSERIALIZABLE")]
    return " ".join([finding.key.benchmark.removeprefix("bench_"), *values])


def levels(runs: list[Kept], found: Sequence[SeriesFinding], statistic: str) -> list[str]:
    """Return a table with the median of each benchmark's runs at each commit."""
    by_commit = [
        (commit, list(group))
        for commit, group in groupby(runs, key=lambda each: str(each.result["commit_info"]["id"]))
    ]
    settings = AnalysisSettings(statistic=statistic)
    series = table_analysis.histories(points_of(runs, settings), settings)
    rows = []
    for finding in sorted(found, key=name_of):
        one = series[finding.key]
        changed = {str(point.commit_after) for point in finding.change_points}
        row = [name_of(finding)]
        for commit, _ in by_commit:
            values = one.value[one.commit == commit]
            text = (
                report_text.value_text(float(np.median(values)), statistic) if len(values) else "-"
            )
            row.append(f"**{text}**" if commit in changed else text)
        rows.append(row)
    heads = [f"`{commit[:7]}`<br>{len(group)} runs" for commit, group in by_commit]
    return table(["benchmark", *heads], rows)


# -- the pages


def pages(directory: Path) -> dict[Path, str]:
    """Return the required content of each page by path."""
    full, runs = read(directory)
    if full is None and not runs:
        raise SystemExit(f"{directory}: no results are kept")
    lines = [HEAD]
    lines += speed(full) if full else ["No full run is kept: `make bench`, then `--keep`.", ""]
    lines += history(runs) if runs else []
    made = {PAGE: "\n".join(lines).rstrip() + "\n"}
    readme = README.read_text()
    if full and BEGIN in readme:
        before, rest = readme.split(BEGIN)
        inside = "\n".join(["", *readme_table(full)])
        made[README] = before + BEGIN + "\n" + inside + END + rest.split(END, 1)[1]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the pages on performance.")
    parser.add_argument(
        "--keep",
        type=Path,
        nargs="+",
        metavar="RUN.json",
        help="a full run to keep first, and later runs of single suites",
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail where it differs")
    arguments = parser.parse_args()
    if arguments.keep:
        first, *later = arguments.keep
        keep(first, HISTORY, *later)
    for path, text in pages(HISTORY).items():
        if not arguments.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            raise SystemExit(
                f"{path.name} is not what benchmarks/history says: make performance-page"
            )


if __name__ == "__main__":
    main()
