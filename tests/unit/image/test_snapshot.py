"""The records of a snapshot: order, versions, and states that a level cannot express."""

from __future__ import annotations

import pytest

from kraft import records
from kraft.errors import UnsupportedVersionError
from kraft.image import ClusterState
from kraft.records import Record, Uuid

ID = Uuid(bytes(range(16)))


def state_at(level: int, *log: Record) -> ClusterState:
    state = ClusterState()
    state.apply(records.FeatureLevel("metadata.version", level), 0)
    for offset, record in enumerate(log, start=1):
        state.apply(record, offset)
    return state


def broker(broker_id: int, **fields: object) -> records.RegisterBroker:
    return records.RegisterBroker(broker_id=broker_id, incarnation_id=ID, **fields)


def names(made: list[Record]) -> list[str]:
    return [type(record).__name__ for record in made]


def test_the_kinds_come_in_the_order_in_which_kafka_writes_them() -> None:
    state = state_at(
        30,
        records.DelegationToken(owner="User:a", requester="User:a", token_id="t"),
        records.UserScramCredential(name="a", mechanism=1),
        records.AccessControlEntry(id=ID),
        records.ProducerIds(broker_id=1, broker_epoch=1, next_producer_id=1000),
        records.ClientQuota(
            entity=[records.EntityData(entity_type="user", entity_name="a")], key="k", value=1.0
        ),
        records.Config(2, "b", "k", "v"),
        records.Config(2, "a", "k", "v"),
        records.RegisterController(controller_id=101, incarnation_id=ID),
        broker(2),
        broker(1),
        records.FeatureLevel("group.version", 1),
    )
    before = list(state.snapshot_records_before_topics())
    after = list(state.snapshot_records_after_topics())

    assert names(before) == [
        "FeatureLevel",
        "FeatureLevel",
        "RegisterBroker",
        "RegisterBroker",
        "RegisterController",
    ]
    assert before[0] == records.FeatureLevel("metadata.version", 30)
    assert [record.broker_id for record in before[2:4]] == [1, 2]
    assert names(after) == [
        "Config",
        "Config",
        "ClientQuota",
        "ProducerIds",
        "AccessControlEntry",
        "UserScramCredential",
        "DelegationToken",
    ]
    assert after[3] == records.ProducerIds(broker_id=-1, broker_epoch=-1, next_producer_id=1000)


@pytest.mark.parametrize(("level", "version"), [(6, 0), (7, 1), (8, 2), (17, 3), (29, 3), (30, 4)])
def test_a_registration_is_written_in_the_version_of_its_metadata_version(
    level: int, version: int
) -> None:
    _, registration = state_at(level, broker(1)).snapshot_records_before_topics()
    assert registration.version == version


@pytest.mark.parametrize(
    ("level", "record", "what"),
    [
        (29, broker(1, log_dirs=[ID], cordoned_log_dirs=[ID]), "the cordoned log dirs of broker 1"),
        (16, broker(1, log_dirs=[ID]), "the log dirs of broker 1"),
        (14, records.RegisterController(controller_id=1, incarnation_id=ID), "RegisterController"),
        (13, records.DelegationToken(owner="a:b", requester="a:b", token_id="t"), "DelegationTok"),
        (10, records.UserScramCredential(name="a", mechanism=1), "UserScramCredential"),
    ],
)
def test_a_level_that_cannot_express_the_state_is_an_error(
    level: int, record: Record, what: str
) -> None:
    state = state_at(level, record)
    with pytest.raises(UnsupportedVersionError, match=what):
        names([*state.snapshot_records_before_topics(), *state.snapshot_records_after_topics()])


def test_without_a_metadata_version_there_is_no_snapshot() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"a snapshot needs a metadata\.version"):
        list(ClusterState().snapshot_records_before_topics())


def test_an_empty_cluster_has_only_its_features() -> None:
    state = state_at(30)
    assert names(list(state.snapshot_records_before_topics())) == ["FeatureLevel"]
    assert list(state.snapshot_records_after_topics()) == []
