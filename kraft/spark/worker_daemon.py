"""The process that forks Spark's Python workers: Spark's own, with cheaper garbage collection.

Spark starts this module in place of ``pyspark.daemon`` where `kraft.spark.session` configures a
local session (``spark.python.daemon.module``). A worker of Spark collects garbage after every
task. With pandas, pyarrow and kraft imported, a full collection visits half a million objects and
takes 0.1 s, more than most tasks of the analyses. A worker of this module leaves imported modules
out of the collections.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any


def freezing_imports(task: Callable[..., int]) -> Callable[..., int]:
    """Return ``task`` followed by `gc.freeze` whenever it imported modules.

    A collection precedes the freeze, so that no garbage stays for ever.
    """
    imported = 0

    def run(*arguments: Any) -> int:
        nonlocal imported
        code = task(*arguments)
        if len(sys.modules) > imported:
            imported = len(sys.modules)
            gc.collect()
            gc.freeze()
        return code

    return run


if __name__ == "__main__":
    from pyspark import daemon

    daemon.worker = freezing_imports(daemon.worker)
    daemon.manager()
