"""The controller at run time: the order of responses, transactions and changes of leadership."""

from __future__ import annotations

import pytest

from kraft import records
from kraft.controller.decision import ChunkedDecision, Decision, Records
from kraft.controller.runtime.operations import DecisionContext, OperationResult
from kraft.controller.runtime.settings import ControllerSettings
from kraft.errors import (
    InvalidTopicError,
    NotControllerError,
    PolicyViolationError,
    ReplayError,
    RequestTimedOutError,
    UnknownServerError,
)
from kraft.image.replay import MetadataState
from kraft.records import NoOp
from tests.harness.controller import ControllerLog, leading, replayed
from tests.harness.decisions import LEVEL

# -- responses


def test_an_answer_waits_until_its_records_are_committed() -> None:
    log = leading(3)
    token = log.create("orders", 2)
    log.run()
    assert log.controller.cluster.table.topic_number("orders") >= 0, (
        "the uncommitted state has the topic at once"
    )
    assert token not in log.answers
    log.commit(log.end_offset - 1)
    assert token not in log.answers
    log.commit()
    assert log.response(token)["orders"].num_partitions == 2


def test_an_answer_without_records_waits_for_the_records_it_has_seen() -> None:
    log = leading(3)
    log.create("orders", 2)
    refused = log.ask(
        "look", lambda context: Decision(Records.of([], LEVEL), context.cluster.next_offset)
    )
    log.run()
    assert refused not in log.answers
    log.commit()
    assert log.response(refused) == log.end_offset
    at_once = log.ask("look", lambda context: Decision(Records.of([], LEVEL), "nothing is pending"))
    log.run()
    assert log.response(at_once) == "nothing is pending"


def test_a_heartbeat_that_changes_nothing_does_not_wait_for_uncommitted_records_of_others() -> None:
    """A million new partitions may be decided long before the disks have written them."""
    log = leading(3)
    token = log.create("huge", 50_000, 1)
    log.run()
    assert log.controller.cluster.transaction_start is None, "all is decided, nothing is committed"
    beats = [log.heartbeat(broker) for broker in (1, 2, 3)]
    log.run()
    assert [log.response(beat).state.name for beat in beats] == ["UNFENCED"] * 3
    assert token not in log.answers


def test_a_heartbeat_waits_for_the_uncommitted_records_of_its_own_broker() -> None:
    log = leading(3)
    log.heartbeat(1, wants_fence=True)
    log.run()
    changed_end = log.end_offset
    log.create("orders", 2)
    log.run()
    beats = [log.heartbeat(1, wants_fence=True), log.heartbeat(2)]
    log.run()
    assert beats[0] not in log.answers, "another leader might not know that broker 1 is fenced"
    assert log.response(beats[1]).state.name == "UNFENCED"
    log.commit(changed_end)
    assert beats[0] not in log.answers, "it waits in the order of the responses"
    log.commit()
    assert log.response(beats[0]).is_fenced
    again = log.heartbeat(1, wants_fence=True)
    log.create("more", 2)
    log.run()
    assert log.response(again).is_fenced


def test_a_heartbeat_of_a_new_leader_does_not_know_what_an_earlier_leader_did_not_commit() -> None:
    log = leading(3)
    log.heartbeat(1, wants_fence=True)
    log.run()
    log.take(log.controller.renounce(log.now_ms))
    log.end_offset = log.controller.cluster.next_offset
    log.lead(epoch=2)
    log.create("orders", 2)
    log.run()
    beat = log.heartbeat(1)
    log.run()
    assert log.response(beat).state.name == "UNFENCED"


def test_an_error_is_answered_at_once_and_writes_no_record() -> None:
    log = leading(3)
    before = log.end_offset

    def decide(context: DecisionContext) -> OperationResult:
        raise InvalidTopicError("no such name")

    token = log.ask("refuse", decide)
    log.run()
    assert isinstance(log.answers[token].error, InvalidTopicError)
    assert log.end_offset == before


