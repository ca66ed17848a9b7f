"""Faults of Apache Kafka's processes under controllers that move: logged errors, fenced brokers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from kraft.metadata.log_records import read_records
from kraft.records.classes import BrokerRegistrationChange, RegisterBroker
from tests.interop.cluster import Node
from tests.interop.kraft_node import KraftNode

#: Errors that brokers and controllers also log in a quorum of Kafka's controllers alone, whose
#: leaders are stopped, killed and paused in the same way.
KAFKAS_OWN_ERRORS = (
    # A controller that loses leadership, or is not active yet.
    r"Unexpected error handling request .*\n.*\.NotControllerException: ",
    # A controller listens before it has a raft manager and a publisher of features to ask.
    r"Unexpected error handling request RequestHeader\(apiKey=API_VERSIONS.*\n"
    r"java\.lang\.NullPointerException: .*\.(?:raftManager|featuresPublisher)\(\)\" is null",
    # A controller that has just started does not know the metadata.version yet.
    r"Unexpected error handling request RequestHeader\(apiKey=DESCRIBE_CLUSTER.*\n"
    r".*\.UnsupportedVersionException: Direct-to-controller communication is not supported",
    # A broker with new partitions of a topic that it has already.
    r"Expected partition .* to exist, but it was missing\. Creating",
    # A broker of 4.1 that has started again, while its image has its earlier registration still:
    # AssignmentsManager takes the broker's epoch from there.
    r"Unexpected error handling request RequestHeader\(apiKey=ASSIGN_REPLICAS_TO_DIRS.*\n"
    r".*\.StaleBrokerEpochException: ",
    r"handleResponse: \d+ assignments failed; global error: .*STALE_BROKER_EPOCH\. Retrying",
    # A slow machine, and a controller that was paused.
    r"Exceptionally slow controller event",
    r"processExpiredBrokerHeartbeat: controller event queue overloaded",
    # Each stop of a 3.7.2 controller: AclPublisher.close ends the load of the ACLs in this way.
    r"Failed to complete initial ACL load process\.\njava\.util\.concurrent\.TimeoutException",
    # The last controller that the test stops has no majority to resign to.
    r"Graceful shutdown of RaftClient failed",
    # A broker of 4.3 whose move to another directory ends while its assignment is on the way.
    r"handleResponse: unexpected callback exception\n"
    r"java\.lang\.NullPointerException: .*ReplicaAlterLogDirsThread\$PromotionState",
)
#: The line of an error and the next one, which may name the exception.
_ERROR = re.compile(r"^.*(?: ERROR | FATAL |Encountered .*fault).*\n.*$", re.MULTILINE)


def check_fences(log: bytes, brokers: Iterable[int], killed: Counter[int]) -> None:
    """Check that only killed brokers were fenced or registered again.

    A broker that has registered and is slow to send heartbeats is fenced again while it is fenced;
    Kafka's controller writes that record too.
    """
    fenced: Counter[int] = Counter()
    registered: Counter[int] = Counter()
    unfenced: set[int] = set()
    for one in read_records(memoryview(log)):
        if isinstance(one.record, RegisterBroker):
            registered[one.record.broker_id] += 1
            unfenced.discard(one.record.broker_id)
        elif isinstance(one.record, BrokerRegistrationChange) and one.record.fenced == -1:
            unfenced.add(one.record.broker_id)
        elif isinstance(one.record, BrokerRegistrationChange) and one.record.fenced == 1:
            fenced[one.record.broker_id] += one.record.broker_id in unfenced
            unfenced.discard(one.record.broker_id)
    assert fenced == killed
    assert registered == Counter(brokers) + killed


def check_errors(nodes: list[Node], *, provoked: tuple[str, ...] = ()) -> None:
    """Check that Kafka's processes have logged no error but `KAFKAS_OWN_ERRORS`.

    ``provoked`` are patterns of errors that the test has caused.
    """
    found = [
        error
        for node in nodes
        if not isinstance(node, KraftNode)
        for error in unexpected_errors(node, provoked=provoked)
    ]
    assert not found, "\n".join(found)


def unexpected_errors(node: Node, *, provoked: tuple[str, ...] = ()) -> list[str]:
    """Return the errors in a node's log that are neither `KAFKAS_OWN_ERRORS` nor ``provoked``.

    A node of kraft may have been one of Kafka before, with the same log.
    """
    return [
        f"node {node.id}: {line}"
        for line in _ERROR.findall(node.log.read_text(errors="replace"))
        if not any(re.search(pattern, line) for pattern in KAFKAS_OWN_ERRORS + provoked)
    ]
