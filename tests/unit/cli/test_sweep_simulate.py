"""`kraft sweep simulate` on the command line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kraft.cli.exit_codes import FAILED, INTERRUPTED, OK, REFUSED
from tests.harness.commands import eventually, heed_interrupts
from tests.harness.planted import the_high_watermark_is_one_too_high
from tests.unit.cli.conftest import Run


def test_seeds_without_a_violation_have_exit_code_0(kraft: Run) -> None:
    ran = kraft("sweep", "simulate", "--seeds", "5..11", "--events", "300", "--jobs", "1")
    assert ran.code == OK
    assert ran.out.startswith("6 seeds, ")
    assert "0 violations; digest " in ran.out

    document = kraft(
        *("sweep", "simulate", "--seeds", "5..11", "--events", "300", "--jobs", "2", "--json")
    ).json
    assert document["digest"] == ran.out.split()[-1]
    assert (document["kind"], document["seeds"]) == ("quorum", 6)
    assert (document["violations"], document["shrunk"], document["left"]) == ([], [], None)


def test_clusters_with_controllers_are_simulated_on_request(kraft: Run) -> None:
    ran = kraft(
        *("sweep", "simulate", "--controllers", "--seeds", "2", "--events", "200", "--json")
    )
    assert ran.code == OK
    assert ran.json["kind"] == "controllers"
    assert ran.json["counts"]["claims"] > 0


def test_a_failing_seed_is_minimised_and_its_command_replays_it(kraft: Run) -> None:
    with the_high_watermark_is_one_too_high():
        ran = kraft("sweep", "simulate", "--seeds", "5..9", "--events", "300", "--jobs", "1")
        assert ran.code == FAILED
        assert "seed 8, shrunk by" in ran.out
        assert "high_watermark_at_batch_end: " in ran.out
        assert "error: 2 of 4 seeds failed" in ran.err
        line = next(line for line in ran.lines if line.startswith("again: ") and ":8:" in line)
        command = line.split()[2:]

        again = kraft(*command)
        assert again.code == FAILED
        assert "high_watermark_at_batch_end: " in again.lines[-1]
        document = kraft(*command, "--json", "--whole").json
        assert document["violation"].startswith("high_watermark_at_batch_end: ")
        assert len(document["lines"]) >= document["events"]
        assert document["faults"] == []

        unshrunk = kraft(
            *("sweep", "simulate", "--seeds", "8", "--events", "300", "--no-shrink", "--json")
        ).json
        assert unshrunk["shrunk"] == []
        assert [each["seed"] for each in unshrunk["violations"]] == [8]
    assert kraft(*command).code == OK


def test_a_replay_of_a_whole_seed_is_minimised(kraft: Run) -> None:
    with the_high_watermark_is_one_too_high():
        ran = kraft("sweep", "simulate", "--replay", "quorum:8:300")
    assert ran.code == FAILED
    assert "again: kraft sweep simulate --no-shrink --replay quorum:8:" in ran.out


@pytest.mark.parametrize("given", [("--seeds", "9..3"), ("--replay", "quorum:x")])
def test_malformed_arguments_are_rejected(given: tuple[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kraft", "sweep", "simulate", *given],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == REFUSED
    assert done.stderr.startswith(f"error: {given[1]!r} ")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ignores_interrupts(pid: int) -> bool:
    (mask,) = re.findall(r"^SigIgn:\s+(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (signal.SIGINT - 1) & 1)


def test_ctrl_c_prints_the_finished_and_the_remaining_seeds() -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "kraft", "sweep", "simulate", "--json", "--jobs", "2"),
            *("--seeds", "100..1000000", "--events", "500"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    try:
        # Wait until both workers ignore SIGINT: a worker that was just forked does not yet.
        eventually(
            lambda: [ignores_interrupts(pid) for pid in children_of(process.pid)] == [True] * 2
        )
        time.sleep(0.5)
        # Send SIGINT to the command and its workers, as a terminal does.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == INTERRUPTED, err
    assert '"left": "' in out
    assert err.startswith("interrupted: ")
    assert err.rstrip().endswith("..1000000")
    assert "Traceback" not in err
