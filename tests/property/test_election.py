"""The election kernel against its slow twin, on clusters in every state, impossible ones included.

For every event, the kernel's records equal the twin's, the decision changes no state, and the table
with the records applied equals the twin's state.
"""

from __future__ import annotations

from itertools import chain, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft.errors import InvalidReplicaAssignmentError, NoReassignmentInProgressError
from tests.property.election_clusters import (
    ANY_BROKER,
    BROKER_IDS,
    DIRECTORIES,
    EXAMPLES,
    Cluster,
    check,
    clusters,
)
from tests.reference import election_twin as twin
from tests.reference.election_twin import Broker, Partition, Rules


@EXAMPLES
@given(clusters(), ANY_BROKER, st.booleans())
def test_removing_one_broker_from_the_isrs_writes_the_twins_records(
    cluster: Cluster, broker: int, and_elr: bool
) -> None:
    check(
        cluster,
        lambda context, builder: context.remove_from_isr(builder, [broker], and_elr=and_elr),
        lambda partition: twin.broker_leaves(
            cluster.rules,
            partition,
            frozenset((broker,)),
            and_elr=and_elr,
            uncleanly=False,
            **cluster.switches(partition),
        ),
    )


@EXAMPLES
@given(clusters(), st.frozensets(ANY_BROKER, max_size=4), st.booleans())
def test_removing_several_brokers_at_once_writes_the_twins_records(
    cluster: Cluster, leaving: frozenset[int], uncleanly: bool
) -> None:
    check(
        cluster,
        lambda context, builder: context.remove_from_isr(
            builder, leaving, unclean_shutdown=uncleanly
        ),
        lambda partition: twin.broker_leaves(
            cluster.rules,
            partition,
            leaving,
            and_elr=False,
            uncleanly=uncleanly,
            **cluster.switches(partition),
        ),
    )


@EXAMPLES
@given(clusters(), st.sampled_from(BROKER_IDS), st.integers(0, 1))
def test_removing_a_directory_writes_the_twins_records(
    cluster: Cluster, broker: int, index: int
) -> None:
    directory = DIRECTORIES[broker][index]
    check(
        cluster,
        lambda context, builder: context.remove_directory(builder, broker, directory),
        lambda partition: twin.directory_goes(
            cluster.rules, partition, broker, directory, **cluster.switches(partition)
        ),
    )


@EXAMPLES
@given(clusters(), ANY_BROKER)
def test_electing_leaders_after_a_broker_returns_writes_the_twins_records(
    cluster: Cluster, broker: int
) -> None:
    # Only registered brokers are unfenced.
    cluster.rules.brokers.setdefault(broker, Broker(broker, fenced=True))
    check(
        cluster,
        lambda context, builder: context.elect_leaderless(builder, broker),
        lambda partition: twin.broker_returns(
            cluster.rules, partition, broker, **cluster.switches(partition)
        ),
    )


@pytest.mark.parametrize("is_elr_enabled", [False, True])
@pytest.mark.parametrize("allows_unclean", [False, True])
def test_every_partition_without_a_leader_is_decided_as_by_the_twin(
    is_elr_enabled: bool, allows_unclean: bool
) -> None:
    """All brokers are down, and one returns: the kernel skips most rows, and no other."""
    replicas = (1, 17, 2)  # 1 and 17 share a bucket of a hash set
    partitions = []
    for isr in ((), (1,), (17, 2)):
        others = [id for id in replicas if id not in isr]
        for elr in chain.from_iterable(permutations(others, n) for n in range(len(others) + 1)):
            for last_known_elr in ((), (2,), (1, 2)):
                partitions.append(
                    Partition(
                        replicas=replicas,
                        isr=isr,
                        leader=-1,
                        directories=(twin.UNASSIGNED,) * 3,
                        elr=elr,
                        last_known_elr=last_known_elr,
                    )
                )
    for broker, min_isr in product((1, 2, 3), (1, 2, 3)):
        brokers = {id: Broker(id, fenced=True) for id in (1, 2, 3, 17)}
        cluster = Cluster(
            Rules(brokers, 30, is_elr_enabled), partitions, min_isr, {}, {0: allows_unclean}
        )
        check(
            cluster,
            lambda context, builder, broker=broker: context.elect_leaderless(builder, broker),
            lambda partition, cluster=cluster, broker=broker: twin.broker_returns(
                cluster.rules, partition, broker, **cluster.switches(partition)
            ),
        )


@EXAMPLES
@given(clusters(), st.booleans())
def test_electing_preferred_leaders_writes_the_twins_records(
    cluster: Cluster, names_rows: bool
) -> None:
    check(
        cluster,
        lambda context, builder: context.elect_preferred(
            builder, range(len(cluster.partitions)) if names_rows else None
        ),
        lambda partition: twin.election_wanted(
            cluster.rules, partition, "preferred", cluster.effective_min_isr(partition)
        ),
    )


@EXAMPLES
@given(clusters(), st.booleans())
def test_unclean_elections_write_the_twins_records(cluster: Cluster, names_rows: bool) -> None:
    check(
        cluster,
        lambda context, builder: context.elect_unclean(
            builder, range(len(cluster.partitions)) if names_rows else None
        ),
        lambda partition: (
            twin.election_wanted(
                cluster.rules, partition, "unclean", cluster.effective_min_isr(partition)
            )
            if names_rows or cluster.allows_unclean(partition)
            else None
        ),
    )


@EXAMPLES
@given(clusters())
def test_expanding_isrs_writes_the_twins_records(cluster: Cluster) -> None:
    check(
        cluster,
        lambda context, builder: context.expand_isrs(builder),
        lambda partition: twin.everyone_catches_up(
            cluster.rules, partition, **cluster.switches(partition)
        ),
    )


@EXAMPLES
@given(clusters(), st.data())
def test_alter_partition_writes_the_twins_records(cluster: Cluster, data: st.DataObject) -> None:
    subset = st.lists(st.sampled_from(cluster.partitions[0].replicas), unique=True)
    isr, recovering = data.draw(subset), data.draw(st.booleans())
    check(
        cluster,
        lambda context, builder: context.alter_partition(builder, 0, isr, int(recovering)),
        lambda partition: (
            twin.leader_alters(
                cluster.rules, partition, isr, recovering=recovering, **cluster.switches(partition)
            )
            if partition is cluster.partitions[0]
            else None
        ),
    )


@EXAMPLES
@given(clusters(), st.lists(ANY_BROKER, min_size=1, max_size=6, unique=True))
def test_beginning_a_reassignment_writes_the_twins_records(
    cluster: Cluster, target: list[int]
) -> None:
    check(
        cluster,
        lambda context, builder: context.reassign(builder, 0, target),
        lambda partition: (
            twin.reassigned(cluster.rules, partition, target, cluster.effective_min_isr(partition))
            if partition is cluster.partitions[0]
            else None
        ),
    )


@EXAMPLES
@given(clusters())
def test_cancelling_a_reassignment_writes_the_twins_records(cluster: Cluster) -> None:
    def expect(partition: Partition) -> records.PartitionChange | None:
        if partition is not cluster.partitions[0]:
            return None
        return twin.reassignment_cancelled(cluster.rules, partition, **cluster.switches(partition))

    try:
        expect(cluster.partitions[0])
    except ValueError:
        with pytest.raises((NoReassignmentInProgressError, InvalidReplicaAssignmentError)):
            cluster.context(cluster.table()).cancel_reassignment(BatchBuilder(), 0)
        return
    check(cluster, lambda context, builder: context.cancel_reassignment(builder, 0), expect)
