"""Cost of a call in bytecode instructions: the same on a busy machine as on a quiet one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def instructions_of(call: Callable[[], object]) -> int:
    """Return how many bytecode instructions ``call`` executes, comprehensions included.

    Loops inside compiled functions (``sorted``, the core) count as one instruction.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
