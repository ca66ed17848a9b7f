"""What `make interop` needs is looked for once, before its first test.

Where Java, Maven or Kafka's jars are missing, the tests are skipped with words that say what is;
where CI=true is set the run fails, so that nothing passes there by being absent.
"""

from __future__ import annotations

import os

import pytest

from tests.interop import kafka_jars

# So that a difference between the package and Kafka's tools is shown in full.
pytest.register_assert_rewrite("tests.interop.agreement", "tests.interop.end_agreement")


def pytest_collection_finish(session: pytest.Session) -> None:
    needing = [item for item in session.items if item.get_closest_marker("interop")]
    if not needing or session.config.option.collectonly:
        return
    try:
        kafka_jars.javac()
        for release in (kafka_jars.KAFKA_4, kafka_jars.KAFKA_3, *kafka_jars.mixed_releases()):
            kafka_jars.kafka(release)
        kafka_jars.schemas()
    except kafka_jars.MissingToolError as missing:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.exit(f"the tests against Apache Kafka cannot run: {missing}", returncode=1)
        for item in needing:
            item.add_marker(pytest.mark.skip(reason=str(missing)))
