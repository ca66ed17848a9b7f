"""Run the suites of past commits, each on its own code, and keep one JSON file per run.

``python -m benchmarks.history_run --work DIR COMMIT...`` (``make history COMMITS="..."``) exports
the commits (`git archive`) to a work directory outside the checkout and builds their cores; an
extension with the same sources as an earlier one is not built again. Then it runs the benchmarks
that `--select` names, commit after commit, `--runs` times, so that a slow hour of the machine
affects all of them.

Each commit is measured by its own suite. The stored file is pytest-benchmark's JSON with three
differences: its time is that of the commit (plus an offset in the order of commits and runs), so
that the history has the order of commits whenever the runs were made; its commit is the exported
one; and large fields and machine names are removed (`kept`).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.kept import kept

ROOT = Path(__file__).resolve().parents[1]
HISTORY = ROOT / "benchmarks" / "history"
CORE = Path("kraft/_core")
#: Kernels whose names never changed; each takes at most a few seconds.
FAST = (
    "bench_decode or bench_encode or bench_load or bench_changes or bench_column_verify"
    " or (bench_build and not aiokafka) or (bench_read and not aiokafka)"
    " or (bench_fence and 1000000)"
)
SUITES = ("batch", "checkpoint", "codec", "election", "image", "publish", "table")
CIMPORT = re.compile(
    r"^\s*(?:from kraft\._core\.([\w.]+) cimport|cimport kraft\._core\.([\w.]+))", re.M
)


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Commit:
    """One commit of this repository and its export."""

    id: str
    time: str  # ISO 8601, of the committer
    author_time: str
    subject: str
    ancestors: int  # number of its ancestors
    export: Path

    @property
    def short(self) -> str:
        return self.id[:10]


def commit_of(name: str, work: Path) -> Commit:
    line = git("show", "-s", "--format=%H %cI %aI %s", name).strip()
    id, time, author_time, subject = line.split(" ", 3)
    ancestors = int(git("rev-list", "--count", id))
    return Commit(id, time, author_time, subject, ancestors, work / id[:10])


# -- exports and their builds


def exported(commit: Commit, work: Path) -> None:
    """Export the commit's tree; commits with the same generators share their inputs."""
    if commit.export.exists():
        return
    made = subprocess.run(
        ["git", "archive", commit.id], cwd=ROOT, capture_output=True, check=True
    ).stdout
    partial = commit.export.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        archive.extractall(partial, filter="data")
    makers = sorted((partial / "benchmarks").glob("generate*.py"))
    inputs = work / "inputs" / digest(*(path.read_bytes() for path in makers))
    inputs.mkdir(parents=True, exist_ok=True)
    results = partial / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    (results / "inputs").symlink_to(inputs)
    partial.rename(commit.export)


def digest(*parts: bytes) -> str:
    joined = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hashlib.sha256(joined).hexdigest()[:24]


def sources_of(core: Path, module: Path) -> list[Path]:
    """Return the module and every declaration that it reaches."""
    found: set[Path] = set()
    to_read = [module]
    while to_read:
        path = to_read.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        to_read.append(path.with_suffix(".pxd"))
        for names in CIMPORT.findall(path.read_text()):
            to_read += [core / f"{name.replace('.', '/')}.pxd" for name in names if name]
    return sorted(found)


def name_in(core: Path, module: Path) -> str:
    """Return a module's name below the core: `log.segment`, or `segment` in old commits."""
    return ".".join(module.relative_to(core).with_suffix("").parts)


def fingerprint(rules: bytes, core: Path, module: Path) -> str:
    """Return a hash of all sources of a module's extension."""
    parts = [
        part
        for path in sources_of(core, module)
        for part in (str(path.relative_to(core)).encode(), path.read_bytes())
    ]
    return digest(rules, *parts)


