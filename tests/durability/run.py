"""Run the proof of the real disk for many seeds.

python -m tests.durability.run --first 1 --seeds 20 --operations 200
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.durability.recording import SHORTEN, compile_recorder, missing_for_recordings, recorded


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.durability.run")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds (default 20)")
    parser.add_argument("--operations", type=int, default=200, help="of each seed (default 200)")
    options = parser.parse_args()
    reason = missing_for_recordings()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="kraft-") as built:
        library = compile_recorder(Path(built))
        for seed in range(options.first, options.first + options.seeds):
            report = prove(library, seed, options.operations)
            if report is None:
                print(f"seed {seed} fails: --first {seed} --seeds 1", file=sys.stderr)
                return 1
            total += Counter({"crashes": report["crashes"], **report["calls"]})
    print(f"{options.seeds} seeds: " + ", ".join(f"{n} {name}" for name, n in total.items()))
    return 0


def prove(library: Path, seed: int, operations: int) -> dict[str, dict[str, int]] | None:
    """Return the report of one seed, None where a promise was broken; odd seeds write in parts."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kraft-", dir=base) as name:
        place = Path(os.path.realpath(name))
        (place / "node").mkdir()
        more = {SHORTEN: f"{seed}:100"} if seed % 2 else {}
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "tests.durability.store_proof", str(place)),
                *("--seed", str(seed), "--operations", str(operations)),
            ],
            env=recorded(library, place / "node", place / "calls", **more),
            stdout=subprocess.PIPE,
            check=False,
        )
        return json.loads(ran.stdout) if ran.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
