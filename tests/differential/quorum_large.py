"""Requests larger than one decision, and transactions in a log.

Here a large request is a metadata transaction of several batches (KIP-868); in Kafka it is not.
Without the records that begin and end the transaction, both sides must write the same. The offsets
differ afterwards, so such a request ends its sequence.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from typing import Any

from kraft import records
from kraft.image.configs import GROUP, TOPIC
from kraft.records import Record, encode_value
from tests.differential.world import View, drawn_id

#: The first metadata.version with metadata transactions (3.6-IV1).
TRANSACTIONS_SINCE = 13
SCRAM_SINCE = 11


def _credentials(dice: random.Random, world: View) -> dict[str, Any]:
    upsertions = [
        {
            "name": f"user-{number}",
            "mechanism": dice.choice((1, 2)),
            "iterations": 4096,
            "salt": base64.b64encode(dice.randbytes(12)).decode(),
            "saltedPassword": base64.b64encode(dice.randbytes(32)).decode(),
        }
        for number in range(450)
    ]
    return {"request": {"deletions": [], "upsertions": upsertions}}


def _quotas(dice: random.Random, world: View) -> dict[str, Any]:
    alterations = [
        [{"user": f"user-{number}"}, [["consumer_byte_rate", dice.choice((1.0, 2.0, -1.0))]]]
        for number in range(250)
    ]
    return {"alterations": alterations, "validate_only": dice.random() < 0.1}


def _changes(dice: random.Random, world: View) -> dict[str, Any]:
    values = ("45000", "60000", "soon")
    changes = [
        [GROUP, f"group-{number}", [["consumer.session.timeout.ms", 0, dice.choice(values)]]]
        for number in range(250)
    ]
    return {"changes": changes, "forwarded": False, "validate_only": dice.random() < 0.1}


def _configs(dice: random.Random, world: View) -> dict[str, Any]:
    values = ("45000", "60000", "soon")
    configs = [
        [GROUP, f"group-{number}", {"consumer.session.timeout.ms": dice.choice(values)}]
        for number in range(250)
    ]
    return {"configs": configs, "forwarded": False, "validate_only": dice.random() < 0.1}


def _acls(dice: random.Random, world: View) -> dict[str, Any]:
    acls = [[2, f"name-{n}", 3, "User:alice", "*", dice.choice((3, 4)), 3] for n in range(1_100)]
    return {"acls": acls, "seed": dice.randrange(1 << 40)}


def _filters(dice: random.Random, world: View) -> dict[str, Any]:
    return {"filters": [[1, None, 1, "User:zoe", None, 1, 1]]}


def _reassignments(dice: random.Random, world: View) -> dict[str, Any]:
    name = world.some_topic(dice)
    count = len(world.rows(name))
    brokers = world.brokers()[:2]
    partitions = [
        {"partitionIndex": number, "replicas": dice.choice((brokers, brokers[:1], None))}
        for number in range(count + 1_001)
    ]
    topics = [{"name": name, "partitions": partitions}]
    return {
        "request": {"timeoutMs": 0, "allowReplicationFactorChange": True, "topics": topics},
    }


#: By request: its first metadata.version, and the arguments.
LARGE: dict[str, tuple[int, Callable[[random.Random, View], dict[str, Any]]]] = {
    "alter_scram_credentials": (SCRAM_SINCE, _credentials),
    "alter_client_quotas": (0, _quotas),
    "incremental_alter_configs": (0, _changes),
    "legacy_alter_configs": (0, _configs),
    "create_acls": (0, _acls),
    "delete_acls": (0, _filters),
    "alter_reassignments": (0, _reassignments),
}


def many_acls(dice: random.Random) -> list[str]:
    """Return the records of so many ACLs that a filter is evaluated in several chunks."""
    return [
        encode_value(
            records.AccessControlEntry(drawn_id(dice), 2, f"of-zoe-{n}", 3, "User:zoe", "*", 3, 3)
        ).hex()
        for n in range(1_050)
    ]


def transaction(dice: random.Random, world: View, *, is_open: bool) -> Iterator[list[str]]:
    """Yield the batches of a transaction that another process wrote, complete or left open."""
    level = world.level
    brokers = world.brokers()

    def encoded(*made: Record) -> list[str]:
        return [encode_value(record, metadata_version=level).hex() for record in made]

    if world.cluster.transaction_start is not None:
        yield encoded(records.AbortTransaction(reason="another's"))
    yield encoded(records.BeginTransaction(name="another's"))
    for number in range(dice.randrange(1, 4)):
        name, topic_id = f"made-{dice.randrange(1_000)}", drawn_id(dice)
        if name in world.topics():
            continue
        yield encoded(
            records.Topic(name=name, topic_id=topic_id),
            records.Config(TOPIC, name, "retention.ms", str(number), version=0),
        )
        for partition in range(dice.randrange(3) if brokers else 0):
            replicas = dice.sample(brokers, min(2, len(brokers)))
            made = records.Partition(
                partition_id=partition,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
            )
            if world.level >= 17:
                made.directories = [drawn_id(dice) for _ in replicas]
            yield encoded(made)
    if not is_open:
        is_kept = dice.random() < 0.6
        yield encoded(
            records.EndTransaction() if is_kept else records.AbortTransaction(reason="a reason")
        )