def test_records_get_the_time_of_the_decision_and_the_epoch_of_the_leader() -> None:
    from kraft._core.bytes.batch import scan

    log = ControllerLog()
    log.now_ms = 5_000.0
    log.lead(epoch=7)
    table = scan(log.batches[0][1])
    assert table.partition_leader_epochs.tolist() == [7]
    assert table.base_offsets.tolist() == [1]
    assert table.max_timestamps.tolist() == [5_000]


def test_an_atomic_decision_larger_than_a_batch_is_rejected_as_in_kafka() -> None:
    log = leading(3)
    token = log.ask(
        "flood",
        lambda context: Decision(Records.of([NoOp()] * 10_001, LEVEL), None, is_atomic=True),
    )
    log.run()
    assert isinstance(log.answers[token].error, PolicyViolationError)
    spread = log.ask(
        "flood", lambda context: Decision(Records.of([NoOp()] * 10_001, LEVEL), "done")
    )
    log.settle()
    assert log.response(spread) == "done", "a decision that is not atomic may span batches"


def test_other_events_run_between_partial_decisions() -> None:
    log = leading(3)
    parts = iter((3, 2, 1))

    def decide(context: DecisionContext) -> OperationResult:
        left = next(parts)
        return Decision(Records.of([NoOp()], LEVEL), left, is_partial=left > 1)

    since = log.end_offset
    token = log.ask("in parts", decide)
    log.run_once()
    log.heartbeat(1, wants_fence=True)
    log.settle()
    assert log.response(token) == 1, "the last response counts"
    assert log.names(since) == ["NoOp", "BrokerRegistrationChange", "NoOp", "NoOp"]


def test_an_exception_in_a_decision_is_logged_and_counted() -> None:
    log = leading(3)
    token = log.ask("broken", lambda context: 1 / 0)  # type: ignore[arg-type, return-value]
    fine = log.create("orders", 1)
    log.settle()
    assert isinstance(log.answers[token].error, UnknownServerError)
    assert log.controller.fault_count == 1
    assert log.response(fine)


def test_a_record_that_cannot_be_applied_ends_the_process() -> None:
    log = leading(3)
    nonsense = records.UnregisterBroker(broker_id=77, broker_epoch=1)
    log.ask("nonsense", lambda context: Decision(Records.of([nonsense], LEVEL), None))
    with pytest.raises(ReplayError, match="offset"):
        log.run()


def test_an_expired_operation_is_answered_and_never_decided() -> None:
    log = leading(3)
    token = log.create("late", 1, deadline_ms=log.now_ms + 100)
    log.now_ms += 101
    log.settle()
    assert isinstance(log.answers[token].error, RequestTimedOutError)
    assert log.controller.cluster.table.topic_number("late") < 0


# -- metadata transactions


def test_a_hundred_thousand_partitions_are_one_transaction() -> None:
    log = leading(3)
    since = log.end_offset
    token = log.create("huge", 100_000, 3)
    log.run()
    assert token not in log.answers
    names = log.names(since)
    assert names[0] == "BeginTransaction"
    assert names[-1] == "EndTransaction"
    assert len(log.batches) > 10
    log.commit(log.end_offset - 1)
    assert token not in log.answers
    log.commit()
    assert log.response(token)["huge"].num_partitions == 100_000
    standby = replayed(log)
    assert standby.table.partition_count == 100_000
    assert standby.state == log.controller.cluster.state


def test_the_stable_offset_excludes_an_open_transaction() -> None:
    log = leading(3)
    log.create("huge", 50_000, 1)
    while log.controller.cluster.table.partition_count < 10_000:
        log.run_once()
        log.commit()
    begin = log.controller.cluster.transaction_start
    assert begin is not None
    assert log.controller.stable_offset == begin
    assert log.controller.committed_offset > begin


def test_a_transaction_is_stable_once_its_end_is_committed() -> None:
    log = leading(3)
    begin = log.end_offset
    log.create("huge", 50_000, 1)
    log.run()
    assert log.controller.cluster.transaction_start is None
    for committed in (begin + 1, begin + 20_000, log.end_offset - 1):
        log.commit(committed)
        assert log.controller.stable_offset == begin
    log.commit()
    assert log.controller.stable_offset == log.end_offset


