"""A small cluster that applies decisions like a log: it sets their offsets and applies them."""

from __future__ import annotations

from typing import Any, TypeVar

from kraft import records
from kraft._core.bytes.batch import assign_offsets
from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft.controller.brokers.broker_lifecycle import (
    RegistrationRequest,
    register_broker,
    unfence_broker,
)
from kraft.controller.decision import ChunkedDecision, Decision, Records, decide_whole
from kraft.controller.topics.topic_creation import NewTopic, create_topic
from kraft.image import NodeEndpoint, VersionRange
from kraft.image.replay import MetadataState
from kraft.records import Record, Uuid

LEVEL = 30
FEATURES = {
    "metadata.version": VersionRange(7, LEVEL),
    "eligible.leader.replicas.version": VersionRange(0, 1),
}
Response = TypeVar("Response")


def directory(broker: int, number: int = 0) -> Uuid:
    return Uuid(bytes((200, broker, number, 1)) * 4)


def registration(broker: int, incarnation: int = 1, **fields: object) -> RegistrationRequest:
    given: dict[str, object] = {
        "endpoints": [NodeEndpoint("PLAINTEXT", "localhost", 9092 + broker, 0)],
        "features": FEATURES,
        "rack": f"rack-{broker % 3}",
        "log_dirs": [directory(broker)],
    } | fields
    return RegistrationRequest(broker, Uuid(bytes((broker, incarnation)) * 8), **given)  # type: ignore[arg-type]


def whole(chunks: ChunkedDecision[Response]) -> Decision[Response]:
    """Return the decision of a request, a large one as one transaction."""
    return decide_whole("a request", chunks, LEVEL)


class Lab:
    """A cluster with the given number of active brokers, and a placer."""

    def __init__(self, brokers: int = 4, *, elr: bool = False) -> None:
        self.cluster = MetadataState(journaling=True)
        self.placer = StripedPlacer(JavaRandom(7))
        self.write(records.FeatureLevel(name="metadata.version", feature_level=LEVEL))
        if elr:
            self.write(
                records.FeatureLevel(name="eligible.leader.replicas.version", feature_level=1)
            )
        for broker in range(brokers):
            self.do(
                register_broker(
                    self.cluster, registration(broker), next_offset=self.cluster.next_offset
                )
            )
            self.do(unfence_broker(self.cluster, broker))

    def write(self, *written: Record) -> None:
        self.do(Decision(Records.of(written, LEVEL), None))

    def do(self, decided: Decision[Response] | ChunkedDecision[Response]) -> Response:
        """Apply a decision, or each chunk of one; return the response."""
        if not isinstance(decided, Decision):
            return self.do_chunks(decided)[0]
        batches = decided.records.batches
        if len(batches):
            assign_offsets(batches, self.cluster.next_offset, 1)
            self.cluster.apply(batches)
        return decided.response

    def do_chunks(self, chunks: ChunkedDecision[Response]) -> tuple[Response, list[int]]:
        """Apply each chunk before the next one is decided.

        Return the response and the sizes of the chunks.
        """
        sizes: list[int] = []
        while True:
            try:
                chunk = next(chunks)
            except StopIteration as end:
                last: Decision[Response] = end.value
                return self.do(last), [*sizes, len(last.records)]
            sizes.append(len(chunk))
            self.do(Decision(chunk, None))

    def create(self, name: str, *assignments: list[int], **configs: str) -> Uuid:
        topic_id = Uuid(name.encode().ljust(16, b"."))
        self.do(
            create_topic(
                self.cluster,
                NewTopic(
                    name,
                    topic_id,
                    assignments=dict(enumerate(assignments)),
                    configs={key.replace("_", "."): value for key, value in configs.items()},
                ),
                placer=self.placer,
            )
        )
        return topic_id

    def partition(self, topic: str, partition: int = 0) -> dict[str, object]:
        table = self.cluster.table
        return table.state_of(table.row_of(table.topic_number(topic), partition))


def names(decision: Decision[Any]) -> list[str]:
    return [type(record).__name__ for record in decision.records]
