"""Random partition tables with every kind of row, and their contents as plain objects.

`random_table` builds one from a seed by applying records: regular and irregular rows, removed
topics, partitions out of order or after gaps, names in every script. `meaning` returns a table as
plain objects, so that tables with different row numbers compare equal.
"""

from __future__ import annotations

import random
from typing import Any

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.table.table import PartitionTable
from kraft.records import Record, Uuid
from kraft.records.values import encode_value

NAMES = ("orders", "zahlungen-ä", "доставка", "注文", "🚚", "a.b_c-d")


def random_records(seed: int, topics: int = 12, first: int = 0) -> list[Record]:
    """Return topics, numbered from `first`, with partitions; an odd seed leaves rows scattered."""
    chance = random.Random(seed)
    ids = [Uuid(chance.randbytes(16)) for _ in range(topics)]
    log: list[Record] = []
    pending: list[Record] = []
    for number, topic_id in enumerate(ids):
        name = f"{chance.choice(NAMES)}-{first + number}"
        log.append(records.Topic(name=name, topic_id=topic_id))
        partitions = list(range(chance.randrange(0, 9)))
        if seed % 2 and chance.random() < 0.5:
            partitions = chance.sample(range(40), len(partitions))
        made = [_partition(chance, partition, topic_id) for partition in partitions]
        (pending if seed % 2 and chance.random() < 0.5 else log).extend(made)
    chance.shuffle(pending)
    log += pending
    if seed % 3 == 0:
        log += [records.RemoveTopic(topic_id=gone) for gone in chance.sample(ids, topics // 4)]
    return log


def _partition(chance: random.Random, partition: int, topic_id: Uuid) -> Record:
    replicas = chance.sample(range(20), chance.choice((1, 2, 3, 3, 3, 3, 3, 3, 4, 6)))
    moving = chance.random() < 0.1
    with_elr = chance.random() < 0.3
    isr = chance.sample(replicas, chance.randint(1, len(replicas)))
    return records.Partition(
        partition_id=partition,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        removing_replicas=replicas[:1] if moving else [],
        adding_replicas=[99] if moving else [],
        leader=chance.choice([*isr, -1]),
        leader_recovery_state=chance.choice((0, 0, 0, 1)),
        leader_epoch=chance.randrange(100),
        partition_epoch=chance.randrange(100),
        directories=[Uuid(chance.randrange(0, 40).to_bytes(16, "big")) for _ in replicas],
        eligible_leader_replicas=[b for b in replicas if b not in isr] if with_elr else None,
        last_known_elr=replicas[-1:] if with_elr else None,
        version=2,
    )


def batches_of(values: list[bytes]) -> memoryview:
    """Return the values as data batches of at most 50 records, from offset 0."""
    builder = BatchBuilder(0, 1, max_batch_records=50)
    for value in values:
        builder.append(value)
    return builder.finish()


def random_table(seed: int, topics: int = 12) -> PartitionTable:
    table = PartitionTable()
    table.apply(batches_of([encode_value(record) for record in random_records(seed, topics)]))
    return table


def meaning(table: PartitionTable) -> dict[str, tuple[bytes, dict[int, Any]]]:
    """Return topic name -> (id, partition -> state), the directories as ids."""
    said = {}
    for topic in table.topic_numbers():
        partitions = {}
        for row in table.topic_rows(topic):
            state = table.state_of(row)
            state["directories"] = [table.directory_id(each) for each in state["directories"]]
            partition = int(table.column("partition")[row])
            assert table.row_of(topic, partition) == row
            partitions[partition] = state
        name = table.topic_name(topic)
        assert table.topic_number(name) == topic
        assert table.topic_number_by_id(table.topic_id_of(topic)) == topic
        said[name] = (table.topic_id_of(topic), partitions)
    return said
