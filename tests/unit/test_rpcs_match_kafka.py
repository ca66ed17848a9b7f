"""The table of APIs and the schemas of their bodies, compared with those in Kafka's jars.

`tests/data/schemas-<release>.json.gz` has each release's schemas as Kafka prints them
(`tests/interop/schemas.py`); an interop test compares them with the jars.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft._core.codec.message_schema import FieldSpec
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.apis import BROKER_RPCS, RPC_BY_KEY, RPCS
from kraft.protocol.fetch import FETCH
from kraft.protocol.raft_rpcs import RAFT_APIS
from kraft.records import Struct
from kraft.security.principals import DefaultPrincipalData
from tests.reference.kafka_schemas import default_of, kept, snake_case, versions_of

KAFKA = {release: kept(release) for release in ("4.3.1", "4.4.0")}
# Fields that kraft names as in its other raft RPCs and not as in Kafka's schema.
OTHER_NAMES = {
    "FetchSnapshotRequestData": {"name": "topic_name", "partition": "partition_index"},
    "UpdateRaftVoterRequestData": {"k_raft_version_feature": "kraft_version_feature"},
}
ALL_RPCS = (*RPCS, *BROKER_RPCS)
BODIES = [
    pytest.param(kind, f"{rpc.api.name}{suffix}", version, id=f"{rpc.api.name}{suffix}-{version}")
    for rpc in ALL_RPCS
    for kind, suffix in ((rpc.request, "Request"), (rpc.response, "Response"))
    if kind is not None
    for version in range(rpc.api.lowest, rpc.api.highest + 1)
]


def controller_apis(release: str) -> dict[int, dict[str, Any]]:
    return {api["key"]: api for api in KAFKA[release]["apis"] if "CONTROLLER" in api["listeners"]}


def test_the_apis_and_versions_are_those_of_4_4() -> None:
    kafka = controller_apis("4.4.0")
    assert set(RPC_BY_KEY) == set(kafka)
    for key, api in kafka.items():
        own = RPC_BY_KEY[key].api
        assert (own.name, own.lowest, own.highest) == (api["name"], api["lowest"], api["highest"])
        flexible = versions_of(KAFKA["4.4.0"]["messages"][f"{own.name}Request"]["flexibleVersions"])
        assert own.flexible_since == (own.highest + 1 if flexible is None else flexible[0])


def test_4_3_has_the_same_but_for_one_api_and_one_version() -> None:
    kafka = controller_apis("4.3.1")
    ranges = {key: (api["lowest"], api["highest"]) for key, api in kafka.items()}
    own = {rpc.api.key: (rpc.api.lowest, rpc.api.highest) for rpc in RPCS}
    assert own == {**ranges, 18: (0, 5), 94: (0, 0)}


def test_the_apis_of_a_brokers_listener_are_those_of_4_3() -> None:
    kafka = {api["key"]: api for api in KAFKA["4.3.1"]["apis"] if api["listeners"] == ["BROKER"]}
    for rpc in BROKER_RPCS:
        api, own = kafka[rpc.api.key], rpc.api
        assert own[:4] == (api["key"], api["name"], api["lowest"], api["highest_stable"])
        flexible = versions_of(KAFKA["4.3.1"]["messages"][f"{own.name}Request"]["flexibleVersions"])
        assert own.flexible_since == (own.highest + 1 if flexible is None else flexible[0])


@pytest.mark.parametrize(("kind", "name", "version"), BODIES)
def test_every_field_is_as_in_kafkas_schema(kind: type[Message], name: str, version: int) -> None:
    for release in KAFKA:
        schema = KAFKA[release]["messages"].get(name)
        valid = versions_of(schema["validVersions"]) if schema is not None else None
        if valid is None or not valid[0] <= version <= valid[1]:
            assert release == "4.3.1"
            continue
        names = OTHER_NAMES.get(kind.__name__, {})
        assert fields_here(kind, version) == fields_of_kafka(schema, version, names)


def test_the_principal_of_an_envelope_is_as_in_kafkas_schema() -> None:
    schema = KAFKA["4.3.1"]["messages"]["DefaultPrincipalData"]
    assert versions_of(schema["validVersions"]) == (0, 0)
    assert fields_here(DefaultPrincipalData, 0) == fields_of_kafka(schema, 0, {})


@pytest.mark.parametrize("rpc", ALL_RPCS, ids=lambda rpc: rpc.api.name)
def test_a_field_is_dropped_where_kafka_drops_it(rpc: Any) -> None:
    """The raft layer's other RPCs are skipped: their encoders decide which fields to omit."""
    if rpc.api.key in RAFT_APIS and rpc.api is not FETCH:
        return
    for kind, suffix in ((rpc.request, "Request"), (rpc.response, "Response")):
        schema = KAFKA["4.4.0"]["messages"][rpc.api.name + suffix]
        versions = range(rpc.api.lowest, rpc.api.highest + 1)
        assert ignorable_here(kind, versions) == ignorable_of_kafka(schema["fields"], versions)