def test_heartbeats_that_change_nothing_are_answered_while_a_transaction_is_open() -> None:
    """KAFKA-15441: heartbeats waited for the transaction, and every broker was fenced."""
    log = leading(3)
    log.create("huge", 50_000, 1)
    for _ in range(3):
        log.run_once()
    assert log.controller.cluster.transaction_start is not None
    beat = log.heartbeat(2)
    log.run_once()
    assert log.response(beat).state.name == "UNFENCED"
    assert log.controller.cluster.transaction_start is not None


def test_a_heartbeat_that_changes_nothing_is_answered_without_the_queue() -> None:
    log = leading(3)
    small = log.create("small", 1)
    waited, end = log.controller.queue_times.count, log.end_offset
    beat = log.heartbeat(1)
    assert log.response(beat).state.name == "UNFENCED"
    assert log.controller.queue_times.count == waited + 1
    assert small not in log.answers
    assert log.end_offset == end
    log.settle()
    assert log.response(small)


def test_a_heartbeat_waits_behind_earlier_ones_and_for_records_of_its_broker() -> None:
    log = leading(3)
    leaving, beat = log.heartbeat(2, wants_fence=True), log.heartbeat(2, wants_fence=True)
    assert not {leaving, beat} & log.answers.keys()
    log.run()
    again = log.heartbeat(2, wants_fence=True)
    log.run()
    assert not {leaving, beat, again} & log.answers.keys(), "the fencing is not committed yet"
    log.commit()
    assert log.response(leaving).is_fenced
    assert log.response(beat).is_fenced
    assert log.response(again).is_fenced


def test_a_heartbeat_that_changes_nothing_overtakes_those_of_other_brokers() -> None:
    """A thousand brokers that return are unfenced one after the other. The heartbeats of all others
    waited behind them, and expired after a second.
    """
    log = leading(3)
    leaving, beat = log.heartbeat(2, wants_fence=True), log.heartbeat(1)
    assert not log.response(beat).is_fenced, "it is answered on arrival"
    assert leaving not in log.answers
    log.settle()
    assert log.response(leaving).is_fenced


def test_a_heartbeat_does_not_overtake_those_that_a_transaction_held() -> None:
    log = leading(3)
    log.create("huge", 30_000, 1)
    for _ in range(3):
        log.run_once()
    held = log.heartbeat(2, wants_fence=True)
    while log.controller.cluster.transaction_start is not None:
        log.run_once()
    log.commit()
    assert held not in log.answers
    beat = log.heartbeat(2)
    assert beat not in log.answers
    log.settle()
    assert log.response(held).is_fenced
    assert not log.response(beat).is_fenced, "it asked to be unfenced after that"


def test_operations_with_records_wait_for_the_end_of_a_transaction() -> None:
    log = leading(3)
    since = log.end_offset
    log.create("huge", 30_000, 1)
    for _ in range(3):
        log.run_once()
    fenced = log.heartbeat(2, wants_fence=True)
    small = log.create("small", 1)
    log.settle()
    names = log.names(since)
    end = names.index("EndTransaction")
    assert set(names[1:end]) == {"Topic", "Partition"}
    assert names[end + 1] == "PartitionChange", "broker 2 loses its leaderships"
    assert log.response(fenced).is_fenced
    assert log.response(small)


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    log = leading(3, max_transaction_ms=200)
    before = replayed(log)
    token = log.create("huge", 100_000, 1)
    for _ in range(5):
        log.run_once()
    assert log.controller.cluster.table.partition_count > 0
    log.now_ms += 201
    log.settle()
    error = log.answers[token].error
    assert isinstance(error, RequestTimedOutError)
    assert "max_transaction_ms" in str(error)
    assert log.names()[-1] == "AbortTransaction"
    assert log.controller.cluster.table.partition_count == 0
    assert log.controller.cluster.state == before.state
    assert log.response_of_new_topic() == 1


