"""The requests that grow a seed cluster: broker registrations and topic creations.

Chooses ids, racks, names and sizes. The same seed cluster, settings and random seed give the same
choices. The placer chooses replicas, the controller writes the records.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random

from kraft.controller.brokers.broker_lifecycle import RegistrationRequest
from kraft.controller.decision import MAX_RECORDS_PER_BATCH
from kraft.controller.topics.topic_creation import NewTopic
from kraft.image import NodeEndpoint, VersionRange
from kraft.metadata.facade import Metadata
from kraft.records import SUPPORTED_FEATURES, Uuid

#: Partitions of one new topic, except the last one.
SMALLEST_TOPIC, LARGEST_TOPIC = 100, 1000

# Kafka allows 249 characters; the rest is for the number.
_LONGEST_BASE_NAME = 240

# SecurityProtocol.PLAINTEXT
_PLAINTEXT = 0


def rack_names(metadata: Metadata, count: int) -> list[str]:
    """Return ``count`` rack names: those of the seed cluster, then generated ones."""
    known = sorted({broker.rack for broker in metadata.brokers.values() if broker.rack})
    more = (f"rack-{number:02d}" for number in range(1, count + len(known) + 1))
    return (known + [name for name in more if name not in known])[:count]


def registrations(
    metadata: Metadata, count: int, racks: Sequence[str], random: Random
) -> Iterator[RegistrationRequest]:
    """Yield the registration requests of ``count`` brokers.

    The seed's brokers come first, as after a restart, with their directories; the others take the
    lowest free ids and have one directory each.
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
            endpoints=[NodeEndpoint("PLAINTEXT", f"broker-{broker_id}.lab", 9092, _PLAINTEXT)],
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
    """Yield requests for topics with ``partitions`` in total, named ``<topic of the
    seed>-<number>``.

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
