"""The process under callgrind; its arguments are `EXTENSIONS REQUESTS JOBS NAME...`.

It imports everything once and runs each work in its own fork, so that no count depends on earlier
works. A work runs twice: the first time warms up the interpreter, the second one is counted.
`EXTENSIONS` is the directory of the counted core; if any other extension of kraft was loaded,
nothing is counted. `JOBS` forks run at once.
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
    """Finds the core's compiled modules in this directory, before any other finder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = name.removeprefix("kraft._core.").rpartition(".")[0]
        if not name.startswith("kraft._core."):
            return None
        spec = PathFinder.find_spec(name, [str(self._directory / package)])
        # A directory without an __init__.py is no package of the core.
        return None if spec is None or spec.origin is None else spec


def assert_from(directory: Path) -> None:
    for name, module in sys.modules.items():
        path = getattr(module, "__file__", None) or ""
        if name.startswith("kraft._core.") and path.endswith(".so"):
            assert Path(path).is_relative_to(directory), f"{name} was loaded from {path}"


def count(name: str, counter: Counter) -> None:
    from benchmarks.counted.works import WORKS

    # Random draws are equal each time; only in this process.
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
