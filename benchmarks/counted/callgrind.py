"""Client requests to callgrind: start and stop counting instructions.

`Counter` is for the process that runs under valgrind; `run` starts one, `read_totals` reads its
result. The requests are macros of ``valgrind/callgrind.h``: a few lines of C are compiled when they
are needed.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = """
#include <valgrind/callgrind.h>
int is_counted(void) { return RUNNING_ON_VALGRIND != 0; }
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""
#: The cost of these functions depends on addresses: whether memory grows in place or is copied, and
#: which names collide in the interpreter's method cache. Nothing is counted inside them.
LEFT_OUT = ("malloc", "calloc", "realloc", "free", "find_name_in_mro")
MISSING = "instructions are counted by valgrind (Debian and Ubuntu: apt-get install valgrind)"
NAME = re.compile(r"^desc: Trigger: Client Request: (\w+)$", re.M)
TOTAL = re.compile(r"^totals: (\d+)$", re.M)


def compiled(directory: Path) -> Path:
    """Return the library of client requests in this directory."""
    if shutil.which("valgrind") is None:
        raise SystemExit(MISSING)
    directory.mkdir(parents=True, exist_ok=True)
    source, library = directory / "requests.c", directory / "requests.so"
    source.write_text(SOURCE)
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{MISSING}; its headers did not compile:\n{done.stderr}")
    return library


class Counter:
    """Counts instructions between `begin` and `end`, in a process under callgrind."""

    def __init__(self, library: Path) -> None:
        # PyDLL keeps the interpreter's lock, so that nothing but the call is counted.
        requests = ctypes.PyDLL(str(library))
        if not requests.is_counted():
            raise SystemExit("this process does not run under valgrind: nothing would be counted")
        self.begin = requests.begin
        self._end = requests.end

    def end(self, name: str) -> None:
        """Write the count since `begin` under this name."""
        self._end(name.encode())


def run(output: Path, arguments: list[str]) -> None:
    """Run an interpreter under callgrind; `Counter.end` writes into the directory."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    command = ["valgrind", "--tool=callgrind", "--quiet", "--instr-atstart=no"]
    command += [f"--toggle-collect={name}" for name in LEFT_OUT]
    command += ["--collect-atstart=yes", f"--callgrind-out-file={output}/%p"]
    # Pass no environment of the caller: its size on the stack shifts all other stack addresses.
    environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([*command, sys.executable, *arguments], env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"the counted process ended with {done.returncode}")


def read_totals(output: Path) -> dict[str, int]:
    """Return instructions by name, of every process that wrote into this directory."""
    found: dict[str, int] = {}
    for path in sorted(output.iterdir()):
        text = path.read_text()
        name, total = NAME.search(text), TOTAL.search(text)
        if name is not None and total is not None:
            assert name[1] not in found, f"{name[1]} was counted twice"
            found[name[1]] = int(total[1])
    return found
