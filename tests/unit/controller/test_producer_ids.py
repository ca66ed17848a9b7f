"""Producer ids go to brokers, a thousand at a time."""

from __future__ import annotations

import pytest

from kraft import controller, records
from kraft.errors import ProducerIdsExhaustedError, StaleBrokerEpochError
from tests.unit.controller.clusters import Lab


def epoch(lab: Lab, broker: int) -> int:
    return lab.cluster.state.brokers[broker].epoch


def test_every_block_begins_where_the_last_one_ended() -> None:
    lab = Lab(2)
    blocks = []
    for broker in (0, 1, 0):
        decision = controller.allocate_producer_ids(lab.cluster, broker, epoch(lab, broker))
        blocks.append(lab.do(decision))
    assert [tuple(block) for block in blocks] == [(0, 1_000), (1_000, 1_000), (2_000, 1_000)]
    assert lab.cluster.state.next_producer_id == 3_000


def test_the_record_says_who_got_the_block_and_where_the_next_begins() -> None:
    lab = Lab(1)
    decision = controller.allocate_producer_ids(lab.cluster, 0, epoch(lab, 0))
    (record,) = decision.records
    assert isinstance(record, records.ProducerIds)
    assert (record.broker_id, record.broker_epoch) == (0, epoch(lab, 0))
    assert record.next_producer_id == 1_000


def test_a_stale_broker_gets_none() -> None:
    lab = Lab(1)
    for broker, stale in ((0, epoch(lab, 0) + 1), (9, 0)):
        with pytest.raises(StaleBrokerEpochError):
            controller.allocate_producer_ids(lab.cluster, broker, stale)


def test_the_last_block_is_the_last() -> None:
    lab = Lab(1)
    last = (1 << 63) - 1
    lab.write(records.ProducerIds(broker_id=0, next_producer_id=last - 1_000))
    assert lab.do(controller.allocate_producer_ids(lab.cluster, 0, epoch(lab, 0))).first == (
        last - 1_000
    )
    with pytest.raises(ProducerIdsExhaustedError):
        controller.allocate_producer_ids(lab.cluster, 0, epoch(lab, 0))
