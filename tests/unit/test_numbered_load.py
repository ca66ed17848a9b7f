"""The check of numbered records: it must see a record that is lost, repeated or out of order."""

from __future__ import annotations

import json

import pytest

from tests.harness import numbered_load
from tests.harness.numbered_load import (
    UNKNOWN_OFFSET,
    MisdirectedProducerError,
    Misdirection,
    NumberedLoad,
)

PARTITION = ("records", 0)
#: Two producers, three records each, as the log has them.
WRITTEN = [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (1, 2)]


def checked(
    found: list[tuple[int, int]],
    acknowledged: list[tuple[int, int]] = WRITTEN,
    epoch_starts: tuple[int, ...] = (),
) -> int:
    """Check records of (producer, number), the first of them at offset 0."""
    load = NumberedLoad("127.0.0.1:1", {"records": 1})
    for offset, (producer, number) in enumerate(acknowledged):
        load.acknowledged[producer, PARTITION][number] = offset
    records = [(at, b"%d %d ..." % each) for at, each in enumerate(found)]
    return load.check_records(PARTITION, records, epoch_starts)


def test_each_record_once_and_in_order() -> None:
    assert checked(WRITTEN) == 0
    # A record that waits for its acknowledgement may be there.
    assert checked([*WRITTEN, (0, 3)]) == 0


def test_a_new_epoch_may_repeat_records_that_were_not_acknowledged() -> None:
    waiting = [*WRITTEN, (0, 3), (0, 4)]
    assert checked([*waiting, (0, 3), (0, 4), (0, 5)], epoch_starts=(8,)) == 2
    for start in (7, 9):
        with pytest.raises(AssertionError, match=r"at 5 are \(number, offset\) \[\(3, 8\)"):
            checked([*waiting, (0, 3), (0, 4)], epoch_starts=(start,))
    # It may repeat no acknowledged record, and leave none out.
    with pytest.raises(AssertionError, match="acknowledged offset"):
        checked([*waiting, (0, 2), (0, 3), (0, 4)], epoch_starts=(8,))
    with pytest.raises(AssertionError, match="at 5 are"):
        checked([*waiting, (0, 6)], epoch_starts=(8,))


def test_a_record_that_a_later_answer_acknowledges_must_be_there() -> None:
    load = NumberedLoad("127.0.0.1:1", {"records": 1})
    load.acknowledged[0, PARTITION] = {0: UNKNOWN_OFFSET, 1: 1}
    assert load.acknowledged_ends() == {PARTITION: 2}
    load.check_records(PARTITION, [(0, b"0 0 ..."), (1, b"0 1 ...")])
    load.acknowledged[0, PARTITION] = {0: 0, 1: 1, 2: UNKNOWN_OFFSET}
    with pytest.raises(AssertionError, match=r"\(2, -1, None\)"):
        load.check_records(PARTITION, [(0, b"0 0 ..."), (1, b"0 1 ...")])


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(WRITTEN[:-1], id="lost at the end"),
        pytest.param([*WRITTEN, (1, 2)], id="repeated"),
        pytest.param([*WRITTEN[:2], (0, 2), (0, 1), *WRITTEN[4:]], id="out of order"),
        pytest.param([*WRITTEN[:2], *WRITTEN[3:]], id="lost in the middle"),
        pytest.param([(1, 0), (0, 0), *WRITTEN[2:]], id="at another offset"),
    ],
)
def test_wrong_logs_fail(found: list[tuple[int, int]]) -> None:
    with pytest.raises(AssertionError, match=r"\('records', 0\)"):
        checked(found)


def test_a_log_out_of_order_fails_without_acknowledgements() -> None:
    with pytest.raises(AssertionError, match="at 1 are"):
        checked([(0, 0), (0, 2), (0, 1)], [])


def statistics(*brokers_and_leaders: tuple[int, int]) -> str:
    """Return the part of librdkafka's statistics that names the brokers of partitions."""
    partitions = {
        str(number): {"partition": number, "broker": broker, "leader": leader}
        for number, (broker, leader) in enumerate(brokers_and_leaders)
    }
    # Records without a partition have an entry too.
    partitions["-1"] = {"partition": -1, "broker": -1, "leader": -1}
    return json.dumps(
        {"msg_cnt": 0, "brokers": {}, "topics": {"records": {"partitions": partitions}}}
    )


def test_a_producer_that_asks_the_wrong_broker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    load = NumberedLoad("127.0.0.1:1", {"records": 3})
    load._is_over.set()
    load._given[1, PARTITION] = 5
    for shown in (statistics((2, 1), (1, 1), (2, 3)), statistics((2, 1), (1, 1), (3, 3))):
        load._note(1, shown)
    with pytest.raises(MisdirectedProducerError) as caught:
        load.await_progress()
    assert caught.value.found == [Misdirection(1, PARTITION, 2, 1)]
    # It has to be shown twice again.
    load._note(1, statistics((2, 1)))
    monkeypatch.setattr(numbered_load, "eventually", lambda look, until: look())
    load.await_progress()


def test_a_partition_that_moves_to_its_new_leader_is_not_misdirected() -> None:
    load = NumberedLoad("127.0.0.1:1", {"records": 1})
    load._is_over.set()
    for shown in ((2, 1), (1, 2), (-1, 2), (2, -1), (2, 2)):
        load._note(0, statistics(shown))
        load.await_progress()