def test_an_error_in_a_later_chunk_aborts_the_transaction() -> None:
    log = leading(3)

    def chunks() -> ChunkedDecision[None]:
        yield Records.of([NoOp()], LEVEL)
        yield Records.of([records.Config(4, "1", "log.retention.ms", "5")], LEVEL)
        raise PolicyViolationError("the second half is not allowed")

    since = log.end_offset
    token = log.ask("halves", lambda context: chunks())
    log.settle()
    assert isinstance(log.answers[token].error, PolicyViolationError)
    assert log.names(since) == ["BeginTransaction", "NoOp", "Config", "AbortTransaction"]
    assert log.controller.cluster.state.configs.get((4, "1")) is None


def test_an_error_before_the_first_chunk_writes_nothing() -> None:
    log = leading(3)
    since = log.end_offset
    token = log.create("huge", 100_000, 9)
    log.settle()
    assert "huge" in log.response(token)
    assert log.names(since) == []


# -- leadership


def test_a_new_controller_writes_the_bootstrap_into_an_empty_log() -> None:
    log = ControllerLog()
    log.lead()
    assert log.names() == ["BeginTransaction", "FeatureLevel", "EndTransaction"]
    again = ControllerLog()
    again.controller.apply_committed(memoryview(log.batches[0][1]), 0.0)
    again.end_offset = log.end_offset
    again.lead(epoch=2)
    assert again.names() == [], "later activations write nothing"


def test_a_new_controller_aborts_an_open_transaction() -> None:
    dead = leading(3)
    dead.create("huge", 50_000, 1)
    for _ in range(6):
        dead.run_once()
    assert dead.controller.cluster.transaction_start is not None
    log = ControllerLog()
    for _, batches in dead.batches:
        log.controller.apply_committed(memoryview(bytearray(batches)), 0.0)
    assert log.controller.cluster.table.partition_count > 0
    log.end_offset = dead.end_offset
    log.lead(epoch=2)
    assert log.names() == ["AbortTransaction"]
    assert log.controller.cluster.table.partition_count == 0
    assert log.response_of_new_topic() == 1


def test_lost_leadership_reverts_the_state_and_answers_waiting_operations() -> None:
    """KAFKA-13104: the raft layer and the controller must resign together."""
    log = leading(3)
    kept = log.create("kept", 1)
    log.settle()
    lost = log.create("lost", 1)
    log.run()
    queued = log.create("queued", 1)
    log.take(log.controller.renounce(log.now_ms))
    assert log.response(kept)
    for token in (lost, queued):
        assert isinstance(log.answers[token].error, NotControllerError)
    assert log.controller.cluster.next_offset == log.controller.committed_offset
    assert log.controller.cluster.table.topic_number("lost") < 0
    assert log.controller.cluster.table.topic_number("kept") >= 0
    late = log.create("late", 1)
    assert isinstance(log.answers[late].error, NotControllerError)


def test_a_rejected_append_ends_the_leadership() -> None:
    log = leading(3)
    token = log.create("orders", 1)
    ready = log.controller.run(log.now_ms, log.end_offset)
    assert ready.to_append is not None
    log.take(log.controller.append_failed(log.now_ms))
    assert log.resigned == [1]
    assert isinstance(log.answers[token].error, NotControllerError)
    assert log.controller.cluster.next_offset == log.end_offset
    assert not log.controller.is_active


def test_leadership_lost_in_the_middle_of_a_transaction() -> None:
    log = leading(3)
    token = log.create("huge", 50_000, 1)
    for _ in range(4):
        log.run_once()
    committed = log.end_offset
    log.commit()
    log.run_once()
    log.take(log.controller.renounce(log.now_ms))
    assert isinstance(log.answers[token].error, NotControllerError)
    assert log.controller.cluster.next_offset == committed
    assert log.controller.cluster.transaction_start is not None, (
        "the committed part of the transaction must stay open"
    )


