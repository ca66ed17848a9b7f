"""Set, change and describe quotas of users, client ids and IP addresses."""

from __future__ import annotations

import math

import pytest

from kraft import records
from kraft.controller.configs.client_quotas import (
    Entity,
    QuotaAlteration,
    QuotaFilter,
    alter_client_quotas,
    describe_client_quotas,
    is_ip_address,
)
from kraft.errors import (
    InvalidRequestError,
    KraftError,
    PolicyViolationError,
    UnsupportedVersionError,
)
from kraft.image import quota_entity
from tests.harness.decisions import Lab, whole

ALICE = {"user": "alice"}


def alter(
    lab: Lab, entity: Entity, *quotas: tuple[str, float | None], hosts: tuple[str, ...] = ()
) -> KraftError | None:
    decision = whole(
        alter_client_quotas(lab.cluster, [QuotaAlteration(entity, quotas)], resolvable=hosts)
    )
    return lab.do(decision)[quota_entity(entity)]


def test_a_quota_is_set_changed_and_removed() -> None:
    lab = Lab(brokers=0)
    for value in (1000.0, 2000.0):
        assert alter(lab, ALICE, ("producer_byte_rate", value)) is None
        assert lab.cluster.state.client_quotas.of(ALICE) == {"producer_byte_rate": value}
    assert alter(lab, ALICE, ("producer_byte_rate", None)) is None
    assert not lab.cluster.state.client_quotas


def test_only_changes_are_written() -> None:
    lab = Lab(brokers=0)
    alter(lab, ALICE, ("producer_byte_rate", 5.0))
    asked = QuotaAlteration(
        ALICE,
        [
            ("producer_byte_rate", 5.0),
            ("consumer_byte_rate", None),
            ("request_percentage", 12.5),
        ],
    )
    decision = whole(alter_client_quotas(lab.cluster, [asked]))
    assert list(decision.records) == [
        records.ClientQuota(
            entity=[records.EntityData(entity_type="user", entity_name="alice")],
            key="request_percentage",
            value=12.5,
            remove=False,
        )
    ]


@pytest.mark.parametrize(
    "entity",
    [
        {"user": None},
        {"user": "a", "client-id": None},
        {"client-id": "c"},
        {"client-id": None, "user": None},
    ],
)
def test_named_and_default_users_and_client_ids(entity: Entity) -> None:
    lab = Lab(brokers=0)
    assert alter(lab, entity, ("controller_mutation_rate", 0.5)) is None
    assert lab.cluster.state.client_quotas.of(entity) == {"controller_mutation_rate": 0.5}


@pytest.mark.parametrize(
    "entity",
    [
        {},
        {"user": ""},
        {"group": "g"},
        {"ip": "10.0.0.1", "user": "a"},
        {"ip": "not an address"},
        {"ip": "host.example"},
    ],
)
def test_invalid_entities_are_rejected(entity: Entity) -> None:
    lab = Lab(brokers=0)
    assert isinstance(alter(lab, entity, ("connection_creation_rate", 1.0)), InvalidRequestError)
    assert not lab.cluster.state.client_quotas


@pytest.mark.parametrize("ip", [None, "10.0.0.1", "::1", "[fe80::1]", "host.example"])
def test_an_ip_is_an_address_or_a_resolved_host(ip: str | None) -> None:
    lab = Lab(brokers=0)
    quota = ("connection_creation_rate", 7.0)
    assert alter(lab, {"ip": ip}, quota, hosts=("host.example",)) is None
    assert isinstance(alter(lab, {"ip": ip}, ("producer_byte_rate", 1.0)), InvalidRequestError)


def test_addresses_are_parsed_as_in_java() -> None:
    assert all(map(is_ip_address, ["1.2.3.4", "127.1", "1", "4294967295", "::ffff:1.2.3.4"]))
    assert all(map(is_ip_address, ["fe80::1%1"]))
    assert not any(map(is_ip_address, ["", "256.1.1.1", "1.2.3.4.5", "4294967296", "1.", "[1]"]))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer_byte_rate", 0.0),
        ("producer_byte_rate", -1.0),
        ("producer_byte_rate", 1.5),
        ("producer_byte_rate", 1e19),
        ("producer_byte_rate", math.inf),
        ("request_percentage", math.nan),
        ("connection_creation_rate", 1.0),
        ("nonsense", 1.0),
    ],
)
def test_invalid_quotas_are_rejected(key: str, value: float) -> None:
    lab = Lab(brokers=0)
    assert isinstance(alter(lab, ALICE, (key, value)), InvalidRequestError)
    assert not lab.cluster.state.client_quotas


def test_one_entity_fails_as_a_whole_and_the_others_are_changed() -> None:
    lab = Lab(brokers=0)
    good = ("producer_byte_rate", 1.0)
    response = lab.do(
        alter_client_quotas(
            lab.cluster,
            [
                QuotaAlteration(ALICE, [good, ("nonsense", 1.0)]),
                QuotaAlteration({"user": "bob"}, [good]),
            ],
        )
    )
    assert isinstance(response[("user", "alice"),], InvalidRequestError)
    assert response[("user", "bob"),] is None
    assert list(lab.cluster.state.client_quotas) == [(("user", "bob"),)]


def test_entries_that_are_named_twice_are_rejected() -> None:
    lab = Lab(brokers=0)
    one = ("producer_byte_rate", 1.0)
    assert isinstance(alter(lab, ALICE, one, one), InvalidRequestError)
    twice = [QuotaAlteration(ALICE, [one]), QuotaAlteration(ALICE, [("producer_byte_rate", 2.0)])]
    decision = whole(alter_client_quotas(lab.cluster, twice))
    assert isinstance(decision.response[("user", "alice"),], InvalidRequestError)
    # As in Kafka, the first of two entries for the same entity applies.
    assert [record.value for record in decision.records] == [1.0]  # type: ignore[attr-defined]


def test_validate_only_writes_no_record() -> None:
    asked = [QuotaAlteration(ALICE, [("producer_byte_rate", 1.0)])]
    decision = whole(alter_client_quotas(Lab(brokers=0).cluster, asked, validate_only=True))
    assert decision.response == {(("user", "alice"),): None}
    assert len(decision.records) == 0


def test_more_records_than_one_batch_holds_are_rejected() -> None:
    asked = [
        QuotaAlteration({"user": str(number)}, [("producer_byte_rate", 1.0)])
        for number in range(10_001)
    ]
    with pytest.raises(PolicyViolationError):
        whole(alter_client_quotas(Lab(brokers=0).cluster, asked, at_once=10_001))


def found(lab: Lab, *filters: QuotaFilter, is_strict: bool = False) -> list[Entity]:
    described = describe_client_quotas(lab.cluster, filters, is_strict=is_strict)
    return sorted(map(dict, described), key=str)


def test_filters_find_quotas_by_the_parts_of_entities() -> None:
    lab = Lab(brokers=0)
    both, default, address = {"user": "alice", "client-id": "c"}, {"user": None}, {"ip": "::1"}
    for entity in (ALICE, both, default):
        alter(lab, entity, ("producer_byte_rate", 1.0))
    alter(lab, address, ("connection_creation_rate", 1.0))
    alice = QuotaFilter("user", "alice")
    assert len(found(lab)) == 4
    assert found(lab, alice) == sorted(map(dict, (ALICE, both)), key=str)
    assert found(lab, alice, is_strict=True) == [ALICE]
    assert found(lab, QuotaFilter("user")) == [default]
    assert len(found(lab, QuotaFilter("user", is_any=True))) == 3
    assert len(found(lab, QuotaFilter("user", is_any=True), is_strict=True)) == 2
    assert found(lab, QuotaFilter("client-id", is_any=True), alice, is_strict=True) == [both]
    assert found(lab, QuotaFilter("user", "nobody"), is_strict=True) == []
    assert found(lab, is_strict=True) == []


def test_a_contradictory_filter_is_rejected() -> None:
    lab = Lab(brokers=0)
    user, address = QuotaFilter("user", is_any=True), QuotaFilter("ip", "::1")
    for filters in ([user, user], [user, address], [QuotaFilter("", "x")]):
        with pytest.raises(InvalidRequestError):
            describe_client_quotas(lab.cluster, filters)
    with pytest.raises(UnsupportedVersionError):
        describe_client_quotas(lab.cluster, [QuotaFilter("group", "g")])


def test_many_entities_are_decided_in_chunks() -> None:
    lab = Lab(brokers=0)
    asked = [
        QuotaAlteration({"user": str(number)}, [("producer_byte_rate", 1.0)])
        for number in range(10_500)
    ]
    asked.append(QuotaAlteration({"user": "7"}, []))
    response, sizes = lab.do_chunks(alter_client_quotas(lab.cluster, asked))
    assert max(sizes) < 1_000
    assert len(lab.cluster.state.client_quotas) == 10_500
    assert [entity for entity, error in response.items() if error] == [(("user", "7"),)]
