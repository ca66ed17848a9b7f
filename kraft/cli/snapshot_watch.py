"""``kraft snapshot diff --watch``: print each change of a running quorum as it is committed.

Follows the quorum with ``kraft.follow``, and prints each delta at once. Ends by Ctrl-C, by a closed
pipe, which it notices also while nothing changes, and by an error that does not pass.
"""

from __future__ import annotations

import json
import select
import sys
from collections import Counter

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.differences import difference_document, difference_line, summary_line
from kraft.cli.output import Output

# How often to look at the quorum's state and at the pipe.
_LOOK_EVERY_S = 1.0


def watch_quorum(quorum: QuorumOptions, *, as_json: bool) -> None:
    """Print the changes until Ctrl-C. Raises a usage error for a malformed address, and as
    `kraft.follow`; BrokenPipeError if the reader of the output is gone.
    """
    output = Output(as_json=as_json)
    with quorum.follow() as live:
        output.note(f"watching cluster {live.cluster_id} from offset {live.next_offset}")
        is_answering = True
        while True:
            delta = live.poll(_LOOK_EVERY_S)
            if delta is not None and (differences := delta.differences()):
                if as_json:
                    document = {
                        "fromOffset": delta.from_offset,
                        "offset": delta.offset,
                        "differences": list(map(difference_document, differences)),
                    }
                    print(json.dumps(document))
                else:
                    for each in differences:
                        print(difference_line(each))
                    counts = Counter(each.kind for each in differences)
                    print(summary_line(delta.from_offset, delta.offset, counts))
                sys.stdout.flush()
            if is_answering != (not live.trouble):
                is_answering = not is_answering
                output.note(live.trouble or "the quorum answers again")
            _check_reader()


def _check_reader() -> None:
    """Raise BrokenPipeError if the pipe that stdout writes to has no reader any more."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError
