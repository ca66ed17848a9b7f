"""Which tests share a worker when pytest-xdist spreads them over the machine's cores.

A file stays on one worker, so that its module's fixtures are made once and its tests may build on
each other. All tests that share a Spark session stay on one as well: a second JVM would cost more
memory and time than it saves. The slowest files come first, so that no worker begins with one of
them when the others are done.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import settings

# No time limit for an example: a busy machine would break it. The same examples in every run: a
# rare one must not fail the check of an unrelated change. Options of one run draw others:
# --hypothesis-profile=default --hypothesis-seed=random.
settings.load_profile("ci")

# Show failed assertions of shared helpers in full, as those of test modules.
pytest.register_assert_rewrite("tests.harness", "tests.reference")

from tests.harness.kafka_jars import Jars, MissingToolError, kafka  # noqa: E402

#: Folders whose tests share one Spark session.
SPARK = "tests/unit/spark/"
#: Begin with these, in this order.
SLOWEST = (
    SPARK,
    "tests/simulation/",
    "tests/e2e/",
    "tests/durability/",
    "tests/unit/simulation/",
    "tests/property/",
    "tests/interop/test_quorum",
    "tests/interop/test_live",
    "tests/interop/test_kafka",
)


def pytest_collection_finish() -> None:
    """Leave the collected tests out of garbage collection, and collect less often.

    Otherwise each collection visits 7,700 tests and their modules: a fifth of the CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    return next((n for n, start in enumerate(SLOWEST) if nodeid.startswith(start)), len(SLOWEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class FileScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]

    # Else xdist begins with the files of most tests, which are not the slow ones.
    config.option.loadscopereorder = False
    return FileScheduling(config, log)


@pytest.fixture(scope="session")
def jars() -> Jars:
    """Return Kafka's jars; skip the test if they are not here and cannot be fetched."""
    try:
        return kafka()
    except MissingToolError as missing:
        pytest.skip(str(missing))
