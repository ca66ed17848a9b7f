"""Random initial clusters of sequences: settings of the controller, and records as JSON.

The clusters cover every metadata.version of the pinned Kafka, with and without eligible leader
replicas (if the level supports them). Their brokers are in racks and have directories; some are
fenced, some shut down. Their partitions are in every state that a controller can produce.
"""

from __future__ import annotations

import random
from typing import Any

from kraft import records
from kraft.controller.brokers.directories import LOST, MIGRATING, UNASSIGNED
from kraft.image.configs import BROKER, TOPIC
from kraft.records import Record, Uuid, encode_value
from kraft.records.versions import LATEST_PRODUCTION, MINIMUM_VERSION, MetadataVersion
from tests.differential.world import drawn_id
from tests.reference.placement_cases import rack_names

Setup = dict[str, Any]

FEATURES = (
    ("metadata.version", MINIMUM_VERSION.value, LATEST_PRODUCTION.value),
    ("kraft.version", 0, 1),
    ("transaction.version", 0, 2),
    ("group.version", 0, 1),
    ("eligible.leader.replicas.version", 0, 1),
    ("share.version", 0, 1),
    ("streams.version", 0, 1),
)
LEVELS = range(MINIMUM_VERSION, LATEST_PRODUCTION + 1)  # those of 4.3.1, for production


def drawn_setup(dice: random.Random) -> Setup:
    # The newest level and the levels that gate a feature are drawn more often.
    level = MetadataVersion(dice.choice((*LEVELS, 30, 30, 30, 29, 29, 23, 17, 16, 12, 11)))
    is_elr = level.is_elr_supported and dice.random() < 0.6
    written: list[Record] = [
        records.FeatureLevel(name="metadata.version", feature_level=level.value)
    ]
    if is_elr:
        written.append(
            records.FeatureLevel(name="eligible.leader.replicas.version", feature_level=1)
        )
    if dice.random() < 0.4:
        written += _defaults(dice)
    brokers = _brokers(dice, level)
    written += brokers
    for number in range(dice.randrange(4)):
        written += _topic(dice, level, is_elr, f"topic-{number}", brokers)
    static = {"min.insync.replicas": dice.choice(("1", "1", "2"))}
    if dice.random() < 0.2:
        static["unclean.leader.election.enable"] = "true"
    return {
        "op": "reset",
        "kraft_version": dice.randrange(2),
        "seed": dice.randrange(1 << 40),
        "num_partitions": dice.randrange(1, 5),
        "default_replication_factor": dice.randrange(1, 4),
        "session_timeout_ms": 9_000,
        "max_elections": 1_000,
        "static_config": static,
        "token_secret": dice.choice(("a secret", "a secret", "another", None)),
        "token_max_life_ms": 7 * 86_400_000,
        "token_expiry_ms": dice.choice((15_000, 86_400_000)),
        "records": [encode_value(record, metadata_version=level).hex() for record in written],
    }


def _defaults(dice: random.Random) -> list[Record]:
    made: list[Record] = []
    if dice.random() < 0.6:
        made.append(
            records.Config(BROKER, "", "min.insync.replicas", str(dice.randrange(1, 4)), version=0)
        )
    if dice.random() < 0.5:
        value = dice.choice(("true", "false"))
        made.append(records.Config(BROKER, "", "unclean.leader.election.enable", value, version=0))
    return made


