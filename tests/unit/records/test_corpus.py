"""Records that Kafka 4.3.1 wrote in every version, compared with the output of Kafka's classes.

``tests/interop/java/RecordCorpus.java`` writes the corpus.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kraft.records import (
    CONTROL_TYPES,
    LATEST_PRODUCTION,
    MINIMUM_VERSION,
    RECORD_TYPES,
    RECORD_TYPES_BY_KEY,
    SUPPORTED_FEATURES,
    MetadataVersion,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    Struct,
    UnregisterController,
    Uuid,
    control_type,
    decode_control,
    decode_value,
    default_feature_level,
    encode_control,
    encode_value,
    feature_dependencies,
    record_version,
)
from tests.reference import record_twin

CORPUS = Path(__file__).parents[2] / "data" / "record-corpus-4.3.jsonl.gz"
LINES: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress(CORPUS.read_bytes()).decode().splitlines()
]


def lines(kind: str) -> list[dict[str, Any]]:
    return [line for line in LINES if kind in line]


def snake_case(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower().replace("k_raft", "kraft")


def type_of(line: dict[str, Any]) -> type[Record]:
    control = "control" in line or line.get("kind") == "control"
    return (CONTROL_TYPES if control else RECORD_TYPES_BY_KEY)[line["key"]]


def as_json(value: Any, printed: Any) -> Any:
    """Return a field as Kafka's JsonConverter prints it; ``printed`` maps doubles to texts."""
    if isinstance(value, Struct):
        made = {
            name: as_json(getattr(value, name), printed.get(camel))
            for camel, name in ((camel, snake_case(camel)) for camel in printed)
            if name != "version"
        }
        return made | ({"version": printed["version"]} if "version" in printed else {})
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [as_json(e, p) for e, p in zip(value, printed or [], strict=True)]
    if isinstance(value, float):
        return value if not isinstance(printed, str) else str(value).replace("inf", "Infinity")
    return value


def as_printed(fields: Any) -> Any:
    """Return Kafka's output with kraft's field names."""
    if isinstance(fields, dict):
        return {snake_case(name): as_printed(value) for name, value in fields.items()}
    return [as_printed(e) for e in fields] if isinstance(fields, list) else fields


def schema_text(type: type[Struct], version: int) -> str:
    """Return kraft's schema in the text form of Kafka's Schema in the corpus."""
    regular, tagged = [], []
    for name, spec in type.schema.specs.items():
        if not spec.since <= version <= spec.until:
            continue
        kind = schema_text(spec.of, version) if spec.of else spec.kind
        kind = f"{'[]' if spec.is_array else ''}{kind}{'?' if spec.nullable else ''}"
        if spec.tag < 0:
            regular.append(f"{name}:{kind}")
        else:
            tagged.append((spec.tag, f"{spec.tag}={name}:{kind}"))
    return "{" + ",".join([*regular, *(text for _, text in sorted(tagged))]) + "}"


@pytest.mark.parametrize("line", lines("schema"), ids=lambda s: f"{s['schema']}-{s['version']}")
def test_the_schema_equals_that_of_kafkas_class(line: dict[str, Any]) -> None:
    made = type_of(line)
    text = schema_text(made, line["version"])
    if line["kind"] == "control":
        text = text.replace("{", "{version:int16,", 1).replace(",}", "}")
    assert text == line["fields"]
    codec = made.schema
    assert (codec.lowest_version, codec.highest_version) == (line["lowest"], line["highest"])
    defaults = {name: as_json(spec.default, None) for name, spec in codec.specs.items()}
    defaults |= {"version": 0} if line["kind"] == "control" else {}
    assert defaults == line["defaults"]


def test_the_table_has_every_record_of_kafka_and_one_of_its_next_release() -> None:
    kafka = {line["schema"].removesuffix("Record"): line["key"] for line in lines("schema")
             if line["kind"] == "record"}  # fmt: skip
    ours = {name: made.schema.api_key for name, made in RECORD_TYPES.items()}
    assert ours == kafka | {"UnregisterController": 29}


