"""Kill two writers of one store of results at every step of a commit; nothing is lost or doubled.

A step is a system call that changes a file of the store (``kill_step.c``). Each round forks two
writers, which offer some of the same runs and meet before they commit. One dies before a chosen
step, which moves through all steps of an ingest from round to round; the other one dies at a random
step, or completes. In every fourth round both complete. Then a reader compares the store with what
was acknowledged. Every few commits merge the small files, and every round one run is replaced by a
copy with round values, so that removals are covered too.

This process only forks: the runtime of `deltalake` does not survive a fork once it was used.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars
from deltalake import DeltaTable

from kraft.regression import ingest as ingests
from kraft.regression import store as stores
from tests.durability.recording import compile_recorder, missing_for_recordings
from tests.harness.result_documents import document, save

MODULE = "tests.durability.results_store_proof"
SOURCE = Path(__file__).with_name("kill_step.c")
#: Fewer than outside of the proof, so that a merge happens every few rounds.
SMALL_FILES = 6
STEPS = ctypes.CDLL(None)


def run(folder: Path, number: int, *, has_values: bool = True) -> str:
    """Write the file of a run with two points; return its path."""
    values = {"test_a": [1.0 + number, 9.0], "test_b": [2.0]}
    content = document(at=number, commit=f"c{number}", values=values, keep_values=has_values)
    return str(save(folder / f"{number:05}-{has_values}.json", content))


def forked(work: Callable[[], None]) -> int:
    """Run a function in a child; return its process id. It exits with 0 if the function returns."""
    child = os.fork()
    if child:
        return child
    try:
        stores._MOST_SMALL_FILES = SMALL_FILES
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(child: int) -> int:
    """Return the exit code of a child, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def write(
    files: list[str],
    store: str,
    steps: int,
    _writer: int,
    meet: Callable[[], None] | None = None,
) -> None:
    """Ingest, and die after so many steps; see `ingest_after_meeting`."""
    STEPS.kill_after(ctypes.c_long(steps))
    ingest_after_meeting(files, store, meet)


def ingest_after_meeting(files: list[str], store: str, meet: Callable[[], None] | None) -> None:
    """Ingest; with ``meet``, wait there before the first commit: so both writers have read the same
    version.
    """

    def met(*args: Any, **kwargs: Any) -> None:
        ingests.commit = stores.commit
        assert meet is not None
        meet()
        stores.commit(*args, **kwargs)

    if meet is not None:
        ingests.commit = met
    ingests.ingest(files, store)


def two_writers(*writers: Callable[[Callable[[], None]], None]) -> list[int]:
    """Return the process ids of two writers; each is called with a function in which it waits until
    the other one waits too, or has died.
    """
    pipes = [os.pipe(), os.pipe()]
    children = []
    for number, writer in enumerate(writers):
        (read, _), (_, mine) = pipes[1 - number], pipes[number]

        def work(
            writer: Callable[[Callable[[], None]], None] = writer,
            mine: int = mine,
            read: int = read,
        ) -> None:
            for end in {end for pipe in pipes for end in pipe} - {mine, read}:
                os.close(end)

            def meet() -> None:
                os.close(mine)
                os.read(read, 1)  # returns at the end of the file: the other one closed its end

            writer(meet)

        children.append(forked(work))
    for end in (end for pipe in pipes for end in pipe):
        os.close(end)
    return children


def steps_of_ingest(folder: Path) -> int:
    """Return the number of steps of an ingest that replaces a run and merges files."""
    store = folder / "counted"
    counted = folder / "steps"

    def work() -> None:
        for number in range(SMALL_FILES - 1):
            ingests.ingest([run(folder / "counted-runs", number, has_values=number != 0)], store)
        before = STEPS.steps_made()
        files = [run(folder / "counted-runs", number) for number in (0, 90)]
        ingests.ingest(files, store)
        counted.write_text(str(STEPS.steps_made() - before))

    assert ended(forked(work)) == 0
    return int(counted.read_text()) * 3 // 2  # a writer that comes second also rewrites its file


def step_of(number: int, rounds: int, steps: int) -> int:
    """Return the step of a round, -1 in every fourth one: each in turn, or evenly selected ones."""
    if number % 4 == 3:
        return -1
    kills = rounds - rounds // 4
    number -= number // 4
    return number % (steps + 1) if kills > steps else number * (steps + 1) // kills


def check(store: str, acknowledged: set[str], offered: set[str], seen: Path) -> None:
    """Check the store, and write the commits of its runs to ``seen``."""
    if stores.newest_version(store) < 0:
        assert not acknowledged, "an acknowledged run was lost"
        seen.write_text("")
        return
    points = stores.read_table(store, columns=["run_id", "commit"])
    counts = Counter(points["run_id"].to_pylist())
    assert set(counts.values()) == {2}, f"a run is stored twice or in part: {counts}"
    stored = set(points["commit"].to_pylist())
    assert len(stored) == len(counts), "two runs of one commit"
    assert stored <= offered, f"unknown runs: {stored - offered}"
    assert stored >= acknowledged, f"lost: {acknowledged - stored}"
    assert {entry.run_id for entry in stores.list_runs(store)} == counts.keys()
    seen.write_text(" ".join(stored))


