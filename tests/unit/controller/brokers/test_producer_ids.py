"""The controller allocates producer ids to brokers in blocks of a thousand."""

from __future__ import annotations

import pytest

from kraft import records
from kraft.controller.brokers.producer_ids import allocate_producer_ids
from kraft.errors import ProducerIdsExhaustedError, StaleBrokerEpochError
from tests.harness.decisions import Lab


def epoch(lab: Lab, broker: int) -> int:
    return lab.cluster.state.brokers[broker].epoch


def test_every_block_begins_where_the_last_one_ended() -> None:
    lab = Lab(2)
    blocks = []
    for broker in (0, 1, 0):
        decision = allocate_producer_ids(lab.cluster, broker, epoch(lab, broker))
        blocks.append(lab.do(decision))
    assert [tuple(block) for block in blocks] == [(0, 1_000), (1_000, 1_000), (2_000, 1_000)]
    assert lab.cluster.state.next_producer_id == 3_000


def test_the_record_holds_broker_and_next_block() -> None:
    lab = Lab(1)
    decision = allocate_producer_ids(lab.cluster, 0, epoch(lab, 0))
    (record,) = decision.records
    assert isinstance(record, records.ProducerIds)
    assert (record.broker_id, record.broker_epoch) == (0, epoch(lab, 0))
    assert record.next_producer_id == 1_000


def test_a_stale_broker_gets_no_block() -> None:
    lab = Lab(1)
    for broker, stale in ((0, epoch(lab, 0) + 1), (9, 0)):
        with pytest.raises(StaleBrokerEpochError):
            allocate_producer_ids(lab.cluster, broker, stale)


def test_producer_ids_are_exhausted_after_the_last_block() -> None:
    lab = Lab(1)
    last = (1 << 63) - 1
    lab.write(records.ProducerIds(broker_id=0, next_producer_id=last - 1_000))
    assert lab.do(allocate_producer_ids(lab.cluster, 0, epoch(lab, 0))).first == (last - 1_000)
    with pytest.raises(ProducerIdsExhaustedError):
        allocate_producer_ids(lab.cluster, 0, epoch(lab, 0))