@pytest.mark.parametrize("name", sorted(RECORD_TYPES))
def test_every_record_of_a_type_reads_as_kafka_prints_it_and_is_written_back(name: str) -> None:
    if RECORD_TYPES[name] is UnregisterController:
        record = UnregisterController(3)
        assert encode_value(record, version=0).hex() == "011d000000000300"
        assert decode_value(bytes.fromhex("011d000000000300")) == record
        return
    own = [line for line in lines("record") if line["record"] == f"{name}Record"]
    assert len(own) >= 10
    for line in own:
        value = bytes.fromhex(line["value"])
        record = decode_value(value)
        assert type(record) is RECORD_TYPES[name]
        assert record.version == line["version"]
        assert as_json(record, line["fields"]) == as_printed(line["fields"])
        unknown = {int(tag): bytes.fromhex(data) for tag, data in line["unknown"].items()}
        assert (record.unknown_tagged_fields or {}) == unknown
        assert encode_value(record) == value
        assert encode_value(record.replace(version=-1), version=line["version"]) == value


@pytest.mark.parametrize("type", sorted(CONTROL_TYPES))
def test_every_control_record_reads_as_kafka_prints_it_and_is_written_back(type: int) -> None:
    own = [line for line in lines("control") if line["key"] == type]
    assert len(own) >= 10
    for line in own:
        value = bytes.fromhex(line["value"])
        record = decode_control(type, value)
        assert control_type(record) == type
        assert as_json(record, line["fields"]) == as_printed(line["fields"])
        assert encode_control(record, line["version"]) == value


def test_the_twin_reads_and_writes_the_corpus_too() -> None:
    """The reference codec decodes every record of the corpus and encodes the same bytes."""
    schemas = {(line["schema"], line["version"]): line["fields"] for line in lines("schema")}
    for line in lines("record"):
        kind = record_twin.parse(schemas[line["record"], line["version"]])
        body = bytes.fromhex(line["value"])[3:]
        assert record_twin.encode(kind, record_twin.decode(kind, body)) == body


@pytest.mark.parametrize("line", lines("level"), ids=lambda line: line["text"])
def test_a_metadata_version_gates_the_same_as_in_kafka(line: dict[str, Any]) -> None:
    version = MetadataVersion.from_level(line["level"])
    for name, value in line.items():
        attribute = snake_case(name)
        if attribute.endswith("_supported") or attribute in {
            "text", "short_text", "did_metadata_change",
            "is_leader_epoch_bump_required_on_isr_shrink",
        }:  # fmt: skip
            assert getattr(version, attribute) == value, attribute
    assert record_version(RegisterBroker, version) == line["registerBrokerRecordVersion"]
    assert record_version(Partition, version) == line["partitionRecordVersion"]
    assert record_version(PartitionChange, version) == line["partitionChangeRecordVersion"]
    for feature, level in line["features"].items():
        # share.version 2 was added in 4.4, where level 31 enables it by default.
        ours = default_feature_level(feature, version)
        assert ours == level or (feature, ours, line["level"]) == ("share.version", 2, 31)
    assert MetadataVersion.from_text(line["text"]) is version


def test_levels_and_features_are_those_of_the_pinned_release() -> None:
    levels = [line["level"] for line in lines("level")]
    assert levels == list(range(MINIMUM_VERSION, LATEST_PRODUCTION + 2))
    assert max(line["level"] for line in lines("level") if line["isProduction"]) == (
        LATEST_PRODUCTION
    )
    ranges = {line["feature"]: (line["min"], line["max"]) for line in lines("feature")}
    of_4_4 = {"metadata.version": (7, 33), "share.version": (0, 2)}
    assert ranges | of_4_4 == SUPPORTED_FEATURES
    for line in lines("feature"):
        for level in line["levels"]:
            assert feature_dependencies(line["feature"], level["level"]) == level["needs"]
