"""Generate election cases, and get the answers of Kafka and of the kernel.

A case is one partition in a cluster, and one event. The answer is the value of the PartitionChange
record, in hex, or "none", or "refused". The corpus holds Kafka 4.3.1's answers.
"""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.bytes.batch_records import iterate
from kraft._core.decide.election import ElectionContext
from kraft._core.table.table import PartitionTable
from kraft.errors import InvalidReplicaAssignmentError, NoReassignmentInProgressError
from kraft.records import Uuid, encode_value
from kraft.records.batches import encode_records
from tests.reference import election_twin as twin
from tests.reference.election_twin import Broker, Partition, Rules

CORPUS = Path(__file__).resolve().parent.parent / "data" / "election-oracle.json.gz"
TOPIC_ID = Uuid(b"a" * 16)

# Some of these ids share a bucket of a Java hash set.
BROKER_IDS = (0, 1, 2, 3, 4, 16, 17, 65538)
UNREGISTERED = 99


@dataclass(frozen=True)
class Case:
    event: str
    argument: Any
    rules: Rules
    partition: Partition
    min_isr: int
    allows_unclean: bool


def directory(broker: int, number: int) -> Uuid:
    return Uuid(bytes((200, broker % 251, number, 1)) * 4)


def generate(seed: int, count: int) -> list[Case]:
    dice = random.Random(seed)
    return [_case(dice) for _ in range(count)]


def _case(dice: random.Random) -> Case:
    is_elr_enabled = dice.random() < 0.6
    level = dice.choice((23, 30)) if is_elr_enabled else dice.choice((7, 11, 12, 17, 30))
    has_directories = level >= 17
    brokers = {}
    for id in dice.sample(BROKER_IDS, dice.randrange(2, len(BROKER_IDS) + 1)):
        count = dice.choice((0, 1, 1, 2)) if has_directories else 0
        brokers[id] = Broker(
            id,
            fenced=dice.random() < 0.25,
            in_controlled_shutdown=dice.random() < 0.1,
            log_dirs=tuple(directory(id, number) for number in range(count)),
        )
    replicas = tuple(dice.sample((*BROKER_IDS, UNREGISTERED), dice.randrange(1, 7)))

    def some() -> tuple[int, ...]:
        return tuple(dice.sample(replicas, dice.randrange(len(replicas) + 1)))

    isr = replicas if dice.random() < 0.4 else some()
    removing, adding = (some()[:2], some()) if dice.random() < 0.3 else ((), ())
    has_elr = level >= 23 and dice.random() < 0.6
    partition = Partition(
        replicas=replicas,
        isr=isr,
        leader=dice.choice((-1, replicas[0], *isr)),
        directories=tuple(
            dice.choice((twin.UNASSIGNED, twin.LOST, *(directory(id, n) for n in (0, 0, 0, 1))))
            if has_directories
            else twin.MIGRATING
            for id in replicas
        ),
        removing=removing,
        adding=tuple(id for id in adding if id not in removing),
        elr=tuple(id for id in some() if id not in isr) if has_elr else (),
        last_known_elr=tuple(dice.sample(replicas, dice.choice((0, 1, 1, min(2, len(replicas))))))
        if has_elr
        else (),
        recovering=dice.random() < 0.3,
        topic_id=TOPIC_ID,
    )
    event = dice.choice(
        (
            *("leaves", "leaves", "shutdown", "returns", "preferred", "unclean", "alter"),
            *("reassign", "cancel"),
        )
    )
    argument: Any = None
    if event in ("leaves", "shutdown"):
        named = isr if event == "leaves" else (*isr, *partition.elr)
        argument = dice.choice(named or replicas)
    elif event == "returns":
        argument = dice.choice(tuple(brokers))
    elif event == "alter":
        argument = [list(some()), dice.random() < 0.2]
    elif event == "reassign":
        argument = dice.sample(BROKER_IDS, dice.randrange(1, 6))
    return Case(
        event,
        argument,
        Rules(brokers, level, is_elr_enabled),
        partition,
        min(dice.randrange(1, 5), len(replicas)),
        dice.random() < 0.4,
    )


def is_looked_at(case: Case) -> bool:
    """Return whether the event makes a controller visit the partition; the oracle always does."""
    partition = case.partition
    if case.event == "leaves":
        return case.argument in partition.isr
    if case.event == "shutdown":
        return case.argument in (*partition.isr, *partition.elr)
    if case.event in ("returns", "unclean"):
        return partition.leader == -1
    if case.event == "preferred":
        return partition.leader != partition.replicas[0]
    return True


