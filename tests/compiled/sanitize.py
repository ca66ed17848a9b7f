"""``make sanitize``: the tests of the core under gcc's address and undefined-behaviour sanitizers.

Compiles a second copy of the core below ``build/sanitized``; the normal build is unchanged. A
sanitizer's report ends the process that runs the tests. Exits with 1 after a report or a failed
test, with 2 if the core does not compile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from time import perf_counter

from tests.compiled.tree import ROOT, Tree

HOME = ROOT / "build" / "sanitized"
RUNTIMES = ("libasan.so", "libubsan.so")
CANNOT_BUILD = 2


def runtimes() -> list[str]:
    """Return the paths of the sanitizers' libraries: Python itself is not linked with them."""
    found = []
    for name in RUNTIMES:
        printed = subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        # gcc prints the bare name of a file that it does not have.
        if printed == name:
            raise FileNotFoundError(f"gcc has no {name}: install its sanitizers")
        found.append(printed)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sanitize", description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests/unit/_core"], help="tests to run")
    parser.add_argument("--workers", default="auto", help="number of test processes")
    given = parser.parse_args()
    start = perf_counter()
    tree = Tree(HOME, with_extensions=False)
    tree.refresh()
    made = tree.build(environment={"KRAFT_SANITIZE": "1"})
    if made.returncode:
        print(made.stdout, file=sys.stderr)
        return CANNOT_BUILD
    for extension in sorted(tree.home.glob("kraft/_core/*/*.so")):
        if b"__asan_init" not in extension.read_bytes():
            print(f"{extension} was compiled without sanitizers: remove it", file=sys.stderr)
            return CANNOT_BUILD
    built = perf_counter()
    code = tree.test(
        # The sanitizer writes its report to file descriptor 2 and ends the process. If pytest
        # captured the descriptor, the report would be lost.
        [*given.tests, "-n", given.workers, "--capture=sys"],
        environment={
            "LD_PRELOAD": " ".join(runtimes()),
            # Through malloc, so that the sanitizer sees where a bytes object ends.
            "PYTHONMALLOC": "malloc",
            # Memory that Python itself leaks at its exit is not the core's.
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_abort=1",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        },
    )
    ended = perf_counter()
    print(f"compiled in {built - start:.0f} s, tested in {ended - built:.0f} s")
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
