"""This version reads the files that older versions of kraft wrote (``tests/data/kraft-COMMIT``)."""

from __future__ import annotations

import json
import shutil
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import msgpack
import pytest

import kraft
from kraft._core.bytes.checksum import crc32c
from kraft._core.log.disk import OsDisk
from kraft._core.snapshot.column_checkpoint import (
    SECTIONS_START,
    ColumnsRejected,
    columns_path,
    load_columns,
)
from kraft.errors import CorruptRecordError
from kraft.lab.trace import FORMAT, Trace
from kraft.metadata.verification import verify
from kraft.server.disk.files import SyncedOffset, read_quorum_state
from kraft.server.local_quorum import LOOPBACK, free_ports
from tests.harness.configurations import write_properties
from tests.harness.controller_nodes import Quorum, RunScenario, topics

DATA = Path(__file__).parents[2] / "data"
KEPT = sorted(DATA.glob("kraft-*"))
SIZE_AT = 8
HEADER_AT = 16
#: Tag, length, type and CRC-32 of a frame of a trace.
TRACE_PREFIX = struct.Struct(">BIbI")

pytestmark = pytest.mark.parametrize("kept", KEPT, ids=[each.name for each in KEPT])
needs_its_byte_order = pytest.mark.skipif(
    sys.byteorder != "little", reason="a column checkpoint has the byte order of its machine"
)


def manifest(kept: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((kept / "manifest.json").read_text())
    return found


def snapshot_in(directory: Path) -> Path:
    (found,) = directory.glob("*.checkpoint")
    return found


def edit_header(path: Path, **changes: object) -> None:
    """Change fields of a column checkpoint's header, and correct its size and checksum."""
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack_from("<I", data, SIZE_AT)
    header = msgpack.unpackb(data[HEADER_AT : HEADER_AT + size]) | changes
    packed = msgpack.packb(header)
    data[SIZE_AT:SECTIONS_START] = bytes(SECTIONS_START - SIZE_AT)
    struct.pack_into("<II", data, SIZE_AT, len(packed), crc32c(packed))
    data[HEADER_AT : HEADER_AT + len(packed)] = packed
    path.write_bytes(data)


def test_a_node_goes_on_with_the_directory_of_an_older_version(
    run_scenario: RunScenario, tmp_path: Path, kept: Path
) -> None:
    home = tmp_path / "quorum" / "controller-1"
    data = home / "data"
    shutil.copytree(kept / "controller", data)
    log = data / "__cluster_metadata-0"
    # What the older version synced and voted counts: neither is taken for Kafka's.
    assert SyncedOffset(OsDisk(), str(log)).offset >= manifest(kept)["endOffset"]
    stored = read_quorum_state(OsDisk(), str(log))
    assert stored is not None
    assert stored.is_ours
    (port,) = free_ports(1)
    write_properties(
        home / "controller.properties",
        {
            "process.roles": "controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{LOOPBACK}:{port}",
            "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{port}",
            "log.dirs": str(data),
        },
    )
    quorum = Quorum(tmp_path, 1)
    expected = manifest(kept)["topics"]

    async def scenario() -> None:
        await quorum.start()
        assert topics(quorum.cluster(await quorum.active())) == expected
        await quorum.brokers(1)
        await quorum.create("of-this-version")
        assert topics(quorum.cluster(1)) == expected | {"of-this-version": 1}

    run_scenario(scenario, quorum)
    assert not verify([log]).findings


@needs_its_byte_order
def test_log_snapshot_and_columns_of_an_older_version_are_the_same_state(kept: Path) -> None:
    path = snapshot_in(kept / "snapshots")
    end = manifest(kept)["endOffset"]
    columns = load_columns(path)
    assert not isinstance(columns, ColumnsRejected), columns
    states = [
        kraft.open_metadata(kept / "controller", at=end),
        kraft.open_metadata(path),
        kraft.open_metadata(path, use_column_cache=False),
    ]
    for state in states:
        assert {name: len(topic.rows) for name, topic in state.topics.items()} == manifest(kept)[
            "topics"
        ]
        assert len(state.brokers) == manifest(kept)["brokers"]
        assert not kraft.diff(states[0], state)


@needs_its_byte_order
@pytest.mark.parametrize("format_version", [0, 3, "1", None])
def test_columns_of_another_format_are_rejected_and_the_state_comes_from_the_snapshot(
    kept: Path, tmp_path: Path, format_version: object
) -> None:
    shutil.copytree(kept / "snapshots", tmp_path / "snapshots")
    path = snapshot_in(tmp_path / "snapshots")
    edit_header(Path(columns_path(path)), unknown="of a later version")
    assert not isinstance(load_columns(path), ColumnsRejected)
    edit_header(Path(columns_path(path)), format=format_version)
    rejected = load_columns(path)
    assert isinstance(rejected, ColumnsRejected)
    assert rejected.reason == f"its format is {format_version}, not 1 or 2"
    before = Path(columns_path(path)).read_bytes()
    opened = kraft.open_metadata(path)
    assert not kraft.diff(opened, kraft.open_metadata(path, use_column_cache=False))
    assert len(opened.topics) == len(manifest(kept)["topics"])
    assert Path(columns_path(path)).read_bytes() == before


def test_a_trace_of_an_older_version_is_read_and_one_of_a_newer_format_is_not(
    kept: Path, tmp_path: Path
) -> None:
    trace = Trace(kept / "lab.trace")
    assert trace.header.scenario == "lab million"
    assert sum(len(block.what) for block in trace.blocks()) > 20
    data = (kept / "lab.trace").read_bytes()
    field = b"\xa6format" + bytes([FORMAT])
    assert data.count(field) == 1
    newer = tmp_path / "newer.trace"
    newer.write_bytes(with_header_checksum(data.replace(field, b"\xa6format\x09")))
    with pytest.raises(CorruptRecordError, match=r"its format is 9; this version of kraft reads"):
        Trace(newer)


def with_header_checksum(data: bytes) -> bytes:
    """Return a trace with the right CRC-32 of its first frame."""
    tag, length, kind, _ = TRACE_PREFIX.unpack_from(data)
    body = data[TRACE_PREFIX.size : TRACE_PREFIX.size - 4 + length]
    crc = zlib.crc32(body, zlib.crc32(bytes((kind,))))
    return TRACE_PREFIX.pack(tag, length, kind, crc) + data[TRACE_PREFIX.size :]
