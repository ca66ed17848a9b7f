"""Run the recorded workload of a store; the recorder is preloaded into this process.

    python -m tests.durability.store_proof SCRATCH --seed 1 --operations 80

SCRATCH contains the recorded directory, named as `recorded` expects. The report is a line of JSON
on standard output; a failed check raises an exception, and the exit code is 1. ``--plant`` first
plants the named fault in the code.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from kraft.server.disk.files import SyncedOffset
from kraft.server.disk.snapshots import SnapshotFiles
from kraft.server.disk.store import MetadataStore
from tests.durability.recording import TO, UNDER, Recording
from tests.durability.rules import BrokenRuleError
from tests.durability.store_workload import RecordedWorkload
from tests.harness.disk_faults import lower_one_slot, remove_all_but_the_log
from tests.harness.disk_workload import BrokenPromiseError

BROKEN = (BrokenPromiseError, BrokenRuleError)


def acknowledge_first(store: MetadataStore) -> None:
    """Write the synced offset before the sync."""
    store._synced_offset.raise_to(store.log.log_end_offset, store.log.last_epoch)
    store.log.sync()


PLANTED: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "one slot is lowered": (SyncedOffset, "lower_to", lower_one_slot),
    "noted before it is synced": (MetadataStore, "sync", acknowledge_first),
    "cleaning takes the last snapshot": (SnapshotFiles, "remove_before", remove_all_but_the_log),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.durability.store_proof")
    parser.add_argument("scratch", type=Path, help="a directory that holds the recorded one")
    parser.add_argument("--seed", type=int, default=1, help="of the workload (default 1)")
    parser.add_argument("--operations", type=int, default=80, help="operations (default 80)")
    parser.add_argument("--plant", choices=PLANTED, help="a fault to be planted into the code")
    options = parser.parse_args()
    if options.plant:
        setattr(*PLANTED[options.plant])
    recording = Recording(os.environ[TO])
    workload = RecordedWorkload(
        Path(os.environ[UNDER]), recording, options.scratch / "left", Random(options.seed)
    )
    try:
        workload.run(options.operations)
    except BROKEN as violation:
        print(f"{type(violation).__name__}: {violation}", file=sys.stderr)
        return 1
    report = {
        "crashes": workload.crashes,
        "calls": workload.calls,
        "rules": workload.rules.counts,
        "operations": workload.counts,
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
