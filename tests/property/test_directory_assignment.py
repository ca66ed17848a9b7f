"""Directories of replicas against the slow rules of an election.

Any change of a partition may cause an election.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.directory_assignment import assign_directory, leave_isr
from kraft._core.decide.election import ElectionContext
from kraft.records import Uuid
from tests.property.election_clusters import (
    ANY_BROKER,
    BROKER_IDS,
    DIRECTORIES,
    EXAMPLES,
    TOPIC_IDS,
    Cluster,
    check,
    clusters,
)
from tests.reference import election_twin as twin
from tests.reference.election_twin import Partition, Targets

NEW_DIRECTORY = Uuid(b"a new directory!")
ANY_DIRECTORY = st.sampled_from(
    (
        twin.MIGRATING,
        twin.UNASSIGNED,
        twin.LOST,
        NEW_DIRECTORY,
        *(directories[index] for directories in DIRECTORIES.values() for index in (0, 1)),
    )
)


def assigned(
    cluster: Cluster, partition: Partition, broker: int, directory: Uuid
) -> records.PartitionChange | None:
    """Return the record for a partition with one replica assigned to a directory."""
    if broker not in partition.replicas:
        return None
    rules = cluster.rules
    min_isr = cluster.effective_min_isr(partition)
    record = rules.change(partition, Targets(), rules.may_lead(partition), min_isr)
    is_change = record is not None
    if record is None:
        record = records.PartitionChange(
            partition_id=partition.partition_id, topic_id=partition.topic_id
        )
    replicas = partition.replicas if record.replicas is None else record.replicas
    before = partition.directories if record.directories is None else record.directories
    homes = [
        directory if replica == broker else home
        for replica, home in zip(replicas, before, strict=True)
    ]
    record.directories = None if homes == list(partition.directories) else homes
    is_same = record == records.PartitionChange(
        partition_id=partition.partition_id, topic_id=partition.topic_id
    )
    assert is_change or is_same or record.directories is not None
    return None if is_same else record


@EXAMPLES
@given(clusters(), ANY_BROKER, ANY_DIRECTORY)
def test_assigning_replicas_to_a_directory_writes_the_twins_records(
    cluster: Cluster, broker: int, directory: Uuid
) -> None:
    if cluster.rules.metadata_version < 17:
        cluster.rules = replace(cluster.rules, metadata_version=17)

    def decide(context: ElectionContext, builder: BatchBuilder) -> None:
        for topic in range(len(TOPIC_IDS)):
            mine = [p for p in cluster.partitions if p.topic_id == TOPIC_IDS[topic]]
            ids = [partition.partition_id for partition in reversed(mine)]
            codes, rows = assign_directory(context, builder, broker, directory, topic, ids)
            for partition, code, row in zip(reversed(mine), codes, rows, strict=True):
                assert (code, row >= 0) == (
                    (0, True) if broker in partition.replicas else (6, False)
                )

    check(cluster, decide, lambda partition: assigned(cluster, partition, broker, directory))


@EXAMPLES
@given(clusters(), st.sampled_from(BROKER_IDS))
def test_removing_a_broker_from_the_isrs_of_rows_writes_the_twins_records(
    cluster: Cluster, broker: int
) -> None:
    rules = cluster.rules

    def expect(partition: Partition) -> records.PartitionChange | None:
        targets = Targets(
            isr=[member for member in partition.isr if member != broker],
            election="unclean" if cluster.allows_unclean(partition) else "online",
        )
        may_lead = rules.may_lead(partition, removed=(broker,))
        return rules.change(partition, targets, may_lead, cluster.effective_min_isr(partition))

    check(
        cluster,
        lambda context, builder: leave_isr(
            context, builder, broker, range(len(cluster.partitions))
        ),
        expect,
    )
