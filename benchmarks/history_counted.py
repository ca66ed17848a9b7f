"""Count today's works on the code of past commits: the cost of a change, without machine noise.

``python -m benchmarks.history_counted --work DIR COMMIT...`` uses the exports of `history_run`,
puts today's ``benchmarks`` over each, builds the counted copy of its core, and counts the works
that its interface supports; it reports the others. A result is stored under the commit and its
time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import sysconfig
from datetime import datetime
from pathlib import Path

from benchmarks.counted import toolchain
from benchmarks.history_run import (
    CORE,
    HISTORY,
    ROOT,
    Commit,
    backdated,
    commit_of,
    exported,
    fingerprint,
    name_in,
)
from benchmarks.kept import kept

FLOORS = Path("benchmarks") / "counted" / "works"
#: Runs in the overlay: loads one module of works by its file, so that the others need not import.
IMPORT = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("floor", sys.argv[1])
spec.loader.exec_module(module_from_spec(spec))
"""
#: Prints the names of the works that complete.
TRY = """
import sys
from benchmarks.counted.works import WORKS
for name, maker in WORKS.items():
    try:
        work = maker()
        state = work.prepare()
        work.check(state, work.run(state))
        print(name)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
"""


def overlay(commit: Commit, work: Path) -> Path:
    """Return a directory with the commit's kraft and today's benchmarks, without those modules of
    works that the commit's kraft cannot import.
    """
    exported(commit, work)
    place = work / f"{commit.id[:10]}-counted"
    place.mkdir(exist_ok=True)
    shutil.rmtree(place / "benchmarks", ignore_errors=True)
    ignored = shutil.ignore_patterns("results", "history", "__pycache__")
    shutil.copytree(ROOT / "benchmarks", place / "benchmarks", ignore=ignored)
    (place / "benchmarks" / "results").mkdir()
    inputs = ROOT / "benchmarks" / "results" / "inputs"
    (place / "benchmarks" / "results" / "inputs").symlink_to(inputs)
    shutil.copy2(commit.export / "setup.py", place)
    shutil.copy2(ROOT / "pyproject.toml", place)
    for name, source in (("kraft", commit.export), ("tests", ROOT)):
        if not (place / name).exists():
            (place / name).symlink_to(source / name)
    for floor in sorted((place / FLOORS).glob("[a-z]*.py")):
        tried = python(place, "-c", IMPORT, str(floor))
        if tried.returncode:
            why = tried.stderr.strip().rpartition("\n")[2]
            print(f"{commit.short}: without the floor {floor.stem}: {why}", flush=True)
            floor.unlink()
    return place


def python(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


def known_extensions(place: Path, work: Path) -> dict[Path, Path]:
    """Copy extensions that were built from the same sources for another commit into this commit's
    counted build.

    Return, by the path of each extension in this build, the path under which commits share it.
    """
    built = place / toolchain.directory(toolchain.description()).relative_to(ROOT)
    sources = place / CORE
    rules = (place / "setup.py").read_bytes()
    places = {}
    for module in sorted(sources.rglob("*.pyx")):
        folder = built / "lib" / CORE / module.relative_to(sources).parent
        folder.mkdir(parents=True, exist_ok=True)
        name = module.stem + sysconfig.get_config_var("EXT_SUFFIX")
        key = f"{name_in(sources, module)}-{fingerprint(rules, sources, module)}"
        shared = work / "counted-extensions" / key / name
        places[folder / name] = shared
        if shared.exists() and not (folder / name).exists():
            shutil.copy(shared, folder)
    return places


def count(commit: Commit, work: Path, output: Path) -> Path:
    """Make one counted run of the commit; return the stored file."""
    place = overlay(commit, work)
    places = known_extensions(place, work)
    tried = python(place, "-c", TRY)
    print(tried.stderr, end="", flush=True)
    raw = place / "counted.json"
    suite = [f"benchmarks/counted/suite.py::bench_counted[{name}]" for name in tried.stdout.split()]
    command = ["-m", "pytest", "-q", "-p", "benchmarks.counted.plugin", "-p", "no:cacheprovider"]
    done = python(place, *command, "--benchmark-quiet", f"--benchmark-json={raw}", *suite)
    if done.returncode:
        raise SystemExit(f"{commit.short}: not counted\n{done.stdout}{done.stderr}")
    for extension, shared in places.items():
        if extension.exists() and not shared.exists():
            shared.parent.mkdir(parents=True)
            shutil.copy(extension, shared)
    output.mkdir(parents=True, exist_ok=True)
    stamp = datetime.fromisoformat(commit.time).strftime("%Y%m%dT%H%M%S")
    path = output / f"{stamp}-{commit.short}-counted.json"
    made = kept(backdated(json.loads(raw.read_text()), commit, 0), node="counted")
    path.write_text(json.dumps(made, separators=(",", ":")))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Count today's works on past commits.")
    parser.add_argument("--work", type=Path, required=True, help="where the exports lie")
    parser.add_argument("--output", type=Path, default=HISTORY, help="where the runs are kept")
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    arguments = parser.parse_args()
    work: Path = arguments.work.resolve()
    for name in arguments.commits:
        print(count(commit_of(name, work), work, arguments.output), flush=True)


if __name__ == "__main__":
    main()
