"""One Spark session for all tests of this package; starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kraft.errors import MissingJavaError
from kraft.java import find_java
from kraft.spark.session import close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the tests that need Java to `make spark`."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield Spark on two threads and loopback; skip the test without Java."""
    pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")
    try:
        find_java()
    except MissingJavaError as error:
        pytest.skip(f"needs Java 17 or newer: {error}")
    session = open_session(
        master="local[2]",
        app_name="kraft tests",
        memory="1g",
        config={
            "spark.sql.shuffle.partitions": "2",
            # No C2 compiler, as in the JVMs that run Kafka's classes: these jobs are small.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield session
    close_session(session)
