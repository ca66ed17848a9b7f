"""``python -m tests.differential.run``: what ``make differential`` runs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.differential.kafka import Kafka
from tests.differential.pure import FUNCTIONS, run_function
from tests.differential.registry import OPERATIONS
from tests.differential.sequences import LENGTH, Report, run_case, run_sequences, shrunk
from tests.interop.kafka_jars import MissingToolError, javac, kafka

_SHOWN_CASES = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="cases of the pure functions")
    parser.add_argument("--sequences", type=int, help="only these many sequences")
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first sequence")
    parser.add_argument("--only", nargs="*", default=(), choices=sorted(OPERATIONS))
    parser.add_argument("--shown", type=int, default=5, help="differences that are shown, shrunk")
    parser.add_argument("--case", type=Path, help="a file with a case, to be run again")
    parser.add_argument("--keep", type=Path, help="a directory for the shrunk cases")
    options = parser.parse_args()
    try:
        javac()
        kafka()
    except MissingToolError as missing:
        parser.exit(2, f"{missing}\n")
    sequences = options.cases // 100 if options.sequences is None else options.sequences
    differing = 0
    if not options.case and options.sequences is None:
        differing += _run_functions(options.seed, options.cases)
    with Kafka() as managers:
        if options.case:
            found = run_case(managers, json.loads(options.case.read_text()))
            print(shrunk(managers, found) if found else "no difference")
            return int(found is not None)
        began = time.perf_counter()
        report = run_sequences(
            managers,
            options.seed,
            range(options.first, options.first + sequences),
            length=options.length,
            only=options.only,
            shown=options.shown,
        )
        _print(report, time.perf_counter() - began)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            for number, found in enumerate(report.differences):
                (options.keep / f"case-{number}.json").write_text(json.dumps(found.case))
    return int(differing + report.differing > 0)


def _run_functions(seed: int, cases: int) -> int:
    differing = 0
    for function in FUNCTIONS:
        began = time.perf_counter()
        report = run_function(function, seed, cases)
        for text in report.differences[:_SHOWN_CASES]:
            print(f"{report.name}: {text}", end="\n\n")
        print(
            f"{report.cases:8} {report.name}, {time.perf_counter() - began:.0f} s: "
            f"{len(report.differences)} differ",
            flush=True,
        )
        differing += len(report.differences)
    return differing


def _print(report: Report, seconds: float) -> None:
    for found in report.differences:
        print(found, end="\n\n")
    for name, count in sorted(report.operations.items()):
        print(f"{name:28} {count:8} operations {report.succeeded[name]:8} not refused as a whole")
    for known, count in sorted(report.known.items()):
        print(f"{count} sequences end at a known difference: {known}")
    print(
        f"{report.sequences} sequences, {report.operations.total()} operations, {report.records} "
        f"records, {seconds:.0f} s: {report.differing} sequences differ"
    )


if __name__ == "__main__":
    sys.exit(main())
