"""``kraft topics`` prints the same at Apache Kafka's controller as at a kraft controller.

The same command lines run against both; the brokers do not take part. The output of Kafka's tool is
compared in ``test_admin_commands``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.harness.commands import kraft
from tests.harness.kafka_jars import Jars
from tests.interop.forwarding_quorum import HOLDERS, ForwardingQuorum, both_quorums

pytestmark = pytest.mark.interop

#: In this order: some need the topics of others. Placement is random, so it is given or hidden.
COMMANDS = (
    ("create", "--topic", "a", "--partitions", 4, "--replication-factor", 3),
    ("create", "--topic", "a", "--partitions", 4),
    ("create", "--topic", "a", "--partitions", 4, "--if-not-exists"),
    ("create", "--topic", "b", "--replica-assignment", "1001:1002,1002:1003",
     "--config", "retention.ms=5000", "--config", "cleanup.policy=compact"),
    ("create", "--topic", "c", "--replication-factor", 4),
    ("create", "--topic", "c", "--config", "retention.ms=much"),
    ("create", "--topic", "c", "--config", "no.such=1"),
    ("create", "--topic", "no/name"),
    ("create", "--topic", "c", "--replica-assignment", "1001:1001"),
    ("create", "--topic", "c", "--replica-assignment", "1001:7"),
    ("create", "--topic", "c", "--partitions", 2, "--validate-only"),
    ("create", "--topic", "c", "--topic", "a", "--topic", "d", "--partitions", 1),
    ("create", "--count", 120, "--name-pattern", "bulk-{:03}", "--partitions", 3),
    ("list",),
    ("list", "--json"),
    ("describe", "--topic", "b"),
    ("describe", "--unavailable-partitions"),
    ("alter", "--topic", "b", "--partitions", 3,
     "--replica-assignment", "1001:1002,1002:1003,1003:1001"),
    ("alter", "--topic", "b", "--partitions", 2),
    ("alter", "--topic", "b", "--partitions", 3),
    ("alter", "--topic", "x", "--partitions", 3),
    ("alter", "--topic", "x", "--partitions", 3, "--if-exists"),
    ("alter", "--topic", "a", "--partitions", 9, "--validate-only"),
    ("describe", "--topic", "b", "--json"),
    ("delete", "--topic", "d", "--topic", "x"),
    ("delete", "--topic", "x", "--if-exists"),
    ("delete", "--count", 120, "--name-pattern", "bulk-{:03}"),
    ("list",),
)  # fmt: skip


@pytest.fixture(scope="module")
def quorums(
    jars: Jars, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[ForwardingQuorum]]:
    with both_quorums(jars, tmp_path_factory.mktemp("both"), has_broker=False) as quorums:
        yield quorums


def answer(quorum: ForwardingQuorum, words: tuple[object, ...]) -> tuple[int, str, list[str]]:
    """Return the exit code and the output without ids, times and the wording of messages."""
    at = ("--bootstrap-controller", quorum.node.address)
    ran = kraft("topics", *words, *at)
    out = re.sub(r"in \d+\.\d\d s", "in TIME", ran.stdout)
    out = re.sub(r'(TopicId: |"(topicId|directories)": \[?)"?[\w-]{22}', r"\1ID", out)
    errors = [line.partition(" (")[0] for line in ran.stderr.splitlines()]
    return ran.returncode, out, errors


def test_commands_print_the_same(quorums: list[ForwardingQuorum]) -> None:
    ours, kafkas = quorums
    failed = 0
    for words in COMMANDS:
        expected = answer(kafkas, words)
        assert answer(ours, words) == expected, words
        failed += expected[0] != 0
    assert failed == 12


def test_the_metadata_of_kafka_and_of_kraft(quorums: list[ForwardingQuorum]) -> None:
    for quorum in quorums:
        with quorum.admin() as admin:
            metadata = admin.read_metadata()
        assert sorted(metadata.brokers) == list(HOLDERS)
        assert not any(broker.fenced for broker in metadata.brokers.values())
