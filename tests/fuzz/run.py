"""``make fuzz``: build the core with sanitizers in a separate tree, and fuzz every target in turn.

All files are below ``build/fuzz``: a virtual environment with atheris, a copy of the sources whose
extensions clang builds with ``-fsanitize=address,undefined,fuzzer-no-link``, the logs, and the
findings; the normal build is not touched. Corpora are kept in ``fuzz-corpus/TARGET`` between runs.

Needs only the standard library, so that it can report a missing tool. Exits with 1 after a finding,
with 2 if it could not start.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "fuzz"
TREE = HOME / "tree"
PYTHON = HOME / "venv" / "bin" / "python"
CORPORA = ROOT / "fuzz-corpus"
LOGS = HOME / "logs"
FINDINGS = HOME / "findings"
# Targets write their files here, if the directory exists.
MEMORY = Path("/dev/shm")

TARGETS = (
    *("batch", "values", "table", "twin", "replay", "log", "checkpoint", "directory", "text"),
    *("rpc", "bodies", "dispatch", "produced", "era"),
)
SANITIZERS = "-fsanitize=address,undefined,fuzzer-no-link"
MISSING = 2

# The sources that are copied for the extensions and the targets.
COPIED = (
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "kraft",
    "tests/__init__.py",
    "tests/fuzz",
    "tests/reference",
    "tests/data",
)
BUILT = {".so", ".c", ".pyc"}

LIMITS = (
    "-max_len=65536",
    "-timeout=25",
    "-rss_limit_mb=2048",
    "-malloc_limit_mb=512",
    "-print_final_stats=1",
    "-verbosity=1",
)


class Outcome(NamedTuple):
    """The result of one target's run, from libFuzzer's output."""

    target: str
    seconds: float
    executions: int
    edges: int
    features: int
    inputs: int
    peak_rss_mb: int
    finding: str


class NotReadyError(Exception):
    """A tool that the fuzzer needs is missing; the message names it and how to install it."""


def main() -> int:
    arguments = _arguments()
    try:
        check_clang()
        make_environment()
        copy_sources()
        build()
    except NotReadyError as error:
        print(f"make fuzz: {error}", file=sys.stderr)
        return MISSING
    share = max(arguments.seconds // len(arguments.targets), 1)
    outcomes = []
    for target in arguments.targets:
        outcome = fuzz(target, share)
        outcomes.append(outcome)
        print(line(outcome), flush=True)
    found = [outcome for outcome in outcomes if outcome.finding]
    total = sum(outcome.executions for outcome in outcomes)
    print(f"{total} inputs run, {len(found)} targets with a finding")
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--targets", type=lambda text: text.split(","), default=list(TARGETS))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; there are: {', '.join(TARGETS)}")
    return arguments


def check_clang() -> None:
    """Check that clang is installed and that its sanitizers link."""
    how = "on Debian: apt-get install clang libclang-rt-14-dev"
    if shutil.which("clang") is None:
        raise NotReadyError(f"clang is not there ({how})")
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "empty.c"
        source.write_text("int main(void) { return 0; }\n")
        made = subprocess.run(
            ["clang", SANITIZERS, str(source), "-o", str(source.with_suffix(""))],
            capture_output=True,
            text=True,
        )
    if made.returncode:
        raise NotReadyError(
            f"clang cannot link its sanitizers; its runtime is a package of its own ({how})\n"
            f"{made.stderr}"
        )


def make_environment() -> None:
    """Make a virtual environment with the package's dependencies, atheris, and build tools."""
    mark = HOME / "venv" / ".installed"
    declared = (ROOT / "pyproject.toml").read_bytes()
    if mark.exists() and mark.read_bytes() == declared:
        return
    HOME.mkdir(parents=True, exist_ok=True)
    if not PYTHON.exists():
        _call([sys.executable, "-m", "venv", str(HOME / "venv")])
    install = [str(PYTHON), "-m", "pip", "install", "-q"]
    _call([*install, "--upgrade", "pip", "setuptools>=77", "cython>=3.1", "numpy>=2.0"])
    copy_sources()
    only_python = {**os.environ, "KRAFT_MODULES": "none"}
    _call([*install, "--no-build-isolation", "-e", f"{TREE}[fuzz,codecs]"], env=only_python)
    mark.write_bytes(declared)


