"""Run test classes of Kafka with JUnit's console launcher, and parse its output.

The launcher prints a line as each test starts and ends, so the output of a run that is stopped at
its time limit still shows the test that hung.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.kafka_jars import SMALL_JVM, java
from tests.kafka_suites.jars import compiled, suites

BACKENDS = ("kraft", "kafka")
_HERE = Path(__file__).parent
# The output of a test may end without a line break.
_EVENT = re.compile(r"JUnit Jupiter > (?P<path>.*) :: (?P<status>[A-Z]+)$")
#: The end of the name of a test on a cluster with the test kit's defaults.
_DEFAULTS = (
    ",BrokerSecurityProtocol=PLAINTEXT,BrokerListenerName=ListenerName(EXTERNAL)"
    ",ControllerSecurityProtocol=PLAINTEXT,ControllerListenerName=ListenerName(CONTROLLER)"
)
_TEST_JVM = (
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    # As in Kafka's build.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util.regex=ALL-UNNAMED",
    "--add-opens=java.base/java.util.stream=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)


@dataclass(frozen=True)
class FinishedTest:
    """One test as JUnit reported it; ``status`` is SUCCESSFUL, FAILED, ABORTED or SKIPPED."""

    name: str  # class > method > invocation
    status: str
    detail: str  # the first line of the exception, and of its last cause if it has one


def controller_command(backend: str) -> list[str]:
    """Return the command that runs a controller, without the path of its configuration."""
    if backend == "kraft":
        return [sys.executable, "-m", "kraft", "server", "start"]
    log4j = f"-Dlog4j2.configurationFile={_HERE / 'controller-log4j2.properties'}"
    return suites().command("kafka.Kafka", jvm=(*SMALL_JVM, log4j))


def run(
    selectors: Sequence[str],
    backend: str,
    directory: Path,
    *,
    timeout_s: float,
) -> list[FinishedTest]:
    """Run the selected tests in one JVM.

    ``selectors`` are options of the console launcher. The output, and the configurations and logs
    of the controllers, are stored in ``directory``. A test that still runs at the time limit has
    failed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    jars = suites()
    command = [
        str(java()),
        *_TEST_JVM,
        f"-Dkraft.suites.command={chr(10).join(controller_command(backend))}",
        f"-Dkraft.suites.directory={directory}",
        f"-Dkraft.suites.equivalents={str(backend == 'kraft').lower()}",
        f"-Dlog4j2.configurationFile={_HERE / 'tests-log4j2.properties'}",
        f"-Dkraft.suites.log={directory / 'tests.log'}",
        f"-Djava.io.tmpdir={directory}",
        *("-cp", jars.classpath(compiled(jars))),
        *("org.junit.platform.console.ConsoleLauncher", "execute"),
        *("--details=testfeed", "--disable-banner", "--disable-ansi-colors"),
        *selectors,
    ]
    output = directory / "output.txt"
    with output.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(timeout_s)
            timed_out = False
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end_group(process)
    return read_feed(output.read_text(errors="replace").splitlines(), timed_out=timed_out)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    # The controllers are in the JVM's process group, and continue to run if the JVM is killed.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    threading.Thread(target=process.wait, daemon=True).start()


def read_feed(lines: Iterable[str], *, timed_out: bool = False) -> list[FinishedTest]:
    """Return the tests of a launcher's output in the order in which they ended."""
    finished: list[FinishedTest] = []
    running: dict[str, None] = {}
    path, status, detail = "", "", list[str]()

    def end() -> None:
        if status:
            causes = [line for line in detail[1:] if line.startswith("Caused by: ")]
            why = "; ".join(detail[:1] + causes[-1:])
            finished.append(FinishedTest(path.removesuffix(_DEFAULTS), status, why))

    for line in lines:
        if event := _EVENT.search(line):
            end()
            path, status, detail = event["path"], event["status"], []
            if status == "STARTED":
                running[path] = None
                status = ""
            else:
                running.pop(path, None)
        elif status and line.startswith("\t"):
            detail.append(line.strip())
    end()
    why = "it did not end within the time limit" if timed_out else "the JVM ended"
    return finished + [
        FinishedTest(name.removesuffix(_DEFAULTS), "FAILED", why) for name in running
    ]
