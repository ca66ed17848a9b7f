"""Commands that a user types while a command runs in the foreground."""

from __future__ import annotations

import os
import select
import time

_LONGEST_LINE = 1000


class InputLines:
    """Lines of standard input, read without blocking."""

    def __init__(self) -> None:
        self._begun = b""
        self._is_open = True

    def lines(self, wait_s: float) -> list[str]:
        """Wait up to ``wait_s`` for input; return the whole lines, if any."""
        if not self._may_read():
            time.sleep(wait_s)
            return []
        try:
            if not select.select([0], [], [], wait_s)[0]:
                return []
            received = os.read(0, 4096)
        except OSError:
            received = b""
        if not received:
            # At the end of input (/dev/null, a closed pipe) the quorum keeps running.
            self._is_open = False
            return []
        *whole, self._begun = (self._begun + received).split(b"\n")
        self._begun = self._begun[:_LONGEST_LINE]
        return [line.decode("utf-8", "replace").strip() for line in whole]

    def _may_read(self) -> bool:
        """Return False for a background job, which the shell stops when it reads the terminal."""
        if not self._is_open:
            return False
        try:
            return not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp()
        except OSError:
            return False
