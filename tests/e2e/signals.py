"""Signals as a terminal gives them.

A shell that starts jobs in the background has them ignore Ctrl-C, and what is ignored is inherited.
"""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """For ``preexec_fn``: SIGINT does in the child what it does by default."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