def question(case: Case) -> str:
    def ints(values: Any) -> str:
        return ",".join(map(str, values)) or "."

    argument = "-" if case.argument is None else case.argument
    if case.event == "alter":
        argument = f"{ints(case.argument[0])}:{int(case.argument[1])}"
    elif case.event == "reassign":
        argument = ints(case.argument)
    brokers = ",".join(
        f"{broker.id}:{int(broker.is_active)}:{'/'.join(d.hex() for d in broker.log_dirs)}"
        for broker in case.rules.brokers.values()
    )
    partition = case.partition
    words = [
        case.event,
        argument,
        case.rules.metadata_version,
        int(case.rules.is_elr_enabled),
        case.min_isr,
        int(case.allows_unclean),
        brokers or ".",
        ints(partition.replicas),
        ",".join(d.hex() for d in partition.directories),
        ints(partition.isr),
        partition.leader,
        ints(partition.removing),
        ints(partition.adding),
        ints(partition.elr),
        ints(partition.last_known_elr),
        int(partition.recovering),
    ]
    return " ".join(map(str, words))


def answer_of_twin(case: Case) -> str:
    rules, partition = case.rules, case.partition
    switches = {"allows_unclean": case.allows_unclean, "min_isr": case.min_isr}
    change: records.PartitionChange | None
    if case.event in ("leaves", "shutdown"):
        change = twin.broker_leaves(
            rules,
            partition,
            frozenset((case.argument,)),
            and_elr=False,
            uncleanly=case.event == "shutdown",
            **switches,
        )
    elif case.event == "returns":
        change = twin.broker_returns(rules, partition, case.argument, **switches)
    elif case.event in ("preferred", "unclean"):
        change = twin.election_wanted(rules, partition, case.event, case.min_isr)
    elif case.event == "alter":
        isr, recovering = case.argument
        change = twin.leader_alters(rules, partition, isr, recovering=recovering, **switches)
    elif case.event == "reassign":
        change = twin.reassigned(rules, partition, case.argument, case.min_isr)
    else:
        try:
            change = twin.reassignment_cancelled(rules, partition, **switches)
        except ValueError:
            return "refused"
    if change is None:
        return "none"
    return encode_value(change, metadata_version=rules.metadata_version).hex()


def table_of(partition: Partition) -> PartitionTable:
    table = PartitionTable()
    table.apply(
        encode_records(
            [
                records.Topic(name="topic", topic_id=partition.topic_id),
                records.Partition(
                    partition_id=0,
                    topic_id=partition.topic_id,
                    replicas=list(partition.replicas),
                    isr=list(partition.isr),
                    removing_replicas=list(partition.removing),
                    adding_replicas=list(partition.adding),
                    leader=partition.leader,
                    leader_recovery_state=int(partition.recovering),
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=list(partition.directories),
                    eligible_leader_replicas=list(partition.elr) or None,
                    last_known_elr=list(partition.last_known_elr) or None,
                    version=2,
                ),
            ]
        )
    )
    return table


def answer_of_kernel(case: Case) -> str:
    context = ElectionContext(
        table_of(case.partition),
        case.rules.brokers.values(),
        metadata_version=case.rules.metadata_version,
        is_elr_enabled=case.rules.is_elr_enabled,
        min_isr=case.min_isr,
        unclean=case.allows_unclean,
    )
    builder = BatchBuilder()
    if case.event in ("leaves", "shutdown"):
        context.remove_from_isr(builder, [case.argument], unclean_shutdown=case.event == "shutdown")
    elif case.event == "returns":
        context.elect_leaderless(builder, case.argument)
    elif case.event == "preferred":
        context.elect_preferred(builder)
    elif case.event == "unclean":
        context.elect_unclean(builder, [0])
    elif case.event == "alter":
        isr, recovering = case.argument
        context.alter_partition(builder, 0, isr, int(recovering))
    elif case.event == "reassign":
        context.reassign(builder, 0, case.argument)
    else:
        try:
            context.cancel_reassignment(builder, 0)
        except (NoReassignmentInProgressError, InvalidReplicaAssignmentError):
            return "refused"
    values = [record.value for batch in iterate(builder.finish()) for record in batch]
    if not values:
        return "none"
    (value,) = values
    assert value is not None
    return value.hex()


def read_corpus() -> list[tuple[Case, str]]:
    """Return the seed and the count that generate the cases, and Kafka's answers."""
    kept = json.loads(gzip.decompress(CORPUS.read_bytes()))
    cases = [case for case in generate(kept["seed"], kept["count"]) if is_looked_at(case)]
    assert [question(case) for case in cases] == [line["question"] for line in kept["answers"]]
    return [(case, line["answer"]) for case, line in zip(cases, kept["answers"], strict=True)]


def write_corpus(kafka_version: str, seed: int, count: int, answers: list[str]) -> None:
    cases = [case for case in generate(seed, count) if is_looked_at(case)]
    kept = {
        "kafka": kafka_version,
        "seed": seed,
        "count": count,
        "answers": [
            {"question": question(case), "answer": answer}
            for case, answer in zip(cases, answers, strict=True)
        ],
    }
    text = json.dumps(kept, indent=0).encode()
    CORPUS.write_bytes(gzip.compress(text, mtime=0))