def _brokers(dice: random.Random, level: MetadataVersion) -> list[records.RegisterBroker]:
    made = []
    plain: tuple[tuple[str | None, ...], ...] = ((None,), ("a", "b", "c"), ("a", "b"), ("a", None))
    drawn = rack_names(dice, dice.choice((2, 3, 7, 13, 40)))
    racks = dice.choice((*plain, drawn, drawn))
    # Some ids share one bucket of a Java hash set.
    ids: tuple[int, ...] = dice.choice(
        ((0, 1, 2, 3, 4, 5, 6), (0, 16, 32, 1, 17, 65536, 65538), (101, 301, 201, 501, 4, 117, 20))
    )
    count = dice.randrange(2, 8)
    if dice.random() < 0.1:
        # Enough for more replicas than a packed row of the table holds.
        ids, count = tuple(range(30)), dice.randrange(10, 25)
    for id in ids[:count]:
        directories = [drawn_id(dice) for _ in range(dice.choice((1, 1, 2, 3)))]
        broker = records.RegisterBroker(
            broker_id=id,
            incarnation_id=drawn_id(dice),
            broker_epoch=100 + id,
            end_points=[records.EndpointData("PLAINTEXT", f"host-{id}", 9092, 0)],
            features=[records.Feature(*feature) for feature in FEATURES],
            rack=dice.choice(racks),
            fenced=dice.random() < 0.15,
            in_controlled_shutdown=False,
        )
        if level.is_directory_assignment_supported:
            broker.log_dirs = directories
        if level.is_cordoned_log_dirs_supported and dice.random() < 0.5:
            broker.cordoned_log_dirs = dice.choice(([], [], directories[:1], directories))
        made.append(broker)
    return made


def _topic(
    dice: random.Random,
    level: MetadataVersion,
    is_elr: bool,
    name: str,
    brokers: list[records.RegisterBroker],
) -> list[Record]:
    topic_id = drawn_id(dice)
    made: list[Record] = [records.Topic(name=name, topic_id=topic_id)]
    if dice.random() < 0.3:
        value = str(dice.randrange(1, 4))
        made.append(records.Config(TOPIC, name, "min.insync.replicas", value, version=0))
    if dice.random() < 0.3:
        value = dice.choice(("true", "false"))
        made.append(records.Config(TOPIC, name, "unclean.leader.election.enable", value, version=0))
    by_id = {broker.broker_id: broker for broker in brokers}
    factor = dice.randrange(1, min(len(brokers), 5 if dice.random() < 0.9 else 20) + 1)
    for number in range(dice.randrange(1, 5)):
        made.append(_partition(dice, level, is_elr, topic_id, number, factor, by_id))
    return made


def _partition(
    dice: random.Random,
    level: MetadataVersion,
    is_elr: bool,
    topic_id: Uuid,
    number: int,
    factor: int,
    brokers: dict[int, records.RegisterBroker],
) -> records.Partition:
    replicas = dice.sample(sorted(brokers), factor)
    alive = [id for id in replicas if not brokers[id].fenced]
    isr = list(alive if dice.random() < 0.6 else dice.sample(alive, dice.randrange(len(alive) + 1)))
    leader = dice.choice(isr) if isr else -1
    rest = [id for id in replicas if id not in isr]
    elr: list[int] = []
    last_known: list[int] = []
    if is_elr and rest:
        elr = dice.sample(rest, dice.randrange(len(rest) + 1))
        if not isr and not elr:
            last_known = [dice.choice(replicas)]
    elif not isr:
        isr = [dice.choice(replicas)]
    adding: list[int] = []
    removing: list[int] = []
    if factor > 1 and isr and dice.random() < 0.1:
        adding = dice.sample(replicas, dice.randrange(factor))
        removing = dice.sample([id for id in replicas if id not in adding], 1)
    partition = records.Partition(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        removing_replicas=removing,
        adding_replicas=adding,
        leader=leader,
        leader_recovery_state=int(leader >= 0 and dice.random() < 0.05),
        leader_epoch=dice.randrange(5),
        partition_epoch=dice.randrange(5, 9),
    )
    if level.is_directory_assignment_supported:
        partition.directories = [
            dice.choice((*brokers[id].log_dirs,) * 5 + (MIGRATING, UNASSIGNED, LOST))
            for id in replicas
        ]
    if is_elr:
        partition.eligible_leader_replicas = elr or None
        partition.last_known_elr = last_known or None
    return partition
