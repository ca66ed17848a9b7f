"""Planted faults: the simulations find them, and `make mutants` reports how."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from kraft.simulation.replays import SimulationKind
from tests.simulation.mutants import KINDS_OF_MUTANTS
from tests.simulation.processes import ROOT, invariant_violated_by

#: The fewest planted faults of each kind of simulation.
FEWEST = {"quorum": 12, "controllers": 12, "replication": 20}


@pytest.mark.parametrize(
    "name",
    [
        "answers_before_the_records_are_durable",
        "the_leader_commits_before_a_majority_has_the_records",
        "the_epoch_is_forgotten_at_a_restart",
    ],
)
def test_the_command_reports_a_caught_fault(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.mutants", "--only", name, "--jobs", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 mutants caught" in done.stdout


@pytest.mark.parametrize(
    ("name", "invariants"),
    [
        ("a_controller_answers_before_the_commit", {"acknowledged_is_committed"}),
        ("uncommitted_state_is_not_reverted", {"uncommitted_state_is_reverted"}),
        ("a_producer_id_block_is_given_out_twice", {"producer_ids_are_allocated_once"}),
        ("acks_all_is_answered_at_once", {"acknowledged_is_committed"}),
        ("consumers_read_to_the_end_of_the_log", {"consumers_read_only_committed"}),
        (
            "followers_do_not_truncate",
            {
                "replicas_are_equal_below_the_high_watermark",
                "a_new_isr_member_has_all_committed",
                "replication_recovers_from_faults",
            },
        ),
    ],
)
def test_a_planted_fault_violates_an_invariant(name: str, invariants: set[str]) -> None:
    assert invariant_violated_by(name) in invariants


@pytest.mark.parametrize(
    ("kind", "planted"), KINDS_OF_MUTANTS, ids=[kind.name for kind, _ in KINDS_OF_MUTANTS]
)
def test_there_are_enough_planted_faults(
    kind: SimulationKind, planted: dict[str, Callable[[], None]]
) -> None:
    assert len(planted) >= FEWEST[kind.name]


def test_no_two_planted_faults_have_the_same_name() -> None:
    names = [name for _, planted in KINDS_OF_MUTANTS for name in planted]
    assert len(names) == len(set(names))
