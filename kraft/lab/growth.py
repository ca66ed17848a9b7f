"""What makes a seed cluster big: brokers in racks, and topics named after those that are there.

Owns the choice of ids, racks, names and sizes; the same seed cluster, settings and random seed
give the same ones. Where replicas go is the placer's choice, what is written is the controller's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random

from kraft.controller.brokers import RegistrationRequest
from kraft.controller.decision import MAX_RECORDS_PER_BATCH
from kraft.controller.topics import NewTopic
from kraft.image import Endpoint, VersionRange
from kraft.metadata.facade import Metadata
from kraft.records import SUPPORTED_FEATURES, Uuid

#: Partitions of one topic of the grown cluster, the last topic aside.
SMALLEST_TOPIC, LARGEST_TOPIC = 100, 1000

# Kafka allows 249 characters; what is cut off makes room for the number.
_LONGEST_BASE_NAME = 240

# SecurityProtocol.PLAINTEXT
_PLAINTEXT = 0


def rack_names(metadata: Metadata, count: int) -> list[str]:
    """As many racks: the seed's, then more of the kind."""
    known = sorted({broker.rack for broker in metadata.brokers.values() if broker.rack})
    more = (f"rack-{number:02d}" for number in range(1, count + len(known) + 1))
    return (known + [name for name in more if name not in known])[:count]


def registrations(
    metadata: Metadata, count: int, racks: Sequence[str], random: Random
) -> Iterator[RegistrationRequest]:
    """What each of so many brokers says when it registers.

    The seed's brokers come first, as after a restart, with their directories; the others take the
    lowest ids that are free and have one directory each.
    """
    known = sorted(metadata.brokers)
    free = (number for number in range(1, count + len(metadata.brokers) + 1))
    ids = known + [number for number in free if number not in metadata.brokers]
    features = dict(metadata.brokers[known[0]].features) if known else _every_feature()
    for place, broker_id in enumerate(ids[:count]):
        before = metadata.brokers.get(broker_id)
        yield RegistrationRequest(
            broker_id=broker_id,
            incarnation_id=Uuid(random.randbytes(16)),
            endpoints=[Endpoint("PLAINTEXT", f"broker-{broker_id}.lab", 9092, _PLAINTEXT)],
            features=features,
            rack=before.rack if before and before.rack in racks else racks[place % len(racks)],
            log_dirs=before.log_dirs if before else [Uuid(random.randbytes(16))],
            previous_broker_epoch=before.epoch if before else -1,
        )


def _every_feature() -> dict[str, VersionRange]:
    return {name: VersionRange(*levels) for name, levels in SUPPORTED_FEATURES.items()}


def creation_requests(
    metadata: Metadata, partitions: int, replication_factor: int, random: Random
) -> Iterator[list[NewTopic]]:
    """Topics with as many partitions together, named ``<a topic of the seed>-<number>``.

    Each list is one request, which writes at most ``MAX_RECORDS_PER_BATCH`` records.
    """
    bases = [name[:_LONGEST_BASE_NAME] for name in metadata.topics if not name.startswith("__")]
    names = _free_names(bases or ["topic"], set(metadata.topics))
    request: list[NewTopic] = []
    record_count = 0
    while partitions:
        count = min(partitions, random.randint(SMALLEST_TOPIC, LARGEST_TOPIC))
        partitions -= count
        if record_count + count + 1 > MAX_RECORDS_PER_BATCH:
            yield request
            request, record_count = [], 0
        topic_id = Uuid(random.randbytes(16))
        request.append(NewTopic(next(names), topic_id, count, replication_factor))
        record_count += count + 1
    yield request


def _free_names(bases: Sequence[str], taken: set[str]) -> Iterator[str]:
    for number in itertools.count():
        name = f"{bases[number % len(bases)]}-{number:05d}"
        if name not in taken:
            yield name
