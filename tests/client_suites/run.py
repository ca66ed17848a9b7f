"""Run the integration tests of kafka-python with a broker of kraft.

    python -m tests.client_suites.run
    python -m tests.client_suites.run --backend kafka --files test_admin_integration

Exits with 1 if a test fails that passed in the recorded run. With ``--record`` the outcomes replace
the recorded ones of the file, and the page is written again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.client_suites import launcher, page
from tests.client_suites.page import kept_path, read_suites
from tests.kafka_suites.outcomes import (
    FAILED,
    Outcome,
    Outcomes,
    SuiteClass,
    judge,
    load,
    regressions,
    report,
    save,
)


def main() -> int:
    """Run the files of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", nargs="*", help="without .py; default: all of suites.toml")
    parser.add_argument("--backend", choices=("kraft", "kafka"), default="kraft")
    parser.add_argument("--record", action="store_true", help="keep the outcomes; write the page")
    parser.add_argument("--directory", type=Path, help="keep the output (default: deleted)")
    arguments = parser.parse_args()
    suites = read_suites()
    wanted = arguments.files or [one.name for one in suites.classes]
    classes = [one for one in suites.classes if one.name in wanted]
    if unknown := set(wanted) - {one.name for one in classes}:
        parser.error(f"not in suites.toml: {', '.join(sorted(unknown))}")
    before = load(kept_path(arguments.backend))
    judged: dict[str, Outcomes] = {}
    with tempfile.TemporaryDirectory(prefix="client-suites") as temporary:
        directory = (arguments.directory or Path(temporary)).resolve()
        for one in classes:
            judged |= run_file(one, arguments.backend, directory)
    if arguments.record:
        save(kept_path(arguments.backend), before | judged)
        page.write()
    worse = regressions(judged, before)
    for test in worse:
        print(f"passed before: {test}")
    return 1 if worse else 0


def run_file(
    one: SuiteClass, backend: str, directory: Path, selected: str | None = None
) -> dict[str, Outcomes]:
    """Run one file, print its counts and the tests that did not pass; return the outcomes."""
    began = time.monotonic()
    tests = launcher.run(one.name, backend, directory, timeout_s=one.timeout_s, selected=selected)
    judged = judge(tests, read_suites().exclusions)
    # A file that did not run at all has failed: it must not disappear from the results.
    judged.setdefault(one.name, {"(file)": Outcome(FAILED, "no test ran")})
    report(judged, time.monotonic() - began)
    return judged


if __name__ == "__main__":
    sys.exit(main())