def built(commit: Commit, work: Path, jobs: int) -> int:
    """Build the extensions; return how many were not available from another commit."""
    store = work / "extensions"
    store.mkdir(exist_ok=True)
    rules = (commit.export / "setup.py").read_bytes()
    missing: dict[Path, Path] = {}
    core = commit.export / CORE
    for module in sorted(core.rglob("*.pyx")):
        place = store / f"{name_in(core, module)}-{fingerprint(rules, core, module)}"
        if place.exists():
            for made in place.iterdir():
                shutil.copy2(made, module.parent)
        else:
            missing[module] = place
    if missing:
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "-j", str(jobs)]
        names = ",".join(name_in(core, module) for module in missing)
        modules = {"KRAFT_MODULES": names, "KRAFT_MARCH": "native"}
        subprocess.run(command, cwd=commit.export, env=os.environ | modules, check=True)
    for module, place in missing.items():
        place.mkdir()
        for made in (f"{module.stem}.cpython-*.so", f"{module.stem}.c"):
            for path in module.parent.glob(made):
                shutil.copy2(path, place)
    return len(missing)


# -- runs


def run(commit: Commit, select: str, output: Path) -> Path:
    """Run the commit's suites once; return the stored file."""
    raw = commit.export / "run.json"
    raw.unlink(missing_ok=True)
    suites = [commit.export / "benchmarks" / f"bench_{name}.py" for name in SUITES]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-quiet"]
    command += [f"--benchmark-json={raw}", "-k", select]
    command += [str(path.relative_to(commit.export)) for path in suites if path.exists()]
    done = subprocess.run(command, cwd=commit.export, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{commit.short}: its benchmarks failed\n{done.stdout}{done.stderr}")
    output.mkdir(parents=True, exist_ok=True)
    number = len(list(output.glob(f"*-{commit.short}-*.json")))
    stamp = datetime.fromisoformat(commit.time).strftime("%Y%m%dT%H%M%S")
    path = output / f"{stamp}-{commit.short}-{number}.json"
    made = kept(backdated(json.loads(raw.read_text()), commit, number))
    path.write_text(json.dumps(made, separators=(",", ":")))
    return path


def backdated(made: dict[str, Any], commit: Commit, number: int) -> dict[str, Any]:
    """Return the run with the commit and its time; ``measured`` is when it was made."""
    # Commits of the same second keep their order, and so do the runs of one commit.
    behind = timedelta(milliseconds=commit.ancestors % 1000, microseconds=number)
    time = datetime.fromisoformat(commit.time) + behind
    made["commit_info"] = {
        "id": commit.id,
        "time": commit.time,
        "author_time": commit.author_time,
        "subject": commit.subject,
        "dirty": False,
        "project": "kraft",
        "branch": "main",
    }
    return made | {"measured": made["datetime"], "datetime": time.isoformat()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Run the suites of past commits, each on its own code.",
        epilog="example: python -m benchmarks.history_run --work ../exports --runs 3 HEAD~5 HEAD",
    )
    parser.add_argument("--work", type=Path, required=True, help="where exports and builds lie")
    parser.add_argument("--output", type=Path, default=HISTORY, help="where the runs are kept")
    parser.add_argument("--runs", type=int, default=3, help="of each commit; 0 builds only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--select", default=FAST, help="pytest's -k")
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    arguments = parser.parse_args()
    work: Path = arguments.work.resolve()
    if work.is_relative_to(ROOT):
        parser.error("--work: exports inside the checkout would be taken for parts of it")
    work.mkdir(parents=True, exist_ok=True)
    commits = [commit_of(name, work) for name in arguments.commits]
    for commit in commits:
        exported(commit, work)
        print(
            f"{commit.short} {commit.time}: {built(commit, work, arguments.jobs)} built", flush=True
        )
    for _ in range(arguments.runs):
        for commit in commits:
            print(run(commit, arguments.select, arguments.output), flush=True)


if __name__ == "__main__":
    main()
