"""Run Kafka's reading tools, kafka-dump-log and kafka-metadata-shell, and check for complaints.

A complaint is any text on standard error, including logged warnings and errors, that the tools do
not also print for Kafka's own files; it raises ComplaintError.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from types import TracebackType
from typing import Self

from tests.harness.kafka_jars import SMALL_JVM, Jars
from tests.harness.line_process import LineProcess

# For a million partitions: an optimizing compiler, and memory for the shell's image.
LARGE_JVM = ("-Xmx4g", "-XX:+UseSerialGC", "-XX:-UsePerfData")
WARNINGS = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
SHELL_LOAD_TIMEOUT_S = 120.0
# The shell of 3.9 fails on a quota of a default entity, so clientQuotas is left out.
PARTS_OF_3 = (
    *("acls", "cluster", "configs", "delegationToken", "features", "producerIds"),
    *("provenance", "scram", "topics"),
)
# Messages for Kafka's own files too: for a segment that does not begin at 0, and for control
# records, which the shell does not read.
_SAID_OF_KAFKA_TOO = re.compile(
    r"^Non-consecutive offsets in .*\n  -1 is followed by \d+\n|"
    r"^.* Ignoring control record with type \w+ at offset \d+\n",
    re.MULTILINE,
)


class ComplaintError(RuntimeError):
    """One of Kafka's tools complains about a file."""


def check_for_complaints(tool: str, said: str) -> None:
    if complaints := _SAID_OF_KAFKA_TOO.sub("", said).strip():
        raise ComplaintError(f"{tool}: {complaints}")


def dump_log_class(jars: Jars) -> str:
    # A part of kafka-tools from 4.3 on, before that of the broker's jar.
    package = "kafka.tools" if jars.version < "4.3" else "org.apache.kafka.tools"
    return f"{package}.DumpLogSegments"


def dump(jars: Jars, directory: Path, files: list[Path]) -> dict[Path, str]:
    """Return kafka-dump-log's output for each file; names are relative to `directory`."""
    wanted = ("--cluster-metadata-decoder", "--files", ",".join(map(str, files)))
    said = jars.run(dump_log_class(jars), *wanted, cwd=directory, log_level="warn")
    check_for_complaints("kafka-dump-log", said.stderr)
    parts = re.split(r"^Dumping (\S+)\n", said.stdout, flags=re.MULTILINE)[1:]
    return {
        Path(name): f"Dumping {name}\n{text}"
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def dump_lines(jars: Jars, file: Path) -> Iterator[str]:
    """Yield kafka-dump-log's output for one large file, line by line."""
    command = jars.command(
        dump_log_class(jars),
        *("--cluster-metadata-decoder", "--files", file),
        jvm=(*LARGE_JVM, WARNINGS),
    )
    with tempfile.TemporaryFile("w+") as errors:
        with Popen(command, stdout=PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            yield from process.stdout
        errors.seek(0)
        check_for_complaints("kafka-dump-log", errors.read())


class MetadataShell:
    """kafka-metadata-shell on a snapshot, or on a log that begins at offset 0; a context manager.

    A command given as an argument may run before the shell has published its first state, and then
    prints an empty state. Commands are therefore written to the shell's standard input; the first
    one prints the provenance, and is repeated until the provenance has an offset.
    """

    _PROMPT = ">> "
    _END = "no-such-node"  # the shell's error about it marks the end of an answer

    def __init__(self, jars: Jars, file: Path, jvm: tuple[str, ...] = SMALL_JVM) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed by __exit__
        options = (*jvm, WARNINGS, "-Dorg.jline.terminal.dumb=true")
        main = "org.apache.kafka.shell.MetadataShell"
        command = jars.command(main, "--snapshot", file, jvm=options)
        self._process = LineProcess(command, errors=self._errors)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + SHELL_LOAD_TIMEOUT_S
        while time.monotonic() < deadline:
            said = list(self.ask("tree /image/provenance"))
            if said[-1].startswith("offset ") and not said[-1].startswith("offset -1"):
                return self
            time.sleep(0.1)
        self._process.kill()
        raise ComplaintError("kafka-metadata-shell: no state came of the file")

    def ask(self, command: str) -> Iterator[str]:
        """Yield the lines that the shell prints for the command; the caller must read all."""
        self._process.send(command, f"ls {self._END}")
        for line in self._process.lines():
            while line.startswith(self._PROMPT):
                line = line[len(self._PROMPT) :]
            if self._END in line:
                return
            if line:
                yield line
        self._errors.seek(0)
        raise ComplaintError(f"kafka-metadata-shell ended at {command!r}: {self._errors.read()}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the shell; raise its complaints unless another error was raised."""
        if kind is not None:
            self._process.kill()
        else:
            self._process.send("exit")
            self._process.close()
        self._errors.seek(0)
        said = self._errors.read()
        self._errors.close()
        if kind is None:
            check_for_complaints("kafka-metadata-shell", said)


def tree(jars: Jars, file: Path) -> str:
    """Return the whole state as the shell prints it."""
    with MetadataShell(jars, file) as shell:
        if jars.version.startswith("4"):
            return _joined(shell.ask("tree /"))
        lines = ["image:"]
        for part in PARTS_OF_3:
            lines += [f"  {part}:", *(f"    {line}" for line in shell.ask(f"tree /image/{part}"))]
        return _joined(iter(lines))


def _joined(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def check_indexes(jars: Jars, directory: Path) -> None:
    """Run kafka-dump-log on the indexes: they are valid and match the log."""
    indexes = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
    files = ",".join(path.name for path in indexes)
    main = dump_log_class(jars)
    for check in ("--index-sanity-check", "--verify-index-only"):
        said = jars.run(main, check, "--files", files, cwd=directory, log_level="warn")
        assert said.stderr == ""
        assert said.stdout.count("Dumping ") == len(indexes)
        if check == "--index-sanity-check":
            assert said.stdout.count(" passed sanity check.") == len(indexes)
