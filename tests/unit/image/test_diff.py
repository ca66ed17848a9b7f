"""Lists of the differences between two states."""

from __future__ import annotations

from kraft import records
from kraft.image import Change, ClusterState, diff
from kraft.records import Record, Uuid, control

ID = Uuid(bytes(range(16)))


def state(*log: Record) -> ClusterState:
    made = ClusterState()
    for offset, record in enumerate(log):
        made.apply(record, offset)
    return made


def broker(broker_id: int, **fields: object) -> records.RegisterBroker:
    return records.RegisterBroker(
        broker_id=broker_id, broker_epoch=5, incarnation_id=ID, rack=None, **fields
    )


def test_equal_states_do_not_differ_whatever_the_offsets() -> None:
    one = state(broker(1), records.Config(2, "t", "k", "v"))
    other = state(records.NoOp(), records.Config(2, "t", "k", "v"), broker(1))
    assert diff(one, other) == []


def test_a_changed_entry_is_listed_field_by_field() -> None:
    before = state(broker(1))
    after = state(broker(1, fenced=False, in_controlled_shutdown=True))
    assert diff(before, after) == [
        Change("broker", 1, "fenced", True, False),
        Change("broker", 1, "in_controlled_shutdown", False, True),
    ]
    assert str(diff(before, after)[0]) == "broker 1: fenced True -> False"


def test_an_entry_on_one_side_only_is_one_change() -> None:
    before, after = state(broker(2), broker(10)), state(broker(2), broker(3))
    added, removed = diff(before, after)
    assert (added.key, added.before, added.after.id) == (3, None, 3)
    assert (removed.key, removed.before.id, removed.after) == (10, 10, None)
    assert str(removed).startswith("broker 10: removed BrokerRegistration(id=10")


def test_settings_and_quotas_are_compared_one_by_one() -> None:
    def quota(name: str | None, value: float) -> Record:
        entity = records.EntityData(entity_type="user", entity_name=name)
        return records.ClientQuota(entity=[entity], key="producer_byte_rate", value=value)

    before = state(
        records.Config(2, "t", "a", "1"), records.Config(2, "t", "b", "1"), quota("alice", 1.0)
    )
    after = state(
        records.Config(2, "t", "a", "2"), records.Config(2, "t", "c", "1"), quota(None, 1.0)
    )
    assert diff(before, after) == [
        Change("config", (2, "t"), "a", "1", "2"),
        Change("config", (2, "t"), "b", "1", None),
        Change("config", (2, "t"), "c", None, "1"),
        Change("client_quota", (("user", "alice"),), "producer_byte_rate", 1.0, None),
        Change("client_quota", (("user", None),), "producer_byte_rate", None, 1.0),
    ]


def test_a_changed_secret_is_listed_without_its_values() -> None:
    def credential(salt: bytes, iterations: int) -> Record:
        return records.UserScramCredential(
            name="alice", mechanism=1, salt=salt, stored_key=b"k", iterations=iterations
        )

    changes = diff(state(credential(b"one", 4096)), state(credential(b"two", 8192)))
    assert changes == [
        Change("scram_credential", (1, "alice"), "salt", "[hidden]", "[hidden]"),
        Change("scram_credential", (1, "alice"), "iterations", 4096, 8192),
    ]


def test_swapping_the_states_swaps_the_sides_of_every_change() -> None:
    one = state(broker(1), records.FeatureLevel("metadata.version", 29))
    other = state(broker(2), records.FeatureLevel("metadata.version", 30))
    there, back = diff(one, other), diff(other, one)
    assert [(c.kind, c.key, c.field, c.after, c.before) for c in there] == [
        (c.kind, c.key, c.field, c.before, c.after) for c in back
    ]


def test_voters_of_the_quorum_are_compared_and_its_leader_is_not() -> None:
    before, after = ClusterState(), ClusterState()
    before.apply_control(control.LeaderChange(leader_id=1), 0, epoch=1)
    after.apply_control(control.LeaderChange(leader_id=2), 0, epoch=2)
    assert diff(before, after) == []

    after.apply_control(control.KRaftVersion(kraft_version=1), 1, epoch=2)
    assert diff(before, after) == [Change("quorum", "", "kraft_version", 0, 1)]
