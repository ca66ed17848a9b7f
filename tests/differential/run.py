"""``python -m tests.differential.run``: the program behind ``make differential``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.differential import authorizer, groups, quorum_sequences, sasl, throttles
from tests.differential import sequences as manager_sequences
from tests.differential.kafka import PACKAGE, Kafka
from tests.differential.pure import FUNCTIONS, run_function
from tests.differential.registry import OPERATIONS
from tests.differential.sequences import LENGTH, Report, run_sequences
from tests.harness.kafka_jars import MissingToolError, javac, kafka

_SHOWN_CASES = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cases", type=int, default=20_000, help="cases of the pure functions (default 20000)"
    )
    parser.add_argument("--sequences", type=int, help="run only this many sequences of operations")
    parser.add_argument(
        "--quorums", type=int, help="run only this many sequences of whole controllers"
    )
    parser.add_argument("--checks", type=int, help="run only this many checks of the authorizer")
    parser.add_argument(
        "--exchanges", type=int, help="run only this many SASL exchanges of each kind"
    )
    parser.add_argument("--throttles", type=int, help="run only this many requests under quotas")
    parser.add_argument(
        "--groups", type=int, help="run only this many sequences of the group coordinator"
    )
    parser.add_argument(
        "--length",
        type=int,
        help="operations of a sequence, or rounds of a sequence of controllers",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first sequence (default 0)"
    )
    parser.add_argument("--only", nargs="*", default=(), choices=sorted(OPERATIONS))
    parser.add_argument(
        "--shown", type=int, default=5, help="minimise and show this many differences (default 5)"
    )
    parser.add_argument("--case", type=Path, help="run the case in this file again")
    parser.add_argument("--keep", type=Path, help="write minimised cases to this directory")
    options = parser.parse_args()
    try:
        javac()
        kafka()
    except MissingToolError as missing:
        parser.exit(2, f"{missing}\n")
    if options.case:
        return _run_again(json.loads(options.case.read_text()))
    chosen = (
        *(options.sequences, options.quorums, options.checks, options.exchanges),
        *(options.throttles, options.groups),
    )
    is_all = all(number is None for number in chosen)
    sequences = options.cases // 100 if is_all else options.sequences or 0
    quorums = options.cases // 100 if is_all else options.quorums or 0
    checks = options.cases if is_all else options.checks or 0
    exchanges = options.cases // 100 if is_all else options.exchanges or 0
    requests = options.cases if is_all else options.throttles or 0
    group_sequences = options.cases // 20 if is_all else options.groups or 0
    differing = 0
    if is_all:
        differing += _run_functions(options.seed, options.cases)
    if checks:
        differing += _run_checks(options.seed, checks)
    if requests:
        differing += _run_throttles(options.seed, requests)
    if group_sequences:
        differing += _run_groups(options, group_sequences)
    if exchanges:
        differing += _run_exchanges(options.seed, exchanges)
    if sequences:
        differing += _run_sequences(options, sequences)
    if quorums:
        differing += _run_quorums(options, quorums)
    return int(differing > 0)


def _run_again(case: list[dict[str, Any]]) -> int:
    is_quorum = "nodes" in case[0]
    module = quorum_sequences if is_quorum else manager_sequences
    with Kafka(PACKAGE + "Quorum") if is_quorum else Kafka() as kafka:
        found = module.run_case(kafka, case)
        if found is not None and found.known:
            print(f"a known difference: {found.known}")
            return 0
        print(module.shrunk(kafka, found) if found else "no difference")  # type: ignore[arg-type]
    return int(found is not None)


def _run_sequences(options: argparse.Namespace, sequences: int) -> int:
    with Kafka() as managers:
        began = time.perf_counter()
        report = run_sequences(
            managers,
            options.seed,
            range(options.first, options.first + sequences),
            length=options.length or LENGTH,
            only=options.only,
            shown=options.shown,
        )
        _print(report, time.perf_counter() - began)
    _keep(options, "case", [found.case for found in report.differences])
    return report.differing


def _run_quorums(options: argparse.Namespace, quorums: int) -> int:
    with Kafka(PACKAGE + "Quorum") as kafka:
        began = time.perf_counter()
        report = quorum_sequences.run_quorums(
            kafka,
            options.seed,
            range(options.first, options.first + quorums),
            length=options.length or quorum_sequences.LENGTH,
            only=options.only,
            shown=options.shown,
        )
    for found in report.differences:
        print(found, end="\n\n")
    for name, count in sorted(report.steps.items()):
        print(f"quorum: {name:28} {count:8} steps {report.succeeded[name]:8} answered")
    for known, count in sorted(report.known.items()):
        print(f"{count} sequences of a quorum end at a known difference: {known}")
    print(
        f"{report.sequences} sequences of a quorum, {report.steps.total()} steps, "
        f"{report.records} records ({report.by_tasks} of periodic tasks), "
        f"{time.perf_counter() - began:.0f} s: {report.differing} sequences differ"
    )
    _keep(options, "quorum", [found.case for found in report.differences])
    return report.differing


def _keep(options: argparse.Namespace, name: str, cases: Sequence[list[dict[str, Any]]]) -> None:
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        for number, case in enumerate(cases):
            (options.keep / f"{name}-{number}.json").write_text(json.dumps(case))


def _print_report(count: int, what: str, began: float, differences: Sequence[str]) -> int:
    """Print the first differences and a line about the run; return how many differ."""
    for text in differences[:_SHOWN_CASES]:
        print(text, end="\n\n")
    took_s = time.perf_counter() - began
    print(f"{count:8} {what}, {took_s:.0f} s: {len(differences)} differ", flush=True)
    return len(differences)


def _run_functions(seed: int, cases: int) -> int:
    differing = 0
    for function in FUNCTIONS:
        began = time.perf_counter()
        report = run_function(function, seed, cases)
        shown = [f"{report.name}: {text}" for text in report.differences]
        differing += _print_report(report.cases, report.name, began, shown)
    return differing


def _run_checks(seed: int, checks: int) -> int:
    began = time.perf_counter()
    with Kafka(authorizer.MAIN) as kafka:
        report = authorizer.run_checks(kafka, seed, checks)
    answers = ", ".join(f"{count} {answer}" for answer, count in sorted(report.answers.items()))
    what = f"checks of the authorizer ({answers}), {report.changes} changes"
    return _print_report(report.checks, what, began, report.differences)


def _run_groups(options: argparse.Namespace, sequences: int) -> int:
    with Kafka(groups.MAIN) as kafka:
        began = time.perf_counter()
        report = groups.run_groups(
            kafka,
            options.seed,
            sequences,
            length=options.length or groups.LENGTH,
            shown=options.shown,
        )
    for found in report.differences:
        print(found, end="\n\n")
    for name, count in sorted(report.steps.items()):
        print(f"groups: {name:28} {count:8} steps")
    print(
        f"{report.sequences} sequences of groups, {report.steps.total()} steps, {report.records} "
        f"records, {len(report.codes)} kinds of responses, "
        f"{time.perf_counter() - began:.0f} s: {len(report.differences)} sequences differ"
    )
    return len(report.differences)


def _run_throttles(seed: int, requests: int) -> int:
    began = time.perf_counter()
    with Kafka(throttles.MAIN) as kafka:
        report = throttles.run_throttles(kafka, seed, requests)
    outcomes = "; ".join(f"{count} {name}" for name, count in sorted(report.outcomes.items()))
    what = f"requests under quotas ({outcomes})"
    return _print_report(report.requests, what, began, report.differences)


def _run_exchanges(seed: int, exchanges: int) -> int:
    differing = 0
    with Kafka(sasl.MAIN) as kafka:
        for title, run, times in (
            ("SASL exchanges", sasl.run_exchanges, 1),
            ("rules for certificates", sasl.run_mappings, 10),
            ("JAAS lines", sasl.run_jaas, 10),
            ("principals", sasl.run_principals, 1),
        ):
            began = time.perf_counter()
            report = run(kafka, seed, exchanges * times)
            for text in report.differences[:_SHOWN_CASES]:
                print(f"{title}: {text}", end="\n\n")
            for outcome, count in sorted(report.outcomes.items()):
                print(f"{count:8} {outcome}")
            print(
                f"{report.outcomes.total():8} {title}, {time.perf_counter() - began:.0f} s: "
                f"{len(report.differences)} differ",
                flush=True,
            )
            differing += len(report.differences)
    return differing


def _print(report: Report, seconds: float) -> None:
    for found in report.differences:
        print(found, end="\n\n")
    for name, count in sorted(report.operations.items()):
        print(f"{name:28} {count:8} operations {report.succeeded[name]:8} not rejected as a whole")
    for known, count in sorted(report.known.items()):
        print(f"{count} sequences end at a known difference: {known}")
    print(
        f"{report.sequences} sequences, {report.operations.total()} operations, {report.records} "
        f"records, {seconds:.0f} s: {report.differing} sequences differ"
    )


if __name__ == "__main__":
    sys.exit(main())
