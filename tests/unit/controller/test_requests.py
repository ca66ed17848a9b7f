"""Requests as the controller runs them: small ones in a batch, large ones in a transaction."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.controller import (
    AclFilter,
    ConfigChange,
    ElectionType,
    FeatureUpdate,
    LocalFeatures,
    NewPartitions,
    Principal,
    QuotaAlteration,
    ScramUpsertion,
    TokenSettings,
    TopicToDelete,
    UpdatedFeatures,
    access_requests,
    requests,
)
from kraft.controller.operations import Operation, Ready
from kraft.errors import (
    DelegationTokenNotFoundError,
    InvalidUpdateVersionError,
    NotControllerError,
)
from kraft.image import AccessControl
from kraft.image.configs import GROUP, TOPIC
from tests.unit.controller.controllers import Log

ALICE = Principal("User", "alice")
TOKENS = TokenSettings(b"secret", 10_000, 5_000)
ANY_ACL = AclFilter()


@pytest.fixture
def log() -> Log:
    made = Log()
    made.lead()
    made.brokers(1, 2, 3)
    return made


def done(log: Log, operation: Operation) -> tuple[Any, list[str]]:
    """The response, and the types of the records that were written."""
    since = log.end_offset
    token = log.submit(operation)
    log.settle()
    return log.response(token), log.names(since)


def is_transaction(names: list[str]) -> bool:
    assert names.count("BeginTransaction") == names.count("EndTransaction") <= 1
    return names[0] == "BeginTransaction" and names[-1] == "EndTransaction"


def test_topics_are_created_grown_and_deleted(log: Log) -> None:
    log.create("orders", 2)
    log.settle()
    grown, names = done(log, requests.grow([NewPartitions("orders", 5)]))
    assert (grown, names) == ({"orders": 3}, ["Partition"] * 3)
    deleted, names = done(log, requests.delete([TopicToDelete("orders")]))
    assert [each.name for each in deleted] == ["orders"]
    assert names == ["RemoveTopic"]


def test_what_is_large_comes_and_goes_in_one_transaction(log: Log) -> None:
    log.create("huge", 3)
    log.settle()
    grown, names = done(log, requests.grow([NewPartitions("huge", 30_003)]))
    assert grown == {"huge": 30_000}
    assert is_transaction(names)
    deleted, names = done(log, requests.delete([TopicToDelete("huge")]))
    assert deleted[0].error is None
    assert is_transaction(names)
    assert log.controller.cluster.table.partition_count == 0


def test_leaders_move_back_to_the_first_replica(log: Log) -> None:
    log.create("orders", 30, 3)
    log.settle()
    log.heartbeat(1, wants_fence=True)
    log.settle()
    log.heartbeat(1)
    log.settle()
    table = log.controller.cluster.table
    behind = int((table.column("leader") != table.column("replicas")[:, 0]).sum())
    assert behind
    results, _ = done(log, requests.elect(ElectionType.PREFERRED))
    assert len(results.errors) == behind, "its replicas are out of the ISR: not one could be moved"
    assert set(results.errors.tolist()) == {80}


def test_configurations_by_the_hundred_are_one_transaction(log: Log) -> None:
    log.create("orders", 1)
    log.settle()
    one = ((TOPIC, "orders"), [ConfigChange("retention.ms", "1000")])
    response, names = done(log, requests.configure([one]))
    assert (response[TOPIC, "orders"], names) == (None, ["Config"])
    many = [
        ((GROUP, f"group-{number}"), [ConfigChange("consumer.session.timeout.ms", "45000")])
        for number in range(300)
    ]
    response, names = done(log, requests.configure(many))
    assert is_transaction(names)
    assert names.count("Config") == 300
    response, names = done(log, requests.replace_configs([((TOPIC, "orders"), {})]))
    assert names == ["Config"]
    assert (TOPIC, "orders") not in log.controller.cluster.state.configs


def test_quotas_by_the_hundred_are_one_transaction(log: Log) -> None:
    many = [
        QuotaAlteration({"user": f"user-{number}"}, [("producer_byte_rate", 1.0)])
        for number in range(300)
    ]
    _, names = done(log, requests.limit_clients(many))
    assert is_transaction(names)
    _, names = done(log, requests.limit_clients(many[:2], validate_only=True))
    assert names == []


def test_acls_come_and_go(log: Log) -> None:
    acls = [
        AccessControl(2, f"topic-{number}", 3, "User:alice", "*", 3, 3) for number in range(1500)
    ]
    refusals, names = done(log, access_requests.allow_or_deny(acls[:2]))
    assert (refusals, names) == ([None, None], ["AccessControlEntry"] * 2)
    _, names = done(log, access_requests.allow_or_deny(acls))
    assert is_transaction(names)
    (removed,), names = done(log, access_requests.remove_acls([ANY_ACL]))
    assert len(removed) == 1500
    assert is_transaction(names)
    assert len(log.controller.cluster.state.acls) == 0


def test_credentials_are_set(log: Log) -> None:
    upsertion = ScramUpsertion("alice", 1, 4096, b"salt", bytes(32))
    response, names = done(log, access_requests.change_credentials(upsertions=[upsertion]))
    assert response == {"alice": None}
    assert names == ["UserScramCredential"]


def test_a_token_is_issued_prolonged_and_ended(log: Log) -> None:
    issued, names = done(log, access_requests.issue_token(ALICE, TOKENS))
    assert names == ["DelegationToken"]
    expires, _ = done(log, access_requests.prolong_token(ALICE, issued.hmac, TOKENS))
    assert expires > log.now_ms
    _, names = done(log, access_requests.end_token(ALICE, issued.hmac, TOKENS, -1))
    assert names == ["RemoveDelegationToken"]
    token = log.submit(access_requests.prolong_token(ALICE, issued.hmac, TOKENS))
    log.settle()
    assert isinstance(log.answers[token].error, DelegationTokenNotFoundError)


def leading() -> Log:
    """A controller without brokers, whose features would have a say."""
    made = Log()
    made.lead()
    made.settle()
    return made


def upgrade(log: Log, *more: FeatureUpdate, validate_only: bool = False) -> tuple[int, Ready]:
    """UpdateFeatures of kraft.version, decided: its token and what the driver is to ask."""
    updates = [FeatureUpdate("kraft.version", 1), *more]
    token = log.submit(requests.finalize(updates, LocalFeatures(100), validate_only=validate_only))
    return token, log.run_once()


def test_kraft_version_is_asked_of_the_raft_layer_before_anything_is_written() -> None:
    log = leading()
    since = log.end_offset
    token, ready = upgrade(log, FeatureUpdate("eligible.leader.replicas.version", 1))
    (asked,) = ready.kraft_version_upgrades
    assert (asked.level, asked.validate_only) == (1, False)
    assert token not in log.answers
    assert log.end_offset == since
    log.take(log.controller.kraft_version_answered(asked.number, None, log.now_ms))
    log.settle()
    assert log.response(token) == UpdatedFeatures({"eligible.leader.replicas.version": 1}, 1)
    assert "FeatureLevel" in log.names(since)


def test_a_no_op_follows_an_upgrade_of_kraft_version_as_in_kafka() -> None:
    log = leading()
    since = log.end_offset
    token, ready = upgrade(log)
    (asked,) = ready.kraft_version_upgrades
    log.take(log.controller.kraft_version_answered(asked.number, None, log.now_ms))
    log.settle()
    assert log.names(since) == ["NoOp"]
    assert log.response(token) == UpdatedFeatures({}, 1)


def test_a_refusal_of_the_raft_layer_is_the_answer_to_update_features() -> None:
    log = leading()
    since = log.end_offset
    token, ready = upgrade(log, FeatureUpdate("eligible.leader.replicas.version", 1))
    refusal = InvalidUpdateVersionError("voter 3 has not said that it supports it")
    (asked,) = ready.kraft_version_upgrades
    log.take(log.controller.kraft_version_answered(asked.number, refusal, log.now_ms))
    log.settle()
    assert log.answers[token].error is refusal
    assert log.names(since) == []


def test_an_upgrade_that_is_only_checked_writes_nothing() -> None:
    log = leading()
    since = log.end_offset
    elr = FeatureUpdate("eligible.leader.replicas.version", 1)
    token, ready = upgrade(log, elr, validate_only=True)
    (asked,) = ready.kraft_version_upgrades
    assert asked.validate_only
    log.take(log.controller.kraft_version_answered(asked.number, None, log.now_ms))
    log.settle()
    assert log.response(token).kraft_version == 1
    assert log.names(since) == []


def test_an_update_that_cannot_be_never_reaches_the_raft_layer() -> None:
    log = leading()
    token, ready = upgrade(log, FeatureUpdate("metadata.version", 999))
    assert ready.kraft_version_upgrades == []
    assert isinstance(log.answers[token].error, InvalidUpdateVersionError)


def test_who_waits_for_kraft_version_hears_that_leadership_was_lost() -> None:
    log = leading()
    token, ready = upgrade(log)
    log.take(log.controller.renounce(log.now_ms))
    assert isinstance(log.answers[token].error, NotControllerError)
    (asked,) = ready.kraft_version_upgrades
    late = log.controller.kraft_version_answered(asked.number, None, log.now_ms)
    assert late.answers == []
