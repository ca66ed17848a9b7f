"""Generated clusters and placement requests, and the protocol of Kafka's oracle for them.

A case is a seed, the brokers as (id, rack, fenced), and the requests (partition count, replication
factor) that share one generator of that seed. The answer has the replicas of each request, or None
if it was rejected, and the next int of the generator.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import NamedTuple

from kraft._core.decide.placement import (
    JavaRandom,
    PlacementSpec,
    StripedPlacer,
    UsableBroker,
)
from kraft.errors import (
    InvalidReplicationFactorError,
)

Replicas = list[list[int]] | None

CORPUS = Path(__file__).resolve().parent.parent / "data" / "placement-oracle.json.gz"

# Names that share a hash code ("Aa" and "BB"), that share a bucket, that only differ beyond the
# Basic Multilingual Plane (where UTF-16 sorts differently from code points), and plain ones.
COLLIDING = ["AaAa", "AaBB", "BBAa", "BBBB", "AaAaAa", "BBBBBB", "AaBBAa", "BBAaBB"]
ASTRAL = ["\U0001f600", "\uff21", "rack-\U00010000", "rack-\ue000", "é", "東京"]


# Names with different hash codes that share one bucket of up to 1,024: enough for a bucket that
# becomes a tree.
MEETING = [chr(0x100) + chr(0x400 * block + 0x0FF) for block in range(1, 33)]


class Case(NamedTuple):
    seed: int
    brokers: list[tuple[int, str | None, bool]]
    requests: list[tuple[int, int]]


class Answer(NamedTuple):
    placed: list[Replicas]
    next_int: int


def rack_names(dice: random.Random, count: int) -> list[str | None]:
    """Return up to ``count`` distinct racks of one of many kinds, None (no rack) among them."""
    shape = dice.randrange(7)
    if shape == 4:
        # Many of these share a bucket: only their last digits differ.
        return [f"hall-{dice.randrange(1, 4)}-rack-{number}" for number in range(count)]
    if shape == 5:
        return [*(chr(0x4E00 + dice.randrange(2_000)) * 2 + str(at) for at in range(count))]
    if shape == 6:
        return list(dict.fromkeys(dice.sample(MEETING, min(count, len(MEETING)))))
    if shape == 0:
        return [f"rack-{number}" for number in range(count)]
    if shape == 1:
        return [f"{dice.getrandbits(64):x}" for _ in range(count)]
    if shape == 2:
        names = [*COLLIDING, *ASTRAL, "", None]
        return [names[at % len(names)] for at in dice.sample(range(len(names)), len(names))][:count]
    return [None, *(f"us-east-1{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")][:count]


def generate(seed: int, count: int, most_partitions: int) -> list[Case]:
    """Generate clusters of 0 to 120 brokers in 1 to 60 racks, from none to all fenced."""
    dice = random.Random(seed)
    cases = []
    for _ in range(count):
        size = dice.choice([0, 1, 2, 3, 3, 4, 5, 6, 6, 9, 9, 12, 12, 16, 16, 31, 31, 64, 64, 120])
        racks = rack_names(dice, dice.choice([1, 1, 2, 3, 3, 4, 7, 13, 25, 60]))
        fenced_share = dice.choice([0, 0, 0, 0.1, 0.1, 0.3, 0.3, 0.6, 0.9, 1])
        ids = dice.sample(range(dice.choice([size, 3 * size, 2**31 - 1])), size)
        brokers = [(id, dice.choice(racks), dice.random() < fenced_share) for id in ids]
        # Mostly a valid replication factor, at times one too many or too few.
        wished = [1, *(min(factor, size) for factor in (2, 3, 3, 3, 4, 5, 7)), size, size + 1, 0]
        requests = [
            (dice.randrange(most_partitions), dice.choice(wished))
            for _ in range(dice.randrange(1, 5))
        ]
        cases.append(Case(dice.randrange(-(2**63), 2**63), brokers, requests))
    return cases


def question(case: Case) -> str:
    """Return the input line for PlacementOracle.java."""
    brokers = [
        f"{id}:{'-' if rack is None else '=' + rack.encode('utf-16-be').hex()}:{int(fenced)}"
        for id, rack, fenced in case.brokers
    ]
    requests = [f"{count}x{factor}" for count, factor in case.requests]
    return f"place {case.seed} {','.join(brokers) or 'none'} {','.join(requests)}"


def understand(case: Case, line: str) -> Answer:
    """Parse an output line of PlacementOracle.java."""
    *placed, next_int = line.split(";")
    replicas: list[Replicas] = []
    for (_, factor), text in zip(case.requests, placed, strict=True):
        ids = [int(id) for id in text.split(",") if id] if text != "refused" else []
        rows = [ids[at : at + factor] for at in range(0, len(ids), max(factor, 1))]
        replicas.append(None if text == "refused" else rows)
    return Answer(replicas, int(next_int))


def read_corpus() -> list[tuple[Case, Answer]]:
    """Return the recorded answers of Kafka's StripedReplicaPlacer."""
    kept = json.loads(gzip.decompress(CORPUS.read_bytes()))
    pairs = []
    for seed, brokers, requests, placed, next_int in kept["cases"]:
        case = Case(seed, [tuple(b) for b in brokers], [tuple(r) for r in requests])
        pairs.append((case, Answer(placed, next_int)))
    return pairs


def write_corpus(release: str, pairs: list[tuple[Case, Answer]]) -> None:
    """Write the answers of the Kafka `release`; equal pairs give equal bytes."""
    kept = {"kafka": release, "cases": [[*case, *answer] for case, answer in pairs]}
    text = json.dumps(kept, separators=(",", ":")).encode()
    CORPUS.parent.mkdir(exist_ok=True)
    CORPUS.write_bytes(gzip.compress(text, 9, mtime=0))


def answer_of_kernel(case: Case) -> Answer:
    """Return the kernel's placement of a case in the form of the corpus."""
    generator = JavaRandom(case.seed)
    placer = StripedPlacer(generator)
    cluster = [UsableBroker(*broker) for broker in case.brokers]
    placed: list[Replicas] = []
    for partition_count, replication_factor in case.requests:
        spec = PlacementSpec(0, partition_count, replication_factor)
        try:
            placed.append(placer.place(spec, cluster).tolist())
        except InvalidReplicationFactorError:
            placed.append(None)
    return Answer(placed, generator.next_int())
