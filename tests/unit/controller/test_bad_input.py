"""Operations reject invalid ids, ports, counts and types with Kafka's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft import records
from kraft.controller.brokers.broker_lifecycle import (
    RegistrationRequest,
    fence_broker,
    register_broker,
    unregister_broker,
)
from kraft.controller.brokers.controller_registration import (
    ControllerRegistrationRequest,
    register_controller,
)
from kraft.controller.brokers.directories import DirectoryAssignment, assign_replicas_to_dirs
from kraft.controller.brokers.producer_ids import allocate_producer_ids
from kraft.controller.configs.client_quotas import QuotaAlteration, alter_client_quotas
from kraft.controller.configs.config_changes import ConfigChange, incremental_alter_configs
from kraft.controller.features import FeatureUpdate, LocalFeatures, update_features
from kraft.controller.runtime import requests
from kraft.controller.security.acls import AclFilter, create_acls, describe_acls
from kraft.controller.security.delegation_tokens import (
    TokenSettings,
    create_delegation_token,
)
from kraft.controller.security.scram import ScramUpsertion, alter_user_scram_credentials
from kraft.controller.topics.elections import ElectionResults, ElectionType, LeaderElection
from kraft.controller.topics.isr_changes import IsrChange, alter_partition
from kraft.controller.topics.partition_creation import NewPartitions, create_partitions
from kraft.controller.topics.reassignment import alter_partition_reassignments
from kraft.controller.topics.topic_creation import NewTopic, create_topics
from kraft.errors import (
    BrokerIdNotRegisteredError,
    InvalidRegistrationError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    KraftError,
)
from kraft.image import AccessControl, NodeEndpoint, VersionRange
from kraft.metadata.facade import Metadata
from kraft.records import Uuid
from kraft.security.principals import KafkaPrincipal
from tests.harness.controller import leading
from tests.harness.decisions import FEATURES, LEVEL, Lab, directory, registration, whole

TOPIC_ID = Uuid(b"orders..........")
ALICE = KafkaPrincipal("User", "alice")
TOKENS = TokenSettings(b"secret", 10_000, 5_000)

#: Values that are no int32: Python would accept True and 2.0 as numbers.
NO_INT32: tuple[Any, ...] = (1 << 31, -(1 << 31) - 1, 1 << 70, "1", None, 2.0, True, b"1")
NO_ID = (*NO_INT32, -1)


def lab() -> Lab:
    made = Lab(4)
    made.create("orders", [0, 1, 2], [1, 2, 3])
    return made


def registers(made: Lab, broker: Any, **fields: Any) -> Any:
    request = registration(3, 9, **fields)
    request = RegistrationRequest(
        broker,
        request.incarnation_id,
        request.endpoints,
        request.features,
        request.rack,
        request.log_dirs,
        request.previous_broker_epoch,
    )
    return register_broker(made.cluster, request, next_offset=made.cluster.next_offset)


def registers_controller(made: Lab, id: Any, **fields: Any) -> Any:
    request = ControllerRegistrationRequest(id, Uuid(b"c" * 16), **fields)
    return register_controller(made.cluster, request)


def creates(made: Lab, **fields: Any) -> Any:
    topic = NewTopic(**{"name": "new", "topic_id": Uuid(b"n" * 16)} | fields)
    return whole(create_topics(made.cluster, [topic], placer=made.placer))


def grows(made: Lab, count: Any, assignments: Any = None) -> Any:
    wanted = [NewPartitions("orders", count, assignments)]
    return whole(create_partitions(made.cluster, wanted, placer=made.placer))


def assigns(made: Lab, **fields: Any) -> Any:
    given = {"directory": directory(0), "topic_id": TOPIC_ID, "partitions": [0]} | fields
    epoch = made.cluster.state.brokers[0].epoch
    return assign_replicas_to_dirs(made.cluster, 0, epoch, [DirectoryAssignment(**given)])


def changes_isr(made: Lab, **fields: Any) -> Any:
    given: dict[str, Any] = {
        "topic_id": TOPIC_ID,
        "partition": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "isr": {0: -1, 1: -1},
    } | fields
    epoch = made.cluster.state.brokers[0].epoch
    return alter_partition(made.cluster, 0, epoch, [IsrChange(**given)])


def updates(made: Lab, name: Any, level: Any, upgrade_type: Any = 1) -> Any:
    return update_features(
        made.cluster, [FeatureUpdate(name, level, upgrade_type)], LocalFeatures(100)
    )


def creates_acl(made: Lab, **fields: Any) -> Any:
    acl = AccessControl(2, "orders", 3, "User:alice", "*", 3, 3)._replace(**fields)
    return whole(create_acls(made.cluster, [acl], random_uuid=lambda: Uuid(b"a" * 16)))


def finds_acls(made: Lab, **fields: Any) -> Any:
    return describe_acls(made.cluster, AclFilter(**fields))


def upserts(made: Lab, **fields: Any) -> Any:
    given: dict[str, Any] = {
        "user": "u",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"s",
        "salted_password": b"p",
    }
    return whole(
        alter_user_scram_credentials(made.cluster, upsertions=[ScramUpsertion(**given | fields)])
    )


def limits(made: Lab, value: Any, key: str = "producer_byte_rate") -> Any:
    return whole(
        alter_client_quotas(made.cluster, [QuotaAlteration({"user": "alice"}, [(key, value)])])
    )


def configures(made: Lab, operation: Any) -> Any:
    change = ConfigChange("cleanup.policy", "compact", operation)
    return whole(incremental_alter_configs(made.cluster, [((2, "orders"), [change])]))


def issues(made: Lab, lifetime_ms: Any) -> Any:
    return create_delegation_token(
        made.cluster,
        ALICE,
        TOKENS,
        now_ms=1,
        token_id=Uuid(b"t" * 16),
        max_lifetime_ms=lifetime_ms,
    )


Case = Callable[[Lab, Any], Any]

CASES: dict[str, tuple[Case, tuple[Any, ...]]] = {
    "the id of a broker that registers": (registers, NO_ID),
    "the id of a controller that registers": (registers_controller, NO_ID),
    "the id of a broker that is unregistered": (
        lambda made, id: unregister_broker(made.cluster, id),
        NO_ID,
    ),
    "the id of a broker that is fenced": (
        lambda made, id: fence_broker(made.cluster, id),
        NO_ID,
    ),
    "the id of a broker that asks for producer ids": (
        lambda made, id: allocate_producer_ids(made.cluster, id, 0),
        NO_ID,
    ),
    "the port of a broker": (
        lambda made, port: registers(made, 9, endpoints=[NodeEndpoint("A", "h", port, 0)]),
        (0, 65_536, -1, "9092", 9092.0, True, None),
    ),
    "the port of a controller": (
        lambda made, port: registers_controller(
            made, 1, endpoints=[NodeEndpoint("A", "h", port, 0)]
        ),
        (0, 65_536, -1, "9092", 9092.0, True, None),
    ),
    "the security protocol of a listener": (
        lambda made, number: registers(made, 9, endpoints=[NodeEndpoint("A", "h", 1, number)]),
        (-1, 4, "0", 1.0, True, None),
    ),
    "the host of a listener": (
        lambda made, host: registers(made, 9, endpoints=[NodeEndpoint("A", host, 1, 0)]),
        ("", " ", None, 7, b"h", "\ud800"),
    ),
    "the name of a listener": (
        lambda made, name: registers(made, 9, endpoints=[NodeEndpoint(name, "h", 1, 0)]),
        ("", None, 7, "\ud800", "x" * 40_000),
    ),
    "the rack of a broker": (
        lambda made, rack: registers(made, 9, rack=rack),
        (7, b"a", "\ud800", "x" * 40_000),
    ),
    "the levels of a feature": (
        lambda made, level: registers(
            made, 9, features=FEATURES | {"other": VersionRange(0, level)}
        ),
        (1 << 15, -1, "1", 1.0, None),
    ),
    "the levels of a controller's feature": (
        lambda made, level: registers_controller(
            made, 9, features={"other": VersionRange(level, 9)}
        ),
        (1 << 15, -1, 10, "1", 1.0, None),
    ),
    "a log directory": (
        lambda made, id: registers(made, 9, log_dirs=[id]),
        (b"short", "x" * 16, None, 7),
    ),
    "the epoch of a broker's last shutdown": (
        lambda made, epoch: registers(made, 9, previous_broker_epoch=epoch),
        (1 << 63, "1", None, 1.0),
    ),
    "a number of partitions": (
        lambda made, count: creates(made, num_partitions=count),
        (*NO_INT32, 0, -2),
    ),
    "a replication factor": (
        lambda made, factor: creates(made, replication_factor=factor),
        (*NO_INT32, 1 << 15, 0, -2),
    ),
    "the id of a new topic": (
        lambda made, id: creates(made, topic_id=id),
        (TOPIC_ID, Uuid(bytes(16)), Uuid(bytes(15) + b"\1"), b"short", None, "x" * 16),
    ),
    "the name of a new topic": (
        lambda made, name: creates(made, name=name),
        ("", ".", "a b", "\ud800", None, 7, b"bytes"),
    ),
    "the id of an assigned partition": (
        lambda made, id: creates(made, assignments={id: [0]}),
        (*NO_INT32, 1, -1),
    ),
    "a replica of an assignment": (
        lambda made, id: creates(made, assignments={0: [id]}),
        NO_ID,
    ),
    "an assignment": (
        lambda made, ids: creates(made, assignments={0: ids}),
        ([], None, 7, "0", [0, 0]),
    ),
    "a number of partitions to grow to": (grows, (*NO_INT32, 2, -1)),
    "a replica of a partition to come": (
        lambda made, id: grows(made, 3, [[0, 1, id]]),
        NO_ID,
    ),
    "a partition to elect for": (
        lambda made, id: LeaderElection(ElectionType.PREFERRED, {"orders": [id]}).decide(
            made.cluster
        ),
        (*NO_INT32, -1, 2),
    ),
    "a partition to reassign": (
        lambda made, id: whole(alter_partition_reassignments(made.cluster, {("orders", id): [0]})),
        (*NO_INT32, -1, 2),
    ),
    "a replica to reassign to": (
        lambda made, id: whole(alter_partition_reassignments(made.cluster, {("orders", 0): [id]})),
        NO_ID,
    ),
    "the partition of an ISR": (
        lambda made, id: changes_isr(made, partition=id),
        (*NO_INT32, -1, 2),
    ),
    "the member of an ISR": (
        lambda made, id: changes_isr(made, isr={0: -1, id: -1}),
        (*NO_INT32, -1),
    ),
    "a leader epoch": (lambda made, epoch: changes_isr(made, leader_epoch=epoch), NO_ID),
    "a partition epoch": (lambda made, epoch: changes_isr(made, partition_epoch=epoch), NO_ID),
    "a recovery": (
        lambda made, is_recovering: changes_isr(made, isr={0: -1}, is_recovering=is_recovering),
        (2, -1, "yes", None),
    ),
    "a partition in a directory": (
        lambda made, id: assigns(made, partitions=[id]),
        (1 << 31, "1", None),
    ),
    "the directory of a replica": (
        lambda made, id: assigns(made, directory=id),
        (b"short", None, "x" * 16, 7),
    ),
    "the level of a feature": (
        lambda made, level: updates(made, "metadata.version", level),
        (*NO_INT32, 1 << 15, -1),
    ),
    "the direction of a feature": (
        lambda made, kind: updates(made, "metadata.version", LEVEL, kind),
        (0, 4, -1, "UPGRADE", None, True, 1.0),
    ),
    "an operation on a configuration": (configures, (-1, 4, "SET", None, True, 0.0)),
    "a value of a configuration": (
        lambda made, value: whole(
            incremental_alter_configs(
                made.cluster, [((2, "orders"), [ConfigChange("retention.ms", value)])]
            )
        ),
        (7, b"7", 1.0, "\ud800"),
    ),
    "the type of a resource": (
        lambda made, kind: whole(
            incremental_alter_configs(
                made.cluster, [((kind, "orders"), [ConfigChange("retention.ms", "7")])]
            )
        ),
        (0, 3, -1, "topic", None, 2.0),
    ),
    "the name of a resource": (
        lambda made, name: whole(
            incremental_alter_configs(
                made.cluster, [((2, name), [ConfigChange("retention.ms", "7")])]
            )
        ),
        ("", None, 7, b"orders"),
    ),
    "a quota": (limits, (0, -1, float("nan"), float("inf"), "7", True, b"7")),
    "the type of an ACL's resource": (
        lambda made, kind: creates_acl(made, resource_type=kind),
        (0, 1, 8, -1, "topic", None, 2.0),
    ),
    "the pattern of an ACL": (
        lambda made, kind: creates_acl(made, pattern_type=kind),
        (0, 1, 2, 5, -1, "literal", None, 3.0),
    ),
    "the operation of an ACL": (
        lambda made, kind: creates_acl(made, operation=kind),
        (0, 1, 16, -1, "read", None, 3.0),
    ),
    "the permission of an ACL": (
        lambda made, kind: creates_acl(made, permission_type=kind),
        (0, 1, 4, -1, "allow", None, 3.0),
    ),
    "the host of an ACL": (lambda made, host: creates_acl(made, host=host), (None, 7)),
    "the principal of an ACL": (
        lambda made, principal: creates_acl(made, principal=principal),
        ("alice", None, 7),
    ),
    "the kinds of a filter": (
        lambda made, kind: finds_acls(made, resource_type=kind),
        (0, 8, -1, "any", None, 1.0, True),
    ),
    "a SCRAM mechanism": (
        lambda made, kind: upserts(made, mechanism=kind),
        (0, 3, "1", None, True),
    ),
    "SCRAM iterations": (
        lambda made, count: upserts(made, iterations=count),
        (0, 4_095, 16_385, 4_096.0, "4096", None),
    ),
    "a salt": (lambda made, salt: upserts(made, salt=salt), (None, "salt", 7)),
    "a salted password": (
        lambda made, password: upserts(made, salted_password=password),
        (b"", None, "password", 7),
    ),
    "the name of a SCRAM user": (lambda made, user: upserts(made, user=user), ("", None, 7)),
    "the lifetime of a token": (issues, (1 << 63, "1", None, 1.0, True)),
}


@pytest.mark.parametrize(
    ("case", "value"),
    [
        pytest.param(case, value, id=f"{name}: {value!r:.30}")
        for name, (case, values) in CASES.items()
        for value in values
    ],
)
def test_invalid_values_are_rejected(case: Case, value: Any) -> None:
    made = lab()
    try:
        decision = case(made, value)
    except KraftError:
        return
    assert len(decision.records) == 0
    response = decision.response
    if isinstance(response, dict):
        response = list(response.values())
    if isinstance(response, ElectionResults):
        response = [response.errors]
    (answer,) = response
    if not isinstance(answer, KraftError):
        # AssignReplicasToDirs and ElectLeaders respond with error codes.
        assert answer.tolist() != [0]


@pytest.mark.parametrize("election", ["preferred", "PREFERRED", "unclean", None, 0, 1, True])
def test_an_unknown_election_type_is_rejected(election: Any) -> None:
    with pytest.raises(InvalidRequestError, match="is not an election type"):
        requests.elect_leaders(election)


@pytest.mark.parametrize("election", ["PREFERRED", "Unclean", "", None, 0, ElectionType.PREFERRED])
def test_the_library_requires_the_exact_name_of_an_election_type(election: Any) -> None:
    metadata = Metadata(lab().cluster)
    with pytest.raises(InvalidRequestError, match="'preferred' or 'unclean'"):
        metadata.elect_leaders(election)


def test_registering_a_negative_broker_id_is_rejected() -> None:
    log = leading(3)
    bad = log.submit(
        requests.register_broker(RegistrationRequest(-1, Uuid(b"i" * 16), features=FEATURES))
    )
    log.settle()
    assert isinstance(log.answers[bad].error, InvalidRegistrationError)
    log.create("orders", 3, 3)


def test_a_negative_broker_id_in_the_log_does_not_stop_the_creation_of_topics() -> None:
    """Kafka accepts the registration of broker -1, so a log of Kafka may have one."""
    made = lab()
    template = made.cluster.state.brokers[3]
    for fenced in (False, True):
        made.write(
            records.RegisterBroker(
                broker_id=-1,
                incarnation_id=Uuid(b"-" * 16),
                broker_epoch=made.cluster.next_offset,
                features=[records.Feature("metadata.version", 7, LEVEL)],
                log_dirs=[Uuid(b"d" * 16)],
                fenced=fenced,
                rack=template.rack,
            )
        )
        decision = creates(
            made,
            name=f"new-{fenced}",
            topic_id=Uuid(bytes([9, fenced]) * 8),
            num_partitions=20,
            replication_factor=4,
        )
        (created,) = made.do(decision).values()
        assert created.replication_factor == 4
        by_hand = creates(made, assignments={0: [-1]})
        assert isinstance(by_hand.response["new"], InvalidReplicaAssignmentError)
    replicas = made.cluster.table.column("replicas")
    assert replicas.max() <= 3
    made.do(unregister_broker(made.cluster, -1))
    assert sorted(made.cluster.state.brokers) == [0, 1, 2, 3]
    with pytest.raises(BrokerIdNotRegisteredError):
        unregister_broker(made.cluster, -1)
