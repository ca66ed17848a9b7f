"""A program that stands for ``kraft lab fleet`` in sweeps: it writes generated runs at once.

Its settings decide what becomes of a run: ``--setting fail.brokers=6`` lets runs of 6 brokers be
rejected, ``stop.brokers`` lets them fail in their last step, ``breach.brokers`` lets their check
fail, ``tear.brokers`` writes a bad trace, and ``hang.brokers`` lets them run until their standard
input ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: The command, for a process in any directory.
RECORDED = (sys.executable, str(Path(__file__)))
#: A hanging run writes the id of its process to this file in its parent's directory.
PID_FILE = "pid"


def main() -> int:
    """Carry out the command line of ``kraft lab fleet``; return the exit code."""
    sys.path.insert(0, str(ROOT))
    from tests.harness.fleet_runs import Planted, write_run

    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs=2)
    for name in ("brokers", "partitions", "seed", "racks", "regions", "controllers"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("quorum", "scenario", "out", "heap", "kafka-home"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--setting", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--until-stdin-closes", action="store_true")
    given = parser.parse_args()
    assert given.words == ["lab", "fleet"]
    assert given.json
    assert given.until_stdin_closes
    settings = dict(each.split("=", 1) for each in given.setting)

    def is_set(what: str) -> bool:
        return settings.get(f"{what}.brokers") == str(given.brokers)

    if is_set("fail"):
        print("error: 6 brokers do not fit on this machine", file=sys.stderr)
        return 1
    out = Path(given.out)
    scenario = json.loads(Path(given.scenario).read_text())
    write_run(
        out,
        quorum=given.quorum,
        brokers=given.brokers,
        partitions=given.partitions,
        seed=given.seed,
        scenario=scenario["name"],
        planted=Planted(noise=0.02),
        extra_lines=("{",) if is_set("tear") else (),
    )
    print("step start", file=sys.stderr, flush=True)
    print("step lose", file=sys.stderr, flush=True)
    if is_set("stop"):
        print("error: after 120 s 3 partitions have replicas out of sync", file=sys.stderr)
        return 1
    if is_set("hang"):
        place = Path(settings["pid.directory"])
        (place / f".{PID_FILE}").write_text(str(os.getpid()))
        (place / f".{PID_FILE}").rename(place / PID_FILE)
        sys.stdin.read()
        return 130
    print(json.dumps({"brokers": given.brokers, "settings": settings}))
    if is_set("breach"):
        print("error: a partition broke a rule: leader 3 is not in the ISR", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
