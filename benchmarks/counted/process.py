"""The process under callgrind, whose arguments are `EXTENSIONS REQUESTS JOBS NAME...`.

Imports everything once and runs each work in a fork of its own, so that no work's count depends on
the ones before it. A work runs twice: the first time warms up the interpreter, the second one is
counted. `EXTENSIONS` is the directory of the core that is counted; where any other extension of
kraft was loaded, nothing is counted. `JOBS` forks run at once.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from random import Random
from types import ModuleType

from benchmarks.counted.callgrind import Counter


class Extensions(MetaPathFinder):
    """Finds the core's compiled modules in this directory, before anybody else finds them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("kraft._core."):
            return None
        return PathFinder.find_spec(name, [str(self._directory)])


def assert_from(directory: Path) -> None:
    for name, module in sys.modules.items():
        path = getattr(module, "__file__", None) or ""
        if name.startswith("kraft._core.") and path.endswith(".so"):
            assert Path(path).parent == directory, f"{name} was loaded from {path}"


def count(name: str, counter: Counter) -> None:
    from benchmarks.counted.works import WORKS

    # What is drawn is the same each time; only this process knows.
    os.urandom = Random(name).randbytes
    work = WORKS[name]()
    state = work.prepare()
    work.check(state, work.run(state))
    state = work.prepare()
    run = work.run
    counter.begin()
    result = run(state)
    counter.end(name)
    work.check(state, result)


def main() -> None:
    directory, requests, jobs, *names = sys.argv[1:]
    sys.meta_path.insert(0, Extensions(Path(directory)))
    import benchmarks.counted.works

    assert_from(Path(directory))
    assert benchmarks.counted.works.WORKS
    counter = Counter(Path(requests))
    gc.disable()
    gc.freeze()
    running: dict[int, str] = {}
    failed: list[str] = []

    def reap() -> None:
        id, status = os.wait()
        name = running.pop(id)
        if status:
            failed.append(name)

    for name in names:
        if len(running) == int(jobs):
            reap()
        if id := os.fork():
            running[id] = name
            continue
        status = 1
        try:
            count(name, counter)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    while running:
        reap()
    if failed:
        raise SystemExit(f"not counted: {', '.join(failed)}")


if __name__ == "__main__":
    main()
