"""The proof of the real disk at a small size, and planted faults that it must find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.durability.conftest import Run
from tests.durability.recording import DROP, SHORTEN

PROOF = ("-m", "tests.durability.store_proof")


@pytest.mark.parametrize("shorten", ["", "1:100"], ids=["whole", "short"])
def test_a_crash_between_any_two_calls_breaks_no_promise(
    shorten: str, run: Run, place: Path
) -> None:
    settings = {SHORTEN: shorten} if shorten else {}
    ran = run(*PROOF, str(place), "--seed", "5", "--operations", "80", **settings)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["crashes"] > 2500
    for call in ("WRITE", "TRUNCATE", "CREATE", "RENAME", "UNLINK", "SYNC_END", "MKDIR"):
        assert report["calls"][call] > 0, report
    for operation in ("_append", "_truncate", "_make_snapshot", "_install", "_clean", "_start"):
        assert report["operations"][operation] > 0, report
    for rule in ("synced before renamed", "removals are synced one by one", "noted once synced"):
        assert report["rules"][rule] > 10, report


#: Omitted system calls by kind, each with the check that finds it.
LEFT_OUT = {
    "no sync of any file": "s:",
    "no sync of the log": "s:.log",
    "no sync of the election state": "s:quorum-state",
    "no sync of a download": "s:.part",
    "no sync of a lowered note": "s:synced-offset",
    "no sync of any directory": "d:",
    "no sync of the directory of segments": "d:.snapshot",
    "no sync of the directory of the election state": "d:quorum-state",
    "no sync of the directory of a snapshot": "d:.checkpoint",
    "no sync of the directory of columns": "d:.columns",
    "no sync of the directory of the notes": "d:synced-offset",
}


def finds(run: Run, place: Path, *arguments: str, **settings: str) -> bool:
    """Return whether one of three seeds finds the fault."""
    for seed in ("3", "5", "8"):
        for path in sorted((place / "node").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (place / "calls").unlink(missing_ok=True)
        ran = run(*PROOF, str(place), "--seed", seed, "--operations", "120", *arguments, **settings)
        if ran.returncode == 1 and ran.stderr.startswith(("BrokenPromiseError", "BrokenRuleError")):
            return True
        assert ran.returncode == 0, ran.stderr
    return False


@pytest.mark.parametrize("fault", LEFT_OUT)
def test_the_proof_finds_omitted_calls(fault: str, run: Run, place: Path) -> None:
    assert finds(run, place, **{DROP: LEFT_OUT[fault]})


@pytest.mark.parametrize(
    "fault",
    ["one slot is lowered", "noted before it is synced", "cleaning takes the last snapshot"],
)
def test_the_proof_finds_a_planted_fault(fault: str, run: Run, place: Path) -> None:
    assert finds(run, place, "--plant", fault)
