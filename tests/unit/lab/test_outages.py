"""Simulated outages of small clusters, compared with results computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kraft import Metadata, records
from kraft.errors import BrokerIdNotRegisteredError, InvalidRequestError
from kraft.lab.outage_report import PlannedOutage
from kraft.lab.outages import plan_outages, sweep_outages, unit_ranges
from kraft.records import Record, Uuid

pytest.importorskip("numba")

TOPIC = Uuid(b"orders..........")


def cluster(*partitions: tuple[list[int], list[int]], **configs: str) -> Metadata:
    """Return a cluster of brokers 1 to 4 in two racks, and a topic with these (replicas, isr)."""
    log: list[Record] = [records.FeatureLevel(name="metadata.version", feature_level=30)]
    for broker in (1, 2, 3, 4):
        log.append(
            records.RegisterBroker(
                broker_id=broker,
                incarnation_id=Uuid(bytes([broker]) * 16),
                broker_epoch=broker,
                rack="a" if broker < 3 else "b",
                fenced=False,
            )
        )
    log.append(records.Topic(name="orders", topic_id=TOPIC))
    for name, value in configs.items():
        log.append(records.Config(2, "orders", name.replace("_", "."), value))
    log += [
        records.Partition(
            partition_id=number,
            topic_id=TOPIC,
            replicas=replicas,
            isr=isr,
            leader=isr[0] if isr else -1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[Uuid(bytes(16)) for _ in replicas],
            version=2,
        )
        for number, (replicas, isr) in enumerate(partitions)
    ]
    metadata = Metadata()
    metadata.apply(log)
    return metadata


def test_the_loss_of_one_broker_and_of_both_in_sync_replicas_is_counted() -> None:
    metadata = cluster(
        ([1, 2, 3], [1, 2]), ([2, 3, 4], [2, 3, 4]), ([1], [1]), min_insync_replicas="2"
    )
    plan = plan_outages(metadata, brokers=False, racks=False, groups=[[1], [2, 1]], pairs=False)
    one, both = map(sweep_outages(metadata, plan).outage, (0, 1))

    # orders-2 has no other replica; orders-0 keeps one in-sync replica, and its minimum is two.
    assert (one.unavailable, one.under_min_isr, one.at_min_isr, one.moved) == (1, 1, 0, 1)
    assert (one.max_leaders, one.most_loaded, one.living) == (2, 2, 3)
    assert one.leader_skew == pytest.approx(2 / (2 / 3))
    # Both in-sync replicas of orders-0 are lost: the last one stays in the ISR, without a leader.
    assert (both.unavailable, both.under_min_isr, both.at_min_isr, both.moved) == (2, 1, 1, 1)
    assert (both.name, both.max_leaders, both.most_loaded) == ("brokers 2, 1", 1, 3)


def test_an_unclean_election_keeps_a_partition_available_and_is_counted() -> None:
    metadata = cluster(([1, 2, 3], [1]), unclean_leader_election_enable="true")
    report = sweep_outages(metadata, plan_outages(metadata, racks=False))
    by_name = {outage.name: outage for outage in report}
    assert (by_name["broker 1"].unavailable, by_name["broker 1"].unclean) == (0, 1)
    assert by_name["brokers 1, 2"].most_loaded == 3
    assert by_name["broker 2"].unclean == 0


def test_fenced_brokers_are_skipped() -> None:
    metadata = cluster(([1, 2, 3], [1, 2, 3]))
    metadata.apply(metadata.fence_broker(2))
    plan = plan_outages(metadata)
    assert plan.paired == (1, 3, 4)
    assert plan.listed == (
        *(PlannedOutage("broker", (broker,)) for broker in (1, 3, 4)),
        PlannedOutage("rack", (1,), "a"),
        PlannedOutage("rack", (3, 4), "b"),
    )
    assert len(plan) == 5 + 3


def test_the_worst_outage_is_first_and_among_equals_that_of_fewer_brokers() -> None:
    metadata = cluster(([1], [1]), ([1], [1]), ([2], [2]), ([3, 4], [3, 4]))
    report = sweep_outages(metadata, plan_outages(metadata, racks=False))
    assert [(each.name, each.unavailable) for each in report.worst(4)] == [
        ("brokers 1, 2", 3),
        ("broker 1", 2),
        ("brokers 1, 3", 2),
        ("brokers 1, 4", 2),
    ]
    assert [each.name for each in report] == [each.name for each in report.worst()]
    assert report.greatest("unavailable") == 3
    assert report.greatest("leader_skew") == max(each.leader_skew or 0 for each in report)


def test_without_brokers_there_is_no_most_loaded_one() -> None:
    metadata = cluster(([1, 2, 3], [1, 2, 3]))
    plan = plan_outages(metadata, groups=[[1, 2, 3, 4]])
    (worst,) = sweep_outages(metadata, plan).worst(1)
    assert (worst.living, worst.most_loaded, worst.leader_skew) == (0, None, None)
    assert worst.unavailable == 1


def test_partitions_affected_before_the_outage_are_counted_separately() -> None:
    metadata = cluster(([1, 2], []), ([3, 4], [3]), ([3, 4], [3, 4]), min_insync_replicas="2")
    report = sweep_outages(metadata)
    before = report.baseline
    assert (before.partitions, before.unavailable) == (3, 1)
    assert (before.under_min_isr, before.at_min_isr) == (2, 1)
    assert before.leader_skew == pytest.approx(2 / (2 / 4))
    assert report.greatest("under_min_isr") == 1


def test_threads_and_ranges_change_nothing() -> None:
    metadata = cluster(*([[1, 2, 3], [1, 2]], [[2, 3, 4], [2, 3, 4]]) * 5)  # type: ignore[arg-type]
    one, many = (sweep_outages(metadata, threads=threads) for threads in (1, 3))
    assert np.array_equal(one.figures, many.figures)
    reported: list[float] = []
    sweep_outages(metadata, advance=reported.append)
    assert reported == sorted(reported)
    assert reported[-1] == len(one)


def test_the_report_as_arrow_and_as_json() -> None:
    metadata = cluster(([1, 2, 3], [1, 2]), ([1], [1]))
    report = sweep_outages(metadata, plan_outages(metadata, groups=[[1, 2, 3, 4]]))
    rows = report.to_arrow().to_pylist()
    for row, outage in zip(rows, report, strict=True):
        said = outage.as_dict()
        skews = row.pop("leader_skew"), said.pop("leader_skew")
        assert skews == (None, None) or skews[0] == pytest.approx(skews[1], abs=1e-4)
        assert row == said
    document = report.as_dict(top=2)
    assert document["worst"] == [outage.as_dict() for outage in report.worst(2)]
    assert document["outages"] == {"broker": 4, "rack": 2, "pair": 6, "brokers": 1}


def test_an_empty_plan_is_an_empty_report() -> None:
    report = sweep_outages(Metadata())
    assert (len(report), list(report), report.baseline.leader_skew) == (0, [], None)
    assert report.to_arrow().num_rows == 0


@pytest.mark.parametrize("group", [[], [1, 1]])
def test_an_outage_names_brokers_each_once(group: list[int]) -> None:
    with pytest.raises(InvalidRequestError, match="each once"):
        plan_outages(cluster(([1], [1])), groups=[group])


def test_an_outage_of_an_unknown_broker_is_refused() -> None:
    with pytest.raises(BrokerIdNotRegisteredError, match="broker 9"):
        plan_outages(cluster(([1], [1])), groups=[[1, 9]])


def test_a_partition_with_more_than_64_brokers_is_rejected_by_name() -> None:
    wide = list(range(100, 164))
    metadata = cluster(([1], [1]), (wide, [*wide[:3], 1, 2]))
    with pytest.raises(InvalidRequestError, match="orders-1 names more than 64 brokers"):
        sweep_outages(metadata)
    as_wide_as_can_be = cluster((wide[:62], [*wide[:3], 1, 2]))
    assert sweep_outages(as_wide_as_can_be).baseline.partitions == 1


def test_ranges_cover_every_unit_once() -> None:
    from kraft._core.sweep.kernels import unit_count
    from kraft.lab.outages import sweep_arrays

    metadata = cluster(([1, 2, 3], [1, 2]))
    arrays = sweep_arrays(metadata, plan_outages(metadata))
    for wanted in (1, 2, 7, 100):
        ranges = unit_ranges(arrays, wanted)
        units = [unit for first, last in ranges for unit in range(first, last)]
        assert units == list(range(unit_count(arrays)))
        assert len(ranges) <= wanted
