"""Random requests to a `ModelledQuorum`, each sent to the controllers and the twin.

Most requests are valid, so that the state changes; the others must be rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kraft import records
from kraft.controller.brokers.directories import DirectoryAssignment, assign_replicas_to_dirs
from kraft.controller.brokers.heartbeats import BrokerHeartbeatReply
from kraft.controller.brokers.listeners import feature_structs, listener_structs
from kraft.controller.brokers.sessions import Heartbeat
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.controller.state import is_active
from kraft.controller.topics.elections import ElectionType, LeaderElection
from kraft.controller.topics.isr_changes import IsrChange, PartitionAnswer
from kraft.controller.topics.partition_creation import NewPartitions
from kraft.controller.topics.topic_creation import NewTopic
from kraft.controller.topics.topic_deletion import DeletedTopic, TopicToDelete
from kraft.image import VersionRange
from kraft.records import Uuid
from tests.harness.decisions import directory, registration
from tests.property.controller_dice import (
    BROKERS,
    CONFIGS,
    LIMITS,
    NAMES,
    SUPPORTED,
    Dice,
    Kind,
    ask,
    epoch_of,
    now_and_then,
    some_broker,
    some_topic,
    topic_id_of,
)
from tests.property.controller_equality import answer_as_codes
from tests.property.controller_other_requests import (
    alter_client_quotas,
    alter_credentials,
    configure,
    create_acls,
    delete_acls,
    register_controller,
    update_features,
)
from tests.property.controller_quorum import ModelledQuorum
from tests.property.controller_watch import Command
from tests.reference import controller_brokers_twin as brokers_twin
from tests.reference import controller_topics_twin as topics_twin
from tests.reference.controller_state_twin import METADATA_VERSION, Key


def request(quorum: ModelledQuorum, dice: Dice) -> None:
    """Send one request to the leader."""
    dice.choice(KINDS)(quorum, dice)


# -- brokers


def register(quorum: ModelledQuorum, dice: Dice, broker: int | None = None) -> None:
    broker = dice.choice(BROKERS) if broker is None else broker
    known = quorum.controller.cluster.state.brokers.get(broker)
    incarnation = dice.randrange(1, 4)
    dirs = [directory(broker, number) for number in range(dice.choice((1, 1, 2)))]
    if now_and_then(dice):
        dirs = dice.choice(([], [directory(0)], dirs * 2, [Uuid(bytes(16))]))
    features = SUPPORTED
    if now_and_then(dice):
        features = dice.choice(({}, {METADATA_VERSION: (1, 6)}, {METADATA_VERSION: (7, 30)}))
    asked = registration(
        broker,
        incarnation,
        features={name: VersionRange(*levels) for name, levels in features.items()},
        log_dirs=dirs,
        rack=dice.choice((None, "a", "b")),
        previous_broker_epoch=known.epoch if known and dice.random() < 0.5 else -1,
    )
    said = records.RegisterBroker(
        broker_id=broker,
        incarnation_id=asked.incarnation_id,
        end_points=listener_structs(asked.endpoints),
        features=feature_structs(asked.features),
        rack=asked.rack,
        log_dirs=list(asked.log_dirs),
    )
    twin = brokers_twin.Registration(said, asked.previous_broker_epoch)
    ask(
        quorum,
        dice,
        requests.register_broker(asked),
        lambda: brokers_twin.register_broker(
            quorum.state, quorum.sessions, twin, quorum.now_ms, quorum.end_offset
        ),
    )


def unregister(quorum: ModelledQuorum, dice: Dice) -> None:
    broker = some_broker(quorum, dice)
    ask(
        quorum,
        dice,
        requests.unregister_broker(broker),
        lambda: brokers_twin.unregister_broker(quorum.state, quorum.sessions, broker),
    )


def beat(
    quorum: ModelledQuorum,
    dice: Dice,
    broker: int | None = None,
    *,
    is_quiet: bool = False,
    wants_shutdown: bool = False,
) -> None:
    broker = some_broker(quorum, dice) if broker is None else broker
    registered = quorum.controller.cluster.state.brokers.get(broker)
    mine = registered.log_dirs if registered is not None else ()
    offset = quorum.end_offset
    fields: dict[str, Any] = {"wants_shutdown": wants_shutdown}
    if not is_quiet:
        offset = dice.choice((offset, offset, quorum.committed, 0))
        fields["wants_fence"] = dice.random() < 0.15
        fields["wants_shutdown"] = dice.random() < 0.15
        if now_and_then(dice):
            fields["offline"] = tuple(each for each in mine if dice.random() < 0.5)
        if dice.random() < 0.15:
            fields["cordoned"] = tuple(each for each in mine if dice.random() < 0.4)
    epoch = epoch_of(quorum, dice, broker)
    twin = brokers_twin.TwinHeartbeat(broker, epoch, offset, **fields)
    asked = Heartbeat(
        broker,
        epoch,
        offset,
        wants_fence=twin.wants_fence,
        wants_shutdown=twin.wants_shutdown,
        offline_log_dirs=twin.offline,
        cordoned_log_dirs=twin.cordoned,
    )
    command = Command(
        requests.broker_heartbeat(asked),
        lambda: brokers_twin.broker_heartbeat(quorum.state, quorum.sessions, twin),
        _heartbeat_answer,
    )
    quorum.beat(command, broker, epoch)


def _heartbeat_answer(answer: BrokerHeartbeatReply) -> Any:
    return (answer.state.name, answer.is_caught_up, answer.changes_registration)


def all_brokers_send_heartbeats(
    quorum: ModelledQuorum, dice: Dice, *, but: int | None = None
) -> None:
    for broker in sorted(quorum.controller.cluster.state.brokers):
        if broker != but:
            beat(quorum, dice, broker, is_quiet=True)


def allocate_ids(quorum: ModelledQuorum, dice: Dice) -> None:
    broker = some_broker(quorum, dice)
    epoch = epoch_of(quorum, dice, broker)
    ask(
        quorum,
        dice,
        requests.allocate_producer_ids(broker, epoch),
        lambda: brokers_twin.allocate_producer_ids(quorum.state, broker, epoch),
    )


def assign_directories(quorum: ModelledQuorum, dice: Dice) -> None:
    broker = some_broker(quorum, dice)
    epoch = epoch_of(quorum, dice, broker)
    name, size = some_topic(quorum, dice)
    topic_id = topic_id_of(quorum, dice, name)
    ids = dice.sample(range(size + 1), dice.randrange(1, size + 2))
    home = directory(broker, dice.choice((0, 0, 1, 3)))
    ask(
        quorum,
        dice,
        Operation(
            "assign replicas to directories",
            lambda context: assign_replicas_to_dirs(
                context.cluster,
                broker,
                epoch,
                [DirectoryAssignment(home, topic_id, ids)],
                context.settings,
            ),
        ),
        lambda: brokers_twin.assign_replicas_to_dirs(
            quorum.state, broker, epoch, home, topic_id, ids
        ),
        lambda answer: [codes.tolist() for codes in answer],
    )


# -- topics


def _assignment(quorum: ModelledQuorum, dice: Dice, factor: int) -> list[int]:
    known = sorted(quorum.controller.cluster.state.brokers) or [0]
    if now_and_then(dice):
        return dice.choice(([], [9], [known[0], known[0]], known))
    return dice.sample(known, min(factor, len(known)))


def create(quorum: ModelledQuorum, dice: Dice) -> None:
    wanted = []
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        configs: dict[str, str | None] = {}
        for name, values in CONFIGS[: 4 if now_and_then(dice) else 3]:
            if dice.random() < 0.2:
                some = values if now_and_then(dice) else values[:2]
                configs[name] = None if now_and_then(dice) else dice.choice(some)
        registered = len(quorum.controller.cluster.state.brokers)
        count, factor = dice.choice((1, 2, 3, 4, 9, -1)), dice.choice((1, 2, 3, 3, registered, -1))
        assignments: Mapping[int, Sequence[int]] = {}
        if now_and_then(dice):
            count, factor = dice.choice(((0, 1), (1, 0), (-2, 1), (2, -2), (1, 7)))
        if dice.random() < 0.3:
            factor = dice.choice((1, 2, 3))
            first = 1 if now_and_then(dice) else 0
            assignments = {
                number: _assignment(quorum, dice, factor)
                for number in range(first, first + dice.choice((1, 2, 3, 8)))
            }
            count, factor = (3, 1) if now_and_then(dice) else (-1, -1)
        table = quorum.controller.cluster.table
        free = [each for each in NAMES if table.topic_number(each) < 0]
        name = dice.choice(free if free and dice.random() < 0.8 else NAMES)
        if now_and_then(dice):
            name = dice.choice(("", "..", "x/y", "n" * 250, "__cluster_metadata"))
        wanted.append(
            topics_twin.Wanted(name, quorum.new_id(), count, factor, assignments, configs)
        )
    validate_only = now_and_then(dice)
    asked = [
        NewTopic(
            topic.name,
            topic.topic_id,
            topic.count,
            topic.factor,
            topic.assignments,
            topic.configs,
        )
        for topic in wanted
    ]
    ask(
        quorum,
        dice,
        requests.create_topics(asked, validate_only=validate_only),
        lambda: topics_twin.create_topics(
            quorum.state, wanted, LIMITS, validate_only=validate_only
        ),
    )


def create_partitions(quorum: ModelledQuorum, dice: Dice) -> None:
    wanted = []
    table = quorum.controller.cluster.table
    for _ in range(dice.choice((1, 1, 2))):
        name, size = some_topic(quorum, dice)
        count = size + dice.choice((1, 1, 2, 3, 8, 0, -1))
        assignments = None
        if dice.random() < 0.3:
            number = table.topic_number(name)
            row = table.row_of(number, 0) if number >= 0 else -1
            factor = len(table.state_of(row)["replicas"]) if row >= 0 else 1
            some = max(count - size, 0) + now_and_then(dice)
            assignments = [_assignment(quorum, dice, factor) for _ in range(some)]
        wanted.append(topics_twin.NewPartitionCount(name, count, assignments))
    validate_only = now_and_then(dice)
    ask(
        quorum,
        dice,
        requests.create_partitions(
            [NewPartitions(topic.name, topic.count, topic.assignments) for topic in wanted],
            validate_only=validate_only,
        ),
        lambda: topics_twin.create_partitions(
            quorum.state, wanted, LIMITS, validate_only=validate_only
        ),
    )


def delete(quorum: ModelledQuorum, dice: Dice) -> None:
    wanted: list[tuple[str | None, Uuid | None]] = []
    for _ in range(dice.choice((1, 1, 1, 2))):
        name, _size = some_topic(quorum, dice)
        topic_id = topic_id_of(quorum, dice, name)
        if now_and_then(dice):
            wanted.append(dice.choice(((None, None), (name, topic_id))))
        else:
            wanted.append(dice.choice(((name, None), (None, topic_id))))
    ask(
        quorum,
        dice,
        requests.delete_topics([TopicToDelete(*each) for each in wanted]),
        lambda: _sorted_deletion(topics_twin.delete_topics(quorum.state, wanted, LIMITS)),
        _deletion_answer,
    )


def _deletion_answer(answer: list[DeletedTopic]) -> Any:
    codes = (
        (each.name, each.topic_id, each.error.kafka_code if each.error else 0) for each in answer
    )
    return sorted(codes, key=repr)


def _sorted_deletion(outcome: brokers_twin.TwinDecision) -> brokers_twin.TwinDecision:
    outcome.response = sorted(outcome.response, key=repr)
    return outcome


def alter_partition(quorum: ModelledQuorum, dice: Dice) -> None:
    table = quorum.controller.cluster.table
    cluster = quorum.controller.cluster
    leaders = [int(table.column("leader")[row]) for row in table.live_rows().tolist()]
    led = [leader for leader in leaders if leader >= 0]
    broker = dice.choice(led) if led else some_broker(quorum, dice)
    rows = [row for row in table.live_rows().tolist() if table.column("leader")[row] == broker]
    if now_and_then(dice):
        rows = table.live_rows().tolist()
    wishes = []
    for row in dice.sample(rows, min(len(rows), dice.choice((1, 2, 5)))):
        state = table.state_of(row)
        replicas = state["replicas"]
        brokers = cluster.state.brokers
        isr = [
            each
            for each in replicas
            if each == broker
            or (dice.random() < 0.8 and (now_and_then(dice) or is_active(cluster, each)))
        ]
        if now_and_then(dice):
            isr = dice.choice(([], [9, *replicas], replicas[1:]))
        members = {}
        for each in isr:
            registered = brokers.get(each)
            epoch = -1 if registered is None or dice.random() < 0.2 else registered.epoch
            members[each] = epoch + now_and_then(dice)
        wishes.append(
            topics_twin.WantedIsr(
                Uuid(table.topic_id_of(int(table.column("topic")[row]))),
                int(table.column("partition")[row]) + 20 * now_and_then(dice),
                state["leader_epoch"] + (dice.choice((-1, 1)) if now_and_then(dice) else 0),
                state["partition_epoch"] + (dice.choice((-1, 1)) if now_and_then(dice) else 0),
                members,
                dice.random() < 0.1,
            )
        )
    epoch = epoch_of(quorum, dice, broker)
    asked = [
        IsrChange(
            wish.topic_id,
            wish.partition,
            wish.leader_epoch,
            wish.partition_epoch,
            wish.isr,
            wish.recovering,
        )
        for wish in wishes
    ]
    ask(
        quorum,
        dice,
        requests.alter_partition(broker, epoch, asked),
        lambda: topics_twin.alter_partition(quorum.state, broker, epoch, wishes),
        lambda answer: {key: _partition_answer(each) for key, each in answer.items()},
    )


def _partition_answer(answer: Any) -> Any:
    if not isinstance(answer, PartitionAnswer):
        return answer_as_codes(answer)
    return (
        answer.leader,
        answer.leader_epoch,
        answer.partition_epoch,
        answer.isr,
        answer.leader_recovery_state,
    )


def elect(quorum: ModelledQuorum, dice: Dice) -> None:
    kind = dice.choice(("preferred", "unclean"))
    asked: dict[str, list[int]] | None = None
    if dice.random() < 0.5:
        asked = {}
        for _ in range(dice.choice((1, 2))):
            name, size = some_topic(quorum, dice)
            asked[name] = dice.sample(range(size + 1), dice.randrange(1, size + 2))
    at_a_time = dice.choice((1, 1, 3, 10_000))
    twin = topics_twin.Election(kind, asked, at_a_time)
    election = LeaderElection(ElectionType[kind.upper()], asked, at_a_time=at_a_time)
    ask(
        quorum,
        dice,
        Operation(
            "elect leaders", lambda context: election.decide(context.cluster, context.settings)
        ),
        lambda: twin.decide(quorum.state),
        list,
    )


def reassign(quorum: ModelledQuorum, dice: Dice) -> None:
    targets: dict[Key, Sequence[int] | None] = {}
    for _ in range(dice.choice((1, 1, 2, 3))):
        name, size = some_topic(quorum, dice)
        key = name, dice.randrange(max(size, 1) + now_and_then(dice))
        target = _assignment(quorum, dice, dice.choice((1, 2, 3, 3, 4)))
        targets[key] = None if dice.random() < 0.25 else target
    may_change_factor = dice.random() < 0.8
    ask(
        quorum,
        dice,
        requests.alter_partition_reassignments(
            targets, allow_replication_factor_change=may_change_factor
        ),
        lambda: topics_twin.alter_partition_reassignments(
            quorum.state, targets, may_change_factor=may_change_factor
        ),
    )


KINDS: tuple[Kind, ...] = (
    *(register, register, unregister, beat, beat, beat, beat, beat),
    *(
        all_brokers_send_heartbeats,
        all_brokers_send_heartbeats,
        all_brokers_send_heartbeats,
        allocate_ids,
    ),
    *(
        assign_directories,
        assign_directories,
        create,
        create,
        create,
        create,
        create,
        create_partitions,
        create_partitions,
        delete,
    ),
    *(
        alter_partition,
        alter_partition,
        alter_partition,
        alter_partition,
        alter_partition,
        alter_partition,
    ),
    *(elect, elect, elect, elect, reassign, reassign, reassign, reassign),
    *(configure, configure, configure, configure, update_features, update_features),
    *(alter_client_quotas, alter_credentials, create_acls, create_acls, delete_acls),
    register_controller,
)


def restart(quorum: ModelledQuorum, dice: Dice) -> None:
    """Stop a broker, cleanly or not, and register it again after its session has expired."""
    broker = some_broker(quorum, dice)
    if dice.random() < 0.6:
        for _ in range(dice.choice((1, 3))):
            beat(quorum, dice, broker, is_quiet=True, wants_shutdown=True)
            all_brokers_send_heartbeats(quorum, dice, but=broker)
            quorum.settle_both()
    for _ in range(2):
        quorum.now_ms += 5_000
        all_brokers_send_heartbeats(quorum, dice, but=broker)
        for _ in range(dice.choice((1, 4, 12))):
            quorum.turn()
    register(quorum, dice, broker)


def register_first_brokers(
    quorum: ModelledQuorum, dice: Dice, brokers: Sequence[int] = BROKERS
) -> None:
    """Register and unfence these brokers, as a first cluster."""
    for broker in brokers:
        register(quorum, dice, broker)
    quorum.settle_both()
    all_brokers_send_heartbeats(quorum, dice)
    quorum.settle_both()


def create_first_topics(quorum: ModelledQuorum, dice: Dice) -> None:
    """Create some first topics, with partitions on any three of the brokers."""
    known = sorted(quorum.controller.cluster.state.brokers)
    if len(known) < 3:
        return
    wanted = [
        topics_twin.Wanted(
            name,
            quorum.new_id(),
            assignments={number: dice.sample(known, 3) for number in range(2)},
            configs=configs,
        )
        for name, configs in (("a", {"min.insync.replicas": dice.choice("23")}), ("d", {}))
    ]
    asked = [
        NewTopic(topic.name, topic.topic_id, assignments=topic.assignments, configs=topic.configs)
        for topic in wanted
    ]
    ask(
        quorum,
        dice,
        requests.create_topics(asked),
        lambda: topics_twin.create_topics(quorum.state, wanted, LIMITS, validate_only=False),
    )
    quorum.settle_both()
