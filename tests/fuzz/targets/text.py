"""The small text files of a metadata directory: parsed one by one, and in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kraft._core.log.epoch_cache import EpochCache
from kraft._core.log.partition_directory import (
    parse_partition_metadata,
    parse_segment_file,
    partition_metadata_bytes,
)
from kraft._core.snapshot.snapshot_file import parse_snapshot_name, snapshot_name
from kraft.errors import KraftError
from kraft.metadata.directory import (
    MetadataDirectory,
    parse_meta_properties,
    parse_quorum_state,
)
from kraft.metadata.properties import parse_properties
from tests.fuzz import samples
from tests.fuzz.scratch import scratch

PREFIX = 1
HOLDS_BATCHES = False

_FILES = ("quorum-state", "meta.properties", "leader-epoch-checkpoint", "partition.metadata")
_NAMES = len(_FILES)
_DIRECTORY = _NAMES + 1


def seeds() -> Iterator[bytes]:
    for number, name in enumerate(_FILES):
        for path in samples.files(name):
            yield bytes((number,)) + path.read_bytes()
            yield bytes((_DIRECTORY + number,)) + path.read_bytes()
    yield b"\x00" + (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    yield b"\x01version=0\nbroker.id : 7\\\n 8\n! a comment\ncluster.id=\\u0041\\t"
    yield bytes((_NAMES,)) + b"00000000000000000251-0000000001.checkpoint"
    yield bytes((_NAMES,)) + b"00000000000000000251.log"


def run(data: bytes) -> None:
    if not data:
        return
    choice, content = data[0] % (_DIRECTORY + len(_FILES)), data[1:]
    try:
        if choice >= _DIRECTORY:
            _in_a_directory(_FILES[choice - _DIRECTORY], content)
        elif choice == _NAMES:
            _name(content.decode("utf-8", "surrogateescape"))
        elif choice == 2:
            _leader_epochs(content)
        elif choice == 3:
            parsed = parse_partition_metadata(content)
            assert parse_partition_metadata(partition_metadata_bytes(parsed)) == parsed
        else:
            text = content.decode("utf-8", "replace")
            if choice == 0:
                parse_quorum_state(text)
            else:
                parse_properties(text)
                parse_meta_properties(text)
    except KraftError:
        return


def _leader_epochs(content: bytes) -> None:
    cache = EpochCache.from_bytes(content)
    again = EpochCache.from_bytes(cache.to_bytes())
    assert again.entries == cache.entries
    for epoch, start_offset in cache.entries[:20]:
        assert cache.epoch_at(start_offset) == epoch
        found = cache.end_offset_for(epoch, start_offset)
        assert found is None or found.epoch <= epoch
    cache.truncate_from_end(5)
    cache.truncate_from_start(3)


def _name(name: str) -> None:
    parsed = parse_snapshot_name(name)
    assert parsed is None or snapshot_name(*parsed) == name
    segment = parse_segment_file(name)
    assert segment is None or f"{segment[0]:020d}{segment[1]}" == name


def _in_a_directory(name: str, content: bytes) -> None:
    directory = scratch("text")
    (directory / "bootstrap.checkpoint").write_bytes(b"")
    metadata = directory / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / f"{0:020d}.log").write_bytes(b"")
    for place in (directory, metadata):
        (place / name).write_bytes(content)
    before = _names(directory)
    try:
        MetadataDirectory.find(directory)
    finally:
        assert _names(directory) == before


def _names(directory: Path) -> list[str]:
    return sorted(str(path) for path in directory.rglob("*"))
