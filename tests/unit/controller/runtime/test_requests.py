"""The controller runs operations: small ones in one batch, large ones in a transaction."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.controller.configs.client_quotas import QuotaAlteration
from kraft.controller.configs.config_changes import ConfigChange
from kraft.controller.features import FeatureUpdate, LocalFeatures, UpdatedFeatures
from kraft.controller.runtime import requests, security_requests
from kraft.controller.runtime.operations import ControllerOutput, Operation
from kraft.controller.security.acls import AclFilter
from kraft.controller.security.delegation_tokens import TokenSettings
from kraft.controller.security.scram import ScramUpsertion
from kraft.controller.topics.elections import ElectionType
from kraft.controller.topics.partition_creation import NewPartitions, requested_partitions
from kraft.controller.topics.topic_creation import NewTopic
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import (
    DelegationTokenNotFoundError,
    InvalidUpdateVersionError,
    NotControllerError,
    PolicyViolationError,
)
from kraft.image import AccessControl
from kraft.image.configs import GROUP, TOPIC
from kraft.security.principals import KafkaPrincipal
from tests.harness.controller import ControllerLog, leading

ALICE = KafkaPrincipal("User", "alice")
TOKENS = TokenSettings(b"secret", 10_000, 5_000)
ANY_ACL = AclFilter()


@pytest.fixture
def log() -> ControllerLog:
    return leading(3)


def done(log: ControllerLog, operation: Operation) -> tuple[Any, list[str]]:
    """Run an operation; return its response and the types of the records that it wrote."""
    since = log.end_offset
    token = log.submit(operation)
    log.settle()
    return log.response(token), log.names(since)


def is_transaction(names: list[str]) -> bool:
    assert names.count("BeginTransaction") == names.count("EndTransaction") <= 1
    return names[0] == "BeginTransaction" and names[-1] == "EndTransaction"


def test_topics_and_partitions_are_created_and_deleted(log: ControllerLog) -> None:
    log.create("orders", 2)
    log.settle()
    grown, names = done(log, requests.create_partitions([NewPartitions("orders", 5)]))
    assert (grown, names) == ({"orders": 3}, ["Partition"] * 3)
    deleted, names = done(log, requests.delete_topics([TopicToDelete("orders")]))
    assert [each.name for each in deleted] == ["orders"]
    assert names == ["RemoveTopic"]


def test_large_topic_requests_are_one_transaction(log: ControllerLog) -> None:
    log.create("huge", 3)
    log.settle()
    grown, names = done(log, requests.create_partitions([NewPartitions("huge", 30_003)]))
    assert grown == {"huge": 30_000}
    assert is_transaction(names)
    deleted, names = done(log, requests.delete_topics([TopicToDelete("huge")]))
    assert deleted[0].error is None
    assert is_transaction(names)
    assert log.controller.cluster.table.partition_count == 0


def test_a_hopelessly_large_request_is_rejected_at_once(log: ControllerLog) -> None:
    """The sum of all topics counts; Kafka's test asks for a billion partitions."""
    log.create("small", 3)
    log.settle()
    most = requests.MAX_NEW_PARTITIONS
    topics = [NewTopic(f"topic-{number}", bytes(range(16)), most // 10, 1) for number in range(11)]
    grown = [NewPartitions("small", most + 4), NewPartitions("missing", most)]
    for operation in (requests.create_topics(topics), requests.create_partitions(grown)):
        since = log.end_offset
        token = log.submit(operation)
        log.settle()
        error = log.answers[token].error
        assert isinstance(error, PolicyViolationError)
        assert str(error) == "Excessively large number of partitions per request."
        assert log.names(since) == []
    # Present partitions, unknown topics and invalid counts do not count.
    grown = [NewPartitions("small", 5), NewPartitions("missing", most), NewPartitions("small", -9)]
    assert requested_partitions(log.controller.cluster, grown) == 2


def test_leaders_move_back_to_the_first_replica(log: ControllerLog) -> None:
    log.create("orders", 30, 3)
    log.settle()
    log.heartbeat(1, wants_fence=True)
    log.settle()
    log.heartbeat(1)
    log.settle()
    table = log.controller.cluster.table
    behind = int((table.column("leader") != table.column("replicas")[:, 0]).sum())
    assert behind
    results, _ = done(log, requests.elect_leaders(ElectionType.PREFERRED))
    assert len(results.errors) == behind, (
        "no leader can be elected: the preferred replicas are not in the ISR"
    )
    assert set(results.errors.tolist()) == {80}


def test_hundreds_of_configurations_are_one_transaction(log: ControllerLog) -> None:
    log.create("orders", 1)
    log.settle()
    one = ((TOPIC, "orders"), [ConfigChange("retention.ms", "1000")])
    response, names = done(log, requests.incremental_alter_configs([one]))
    assert (response[TOPIC, "orders"], names) == (None, ["Config"])
    many = [
        ((GROUP, f"group-{number}"), [ConfigChange("consumer.session.timeout.ms", "45000")])
        for number in range(300)
    ]
    response, names = done(log, requests.incremental_alter_configs(many))
    assert is_transaction(names)
    assert names.count("Config") == 300
    response, names = done(log, requests.alter_configs([((TOPIC, "orders"), {})]))
    assert names == ["Config"]
    assert (TOPIC, "orders") not in log.controller.cluster.state.configs


def test_a_thousand_quotas_are_one_transaction(log: ControllerLog) -> None:
    many = [
        QuotaAlteration({"user": f"user-{number}"}, [("producer_byte_rate", 1.0)])
        for number in range(1_000)
    ]
    _, names = done(log, requests.alter_client_quotas(many))
    assert is_transaction(names)
    _, names = done(log, requests.alter_client_quotas(many[:2], validate_only=True))
    assert names == []


def test_acls_are_created_and_deleted(log: ControllerLog) -> None:
    acls = [
        AccessControl(2, f"topic-{number}", 3, "User:alice", "*", 3, 3) for number in range(1500)
    ]
    refusals, names = done(log, security_requests.create_acls(acls[:2]))
    assert (refusals, names) == ([None, None], ["AccessControlEntry"] * 2)
    _, names = done(log, security_requests.create_acls(acls))
    assert is_transaction(names)
    (removed,), names = done(log, security_requests.delete_acls([ANY_ACL]))
    assert len(removed) == 1500
    assert is_transaction(names)
    assert len(log.controller.cluster.state.acls) == 0


def test_credentials_are_set(log: ControllerLog) -> None:
    upsertion = ScramUpsertion("alice", 1, 4096, b"salt", bytes(32))
    response, names = done(
        log, security_requests.alter_user_scram_credentials(upsertions=[upsertion])
    )
    assert response == {"alice": None}
    assert names == ["UserScramCredential"]


def test_a_token_is_created_renewed_and_expired(log: ControllerLog) -> None:
    issued, names = done(log, security_requests.create_delegation_token(ALICE, TOKENS))
    assert names == ["DelegationToken"]
    expires, _ = done(log, security_requests.renew_delegation_token(ALICE, issued.hmac, TOKENS))
    assert expires > log.now_ms
    _, names = done(log, security_requests.expire_delegation_token(ALICE, issued.hmac, TOKENS, -1))
    assert names == ["RemoveDelegationToken"]
    token = log.submit(security_requests.renew_delegation_token(ALICE, issued.hmac, TOKENS))
    log.settle()
    assert isinstance(log.answers[token].error, DelegationTokenNotFoundError)


def upgrade(
    log: ControllerLog, *more: FeatureUpdate, validate_only: bool = False
) -> tuple[int, ControllerOutput]:
    """Decide an UpdateFeatures of kraft.version; return its token and the output for the driver."""
    updates = [FeatureUpdate("kraft.version", 1), *more]
    token = log.submit(
        requests.update_features(updates, LocalFeatures(100), validate_only=validate_only)
    )
    return token, log.run_once()


def test_the_raft_layer_upgrades_kraft_version_before_records_are_written() -> None:
    log = leading(0)
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
    log = leading(0)
    since = log.end_offset
    token, ready = upgrade(log)
    (asked,) = ready.kraft_version_upgrades
    log.take(log.controller.kraft_version_answered(asked.number, None, log.now_ms))
    log.settle()
    assert log.names(since) == ["NoOp"]
    assert log.response(token) == UpdatedFeatures({}, 1)


def test_an_error_of_the_raft_layer_is_the_response_of_update_features() -> None:
    log = leading(0)
    since = log.end_offset
    token, ready = upgrade(log, FeatureUpdate("eligible.leader.replicas.version", 1))
    refusal = InvalidUpdateVersionError("voter 3 has not reported that it supports it")
    (asked,) = ready.kraft_version_upgrades
    log.take(log.controller.kraft_version_answered(asked.number, refusal, log.now_ms))
    log.settle()
    assert log.answers[token].error is refusal
    assert log.names(since) == []


def test_a_validated_upgrade_writes_nothing() -> None:
    log = leading(0)
    since = log.end_offset
    elr = FeatureUpdate("eligible.leader.replicas.version", 1)
    token, ready = upgrade(log, elr, validate_only=True)
    (asked,) = ready.kraft_version_upgrades
    assert asked.validate_only
    log.take(log.controller.kraft_version_answered(asked.number, None, log.now_ms))
    log.settle()
    assert log.response(token).kraft_version == 1
    assert log.names(since) == []


def test_an_invalid_update_never_reaches_the_raft_layer() -> None:
    log = leading(0)
    token, ready = upgrade(log, FeatureUpdate("metadata.version", 999))
    assert ready.kraft_version_upgrades == []
    assert isinstance(log.answers[token].error, InvalidUpdateVersionError)


def test_lost_leadership_answers_a_pending_kraft_version_upgrade() -> None:
    log = leading(0)
    token, ready = upgrade(log)
    log.take(log.controller.renounce(log.now_ms))
    assert isinstance(log.answers[token].error, NotControllerError)
    (asked,) = ready.kraft_version_upgrades
    late = log.controller.kraft_version_answered(asked.number, None, log.now_ms)
    assert late.answers == []