def test_leadership_lost_after_the_abort_of_a_transaction() -> None:
    """The state reverts to the start of the aborted transaction and reads the rest from the log."""
    log = leading(3, max_transaction_ms=200)
    begin = log.end_offset
    token = log.create("huge", 50_000, 1)
    while log.controller.cluster.table.partition_count < 20_000:
        log.run_once()
    log.now_ms += 201
    log.run()
    assert log.names()[-1] == "AbortTransaction"
    committed = begin + 1 + 10_000
    log.commit(committed)
    log.take(log.controller.renounce(log.now_ms))
    assert isinstance(log.answers[token].error, NotControllerError)
    assert log.controller.cluster.next_offset == begin
    assert log.controller.stable_offset == begin
    for base_offset, batches in log.batches:
        if begin <= base_offset < committed:
            log.take(log.controller.apply_committed(memoryview(batches), log.now_ms))
    standby = replayed(log, until=committed)
    assert log.controller.cluster.next_offset == standby.next_offset
    assert log.controller.cluster.table.partition_count == standby.table.partition_count
    assert log.controller.cluster.transaction_start == begin


def test_leadership_lost_before_the_abort_of_a_transaction_is_committed() -> None:
    """The controller keeps no copy of records that it has aborted, so it reads the log again."""
    log = leading(3)
    before = log.end_offset
    token = log.create("huge", 50_000, 1)
    for _ in range(4):
        log.run_once()
    committed, number = log.end_offset, len(log.batches)
    log.commit()
    log.now_ms += 3_000
    log.run()
    assert log.names()[-1] == "AbortTransaction"
    log.take(log.controller.renounce(log.now_ms))
    assert isinstance(log.answers[token].error, NotControllerError)
    cluster = log.controller.cluster
    assert cluster.next_offset == log.controller.committed_offset == before
    for _, batches in log.batches[:number]:
        log.controller.apply_committed(memoryview(bytearray(batches)), log.now_ms)
    assert cluster.next_offset == committed
    assert cluster.transaction_start == before
    log.end_offset, log.batches = committed, log.batches[:number]
    log.lead(epoch=2)
    assert log.names()[-1] == "AbortTransaction"
    assert log.response_of_new_topic() == 1


def test_a_standby_continues_with_the_state_of_the_previous_controller() -> None:
    log = leading(3)
    log.create("orders", 3)
    log.settle()
    standby = ControllerLog()
    for _, batches in log.batches:
        standby.controller.apply_committed(memoryview(bytearray(batches)), 0.0)
    assert standby.controller.cluster.state == log.controller.cluster.state
    standby.end_offset = log.end_offset
    standby.lead(epoch=2)
    standby.create("more", 2)
    standby.settle()
    assert standby.controller.cluster.table.partition_count == 5


def test_a_control_batch_between_two_decisions_keeps_its_offset() -> None:
    from kraft._core.bytes.batch import assign_offsets
    from kraft.records.batches import encode_control_records

    log = leading(3)
    batch = bytearray(encode_control_records([records.KRaftVersion(kraft_version=1)], epoch=1))
    assign_offsets(batch, log.end_offset, 1)
    log.controller.control_batch_appended(log.end_offset, memoryview(batch))
    log.end_offset += 1
    log.create("orders", 1)
    log.settle()
    assert log.controller.cluster.state.quorum.kraft_version == 1
    assert log.controller.cluster.next_offset == log.end_offset


def test_the_active_controller_rejects_a_snapshot() -> None:
    log = leading(3)
    with pytest.raises(ReplayError, match="active"):
        log.controller.replace_cluster(MetadataState(journaling=True))


# -- periodic tasks


def test_an_idle_controller_writes_no_op_records() -> None:
    log = ControllerLog(max_idle_interval_ms=500)
    log.lead()
    since = log.end_offset
    for _ in range(10):
        log.now_ms += 250
        log.settle()
    assert log.names(since) == ["NoOp"] * 5


def test_a_silent_broker_is_fenced() -> None:
    log = leading(3, session_timeout_ms=9_000)
    since = log.end_offset
    for _ in range(12):
        log.now_ms += 1_000
        log.heartbeat(1)
        log.settle()
    fenced = {
        record.broker_id
        for record in log.written(since)
        if isinstance(record, records.BrokerRegistrationChange)
    }
    assert fenced == {2, 3}


