"""Cost of a call in bytecode instructions: the same on a busy machine as on a quiet one."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def instructions_of(call: Callable[[], object]) -> int:
    """Return how many bytecode instructions ``call`` executes, comprehensions included.

    Loops inside compiled functions (``sorted``, the core) count as one instruction. The garbage
    collector is off meanwhile: finalizers of other tests' objects must not count.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before, collected = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        if collected:
            gc.enable()
    return count
