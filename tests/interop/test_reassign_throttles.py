"""Throttled reassignments between two brokers of Apache Kafka, by its tool and by kraft's command.

Both leave the same settings of topics and brokers, and remove them when the moves are complete.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from kraft.admin import BlockingAdmin, ConfigResourceType, TopicSpec
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests
from tests.interop.cluster import wait_for
from tests.interop.forwarding_quorum import FORWARDING_BROKER, ForwardingQuorum
from tests.interop.tool_comparison import NAME, OURS, REASSIGN, THEIRS, ToolComparison, same

pytestmark = pytest.mark.interop

OTHER_BROKER = FORWARDING_BROKER + 1
ENTRY = {"topic": NAME, "partition": 0, "replicas": [OTHER_BROKER]}
MOVE = ("--reassignment-json-file", "@move")


def throttles(admin: BlockingAdmin, topic: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the throttles of the topic, and those of both brokers."""
    configs = admin.read_metadata().configs
    brokers = (FORWARDING_BROKER, OTHER_BROKER)
    return (
        dict(configs.get((ConfigResourceType.TOPIC, topic), {})),
        [dict(configs.get((ConfigResourceType.BROKER, str(id)), {})) for id in brokers],
    )


@pytest.mark.parametrize("kind", ["kraft", "kafka"])
def test_throttles_are_set_and_removed(
    jars: Jars, tools: JsonRequests, kind: Literal["kraft", "kafka"], tmp_path: Path
) -> None:
    quorum = ForwardingQuorum(jars, tmp_path / "quorum", kind)
    files = {"move": json.dumps({"version": 1, "partitions": [ENTRY]})}
    comparison = ToolComparison(quorum, tools, tmp_path, files)
    try:
        quorum.start()
        for id in (FORWARDING_BROKER, OTHER_BROKER):
            quorum.start_broker(id)
        for id in (FORWARDING_BROKER, OTHER_BROKER):
            quorum.broker_features(id)
        with quorum.admin() as admin:
            topics = [
                TopicSpec(name, assignments={0: [FORWARDING_BROKER]}) for name in (THEIRS, OURS)
            ]
            admin.create_topics(topics).all()
            comparison.check(
                same(REASSIGN, "reassign", "execute", *MOVE, "--additional", "--throttle", "5000")
            )
            of_topic, of_brokers = throttles(admin, THEIRS)
            assert of_topic == {
                "leader.replication.throttled.replicas": f"0:{FORWARDING_BROKER}",
                "follower.replication.throttled.replicas": f"0:{OTHER_BROKER}",
            }
            assert of_brokers[0]["leader.replication.throttled.rate"] == "5000"
            assert throttles(admin, OURS) == (of_topic, of_brokers)
            wait_for("the moves to be complete", lambda: not admin.list_partition_reassignments())
            comparison.check(same(REASSIGN, "reassign", "verify", *MOVE))
            for name in (THEIRS, OURS):
                assert throttles(admin, name) == ({}, [{}, {}])
                assert admin.read_metadata().partitions.find(name, 0).replicas == (OTHER_BROKER,)
    finally:
        quorum.cluster.kill()
    assert comparison.accepted == 2
