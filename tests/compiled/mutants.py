"""``make core-mutants``: plant faults into the core; the tests named by each must detect it.

Each fault of `faults` is planted into one module in a copy of the tree, the module is compiled, and
the fault's tests run there. The command fails if they miss a fault, if the fault's text is not in
the module any more, or if it does not compile.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple

from tests.compiled.faults import FAULTS, Fault
from tests.compiled.tree import ROOT, TIMED_OUT, Tree
from tests.mutant_table import table

HOME = ROOT / "build" / "mutants"
TIMEOUT_S = 300
#: Exit codes of pytest.
PASSED, FAILED = 0, 1


class Caught(NamedTuple):
    """How a fault was detected; ``how`` is None if it was not."""

    name: str
    how: str | None
    seconds: float
    #: Why the run proves nothing: the text is missing, it does not compile, no test ran.
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


def planted(source: str, fault: Fault) -> str:
    """Return the source with the fault; raise ValueError unless its text occurs exactly once."""
    count = source.count(fault.before)
    if count != 1:
        raise ValueError(f"its text is {count} times in {fault.path}")
    return source.replace(fault.before, fault.after)


def hunt(fault: Fault, tree: Tree, log: Path) -> Caught:
    """Plant one fault in a tree, and run its tests."""
    start = perf_counter()

    def outcome(how: str | None, problem: str = "") -> Caught:
        return Caught(fault.name, how, round(perf_counter() - start, 1), problem)

    target = tree.home / fault.path
    try:
        target.write_text(planted(target.read_text(), fault))
        made = tree.build((".".join(Path(fault.path).with_suffix("").parts[2:]),))
        if made.returncode:
            log.write_text(made.stdout)
            return outcome(None, f"it does not compile, see {log}")
        code = tree.test(["-x", *fault.tests], timeout_s=TIMEOUT_S, log=log)
    except ValueError as error:
        return outcome(None, str(error))
    finally:
        tree.refresh()
    if code == TIMED_OUT:
        return outcome(f"does not end within {TIMEOUT_S} s")
    if code < 0:
        return outcome(f"ends by signal {-code}")
    if code == FAILED:
        return outcome(first_failure(log))
    return outcome(None, "" if code == PASSED else f"pytest ended with {code}, see {log}")


def first_failure(log: Path) -> str:
    """Return the name of the first failed test, if its process was able to print it."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split("::", 1)[-1].split(" - ", 1)[0]
    return "ended within a test"


def main() -> int:
    names = [fault.name for fault in FAULTS]
    parser = argparse.ArgumentParser(prog="make core-mutants", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=names, metavar="NAME", help="plant only these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if given.only is None or fault.name in given.only]
    start = perf_counter()
    HOME.mkdir(parents=True, exist_ok=True)
    # Faults are planted into copies of a copy: the repository may change meanwhile.
    unchanged = Tree(HOME / "unchanged", with_extensions=True)
    unchanged.refresh()
    trees: SimpleQueue[Tree] = SimpleQueue()
    for number in range(given.jobs):
        tree = Tree(HOME / f"tree-{number}", with_extensions=True, origin=unchanged.home)
        # Compiled files of an interrupted run look newer than their sources.
        shutil.rmtree(tree.home, ignore_errors=True)
        tree.refresh()
        trees.put(tree)

    def hunt_in_turn(fault: Fault) -> Caught:
        tree = trees.get()
        try:
            return hunt(fault, tree, HOME / f"{fault.name}.log")
        finally:
            trees.put(tree)

    # Without a fault every test must pass, or a failure proves nothing.
    every_test = sorted(set(chain.from_iterable(fault.tests for fault in chosen)))
    code = unchanged.test(every_test, log=HOME / "unchanged.log")
    if code != PASSED:
        print(f"tests fail without any fault, see {HOME / 'unchanged.log'}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(given.jobs) as pool:
        caught = list(pool.map(hunt_in_turn, chosen))
    seconds = perf_counter() - start
    if given.json:
        rows = [found.as_dict() for found in caught]
        print(json.dumps({"mutants": rows, "seconds": round(seconds, 1)}, indent=1))
    else:
        print(table(((found.name, found.how, found.problem) for found in caught), seconds))
    return 1 if any(found.how is None for found in caught) else 0


if __name__ == "__main__":
    sys.exit(main())
