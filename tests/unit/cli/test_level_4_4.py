"""Metadata versions of Kafka 4.4: UnregisterController and CIDR patterns in ACLs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft import diff, open_metadata
from kraft._core.log.log import Log
from kraft.errors import ReplayError
from kraft.records import (
    AccessControlEntry,
    FeatureLevel,
    Record,
    RegisterController,
    UnregisterController,
    Uuid,
)
from kraft.records.batches import encode_records
from tests.unit.cli.conftest import METADATA_LOG, Run

ACL = AccessControlEntry(Uuid(b"acl-------------"), 2, "t", 3, "User:a", "2001:db8::/32", 3, 3)
RECORDS: tuple[Record, ...] = (
    FeatureLevel("metadata.version", 33),
    FeatureLevel("share.version", 2),
    RegisterController(101, Uuid(b"one-------------")),
    RegisterController(102, Uuid(b"two-------------")),
    UnregisterController(101),
    ACL,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Log.open(tmp_path / METADATA_LOG) as log:
        for record in RECORDS:
            data = encode_records([record], base_offset=log.log_end_offset, metadata_version=33)
            log.append(data)
    return tmp_path


def test_an_unregistered_controller_exists_only_in_past_states(directory: Path) -> None:
    metadata = open_metadata(directory)
    assert metadata.metadata_version == 33
    assert set(metadata.controllers) == {102}
    assert set(metadata.at(4).controllers) == {101, 102}
    (gone, _) = diff(metadata.at(4), metadata)
    assert (gone.kind, gone.key) == ("controller", 101)
    metadata.apply(UnregisterController(102))
    assert set(metadata.controllers) == set()
    with pytest.raises(ReplayError, match="controller 102, which is not registered"):
        metadata.apply(UnregisterController(102))
    metadata.revert(len(RECORDS))
    assert set(metadata.controllers) == {102}


def test_a_snapshot_has_the_controllers_that_are_left(directory: Path) -> None:
    metadata = open_metadata(directory)
    snapshot = metadata.write_snapshot(directory / "snapshots", columns=False)
    again = open_metadata(snapshot)
    assert not list(diff(metadata, again))
    assert {acl.host for acl in again.acls.values()} == {"2001:db8::/32"}
    assert dict(again.features) == {"metadata.version": 33, "share.version": 2}


def test_commands_print_it(directory: Path, kraft: Run) -> None:
    ran = kraft("log", "dump", directory / METADATA_LOG / f"{0:020}.log")
    payloads = [
        json.loads(line.partition("payload: ")[2]) for line in ran.lines if "payload" in line
    ]
    assert payloads[4] == {
        "type": "UNREGISTER_CONTROLLER_RECORD", "version": 0, "data": {"controllerId": 101},
    }  # fmt: skip
    document = kraft("open", directory, "--json").json
    assert document["metadataVersion"] == "4.4-IV2"
    assert [each["controllerId"] for each in document["controllers"]] == [102]
    assert kraft("verify", directory).code == 0
