"""A process that follows a quorum: ``python -m tests.harness.follower BOOTSTRAP DIRECTORY``.

After each poll that changed the state it writes a snapshot into the directory, and prints a JSON
line: the offset, whether the delta was a full one, whether the delta before still has the same
differences, and the path of the snapshot. A test can stop (SIGSTOP) and continue it, which it
cannot do with itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import kraft


def main(bootstrap: str, directory: Path) -> None:
    with kraft.follow(bootstrap) as live:
        _report(live, directory, full=False, kept=True)
        before, wanted = None, None
        for delta in live:
            kept = before is None or before.differences() == wanted
            before, wanted = delta, delta.differences()
            if wanted:
                _report(live, directory, full=delta.is_full, kept=kept)


def _report(live: kraft.LiveMetadata, directory: Path, **about: bool) -> None:
    path = live.write_snapshot(directory, columns=False)
    print(json.dumps({"offset": live.next_offset, "path": str(path), **about}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