def copy_sources() -> None:
    """Copy the sources with their times, so that only changed modules are built again."""
    kept: set[Path] = set()
    for name in COPIED:
        top = ROOT / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_dir() or path.suffix in BUILT or "__pycache__" in path.parts:
                continue
            target = TREE / path.relative_to(ROOT)
            kept.add(target)
            if not target.exists() or target.stat().st_mtime_ns != path.stat().st_mtime_ns:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
    for path in sorted([*(TREE / "kraft").rglob("*"), *(TREE / "tests").rglob("*")]):
        source = path
        if path.suffix in (".so", ".c"):
            source = path.with_name(f"{path.name.split('.', 1)[0]}.pyx")
        if path.is_file() and path.suffix != ".pyc" and source not in kept:
            path.unlink()


def build() -> None:
    compiler = {"CC": "clang", "LDSHARED": "clang -shared", "KRAFT_SANITIZE": "1"}
    _call(
        [str(PYTHON), "setup.py", "-q", "build_ext", "--inplace", "-j", "2"],
        cwd=TREE,
        env={**os.environ, **compiler},
    )


def fuzz(target: str, seconds: int) -> Outcome:
    """Run one target for this many seconds, or until its first finding."""
    LOGS.mkdir(parents=True, exist_ok=True)
    FINDINGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{target}.log"
    runtime = next((HOME / "venv").glob("lib/*/site-packages/asan_with_fuzzer.so"), None)
    if runtime is None:
        raise NotReadyError("atheris does not bring asan_with_fuzzer.so along")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(runtime),
        # Through malloc, so that the sanitizer sees where a bytes object ends.
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_abort=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    symbolizer = shutil.which("llvm-symbolizer") or shutil.which("llvm-symbolizer-14")
    if symbolizer:
        environment["ASAN_SYMBOLIZER_PATH"] = symbolizer
    command = [
        *(str(PYTHON), "-m", "tests.fuzz.engine", target, str(CORPORA / target)),
        *(*LIMITS, f"-max_total_time={seconds}", f"-artifact_prefix={FINDINGS}/{target}-"),
    ]
    began = time.monotonic()
    # The fuzzer does not remove its temporary files.
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as scratch:
        environment["TMPDIR"] = scratch
        with log.open("wb") as out:
            ended = subprocess.run(
                command, cwd=TREE, env=environment, stdout=out, stderr=subprocess.STDOUT
            )
    printed = log.read_text(errors="replace")
    finding = ""
    if ended.returncode:
        kept = re.findall(r"Test unit written to (\S+)", printed)
        finding = kept[-1] if kept else f"the process ended with {ended.returncode}, see {log}"
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", printed) or [("0", "0", "0")]
    edges, features, inputs = map(int, covered[-1])
    return Outcome(
        target,
        time.monotonic() - began,
        _stat(printed, "number_of_executed_units"),
        edges,
        features,
        inputs,
        _stat(printed, "peak_rss_mb"),
        finding,
    )


def _stat(printed: str, name: str) -> int:
    found = re.findall(rf"stat::{name}:\s+(\d+)", printed)
    if found:
        return int(found[-1])
    # A finding ends the process before it prints its figures: use the last status line instead.
    counted = re.findall(r"^#(\d+)\t", printed, re.MULTILINE)
    return int(counted[-1]) if counted and name == "number_of_executed_units" else 0


def line(outcome: Outcome) -> str:
    return (
        f"{outcome.target:10} {outcome.seconds:6.0f} s {outcome.executions:10} inputs  "
        f"{outcome.edges:6} edges {outcome.features:6} features {outcome.inputs:5} in the corpus  "
        f"{outcome.peak_rss_mb:5} MiB  {outcome.finding or 'no finding'}"
    )


def _call(command: list[str], **options: object) -> None:
    made = subprocess.run(command, check=False, **options)  # type: ignore[call-overload]
    if made.returncode:
        raise NotReadyError(f"{' '.join(command)} ended with {made.returncode}")


if __name__ == "__main__":
    sys.exit(main())
