"""``make sanitize-threads``: the tests of the data loop under gcc's thread sanitizer.

Compiles the modules of two threads, and of the files that they send, below
``build/thread-sanitized``; the normal build is unchanged. Exits with 1 after a report or a failed
test, with 2 if the modules do not compile. Python itself is not instrumented: the sanitizer sees
its lock, and the accesses of these modules.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from tests.compiled.tree import ROOT, Tree

HOME = ROOT / "build" / "thread-sanitized"
TESTS = "tests/unit/_core/sockets"
CANNOT_BUILD = 2


def main() -> int:
    tree = Tree(HOME, with_extensions=False)
    tree.refresh()
    sources = sorted((ROOT / "kraft/_core/sockets").glob("*.pyx"))
    modules = ["log.disk", *(f"sockets.{source.stem}" for source in sources)]
    made = tree.build(modules, environment={"KRAFT_SANITIZE": "thread"})
    if made.returncode:
        print(made.stdout, file=sys.stderr)
        return CANNOT_BUILD
    for extension in tree.home.glob("kraft/_core/sockets/*.so"):
        if b"__tsan_init" not in extension.read_bytes():
            print(f"{extension} was compiled without the sanitizer: remove it", file=sys.stderr)
            return CANNOT_BUILD
    runtime = subprocess.run(
        ["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    reports = tree.home / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    code = tree.test(
        [TESTS, "--capture=sys", "-p", "no:xdist"],
        environment={
            "LD_PRELOAD": runtime,
            "PYTHONMALLOC": "malloc",
            "TSAN_OPTIONS": f"log_path={reports / 'report'}",
        },
    )
    written = sorted(reports.iterdir())
    for report in written:
        print(report.read_text(errors="replace"), file=sys.stderr)
    return 1 if code or written else 0


if __name__ == "__main__":
    sys.exit(main())
