"""Check for Java, Maven and Kafka's jars once, before the first interop test.

Where one is missing, the tests are skipped with its name. With CI=true the run fails instead, so
that no test passes there by being skipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.harness import kafka_jars
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests, LineProcess
from tests.harness.missing_tools import is_ci
from tests.interop.forwarding_quorum import ForwardingQuorum, both_quorums
from tests.kafka_suites.jars import suites

# Show differences between the package and Kafka's tools in full.
pytest.register_assert_rewrite("tests.interop.agreement", "tests.interop.end_agreement")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Fetch the jars, or end the run, before the workers start."""
    _missing_tool()


def pytest_collection_finish(session: pytest.Session) -> None:
    needing = [item for item in session.items if item.get_closest_marker("interop")]
    if needing and not session.config.option.collectonly and (missing := _missing_tool()):
        for item in needing:
            item.add_marker(pytest.mark.skip(reason=missing))


def _missing_tool() -> str:
    """Return why the tests cannot run, or ""; fetch the jars. With CI=true, end the run instead."""
    try:
        kafka_jars.javac()
        for release in (kafka_jars.KAFKA_4, kafka_jars.KAFKA_3, *kafka_jars.mixed_releases()):
            kafka_jars.kafka(release)
        kafka_jars.schemas()
        for release in (kafka_jars.KAFKA_0_8, kafka_jars.KAFKA_1):
            kafka_jars.zookeeper_era(release)
        suites()
    except kafka_jars.MissingToolError as missing:
        if is_ci():
            pytest.exit(f"the tests against Apache Kafka cannot run: {missing}", returncode=1)
        return str(missing)
    return ""


@pytest.fixture(scope="module")
def oracle() -> Iterator[JsonRequests]:
    """Ask Kafka's configuration classes and storage tool, in one JVM (`java/ConfigOracle.java`)."""
    command = kafka_jars.kafka().oracle("ConfigOracle")
    with LineProcess(command, errors=subprocess.DEVNULL) as process:
        yield JsonRequests(process)


@pytest.fixture(scope="module")
def both(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ForwardingQuorum]]:
    """Run a quorum of kraft and one of Apache Kafka, each with brokers for Kafka's tools."""
    with both_quorums(jars, tmp_path_factory.mktemp("both")) as quorums:
        yield quorums


@pytest.fixture(scope="module")
def tools(jars: Jars) -> Iterator[JsonRequests]:
    """Run Kafka's tools, one after the other in one JVM (`java/RunTools.java`)."""
    with LineProcess(jars.oracle("RunTools"), errors=subprocess.DEVNULL) as process:
        yield JsonRequests(process)
