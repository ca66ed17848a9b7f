"""Requests for many topics: authorization, policies, validate_only requests and chunks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kraft.controller.brokers.broker_lifecycle import fence_broker
from kraft.controller.decision import Decision
from kraft.controller.state import DecisionSettings, election_context
from kraft.controller.topics.partition_creation import (
    NewPartitions,
    create_partitions,
)
from kraft.controller.topics.reassignment import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from kraft.controller.topics.topic_creation import (
    CreatedTopic,
    CreationRules,
    NewTopic,
    TopicMetadata,
    create_topic,
    create_topics,
    requested_partitions,
)
from kraft.controller.topics.topic_deletion import (
    DeletedTopic,
    DeletionRules,
    TopicToDelete,
    delete_topics,
)
from kraft.errors import (
    KraftError,
    PolicyViolationError,
    ThrottlingQuotaExceededError,
    TopicDeletionDisabledError,
)
from kraft.image.configs import TOPIC, ConfigResource
from kraft.records import Uuid
from tests.harness.decisions import Lab, whole


def id_of(number: int) -> Uuid:
    return Uuid(b"id" + number.to_bytes(14, "big"))


def code(result: object) -> int:
    return result.kafka_code if isinstance(result, KraftError) else 0


def test_validate_only_responds_the_same_without_records() -> None:
    lab = Lab()
    topics = [NewTopic("a", id_of(1), 3, 2), NewTopic("b c", id_of(2), 1, 1)]
    made = whole(create_topics(lab.cluster, topics, placer=lab.placer, validate_only=True))
    assert len(made.records) == 0
    assert made.response["a"] == CreatedTopic("a", id_of(1), 3, 2)
    assert code(made.response["b c"]) == 17
    lab.create("t", [0])
    grown = whole(
        create_partitions(
            lab.cluster, [NewPartitions("t", 3)], placer=lab.placer, validate_only=True
        )
    )
    assert len(grown.records) == 0
    assert grown.response == {"t": 2}


def test_the_first_error_in_kafkas_order_is_the_response() -> None:
    lab = Lab()
    lab.create("there", [0])
    rules = CreationRules(is_authorized=lambda name: not name.startswith("secret"))
    topics = [
        NewTopic("secret", id_of(1), 0, 0),
        NewTopic("secret_twice", id_of(2)),
        NewTopic("secret_twice", id_of(3)),
        NewTopic("__cluster_metadata", id_of(4)),
        NewTopic("there", id_of(5), 0, 0, configs={"retention.ms": None}),
        NewTopic("nothing", id_of(6), 0, 0, configs={"retention.ms": None}),
        NewTopic("odd", id_of(7), 0, 0, configs={"retention.ms": "?"}),
        NewTopic("none", id_of(8), 0, 0),
        NewTopic("twofold", id_of(9), assignments=[(0, [1]), (0, [2])]),
        NewTopic("good", id_of(10), assignments=[(1, [1]), (0, [2])]),
    ]
    decision = whole(create_topics(lab.cluster, topics, placer=lab.placer, rules=rules))
    codes = {name: code(result) for name, result in decision.response.items()}
    assert codes == {
        "secret": 29,
        "secret_twice": 42,
        "__cluster_metadata": 42,
        "there": 36,
        "nothing": 40,
        "odd": 40,
        "none": 38,
        "twofold": 39,
        "good": 0,
    }
    lab.do(decision)
    assert lab.partition("good", 1)["replicas"] == [1]


def test_a_policy_is_called_last_and_its_exception_is_the_topics_error() -> None:
    lab = Lab()
    seen: list[TopicMetadata] = []

    def policy(metadata: TopicMetadata) -> None:
        seen.append(metadata)
        if metadata.name == "refused":
            raise PolicyViolationError("not here")
        if metadata.name == "broken":
            raise ZeroDivisionError

    topics = [
        NewTopic("refused", id_of(1), 2, 1),
        NewTopic("broken", id_of(2), 2, 1),
        NewTopic("fine", id_of(3), -1, -1, configs={"retention.ms": "5"}),
        NewTopic("manual", id_of(4), assignments={0: [1, 2]}),
        NewTopic("unplaced", id_of(5), 1, 9),
    ]
    decision = whole(
        create_topics(lab.cluster, topics, placer=lab.placer, rules=CreationRules(policy=policy))
    )
    assert [code(decision.response[topic.name]) for topic in topics] == [44, -1, 0, 0, 38]
    assert seen[2:] == [
        TopicMetadata("fine", 1, 1, None, {"retention.ms": "5"}),
        TopicMetadata("manual", None, None, {0: [1, 2]}, {}),
    ]


def test_the_policy_for_configurations_sees_those_of_new_topics_before_placement() -> None:
    lab = Lab()
    seen: list[tuple[ConfigResource, dict[str, str | None]]] = []

    def policy(resource: ConfigResource, altered: Mapping[str, str | None]) -> None:
        seen.append((resource, dict(altered)))
        if resource[1] == "refused":
            raise PolicyViolationError("not here")
        if resource[1] == "broken":
            raise ZeroDivisionError

    topics = [
        NewTopic("refused", id_of(1), 1, 9, configs={"retention.ms": "5"}),
        NewTopic("broken", id_of(2), 1, 1, configs={"retention.ms": "5"}),
        NewTopic("plain", id_of(3), 1, 1),
        NewTopic("fine", id_of(4), 1, 1, configs={"retention.ms": "6"}),
        NewTopic("wrong", id_of(5), 1, 1, configs={"retention.ms": "soon"}),
    ]
    decision = whole(
        create_topics(
            lab.cluster, topics, placer=lab.placer, rules=CreationRules(config_policy=policy)
        )
    )
    assert [code(decision.response[topic.name]) for topic in topics] == [44, -1, 0, 0, 40]
    assert [resource[1] for resource, _ in seen] == ["refused", "broken", "fine"]
    assert seen[2] == ((TOPIC, "fine"), {"retention.ms": "6"})


def test_the_mutation_quota_counts_partitions_and_may_reject() -> None:
    lab = Lab()
    lab.create("t", [0], [1])
    heard: list[int] = []

    def quota(partitions: int) -> None:
        heard.append(partitions)
        if partitions > 5:
            raise ThrottlingQuotaExceededError("later")

    topics = [NewTopic("small", id_of(1), 5, 1), NewTopic("large", id_of(2), 6, 1)]
    made = whole(
        create_topics(lab.cluster, topics, placer=lab.placer, rules=CreationRules(quota=quota))
    )
    assert [code(result) for result in made.response.values()] == [0, 89]
    grown = whole(
        create_partitions(lab.cluster, [NewPartitions("t", 9)], placer=lab.placer, quota=quota)
    )
    assert code(grown.response["t"]) == 89
    gone = whole(delete_topics(lab.cluster, [TopicToDelete("t")], rules=DeletionRules(quota=quota)))
    assert gone.response == [DeletedTopic("t", Uuid(b"t".ljust(16, b".")))]
    assert heard == [5, 6, 7, 2]


def test_create_partitions_responds_for_each_topic() -> None:
    lab = Lab()
    for name in ("a", "b", "c"):
        lab.create(name, [0, 1])
    lab.do(fence_broker(lab.cluster, 3))
    decision = whole(
        create_partitions(
            lab.cluster,
            [
                NewPartitions("a", 3),
                NewPartitions("b", 1),
                NewPartitions("no", 3),
                NewPartitions("c", 2, [[3, 9]]),
                NewPartitions("twice", 2),
                NewPartitions("twice", 3),
                NewPartitions("secret", 2),
            ],
            placer=lab.placer,
            is_authorized=lambda name: name != "secret",
        )
    )
    codes = {name: code(result) for name, result in decision.response.items()}
    assert codes == {"a": 0, "b": 37, "no": 3, "c": 39, "twice": 42, "secret": 29}
    assert len(decision.records) == 2
    lab.do(decision)
    assert lab.cluster.table.partition_count == 5


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (NewPartitions("no", 2), "This server does not host this topic-partition."),
        (NewPartitions("t", 2), "Topic already has 2 partition(s)."),
        (
            NewPartitions("t", -22),
            "The topic t currently has 2 partition(s); -22 would not be an increase.",
        ),
        (
            NewPartitions("t", 5, [[0, 1]]),
            "Attempted to add 3 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            NewPartitions("t", 3, [[]]),
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewPartitions("t", 3, [[0, 12]]),
            "The manual partition assignment includes broker 12, but no such broker is registered.",
        ),
        (
            NewPartitions("t", 3, [[1, 0, 1]]),
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewPartitions("t", 3, [[0]]),
            "The manual partition assignment includes a partition with 1 replica(s), but this is "
            "not consistent with previous partitions, which have 2 replica(s).",
        ),
    ],
)
def test_errors_of_create_partitions_have_kafkas_messages(
    topic: NewPartitions, message: str
) -> None:
    lab = Lab()
    lab.create("t", [0, 1], [1, 2])

    response = lab.do(create_partitions(lab.cluster, [topic], placer=lab.placer))

    assert str(response[topic.name]) == message


def test_a_request_with_too_many_records_is_rejected_as_a_whole() -> None:
    lab = Lab()
    lab.create("a", [0])
    lab.create("b", [0])
    wanted = [NewPartitions("a", 6_000), NewPartitions("b", 6_000)]
    with pytest.raises(PolicyViolationError):
        whole(create_partitions(lab.cluster, wanted, placer=lab.placer, at_once=20_000))
    response, sizes = lab.do_chunks(create_partitions(lab.cluster, wanted, placer=lab.placer))
    assert response == {"a": 5_999, "b": 5_999}
    assert [size for size in sizes if size] == [5_999, 5_999]
    assert lab.partition("b", 5_999)["leader_epoch"] == 0


def test_chunks_are_one_batch_each_after_all_topics_are_checked() -> None:
    lab = Lab()
    topics = [
        NewTopic("large", id_of(1), 25_001, 3, configs={"retention.ms": "7"}),
        NewTopic("bad", id_of(2), 1, 99),
        *[NewTopic(f"t{number}", id_of(10 + number), 10, 2) for number in range(1_200)],
    ]
    assert requested_partitions(topics) == 25_001 + 1 + 12_000
    response, sizes = lab.do_chunks(create_topics(lab.cluster, topics, placer=lab.placer))
    assert code(response["bad"]) == 38
    assert response["large"] == CreatedTopic("large", id_of(1), 25_001, 3)
    # The first chunks only check topics and have no records; later ones have at most 10,000.
    first = next(place for place, size in enumerate(sizes) if size)
    assert first >= 4
    assert 0 not in sizes[first:]
    assert max(sizes) <= 10_000
    assert lab.cluster.table.partition_count == 25_001 + 12_000
    assert lab.cluster.state.configs.topic("large") == {"retention.ms": "7"}
    rows = lab.cluster.table.topic_rows(lab.cluster.table.topic_number("large"))
    leaders = lab.cluster.table.column("leader")[rows]
    assert {int(leader) for leader in leaders} == {0, 1, 2, 3}


def test_manual_assignments_are_chunked_too() -> None:
    lab = Lab()
    topic = NewTopic("t", id_of(1), assignments={number: [1, 2] for number in range(25_000)})
    response, sizes = lab.do_chunks(create_topics(lab.cluster, [topic], placer=lab.placer))
    assert response["t"] == CreatedTopic("t", id_of(1), 25_000, 2)
    assert max(sizes) <= 10_000
    growth = NewPartitions("t", 50_000, [[3, 0]] * 25_000)
    grown, sizes = lab.do_chunks(create_partitions(lab.cluster, [growth], placer=lab.placer))
    assert grown["t"] == 25_000
    assert max(sizes) <= 10_000
    assert lab.cluster.table.partition_count == 50_000
    assert lab.partition("t", 24_999)["replicas"] == [1, 2]
    assert lab.partition("t", 49_999)["replicas"] == [3, 0]


def test_chunks_are_decided_against_the_brokers_at_the_beginning() -> None:
    lab = Lab()
    topics = [NewTopic("t", id_of(1), 15_000, 4)]
    chunks = create_topics(lab.cluster, topics, placer=lab.placer)
    while not len(written := next(chunks)):
        pass
    lab.do(Decision(written, None))
    lab.do(fence_broker(lab.cluster, 2))
    # Another decision has fenced broker 2; later chunks still use the brokers of the first chunk.
    election_context(lab.cluster)
    response, _ = lab.do_chunks(chunks)
    assert response["t"] == CreatedTopic("t", id_of(1), 15_000, 4)
    assert 2 in lab.partition("t", 14_999)["isr"]  # type: ignore[operator]


def test_topics_are_deleted_by_name_and_id() -> None:
    lab = Lab()
    ids = {name: lab.create(name, [0]) for name in ("a", "b", "c", "d", "e", "hidden", "shown")}
    unknown = id_of(7)
    asked = [
        TopicToDelete("a"),
        TopicToDelete(None, ids["b"]),
        TopicToDelete("c"),
        TopicToDelete(None, ids["c"]),
        TopicToDelete("d"),
        TopicToDelete("d"),
        TopicToDelete(None, ids["e"]),
        TopicToDelete(None, ids["e"]),
        TopicToDelete("e"),
        TopicToDelete("no"),
        TopicToDelete(None, unknown),
        TopicToDelete("a", ids["a"]),
        TopicToDelete(),
        TopicToDelete(None, Uuid(bytes(16))),
        TopicToDelete(None, ids["hidden"]),
        TopicToDelete("shown"),
    ]
    decision = whole(
        delete_topics(
            lab.cluster,
            asked,
            rules=DeletionRules(
                is_describable=lambda name: name != "hidden",
                is_deletable=lambda name: name not in ("hidden", "shown"),
            ),
        )
    )
    results = [(name, topic_id, code(error)) for name, topic_id, error in decision.response]
    assert sorted(results, key=repr) == sorted(
        [
            ("a", ids["a"], 0),
            ("b", ids["b"], 0),
            ("c", ids["c"], 42),
            ("d", None, 42),
            (None, ids["e"], 42),
            ("e", ids["e"], 42),
            ("no", None, 3),
            (None, unknown, 100),
            ("a", ids["a"], 42),
            (None, None, 42),
            (None, Uuid(bytes(16)), 42),
            (None, ids["hidden"], 29),
            ("shown", None, 29),
        ],
        key=repr,
    )
    assert len(decision.records) == 2
    lab.do(decision)
    assert lab.cluster.table.topic_count == 5


def test_deletion_can_be_switched_off() -> None:
    lab = Lab()
    lab.create("t", [0])
    off = DecisionSettings(delete_topic_enable=False)
    with pytest.raises(TopicDeletionDisabledError):
        whole(delete_topics(lab.cluster, [TopicToDelete("t")], settings=off))


def test_many_topics_are_deleted_in_chunks() -> None:
    lab = Lab()
    topics = [NewTopic(f"t{number}", id_of(number), 4, 1) for number in range(12_000)]
    lab.do_chunks(create_topics(lab.cluster, topics, placer=lab.placer))
    asked = [TopicToDelete(None, id_of(number)) for number in range(12_000)]
    with pytest.raises(PolicyViolationError):
        whole(delete_topics(lab.cluster, asked, at_once=100_000))
    response, sizes = lab.do_chunks(delete_topics(lab.cluster, asked))
    assert len(response) == sum(sizes) == 12_000
    assert max(sizes) <= 1_000
    assert lab.cluster.table.partition_count == 0


@pytest.mark.parametrize("marks", [3, 20])
def test_a_name_that_collides_in_metrics_is_rejected(marks: int) -> None:
    lab = Lab()
    there = NewTopic("x" + ".y" * marks, id_of(99), 1, 1)
    lab.do(create_topic(lab.cluster, there, placer=lab.placer))
    lab.create("another", [0])
    names = ["x" + "_y" * marks, "x" + "_y" * (marks - 1) + ".y", "x" + "_y" * (marks - 1) + ".z"]
    topics = [NewTopic(name, id_of(number), 1, 1) for number, name in enumerate(names)]
    response = whole(create_topics(lab.cluster, topics, placer=lab.placer)).response
    assert [code(result) for result in response.values()] == [17, 17, 0]


def test_many_reassignments_are_decided_in_chunks() -> None:
    lab = Lab()
    topics = [NewTopic("t", id_of(1), assignments={id: [0, 1] for id in range(12_000)})]
    lab.do_chunks(create_topics(lab.cluster, topics, placer=lab.placer))
    targets: dict[tuple[str, int], list[int] | None] = {("t", id): [2, 3] for id in range(12_001)}
    targets["t", 3] = None
    with pytest.raises(PolicyViolationError):
        whole(alter_partition_reassignments(lab.cluster, targets, at_once=20_000))
    response, sizes = lab.do_chunks(alter_partition_reassignments(lab.cluster, targets))
    assert sum(sizes) == 11_999
    assert max(sizes) <= 2_000
    assert (code(response["t", 3]), code(response["t", 12_000])) == (85, 3)
    assert len(list_partition_reassignments(lab.cluster)) == 11_999


def test_the_fixed_factor_counts_added_but_not_removed_replicas() -> None:
    """KIP-860: during a reassignment, a new target must have the size of the last target."""
    lab = Lab()
    lab.create("t", [0, 1])
    lab.do(alter_partition_reassignments(lab.cluster, {("t", 0): [2, 3]}))

    def ask(*replicas: int) -> int:
        decision = whole(
            alter_partition_reassignments(
                lab.cluster, {("t", 0): list(replicas)}, allow_replication_factor_change=False
            )
        )
        return code(decision.response["t", 0])

    assert [ask(1, 2), ask(1), ask(0, 1, 2, 3)] == [0, 38, 38]
