"""Kill two writers of one ledger of verdicts at every step of a commit; nothing is lost or doubled.

As `results_store_proof`, whose steps these are (``kill_step.c``): each round forks two writers,
which have read the same version before they commit. One dies before a chosen step, which moves
through all steps from round to round; the other one dies at a random step, or completes. In every
fourth round both complete. A command adds several verdicts; a reader then finds all or none of each
command, every one that was acknowledged, and each once. The ledger merges its files every few
commits; a new one is begun every few rounds, so that two writers also create it at the same time.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from kraft.regression import verdict_store as ledgers
from kraft.regression.points import SeriesKey
from kraft.regression.verdicts import Verdict, VerdictKind
from tests.durability.results_store_proof import (
    STEPS,
    ended,
    forked,
    run_proof,
    step_of,
    two_writers,
)

#: Fewer than outside of the proof, so that a merge happens every few rounds.
MERGED_FILES = 3
#: Verdicts of one command.
TOGETHER = 3
#: Rounds of twelve that begin a new ledger: in the first both writers complete, in the other not.
FRESH = (3, 8)
KEY = SeriesKey("bench.py", "test_a", "{}", "build-7", "sample", "main")


def verdicts_of(command: int) -> list[Verdict]:
    """Return the verdicts of a command; their ids begin with its number."""
    return [
        Verdict(
            id=f"{command:024}{number:08}",
            kind=VerdictKind.ACCEPT,
            time_us=0,
            author="ana",
            reason=f"command {command}",
            key=KEY,
            statistic="median",
            is_worse=True,
        )
        for number in range(TOGETHER)
    ]


def write(command: int, store: Path, steps: int, meet: Callable[[], None] | None = None) -> None:
    """Add the verdicts of a command, and die after so many steps.

    With ``meet``, the writer waits there after it has read the version that it builds on.
    """
    ledgers._MOST_FILES = MERGED_FILES
    version = ledgers._version

    def met(*args: object) -> int:
        ledgers._version = version
        found = version(*args)  # type: ignore[arg-type]
        assert meet is not None
        meet()
        return found

    if meet is not None:
        ledgers._version = met
    STEPS.kill_after(ctypes.c_long(steps))
    ledgers.add_verdicts(store, verdicts_of(command))


def steps_of_command(folder: Path) -> int:
    """Return the number of steps of a command that merges files."""
    counted = folder / "steps"

    def work() -> None:
        for command in range(MERGED_FILES - 1):
            write(command, folder / "counted", -1)
        before = STEPS.steps_made()
        write(MERGED_FILES, folder / "counted", -1)
        assert len(DeltaTable(str(folder / "counted" / ledgers.FOLDER)).file_uris()) == 1
        counted.write_text(str(STEPS.steps_made() - before))

    assert ended(forked(work)) == 0
    return int(counted.read_text()) * 3 // 2  # a writer that comes second commits twice


def check(store: Path, acknowledged: set[int], offered: set[int], seen: Path) -> None:
    """Check the ledger, and write the numbers of its commands to ``seen``."""
    found = ledgers.load_verdicts(store).verdicts
    counts = Counter(each.id for each in found)
    assert set(counts.values()) <= {1}, f"a verdict is stored twice: {counts.most_common(3)}"
    commands = Counter(int(each.id[:24]) for each in found)
    assert set(commands.values()) <= {TOGETHER}, f"a command is there in part: {commands}"
    assert commands.keys() <= offered, f"unknown: {commands.keys() - offered}"
    assert commands.keys() >= acknowledged, f"lost: {acknowledged - commands.keys()}"
    seen.write_text(" ".join(map(str, commands)))


def check_engine(store: Path, kept: set[int]) -> None:
    """Check that another engine reads the same verdicts."""
    if not kept:
        return  # perhaps there is no ledger
    files = DeltaTable(str(store / ledgers.FOLDER)).file_uris()
    rows = duckdb.execute("SELECT id FROM read_parquet($files)", {"files": files}).fetchall()
    wanted = sorted(each.id for command in kept for each in verdicts_of(command))
    assert sorted(id_ for (id_,) in rows) == wanted


def prove(place: Path, rounds: int, seed: int) -> None:
    """Run the proof. Raises AssertionError with the round for a lost or doubled verdict."""
    random_ = random.Random(seed)
    store, seen = place / "store-0", place / "seen"
    steps = steps_of_command(place)
    kept: set[int] = set()
    offered: set[int] = set()
    kills = commands = whole = 0
    for number in range(rounds):
        if number % 12 in FRESH:
            assert ended(forked(partial(check_engine, store, kept))) == 0
            commands, whole = commands + len(offered), whole + len(kept)
            store, kept, offered = place / f"store-{number}", set(), set()
        one, other = 2 * number, 2 * number + 1
        offered |= {one, other}
        other_dies = number % 4 != 3 and random_.random() < 0.5
        other_steps = random_.randrange(steps + 1) if other_dies else -1
        children = two_writers(
            partial(write, one, store, step_of(number, rounds, steps)),
            partial(write, other, store, other_steps),
        )
        for child, command in zip(children, (one, other), strict=True):
            code = ended(child)
            assert code in (0, -9), f"round {number}: a writer failed with {code}"
            kills += code == -9
            if code == 0:
                kept.add(command)
        code = ended(forked(partial(check, store, kept, offered, seen)))
        assert code == 0, f"round {number}: see above"
        kept |= set(map(int, seen.read_text().split()))
    assert ended(forked(partial(check_engine, store, kept))) == 0
    commands, whole = commands + len(offered), whole + len(kept)
    print(
        f"{rounds} rounds, {kills} kills at {steps} steps, {whole} of {commands} commands: "
        "each once and whole"
    )


if __name__ == "__main__":
    sys.exit(run_proof("tests.durability.verdict_ledger_proof", prove))
