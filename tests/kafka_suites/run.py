"""Run Kafka's published integration tests on a controller in a separate process.

    python -m tests.kafka_suites.run --backend kraft
    python -m tests.kafka_suites.run --classes CreateTopicsRequestTest --json results.json

Each class runs in its own JVM. Exits with 1 if a test fails that passed in the recorded run. With
``--record`` the outcomes replace the recorded ones of the class (with ``--methods`` only those of
the tests that ran) and the page is written again.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.kafka_suites import launcher, page
from tests.kafka_suites.outcomes import (
    FAILED,
    Outcome,
    Outcomes,
    SuiteClass,
    judge,
    kept_path,
    load,
    read_list,
    regressions,
    report,
    save,
)


def main() -> int:
    """Run the classes of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", nargs="*", help="simple names; default: all of suites.toml")
    parser.add_argument("--methods", help="run only methods that match this regular expression")
    parser.add_argument("--backend", choices=launcher.BACKENDS, default="kraft")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--record", action="store_true", help="keep the outcomes; write the page")
    parser.add_argument("--directory", type=Path, help="keep outputs and logs (default: deleted)")
    arguments = parser.parse_args()
    # Turn SIGTERM into an exception, so that clean-up ends the JVM in its own process group.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    suite_list = read_list()
    wanted = {name.rpartition(".")[2] for name in arguments.classes or ()}
    classes = [one for one in suite_list.classes if not wanted or one.simple_name in wanted]
    if unknown := wanted - {one.simple_name for one in classes}:
        parser.error(f"not in suites.toml: {', '.join(sorted(unknown))}")
    judged: dict[str, Outcomes] = {}
    before = load(kept_path(arguments.backend))
    with tempfile.TemporaryDirectory(prefix="kafka-suites") as temporary:
        directory = (arguments.directory or Path(temporary)).resolve()
        for one in classes:
            outcomes = run_class(one, arguments.backend, directory, arguments.methods)
            judged |= outcomes
            if arguments.record:
                # After each class: a run of all takes hours and may be stopped.
                record(arguments.backend, outcomes, is_part=arguments.methods is not None)
    if arguments.json:
        save(arguments.json, judged)
    worse = regressions(judged, before)
    for test in worse:
        print(f"passed before: {test}")
    return 1 if worse else 0


def record(backend: str, outcomes: dict[str, Outcomes], *, is_part: bool) -> None:
    """Keep the outcomes of classes, or of some of their tests, and write the page again."""
    kept = load(kept_path(backend))
    for name, tests in outcomes.items():
        kept[name] = kept.get(name, {}) | tests if is_part else tests
    save(kept_path(backend), kept)
    page.write()


def run_class(
    one: SuiteClass, backend: str, directory: Path, methods: str | None = None
) -> dict[str, Outcomes]:
    """Run one class, print its counts and the tests that did not pass; return the outcomes."""
    began = time.monotonic()
    selectors = [
        f"--select-class={one.name}",
        f"--include-methodname=.*#({methods or one.methods}).*",
    ]
    tests = launcher.run(selectors, backend, directory / one.simple_name, timeout_s=one.timeout_s)
    judged = judge(tests, read_list().exclusions)
    # A class that did not run at all has failed: it must not disappear from the results.
    judged.setdefault(one.simple_name, {"(class)": Outcome(FAILED, "no test ran")})
    report(judged, time.monotonic() - began)
    return judged


if __name__ == "__main__":
    sys.exit(main())
