"""Records are printed as the JSON of Kafka's own tools, with secrets hidden."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kraft.image import ScramCredential
from kraft.metadata.kafka_json import (
    camel_case,
    data_of,
    is_secret_setting,
    json_value,
    settings_of,
    type_name,
)
from kraft.records import (
    ClientQuota,
    Config,
    KRaftVoters,
    LeaderChange,
    NoOp,
    PartitionChange,
    UserScramCredential,
    Uuid,
    ZkMigrationState,
    decode_control,
    decode_value,
)

CORPUS = Path(__file__).parents[2] / "data" / "record-corpus-4.3.jsonl.gz"


def corpus(kind: str) -> list[dict[str, Any]]:
    lines = gzip.decompress(CORPUS.read_bytes()).decode().splitlines()
    return [line for line in map(json.loads, lines) if kind in line]


def test_every_record_in_every_version_is_the_json_of_kafkas_converter() -> None:
    lines = corpus("record")
    assert len(lines) > 300
    for line in lines:
        record = decode_value(bytes.fromhex(line["value"]))
        assert data_of(record, show_secrets=True) == line["fields"], line["record"]


def test_every_control_record_is_the_json_of_kafkas_converter() -> None:
    for line in corpus("control"):
        record = decode_control(line["key"], bytes.fromhex(line["value"]))
        written = {"version": record.version, **data_of(record)}
        expected = {"version": record.version, **line["fields"]}
        assert {**written, "version": 0} == {**expected, "version": 0}, line["control"]


def test_type_names_are_kafkas() -> None:
    assert type_name(PartitionChange) == "PARTITION_CHANGE_RECORD"
    assert type_name(NoOp) == "NO_OP_RECORD"
    assert type_name(ZkMigrationState) == "ZK_MIGRATION_STATE_RECORD"
    assert type_name(LeaderChange) == "LeaderChange"
    assert type_name(KRaftVoters) == "KRaftVoters"


def test_field_names_are_written_in_kafkas_camel_case() -> None:
    assert camel_case("kraft_version_feature") == "kRaftVersionFeature"
    assert camel_case("end_points") == "endPoints"
    assert camel_case("rack") == "rack"


def test_the_salt_and_keys_of_a_credential_are_hidden_unless_asked_for() -> None:
    record = UserScramCredential("alice", 1, b"salt", b"stored", b"server", 4096, version=0)
    hidden = data_of(record)
    assert {name for name, value in hidden.items() if value == "[hidden]"} == {
        "salt",
        "storedKey",
        "serverKey",
    }
    assert (hidden["name"], hidden["iterations"]) == ("alice", 4096)
    assert data_of(record, show_secrets=True)["salt"] == "c2FsdA=="


def test_the_state_of_a_credential_shows_no_secret_either() -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    assert json_value(credential) == {"iterations": 4096}


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.password",
        "listener.name.internal.ssl.key.password",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates",
        "delegation.token.secret.key",
        "remote.log.storage.aws.secret.access.key",
    ],
)
def test_settings_that_kafka_keeps_as_passwords_are_hidden(name: str) -> None:
    assert is_secret_setting(name)
    record = Config(4, "1", name, "hunter2", version=0)
    assert data_of(record)["value"] == "[hidden]"
    assert data_of(record.replace(value=None))["value"] is None
    assert settings_of({name: "hunter2", "a": "b"}) == {name: "[hidden]", "a": "b"}


@pytest.mark.parametrize(
    "name",
    [
        *("retention.ms", "ssl.keystore.location", "password.encoder.iterations"),
        *("delegation.token.max.lifetime.ms", "ssl.keystore.type", "segment.index.bytes"),
    ],
)
def test_other_settings_are_shown(name: str) -> None:
    assert not is_secret_setting(name)


def test_a_number_that_json_does_not_have_becomes_text() -> None:
    record = ClientQuota([], "producer_byte_rate", float("nan"), False, version=0)
    assert data_of(record)["value"] == "NaN"
    assert json_value([float("inf"), float("-inf"), 1.5]) == ["Infinity", "-Infinity", 1.5]


def test_a_uuid_is_kafkas_text() -> None:
    assert json_value({"id": Uuid(bytes(16))}) == {"id": "AAAAAAAAAAAAAAAAAAAAAA"}