def is_in(version: int, text: str | None) -> bool:
    versions = versions_of(text)
    return versions is not None and versions[0] <= version <= versions[1]


def fields_here(kind: type[Struct], version: int) -> list[tuple[Any, ...]]:
    """Return the fields of a version: name, type, tag, whether null is allowed, default, fields."""
    return [
        (
            name,
            ("[]" if spec.is_array else "") + spec.kind,
            spec.tag,
            spec.nullable and version >= spec.nullable_since,
            plain_default(spec),
            fields_here(spec.of, version) if spec.of is not None else [],
        )
        for name, spec in kind.schema.specs.items()
        if spec.since <= version <= spec.until
    ]


def plain_default(spec: FieldSpec) -> Any:
    if spec.default is None:
        return None
    if spec.is_array:
        return list(spec.default)
    return None if spec.of is not None else spec.default


def fields_of_kafka(
    schema: dict[str, Any], version: int, names: dict[str, str]
) -> list[tuple[Any, ...]]:
    """Return the fields of a version of a JSON schema, in the form of `fields_here`.

    The default of a nullable field without one is null here, but empty in Kafka's classes.
    """
    common = {one["name"]: one["fields"] for one in schema.get("commonStructs", [])}

    def fields(listed: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [one(field) for field in listed if is_in(version, field["versions"])]

    def one(field: dict[str, Any]) -> tuple[Any, ...]:
        element = field["type"].removeprefix("[]")
        inner = field.get("fields", common.get(element))
        is_array = field["type"].startswith("[]")
        nullable = versions_of(field.get("nullableVersions"))
        own = snake_case(field["name"])
        default = default_of(field) if is_array or inner is None else None
        if nullable and nullable[0] <= schema_first(field) and "default" not in field:
            default = None
        return (
            names.get(own, own),
            ("[]" if is_array else "") + ("struct" if inner is not None else element),
            field["tag"] if is_in(version, field.get("taggedVersions")) else -1,
            is_in(version, field.get("nullableVersions")),
            default,
            fields(inner) if inner is not None else [],
        )

    def schema_first(field: dict[str, Any]) -> int:
        first, valid = versions_of(field["versions"]), versions_of(schema["validVersions"])
        assert first is not None
        assert valid is not None
        return max(first[0], valid[0])

    return fields(schema["fields"])


def ignorable_here(kind: type[Struct], versions: range) -> set[str]:
    """Return the fields that encoding drops in some version."""
    found = set()
    for name, spec in kind.schema.specs.items():
        if spec.of is not None:
            found |= ignorable_here(spec.of, versions)
        if spec.ignorable:
            assert spec.since > versions[0] or spec.until < versions[-1], name
            found.add(name)
    return found


def ignorable_of_kafka(listed: list[dict[str, Any]], versions: range) -> set[str]:
    found = set()
    for field in listed:
        having = [is_in(version, field["versions"]) for version in versions]
        if not any(having):
            continue
        found |= ignorable_of_kafka(field.get("fields", []), versions)
        if not all(having) and field.get("ignorable") in (True, "true"):
            found.add(snake_case(field["name"]))
    return found
