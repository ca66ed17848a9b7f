"""Replays: a run of a seed as a line of text, perhaps without some of its faults."""

import pytest

from kraft.errors import InvalidRequestError
from kraft.simulation.conditions import Suppressed
from kraft.simulation.replays import CONTROLLERS, QUORUM, Replay, parse


@pytest.mark.parametrize(
    "text",
    [
        "quorum:1173:10000",
        "controllers:0:1",
        "quorum:7:719:without=loss,pause,1003,2010-2030",
        "quorum:7:719:only=1000,1002-1004:hurried:nodes=3",
        "controllers:7:719:only=",
    ],
)
def test_a_replay_is_parsed_and_printed_as_the_same_text(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


def test_the_parts_of_a_replay_are_parsed() -> None:
    replay = parse(" quorum:7:719:without=loss,3,40-42:nodes=2\n")
    assert (replay.kind, replay.seed, replay.event_limit, replay.max_nodes) == (QUORUM, 7, 719, 2)
    assert replay.suppressed == Suppressed(frozenset({"loss"}), frozenset({3, 40, 41, 42}))
    assert not replay.is_whole
    assert parse("controllers:7:719") == Replay(CONTROLLERS, 7, 719)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "quorum",
        "quorum:1",
        "raft:1:100",
        "quorum:one:100",
        "quorum:-1:100",
        "quorum:1:0",
        "quorum:1:100:only",
        "quorum:1:100:only=a",
        "quorum:1:100:without=3-x",
        "quorum:1:100:nodes=0",
        "quorum:1:100:faults=3",
    ],
)
def test_malformed_replays_are_rejected(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not a replay"):
        parse(text)


def test_a_suppressed_fault_does_not_happen() -> None:
    wanted = {"trouble", "crash_one", "loss", "pause"}
    for seed in range(100):
        whole = parse(f"quorum:{seed}:3000").run()
        names = {name for _, name in whole.injected}
        if wanted <= names:
            break
    assert wanted <= names
    outcome = parse(f"quorum:{seed}:3000:without=crash_one,loss").run()
    left = {name for _, name in outcome.injected}
    assert not left & {"crash_one", "loss"}
    assert left
    number = next(number for number, name in whole.injected if name == "pause")
    without = parse(f"quorum:{seed}:3000:without={number}").run()
    assert number not in dict(without.injected)
    before = [fault for fault in whole.injected if fault[0] < number]
    assert without.injected[: len(before)] == before


def test_a_replay_without_any_fault() -> None:
    for text in ("quorum:6:1500:only=", "controllers:2:700:only="):
        outcome = parse(text).run()
        assert outcome.violation is None
        assert outcome.injected == []
        assert outcome.counts["crashes"] == 0
        assert outcome.counts["lost_messages"] == 0
        assert outcome.counts["calms"] > 0


def test_a_replay_with_fewer_nodes() -> None:
    whole = parse("quorum:6:800").run()
    assert whole.node_count > 1
    outcome = parse("quorum:6:800:nodes=1").run()
    assert outcome.node_count == 1
    assert outcome.violation is None


def test_a_replay_names_the_faults_in_its_trace() -> None:
    outcome = parse("quorum:6:1500:without=loss").run(is_traced=True)
    for number, name in outcome.injected:
        assert any(line.endswith(f"fault {number} {name}") for line in outcome.lines)


def test_importing_kraft_imports_no_simulator() -> None:
    import subprocess
    import sys

    script = "import sys, kraft; print([name for name in sys.modules if 'simulation' in name])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "[]"