def test_a_new_controller_begins_whole_sessions() -> None:
    """KAFKA-18138: a broker that failed during a failover was never fenced.

    The new controller had no last contact of this broker.
    """
    log = leading(3)
    standby = ControllerLog(session_timeout_ms=9_000)
    for _, batches in log.batches:
        standby.controller.apply_committed(memoryview(bytearray(batches)), 0.0)
    standby.end_offset = log.end_offset
    standby.now_ms = 1_000_000.0
    standby.lead(epoch=2)
    standby.now_ms += 8_900
    standby.settle()
    assert standby.names() == []
    standby.now_ms += 1_300
    for _ in range(3):
        standby.settle()
        standby.now_ms += 10
    assert standby.names().count("BrokerRegistrationChange") == 3


def test_the_index_is_built_in_slices_after_a_transaction_and_by_a_new_leader() -> None:
    log = leading(3)
    log.create("large", 120_000)
    log.settle()
    standby = ControllerLog()
    for _, batches in log.batches:
        standby.controller.apply_committed(memoryview(bytearray(batches)), 0.0)
    standby.end_offset = log.end_offset
    standby.lead(epoch=2)
    standby.settle()
    assert not standby.controller.cluster.table.indexed_row_count, "waiting requests come first"
    standby.now_ms += 10
    standby.settle()
    for each in (log, standby):
        table = each.controller.cluster.table
        counts = [table.indexed_row_count]
        while not table.is_indexed:
            each.now_ms += 10
            each.settle()
            counts.append(table.indexed_row_count)
        assert counts == [25_000, 50_000, 75_000, 100_000, 120_000]
        assert table.broker_rows(1).tolist() == [
            row for row in range(120_000) if table.state_of(row)["replicas"] == [1]
        ]


def test_a_silent_broker_is_fenced_after_the_index_is_built() -> None:
    log = leading(3, session_timeout_ms=9_000)
    log.create("large", 120_000)
    log.settle()
    since = log.end_offset
    log.now_ms += 9_001
    log.settle()
    assert not log.controller.cluster.table.is_indexed
    assert log.names(since) == [], "fencing would have built the rest of the index at once"
    for _ in range(6):
        log.now_ms += 10
        log.settle()
    assert log.names(since).count("BrokerRegistrationChange") == 3


def test_a_failed_periodic_task_is_counted_and_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = ControllerLog(max_idle_interval_ms=500)
    tasks = log.controller._periodic._tasks
    broken = tasks["write a no-op record"]._replace(decide=lambda context: 1 / 0)
    monkeypatch.setitem(tasks, broken.name, broken)
    log.lead()
    log.now_ms += 500
    log.settle()
    assert log.controller.fault_count == 1
    log.now_ms += 299_999
    log.settle()
    assert log.controller.fault_count == 1
    log.now_ms += 1
    log.settle()
    assert log.controller.fault_count == 2
    log.take(log.controller.renounce(log.now_ms))
    assert log.run_once().wake_at_ms == float("inf"), "a standby has no periodic tasks"


def test_without_may_append_only_operations_without_records_run() -> None:
    log = leading(3)
    small = log.create("small", 1)
    beat, leaving = log.heartbeat(1), log.heartbeat(2, wants_fence=True)
    for _ in range(5):
        log.run_once(may_append=False)
    assert log.response(beat)
    assert small not in log.answers
    log.settle()
    assert log.response(small)
    assert log.response(leaving).is_fenced


def test_max_transaction_ms_must_be_below_the_session_timeout() -> None:
    with pytest.raises(ValueError, match="fenced"):
        ControllerSettings(session_timeout_ms=1_000, max_transaction_ms=1_000)


def test_queue_times_are_recorded() -> None:
    log = leading(3)
    before = log.controller.queue_times.count
    log.create("orders", 1)
    log.now_ms += 40
    log.settle()
    assert log.controller.queue_times.count == before + 1
    assert log.controller.queue_times.worst_ms == 40
