"""The commands of the README: ``kraft up`` with brokers, then kcat in and out."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.commands import PATIENCE_S, Foreground
from tests.harness.kcat import kcat_command
from tests.harness.missing_tools import skipped_if_missing

pytestmark = pytest.mark.interop


def test_kcat_consumes_what_it_produced_by_the_commands_that_up_prints(tmp_path: Path) -> None:
    with skipped_if_missing():
        program = kcat_command()
    kcat = tmp_path / "bin" / "kcat"
    kcat.parent.mkdir()
    kcat.write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
    kcat.chmod(0o755)
    environment = {**os.environ, "PATH": f"{kcat.parent}:{os.environ['PATH']}"}
    command = ("up", "--controllers", 3, "--brokers", 3, "--dir", tmp_path / "home")
    with Foreground(command, tmp_path / "up.err") as quorum:
        assert quorum.process.stdout is not None
        printed = []
        for line in quorum.process.stdout:
            printed.append(line.strip())
            if line.startswith("  kcat -C"):
                break
        produce, consume = [line for line in printed if "kcat -" in line]
        assert produce.startswith("echo hello | kcat -P -b ")
        assert consume.startswith("kcat -C -b ")

        def run(line: str) -> str:
            ran = subprocess.run(
                ["sh", "-c", line],
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=True,
            )
            return ran.stdout

        assert run(produce) == ""
        assert run(consume) == "hello\n"
        # A terminal signals the whole foreground group.
        os.killpg(quorum.process.pid, signal.SIGINT)
        assert quorum.process.wait(PATIENCE_S) == 130
