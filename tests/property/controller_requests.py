"""Random requests to a `Quorum`: each is made of dice, and goes to the controllers and the twin.

Most ask for what can be, so that much happens; the rest for what must be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from kraft import records
from kraft.controller import NewTopic, requests
from kraft.controller import acls as acl_duty
from kraft.controller.configs import ConfigChange
from kraft.controller.controllers import ControllerRegistrationRequest
from kraft.controller.deletion import DeletedTopic, TopicToDelete
from kraft.controller.directories import DirectoryAssignment, assign_replicas_to_directories
from kraft.controller.elections import ElectionType, LeaderElection
from kraft.controller.features import FeatureUpdate, LocalFeatures
from kraft.controller.growth import NewPartitions
from kraft.controller.heartbeats import HeartbeatAnswer
from kraft.controller.listeners import feature_structs, listener_structs
from kraft.controller.operations import Operation
from kraft.controller.quotas import QuotaAlteration
from kraft.controller.replication import IsrChange, PartitionAnswer
from kraft.controller.scram import ScramDeletion, ScramUpsertion, alter_scram_credentials
from kraft.controller.sessions import Heartbeat
from kraft.image import Endpoint, VersionRange
from kraft.image.security import AccessControl
from kraft.records import Uuid
from tests.property.controller_equality import normally
from tests.property.controller_quorum import RECORDS_OF_BATCH, Quorum
from tests.property.controller_watch import Command
from tests.reference import controller_brokers_twin as brokers_twin
from tests.reference import controller_rest_twin as rest_twin
from tests.reference import controller_topics_twin as topics_twin
from tests.reference.controller_state_twin import BROKER, ELR, METADATA_VERSION, TOPIC, Key
from tests.unit.controller.clusters import directory, registration

BROKERS = range(5)
NAMES = ("a", "b.c", "b_c", "d", "e", "f")
CONFIGS = (
    ("min.insync.replicas", ("1", "2", "3", "0", "x")),
    ("unclean.leader.election.enable", ("true", "true", "false", "perhaps")),
    ("retention.ms", ("1000", "-1", "-2")),
    ("nonsense", ("1",)),
)
LIMITS = topics_twin.Limits(RECORDS_OF_BATCH)
SUPPORTED = {METADATA_VERSION: (7, 30), ELR: (0, 1)}
Dice = Random
Kind = Callable[[Quorum, Random], None]


def request(quorum: Quorum, dice: Dice) -> None:
    """One that comes to the leader."""
    dice.choice(KINDS)(quorum, dice)


def _now_and_then(dice: Dice) -> bool:
    return dice.random() < 0.08


def _deadline(quorum: Quorum, dice: Dice) -> float:
    return quorum.now_ms + dice.choice((0, 500, 5_000)) if _now_and_then(dice) else float("inf")


def _ask(
    quorum: Quorum,
    dice: Dice,
    operation: Operation,
    decide: Callable[[], brokers_twin.Outcome],
    normal: Callable[[Any], Any] = normally,
) -> None:
    quorum.ask_later(Command(operation, decide, normal, _deadline(quorum, dice)))


def _epoch(quorum: Quorum, dice: Dice, broker: int) -> int:
    registered = quorum.controller.cluster.state.brokers.get(broker)
    if registered is None or _now_and_then(dice):
        return dice.randrange(5)
    return registered.epoch


def _broker(quorum: Quorum, dice: Dice) -> int:
    known = sorted(quorum.controller.cluster.state.brokers)
    return dice.choice(known) if known and not _now_and_then(dice) else dice.choice(BROKERS)


# -- brokers


def register(quorum: Quorum, dice: Dice, broker: int | None = None) -> None:
    broker = dice.choice(BROKERS) if broker is None else broker
    known = quorum.controller.cluster.state.brokers.get(broker)
    incarnation = dice.randrange(1, 4)
    dirs = [directory(broker, number) for number in range(dice.choice((1, 1, 2)))]
    if _now_and_then(dice):
        dirs = dice.choice(([], [directory(0)], dirs * 2, [Uuid(bytes(16))]))
    features = SUPPORTED
    if _now_and_then(dice):
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
    _ask(
        quorum,
        dice,
        requests.register(asked),
        lambda: brokers_twin.register(
            quorum.state, quorum.sessions, twin, quorum.now_ms, quorum.end_offset
        ),
    )


def unregister(quorum: Quorum, dice: Dice) -> None:
    broker = _broker(quorum, dice)
    _ask(
        quorum,
        dice,
        requests.unregister(broker),
        lambda: brokers_twin.unregister(quorum.state, quorum.sessions, broker),
    )


def beat(quorum: Quorum, dice: Dice, broker: int | None = None, *, is_quiet: bool = False) -> None:
    broker = _broker(quorum, dice) if broker is None else broker
    registered = quorum.controller.cluster.state.brokers.get(broker)
    mine = registered.log_dirs if registered is not None else ()
    offset = quorum.end_offset
    fields: dict[str, Any] = {}
    if not is_quiet:
        offset = dice.choice((offset, offset, quorum.committed, 0))
        fields["wants_fence"] = dice.random() < 0.15
        fields["wants_shutdown"] = dice.random() < 0.15
        if _now_and_then(dice):
            fields["offline"] = tuple(each for each in mine if dice.random() < 0.5)
        if dice.random() < 0.15:
            fields["cordoned"] = tuple(each for each in mine if dice.random() < 0.4)
    epoch = _epoch(quorum, dice, broker)
    twin = brokers_twin.Beat(broker, epoch, offset, **fields)
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
        requests.heartbeat(asked),
        lambda: brokers_twin.heartbeat(quorum.state, quorum.sessions, twin),
        _heartbeat_answer,
    )
    quorum.beat(command, broker, epoch)


def _heartbeat_answer(answer: HeartbeatAnswer) -> Any:
    return (answer.state.name, answer.is_caught_up, answer.changes_registration)


def everyone_beats(quorum: Quorum, dice: Dice) -> None:
    for broker in sorted(quorum.controller.cluster.state.brokers):
        beat(quorum, dice, broker, is_quiet=True)


def allocate_ids(quorum: Quorum, dice: Dice) -> None:
    broker = _broker(quorum, dice)
    epoch = _epoch(quorum, dice, broker)
    _ask(
        quorum,
        dice,
        requests.allocate_ids(broker, epoch),
        lambda: brokers_twin.allocate_ids(quorum.state, broker, epoch),
    )


def assign_directories(quorum: Quorum, dice: Dice) -> None:
    broker = _broker(quorum, dice)
    epoch = _epoch(quorum, dice, broker)
    name, size = _topic(quorum, dice)
    topic_id = _topic_id(quorum, dice, name)
    ids = dice.sample(range(size + 1), dice.randrange(1, size + 2))
    home = directory(broker, dice.choice((0, 0, 1, 3)))
    _ask(
        quorum,
        dice,
        Operation(
            "assign replicas to directories",
            lambda tip: assign_replicas_to_directories(
                tip.cluster,
                broker,
                epoch,
                [DirectoryAssignment(home, topic_id, ids)],
                tip.settings,
            ),
        ),
        lambda: brokers_twin.assign_directories(quorum.state, broker, epoch, home, topic_id, ids),
        lambda answer: [codes.tolist() for codes in answer],
    )


# -- topics


def _topic(quorum: Quorum, dice: Dice) -> tuple[str, int]:
    table = quorum.controller.cluster.table
    numbers = table.topic_numbers()
    if not numbers or _now_and_then(dice):
        return dice.choice(NAMES), 1
    number = dice.choice(numbers)
    return table.topic_name(number), len(table.topic_rows(number))


def _topic_id(quorum: Quorum, dice: Dice, name: str) -> Uuid:
    table = quorum.controller.cluster.table
    number = table.topic_number(name)
    return quorum.new_id() if number < 0 else Uuid(table.topic_id_of(number))


def _assignment(quorum: Quorum, dice: Dice, factor: int) -> list[int]:
    known = sorted(quorum.controller.cluster.state.brokers) or [0]
    if _now_and_then(dice):
        return dice.choice(([], [9], [known[0], known[0]], known))
    return dice.sample(known, min(factor, len(known)))


def create(quorum: Quorum, dice: Dice) -> None:
    wanted = []
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        configs: dict[str, str | None] = {}
        for name, values in CONFIGS[: 4 if _now_and_then(dice) else 3]:
            if dice.random() < 0.2:
                some = values if _now_and_then(dice) else values[:2]
                configs[name] = None if _now_and_then(dice) else dice.choice(some)
        count, factor = dice.choice((1, 2, 3, 4, 9, -1)), dice.choice((1, 2, 3, 3, -1))
        assignments: Mapping[int, Sequence[int]] = {}
        if _now_and_then(dice):
            count, factor = dice.choice(((0, 1), (1, 0), (-2, 1), (2, -2), (1, 7)))
        if dice.random() < 0.3:
            factor = dice.choice((1, 2, 3))
            first = 1 if _now_and_then(dice) else 0
            assignments = {
                number: _assignment(quorum, dice, factor)
                for number in range(first, first + dice.choice((1, 2, 3, 8)))
            }
            count, factor = (3, 1) if _now_and_then(dice) else (-1, -1)
        name = dice.choice(NAMES)
        if _now_and_then(dice):
            name = dice.choice(("", "..", "x/y", "n" * 250, "__cluster_metadata"))
        wanted.append(
            topics_twin.Wanted(name, quorum.new_id(), count, factor, assignments, configs)
        )
    validate_only = _now_and_then(dice)
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
    _ask(
        quorum,
        dice,
        requests.create(asked, validate_only=validate_only),
        lambda: topics_twin.create(quorum.state, wanted, LIMITS, validate_only=validate_only),
    )


def grow(quorum: Quorum, dice: Dice) -> None:
    wanted = []
    table = quorum.controller.cluster.table
    for _ in range(dice.choice((1, 1, 2))):
        name, size = _topic(quorum, dice)
        count = size + dice.choice((1, 1, 2, 3, 8, 0, -1))
        assignments = None
        if dice.random() < 0.3:
            number = table.topic_number(name)
            row = table.row_of(number, 0) if number >= 0 else -1
            factor = len(table.state_of(row)["replicas"]) if row >= 0 else 1
            some = max(count - size, 0) + _now_and_then(dice)
            assignments = [_assignment(quorum, dice, factor) for _ in range(some)]
        wanted.append(topics_twin.Growth(name, count, assignments))
    validate_only = _now_and_then(dice)
    _ask(
        quorum,
        dice,
        requests.grow(
            [NewPartitions(topic.name, topic.count, topic.assignments) for topic in wanted],
            validate_only=validate_only,
        ),
        lambda: topics_twin.grow(quorum.state, wanted, LIMITS, validate_only=validate_only),
    )


def delete(quorum: Quorum, dice: Dice) -> None:
    wanted: list[tuple[str | None, Uuid | None]] = []
    for _ in range(dice.choice((1, 1, 2, 3))):
        name, _size = _topic(quorum, dice)
        topic_id = _topic_id(quorum, dice, name)
        if _now_and_then(dice):
            wanted.append(dice.choice(((None, None), (name, topic_id))))
        else:
            wanted.append(dice.choice(((name, None), (None, topic_id))))
    _ask(
        quorum,
        dice,
        requests.delete([TopicToDelete(*each) for each in wanted]),
        lambda: _sorted_deletion(topics_twin.delete(quorum.state, wanted, LIMITS)),
        _deletion_answer,
    )


def _deletion_answer(answer: list[DeletedTopic]) -> Any:
    codes = (
        (each.name, each.topic_id, each.error.kafka_code if each.error else 0) for each in answer
    )
    return sorted(codes, key=repr)


def _sorted_deletion(outcome: brokers_twin.Outcome) -> brokers_twin.Outcome:
    outcome.response = sorted(outcome.response, key=repr)
    return outcome


def change_isrs(quorum: Quorum, dice: Dice) -> None:
    table = quorum.controller.cluster.table
    cluster = quorum.controller.cluster
    broker = _broker(quorum, dice)
    rows = [row for row in table.live_rows().tolist() if table.column("leader")[row] == broker]
    if _now_and_then(dice):
        rows = table.live_rows().tolist()
    wishes = []
    for row in dice.sample(rows, min(len(rows), dice.choice((1, 2, 5)))):
        state = table.state_of(row)
        replicas = state["replicas"]
        isr = [each for each in replicas if each == broker or dice.random() < 0.75]
        if _now_and_then(dice):
            isr = dice.choice(([], [9, *replicas], replicas[1:]))
        members = {}
        for each in isr:
            registered = cluster.state.brokers.get(each)
            epoch = -1 if registered is None or dice.random() < 0.2 else registered.epoch
            members[each] = epoch + _now_and_then(dice)
        wishes.append(
            topics_twin.IsrWish(
                Uuid(table.topic_id_of(int(table.column("topic")[row]))),
                int(table.column("partition")[row]) + 20 * _now_and_then(dice),
                state["leader_epoch"] + (dice.choice((-1, 1)) if _now_and_then(dice) else 0),
                state["partition_epoch"] + (dice.choice((-1, 1)) if _now_and_then(dice) else 0),
                members,
                dice.random() < 0.1,
            )
        )
    epoch = _epoch(quorum, dice, broker)
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
    _ask(
        quorum,
        dice,
        requests.change_isrs(broker, epoch, asked),
        lambda: topics_twin.change_isrs(quorum.state, broker, epoch, wishes),
        lambda answer: {key: _partition_answer(each) for key, each in answer.items()},
    )


def _partition_answer(answer: Any) -> Any:
    if not isinstance(answer, PartitionAnswer):
        return normally(answer)
    return (
        answer.leader,
        answer.leader_epoch,
        answer.partition_epoch,
        answer.isr,
        answer.leader_recovery_state,
    )


def elect(quorum: Quorum, dice: Dice) -> None:
    kind = dice.choice(("preferred", "unclean"))
    asked: dict[str, list[int]] | None = None
    if dice.random() < 0.5:
        asked = {}
        for _ in range(dice.choice((1, 2))):
            name, size = _topic(quorum, dice)
            asked[name] = dice.sample(range(size + 1), dice.randrange(1, size + 2))
    at_a_time = dice.choice((1, 3, 10_000))
    twin = topics_twin.Election(kind, asked, at_a_time)
    election = LeaderElection(ElectionType[kind.upper()], asked, at_a_time=at_a_time)
    _ask(
        quorum,
        dice,
        Operation("elect leaders", lambda tip: election.decide(tip.cluster, tip.settings)),
        lambda: twin.decide(quorum.state),
        list,
    )


def reassign(quorum: Quorum, dice: Dice) -> None:
    targets: dict[Key, Sequence[int] | None] = {}
    for _ in range(dice.choice((1, 1, 2, 3))):
        name, size = _topic(quorum, dice)
        key = name, dice.randrange(max(size, 1) + _now_and_then(dice))
        target = _assignment(quorum, dice, dice.choice((1, 2, 3, 3, 4)))
        targets[key] = None if dice.random() < 0.25 else target
    may_change_factor = dice.random() < 0.8
    _ask(
        quorum,
        dice,
        requests.reassign(targets, allow_replication_factor_change=may_change_factor),
        lambda: topics_twin.reassign(quorum.state, targets, may_change_factor=may_change_factor),
    )


# -- everything else


def configure(quorum: Quorum, dice: Dice) -> None:
    resources: list[tuple[rest_twin.Resource, list[rest_twin.Change]]] = []
    for _ in range(dice.choice((1, 1, 2))):
        if dice.random() < 0.6:
            resource, number = (TOPIC, _topic(quorum, dice)[0]), 3
        else:
            owner = dice.choice(("", "", str(_broker(quorum, dice))))
            resource, number = (BROKER, owner), 2
        if _now_and_then(dice):
            resource = (7, "x")
        changes: list[rest_twin.Change] = []
        for name, values in CONFIGS[:number]:
            if dice.random() < 0.5:
                some = values if _now_and_then(dice) else values[:3]
                is_set = dice.random() < 0.7
                changes.append(
                    (name, dice.choice(some), rest_twin.SET)
                    if is_set
                    else (name, None, rest_twin.DELETE)
                )
        if resource[0] == TOPIC and dice.random() < 0.3:
            way = dice.choice((rest_twin.SET, rest_twin.APPEND, rest_twin.SUBTRACT))
            changes.append((rest_twin.CLEANUP, dice.choice(("compact", "delete,compact")), way))
        resources.append((resource, changes))
    validate_only = _now_and_then(dice)
    _ask(
        quorum,
        dice,
        requests.configure(
            [(one, [ConfigChange(*change) for change in some]) for one, some in resources],
            validate_only=validate_only,
        ),
        lambda: rest_twin.configure(quorum.state, resources, validate_only=validate_only),
    )


def finalize(quorum: Quorum, dice: Dice) -> None:
    level = quorum.controller.cluster.state.metadata_version
    updates = []
    if dice.random() < 0.4:
        wanted = dice.choice((level + 1, 13, 17, 23, 30, level - 1))
        updates.append((METADATA_VERSION, wanted, dice.choice((1, 1, 1, 2, 3))))
    if not updates or dice.random() < 0.3:
        updates.append((ELR, dice.choice((0, 1, 1, 2, -1)), dice.choice((1, 1, 2, 3))))
    if _now_and_then(dice):
        updates.append(dice.choice((updates[0], ("unknown", 1, 1))))

    def features() -> dict[int, dict[str, tuple[int, int]]]:
        """What each broker said as it last came."""
        found = {}
        for _, record in quorum.state.log:
            if isinstance(record, records.RegisterBroker):
                found[record.broker_id] = {
                    each.name: (each.min_supported_version, each.max_supported_version)
                    for each in record.features
                }
        return found

    _ask(
        quorum,
        dice,
        requests.finalize([FeatureUpdate(*each) for each in updates], LocalFeatures(0)),
        lambda: rest_twin.finalize(quorum.state, updates, features()),
        lambda answer: dict(answer.levels),
    )


def limit_clients(quorum: Quorum, dice: Dice) -> None:
    alterations: list[tuple[Mapping[str, str | None], Sequence[Any]]] = []
    for _ in range(dice.choice((1, 2))):
        parts: dict[str, str | None] = {}
        for kind in ("user", "client-id"):
            if dice.random() < 0.6:
                parts[kind] = "" if _now_and_then(dice) else dice.choice((None, "x", "y"))
        quotas = [
            (key, dice.choice((None, 1.0, 5.0, 0.0 if _now_and_then(dice) else 2.0)))
            for key in rest_twin.QUOTAS
            if dice.random() < 0.5
        ]
        alterations.append((parts, quotas))
    _ask(
        quorum,
        dice,
        requests.limit_clients([QuotaAlteration(*each) for each in alterations]),
        lambda: rest_twin.limit_clients(quorum.state, alterations),
    )


def alter_credentials(quorum: Quorum, dice: Dice) -> None:
    deletions, upsertions = [], []
    for user in dice.sample(("u", "v", "w"), dice.choice((1, 2))):
        mechanism = 3 if _now_and_then(dice) else dice.choice((1, 2))
        if dice.random() < 0.4:
            deletions.append((user, mechanism))
        else:
            iterations = dice.choice((4096, 8192, 4095 if _now_and_then(dice) else 16384))
            salted = bytes((dice.randrange(256), 1))
            upsertions.append((user, mechanism, iterations, b"salt", salted))
    _ask(
        quorum,
        dice,
        Operation(
            "alter credentials",
            lambda tip: alter_scram_credentials(
                tip.cluster,
                deletions=[ScramDeletion(*each) for each in deletions],
                upsertions=[ScramUpsertion(*each) for each in upsertions],
            ),
        ),
        lambda: rest_twin.alter_credentials(quorum.state, deletions, upsertions),
    )


ACL_NAMES = ("a", "d", "x")
PRINCIPALS = ("User:x", "User:y")


def create_acls(quorum: Quorum, dice: Dice) -> None:
    acls = [
        (
            "" if _now_and_then(dice) else dice.choice(ACL_NAMES),
            "nobody" if _now_and_then(dice) else dice.choice(PRINCIPALS),
            dice.choice((3, 4, 1 if _now_and_then(dice) else 5)),
        )
        for _ in range(dice.choice((1, 2, 3)))
    ]
    asked = [
        AccessControl(TOPIC, name, 3, principal, "*", operation, 3)
        for name, principal, operation in acls
    ]
    _ask(
        quorum,
        dice,
        Operation(
            "create acls",
            lambda tip: acl_duty.create_acls(tip.cluster, asked, random_uuid=tip.random_uuid),
        ),
        lambda: rest_twin.create_acls(quorum.state, acls),
    )


def delete_acls(quorum: Quorum, dice: Dice) -> None:
    filters = [
        (dice.choice((None, *ACL_NAMES)), dice.choice((None, *PRINCIPALS)))
        for _ in range(dice.choice((1, 1, 2)))
    ]
    asked = [
        acl_duty.AclFilter(resource_name=name, principal=principal) for name, principal in filters
    ]
    _ask(
        quorum,
        dice,
        Operation("delete acls", lambda tip: acl_duty.delete_acls(tip.cluster, asked)),
        lambda: rest_twin.delete_acls(quorum.state, filters),
        lambda answer: [
            [(acl.resource_name, acl.principal, acl.operation) for acl in found] for found in answer
        ],
    )


def register_controller(quorum: Quorum, dice: Dice) -> None:
    asked = ControllerRegistrationRequest(
        dice.choice((0, 1, 2)),
        quorum.new_id(),
        [Endpoint("CONTROLLER", "localhost", 9093, 0)],
        {name: VersionRange(*levels) for name, levels in SUPPORTED.items()},
    )
    said = records.RegisterController(
        controller_id=asked.controller_id,
        incarnation_id=asked.incarnation_id,
        end_points=listener_structs(asked.endpoints),
        features=feature_structs(asked.features),
    )
    _ask(
        quorum,
        dice,
        requests.register_other_controller(asked),
        lambda: rest_twin.register_controller(quorum.state, said),
    )


KINDS: tuple[Kind, ...] = (
    *(register, register, unregister, beat, beat, beat, everyone_beats, everyone_beats),
    *(allocate_ids, assign_directories, create, create, create, grow, grow, delete),
    *(change_isrs, change_isrs, change_isrs, elect, elect, reassign, reassign, configure),
    *(configure, finalize, limit_clients, alter_credentials),
    *(create_acls, create_acls, delete_acls, register_controller),
)


def brokers_come(quorum: Quorum, dice: Dice, brokers: Sequence[int] = BROKERS) -> None:
    """A cluster to begin with: these are registered and unfenced."""
    for broker in brokers:
        register(quorum, dice, broker)
    quorum.settle_both()
    everyone_beats(quorum, dice)
    quorum.settle_both()
