"""The exit codes of every command; scripts rely on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from kraft.errors import KraftError

#: Success.
OK = 0
#: Failed: the message on stderr begins with ``error:`` and names file, offset and byte where known.
REFUSED = 1
#: Wrong usage of the command line.
USAGE = 2
#: Done, and something needs attention: two states differ, a log is torn or damaged.
FOUND = 3
#: Done, and a check failed: a snapshot is damaged, files contradict one another, a threshold is
#: exceeded, a seed fails, a requirement is missing. stderr has an ``error:`` line.
FAILED = 4
#: Ctrl-C.
INTERRUPTED = 130
#: The reader of the output closed the pipe (128 + SIGPIPE, as for any Unix tool).
BROKEN_PIPE = 141

#: At the end of every command's help.
EPILOG = (
    "[bold]Exit codes[/bold]: 0 done · 1 rejected or failed (stderr says why) · 2 wrong usage · "
    "3 done, with a finding: states that differ, a torn or damaged log, an open transaction · "
    "4 done, and a check failed (stderr names it) · 130 Ctrl-C"
)


def text_of(error: Exception) -> str:
    """Return the message of an error; of one of the operating system its file and reason."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def exit_code_of(run: Callable[[], object]) -> int:
    """Run a command; return `OK`, or the exit code of an error, which is printed, of Ctrl-C, or of
    a closed pipe.
    """
    try:
        run()
        sys.stdout.flush()
    except KraftError as error:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        print(f"error: {error}{notes}", file=sys.stderr)
        return REFUSED
    except BrokenPipeError:
        # The reader is gone: discard the rest, as flushing it at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        print(f"error: {text_of(error)}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return OK
