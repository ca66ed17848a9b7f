"""Which tests share a worker when pytest-xdist spreads them over the machine's cores.

A file stays on one worker, so that its module's fixtures are made once and its tests may build on
each other. All tests that share a Spark session stay on one as well: a second JVM would cost more
memory and time than it saves.
"""

from __future__ import annotations

from typing import Any

import pytest

#: Folders whose tests share one Spark session.
SPARK = "tests/unit/spark/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class FileScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]

    return FileScheduling(config, log)
