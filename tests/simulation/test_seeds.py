"""Seeds of all simulations: exact replays, covered events, and the report of a violation."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from kraft.simulation.batch_tree import Violation
from kraft.simulation.replays import CONTROLLERS, KINDS, QUORUM, REPLICATION, SimulationKind, parse
from tests.simulation import run
from tests.simulation.processes import outputs_of


def trace_digest(kind: SimulationKind, seed: int, events: int) -> str:
    """Return a digest of all that a traced run returns."""
    outcome = kind.run_seed(seed, events, is_traced=True)
    text = "\n".join([*outcome.lines, f"{outcome.digest} {sorted(outcome.counts.items())}"])
    return hashlib.sha256(text.encode()).hexdigest()


def kind_name(value: object) -> str | None:
    """Return the name of a kind of simulation for the id of a test."""
    return value.name if isinstance(value, SimulationKind) else None


@pytest.mark.parametrize(
    ("kind", "seed", "events"),
    [
        (QUORUM, 1, 600),
        (QUORUM, 8, 600),
        (QUORUM, 21, 600),
        (CONTROLLERS, 2, 1_500),
        (REPLICATION, 2, 1_000),
    ],
    ids=kind_name,
)
def test_a_seed_replays_to_the_same_trace(kind: SimulationKind, seed: int, events: int) -> None:
    digest = trace_digest(kind, seed, events)
    assert digest == trace_digest(kind, seed, events)
    assert digest != trace_digest(kind, seed + 1, events)


@pytest.mark.parametrize(
    ("kind", "seed", "events"),
    [(QUORUM, 5, 800), (CONTROLLERS, 5, 1_500), (REPLICATION, 4, 1_000)],
    ids=kind_name,
)
def test_tracing_does_not_change_the_run(kind: SimulationKind, seed: int, events: int) -> None:
    traced, untraced = kind.run_seed(seed, events, is_traced=True), kind.run_seed(seed, events)
    assert (traced.digest, traced.counts) == (untraced.digest, untraced.counts)
    assert traced.lines
    assert not untraced.lines


def test_a_trace_of_the_quorum_has_a_line_for_each_event() -> None:
    outcome = QUORUM.run_seed(5, 800, is_traced=True)
    assert len(outcome.lines) >= outcome.events


@pytest.mark.parametrize(
    ("kind", "seed", "events"),
    [(QUORUM, 3, 600), (QUORUM, 11, 600), (CONTROLLERS, 4, 1_500), (REPLICATION, 4, 1_000)],
    ids=kind_name,
)
def test_the_hash_seed_of_the_process_has_no_effect(
    kind: SimulationKind, seed: int, events: int
) -> None:
    script = (
        "from kraft.simulation.replays import KINDS;"
        "from tests.simulation.test_seeds import trace_digest;"
        f"print(trace_digest(KINDS[{kind.name!r}], {seed}, {events}))"
    )
    assert len(outputs_of(script)) == 1


@pytest.mark.parametrize(
    ("kind", "seeds", "events", "names"),
    [
        (
            QUORUM,
            20,
            3_000,
            ("elections", "commits", "crashes", "leader_crashes", "truncations", "calms"),
        ),
        (
            CONTROLLERS,
            5,
            1_500,
            (
                "claims",
                "acknowledged",
                "transactions",
                "broker_deaths",
                "isr_changes",
                "compared_states",
                "compared_images",
                "checked_histories",
            ),
        ),
        (
            REPLICATION,
            5,
            1_500,
            (
                "acknowledged_batches",
                "consumed_batches",
                "clean_elections",
                "isr_changes",
                "broker_deaths",
                "compared_replicas",
            ),
        ),
    ],
    ids=[*KINDS],
)
def test_a_few_seeds_pass_and_cover_the_main_events(
    kind: SimulationKind, seeds: int, events: int, names: tuple[str, ...]
) -> None:
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        outcome = kind.run_seed(seed, events)
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        assert outcome.events >= events
        counts += outcome.counts
    assert [name for name in names if not counts[name]] == []


def test_a_replay_without_faults_is_calm() -> None:
    outcome = parse("replication:1:1500:only=").run()
    assert outcome.violation is None
    assert outcome.counts["acknowledged_batches"]
    assert not outcome.counts["broker_deaths"]


@pytest.mark.parametrize(
    "mode", [run.ALONE, run.WHOLE, run.REPLICATED], ids=lambda mode: mode.kind.name
)
def test_a_replayed_violation_prints_its_trace(mode: run.Mode) -> None:
    """The command prints the last lines, the invariant, and the replay."""
    outcome = mode.kind.run_seed(5, 300, is_traced=True)
    outcome.violation = Violation("logs_match", "they do not")
    text = run.explain(outcome, 300, mode)
    assert "logs_match: they do not" in text
    assert f"make {mode.target} SEED=5 EVENTS=300" in text
    assert outcome.lines[-1][:100] in text