def check_engines(store: str, offered: set[str]) -> None:
    """Check that other engines read the same rows, each offered run with two of them."""
    table = DeltaTable(store)
    rows = stores.read_table(store, columns=["commit", "benchmark", "median"]).to_pylist()
    expected = sorted((row["commit"], row["benchmark"], row["median"]) for row in rows)
    assert Counter(row[0] for row in expected) == dict.fromkeys(offered, 2)
    query = 'SELECT "commit", benchmark, median FROM read_parquet($files) ORDER BY ALL'
    assert duckdb.execute(query, {"files": table.file_uris()}).fetchall() == expected
    frame = polars.scan_delta(store).select("commit", "benchmark", "median").collect()
    assert sorted(frame.rows()) == expected


def prove_rounds(
    write: Callable[..., None],
    store: str,
    place: Path,
    numbers: range,
    step_of_round: Callable[[int], int],
    steps: int,
    random_: random.Random,
) -> tuple[int, set[str]]:
    """Run these rounds on a new store; return the number of kills and the offered commits.

    ``write`` has the arguments of this module's `write`; ``place`` gets the files of the runs. At
    the end every run is offered once more and stored. Raises AssertionError with the round for a
    lost or doubled run.
    """
    runs, seen = place / "runs", place / "seen"
    kept: set[str] = set()
    offered: set[str] = set()
    kills = 0
    for number in numbers:
        # The middle one is offered by both; the first one has no round values until the next round.
        first, both, last = (3 * number + each for each in range(3))
        one = [run(runs, first, has_values=False), run(runs, both)]
        other = [run(runs, both), run(runs, last)]
        if number > numbers.start:
            other.append(run(runs, first - 3))
        offered |= {f"c{each}" for each in (first, both, last)}
        other_dies = number % 4 != 3 and random_.random() < 0.5
        other_steps = random_.randrange(steps + 1) if other_dies else -1
        children = two_writers(
            partial(write, one, store, step_of_round(number), 0),
            partial(write, other, store, other_steps, 1),
        )
        for child, mine in zip(children, ((first, both), (both, last)), strict=True):
            code = ended(child)
            assert code in (0, -9), f"round {number}: a writer failed with {code}"
            kills += code == -9
            if code == 0:
                kept |= {f"c{each}" for each in mine}
        code = ended(forked(partial(check, store, kept, offered, seen)))
        assert code == 0, f"round {number}: see above"
        kept |= set(seen.read_text().split())
    everything = [str(path) for path in sorted(runs.iterdir())]
    assert ended(forked(lambda: write(everything, store, -1, 0))) == 0
    assert ended(forked(partial(check, store, offered, offered, seen))) == 0
    return kills, offered


def prove(place: Path, rounds: int, seed: int) -> None:
    """Run the proof. Raises AssertionError with the round for a lost or doubled run."""
    steps = steps_of_ingest(place)
    store = str(place / "store")
    kills, offered = prove_rounds(
        write,
        store,
        place,
        range(rounds),
        lambda number: step_of(number, rounds, steps),
        steps,
        random.Random(seed),
    )
    assert ended(forked(lambda: check_engines(store, offered))) == 0
    print(f"{rounds} rounds, {kills} kills at {steps} steps, {len(offered)} runs: all stored once")


def preloaded(
    library: Path,
    place: Path,
    *,
    rounds: int,
    seed: int,
    module: str = MODULE,
) -> subprocess.CompletedProcess[str]:
    """Run the proof in a process with the library, below an empty directory."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            module,
            "--seed",
            str(seed),
            "--rounds",
            str(rounds),
            str(place),
        ],
        env={**os.environ, "LD_PRELOAD": str(library), "KILL_UNDER": os.path.realpath(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3600,
        check=False,
    )


def run_proof(module: str, prove: Callable[[Path, int, int], None]) -> int:
    """Run ``prove(place, rounds, seed)`` of a module as a program; return its exit code.

    The program compiles the library that kills, and runs the module once more with it.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--rounds", type=int, default=300, help="of two writers (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="of the second writer (default 1)")
    parser.add_argument("place", type=Path, nargs="?", help="used by the process that is preloaded")
    options = parser.parse_args()
    if options.place is not None:
        prove(options.place, options.rounds, options.seed)
        return 0
    reason = missing_for_recordings()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kraft-", dir=base) as name:
        place = Path(name) / "place"
        place.mkdir()
        library = compile_recorder(Path(name), SOURCE)
        ran = preloaded(library, place, rounds=options.rounds, seed=options.seed, module=module)
    print(ran.stdout, end="")
    return ran.returncode


if __name__ == "__main__":
    sys.exit(run_proof(MODULE, prove))
