"""Signals as a terminal sends them.

A shell starts background jobs with Ctrl-C ignored, and child processes inherit this.
"""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """For ``preexec_fn``: restore SIGINT's default action in the child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
