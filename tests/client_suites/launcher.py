"""Run a test file of kafka-python in a pytest process, and read its report."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from tests.client_suites.broker_fixtures import BACKEND
from tests.client_suites.sources import test_tree
from tests.harness.kafka_jars import KAFKA_4, PROJECT
from tests.kafka_suites.launcher import FinishedTest

#: Above the longest wait within a test on a busy machine.
_TEST_TIMEOUT_S = 120


def run(
    file: str,
    backend: str,
    directory: Path,
    *,
    timeout_s: float,
    selected: str | None = None,
) -> list[FinishedTest]:
    """Run the tests of ``file``, or those that pytest's ``-k`` selects by ``selected``.

    What they print is in ``directory``. Raises TimeoutExpired at the time limit.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tree = test_tree()
    report = directory / f"{file}.xml"
    command = [
        *(sys.executable, "-m", "pytest", f"test/integration/{file}.py"),
        # Not the configuration of kraft's own tests, which is in a folder above.
        *("-c", os.devnull, "--rootdir", str(tree), "-p", "no:cacheprovider"),
        *("-p", "tests.client_suites.plugin", f"--junitxml={report}"),
        f"--timeout={_TEST_TIMEOUT_S}",
        *(("-k", selected) if selected else ()),
    ]
    paths = [str(PROJECT), str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        "KAFKA_VERSION": KAFKA_4,
        "PYTHONPATH": os.pathsep.join(paths),
        BACKEND: backend,
        # The brokers and their files, of a run that is stopped too, are within `directory`.
        "TMPDIR": str(directory),
    }
    with (directory / f"{file}.txt").open("wb") as output:
        subprocess.run(
            command,
            cwd=tree,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=timeout_s,
            check=False,
        )
    return read_report(report.read_text()) if report.exists() else []


def read_report(text: str) -> list[FinishedTest]:
    """Return the tests of pytest's report in JUnit's format; a test may be reported twice."""
    found: dict[str, FinishedTest] = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        file, name = case.get("classname", "").split(".")[2:], case.get("name", "")
        full = f"{file[0]} > {'.'.join([*file[1:], name])}"
        status, detail = _status(case)
        before = found.get(full)
        # An error after the test is an entry of its own.
        if before is None or status == "FAILED":
            found[full] = FinishedTest(full, status, detail)
    return list(found.values())


def _status(case: ElementTree.Element) -> tuple[str, str]:
    for tag in ("failure", "error", "skipped"):
        element = case.find(tag)
        if element is not None:
            detail = _first_line(element.get("message", ""))
            return ("ABORTED" if tag == "skipped" else "FAILED"), detail
    return "SUCCESSFUL", ""


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


def files(names: Sequence[str]) -> list[str]:
    """Return the test files of the source distribution that are not in ``names``."""
    found = (test_tree() / "test" / "integration").glob("test_*.py")
    return sorted({path.stem for path in found} - set(names))
