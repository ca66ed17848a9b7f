"""Kill two writers of a store in an object store at every step of a commit; nothing is lost or
doubled.

As `results_store_proof`, but a step is the moment before or after a request that changes an object
(`tests.harness.killing_proxy`); the server is moto's. After a conditional write that the server
did, but whose answer did not arrive, the next writer finds the version committed. Each store has a
few dozen rounds, because moto takes milliseconds for each file of its log.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kraft.regression import ingest as ingests
from tests.durability.results_store_proof import (
    SMALL_FILES,
    ended,
    forked,
    ingest_after_meeting,
    prove_rounds,
    run,
    step_of,
)
from tests.harness.killing_proxy import die_after, killing_proxies, steps_made
from tests.harness.s3_server import s3_server

#: Rounds of one store.
ROUNDS_OF_STORE = 24


def write(
    proxies: list[str],
    files: list[str],
    store: str,
    steps: int,
    writer: int,
    meet: Callable[[], None] | None = None,
) -> None:
    """Ingest through the proxy of this writer, and die before step ``steps``, -1 for never."""
    os.environ["AWS_ENDPOINT_URL"] = proxies[writer]
    die_after(proxies[writer], steps)
    ingest_after_meeting(files, store, meet)


def steps_of_ingest(proxies: list[str], place: Path) -> int:
    """Return the number of steps of an ingest that replaces a run and merges files, and half as
    many again: a writer that comes second also rewrites its file.
    """
    counted = place / "steps"

    def work() -> None:
        os.environ["AWS_ENDPOINT_URL"] = proxies[0]
        store = "s3://bucket/counted"
        for number in range(SMALL_FILES - 1):
            ingests.ingest([run(place / "counted", number, has_values=number != 0)], store)
        die_after(proxies[0], -1)
        ingests.ingest([run(place / "counted", number) for number in (0, 90)], store)
        counted.write_text(str(steps_made(proxies[0])))

    assert ended(forked(work)) == 0
    return int(counted.read_text()) * 3 // 2


def prove(place: Path, rounds: int, seed: int) -> str:
    """Run the proof; return its result. Raises AssertionError for a lost or doubled run."""
    random_ = random.Random(seed)
    with s3_server("bucket") as environment:
        os.environ.update(environment)
        with killing_proxies(environment["AWS_ENDPOINT_URL"], 2) as proxies:
            steps = steps_of_ingest(proxies, place)
            kills = runs = 0
            for first in range(0, rounds, ROUNDS_OF_STORE):
                killed, offered = prove_rounds(
                    partial(write, proxies),
                    f"s3://bucket/store-{first}",
                    place / f"{first}",
                    range(first, min(first + ROUNDS_OF_STORE, rounds)),
                    lambda number: step_of(number, rounds, steps),
                    steps,
                    random_,
                )
                kills += killed
                runs += len(offered)
    return f"{rounds} rounds, {kills} kills at {steps} steps, {runs} runs: all stored once"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.durability.object_store_proof")
    parser.add_argument("--rounds", type=int, default=200, help="of two writers (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the second writer (default 1)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kraft-") as name:
        print(prove(Path(name), options.rounds, options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
