"""The meta.properties of a node's directories: their checks, and the ids that a start adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.errors import InvalidConfigError, StorageError
from kraft.image.nodes import is_reserved_directory
from kraft.metadata.directory import MetaProperties, parse_meta_properties
from kraft.metadata.identifiers import random_uuid
from kraft.records import Uuid
from kraft.server.config.loading import ServerConfig
from kraft.server.storage.meta_properties import (
    LogDirectories,
    load_identity,
    meta_properties_bytes,
)
from tests.harness.configurations import CONTROLLER, write_configuration

A, B = Uuid(range(16)), Uuid(range(16, 32))


def node(tmp_path: Path, **directories: str | None) -> ServerConfig:
    """Return the configuration of node 1; each directory has this meta.properties, or none."""
    for name, content in directories.items():
        (tmp_path / name).mkdir()
        if content is not None:
            (tmp_path / name / "meta.properties").write_text(content)
    dirs = ",".join(str(tmp_path / name) for name in directories)
    return ServerConfig.load(write_configuration(tmp_path, CONTROLLER | {"log.dirs": dirs}))


def formatted(directory_id: Uuid | None, cluster_id: str = "c", node_id: int = 1) -> str:
    return meta_properties_bytes(MetaProperties(1, cluster_id, node_id, directory_id)).decode()


def test_written_properties_read_back() -> None:
    for properties in (
        MetaProperties(1, "a=b # c\\", 3, A),
        MetaProperties(0, None, None, None),
        MetaProperties(0, " é", 2, B),
    ):
        content = meta_properties_bytes(properties)
        assert parse_meta_properties(content.decode("latin-1")) == properties


def test_the_directories_identify_the_node(tmp_path: Path) -> None:
    config = node(tmp_path, a=formatted(A), b=formatted(B))
    identity = load_identity(config)
    assert (identity.cluster_id, identity.node_id, identity.directory_id) == ("c", 1, A)
    assert identity.directory_ids == {str(tmp_path / "a"): A, str(tmp_path / "b"): B}
    assert not identity.failed


def test_a_directory_without_an_id_gets_a_durable_one(tmp_path: Path) -> None:
    old = "broker.id=1\ncluster.id=c\n"
    config = node(tmp_path, a=old, b=formatted(A))
    drawn = iter((A, B))
    identity = load_identity(config, draw=lambda: next(drawn))
    assert identity.directory_id == B, "the other directory has the id A"
    assert load_identity(config).directory_id == B
    again = parse_meta_properties((tmp_path / "a" / "meta.properties").read_text())
    assert again == MetaProperties(0, "c", 1, B), "the file keeps its version 0"
    assert not (tmp_path / "a" / "meta.properties.tmp").exists()


@pytest.mark.parametrize(
    ("a", "b", "error", "words"),
    [
        (formatted(A), formatted(B, "other"), InvalidConfigError, "belongs to cluster 'other'"),
        (formatted(A), formatted(B, "c", 2), InvalidConfigError, "to node 2, and this is node 1"),
        (formatted(A), formatted(A), InvalidConfigError, "a directory was copied"),
        (formatted(Uuid(15 * b"\0" + b"\2")), formatted(B), InvalidConfigError, "is reserved"),
        (formatted(A), None, StorageError, r"b is not formatted.*kraft storage format"),
        ("version=7\n", formatted(B), StorageError, "version '7'"),
        ("cluster.id=c\n", formatted(B), InvalidConfigError, "has no node id"),
        ("broker.id=1\n", formatted(B), InvalidConfigError, r"has no cluster\.id"),
    ],
)
def test_directories_that_contradict_each_other_are_rejected(
    tmp_path: Path, a: str, b: str | None, error: type[Exception], words: str
) -> None:
    config = node(tmp_path, a=a, b=b)
    with pytest.raises(error, match=words):
        load_identity(config)


def test_a_damaged_data_directory_is_reported_and_left(tmp_path: Path) -> None:
    config = node(tmp_path, a=formatted(A), b="version=1\n")
    identity = load_identity(config)
    assert list(identity.failed) == [str(tmp_path / "b")]
    assert "has no cluster.id" in identity.failed[str(tmp_path / "b")]


def test_a_metadata_log_in_a_data_directory_is_rejected(tmp_path: Path) -> None:
    config = node(tmp_path, a=formatted(A), b=formatted(B))
    (tmp_path / "b" / "__cluster_metadata-0").mkdir()
    with pytest.raises(InvalidConfigError, match="a metadata log outside of the metadata"):
        load_identity(config)


def test_loading_classifies_directories(tmp_path: Path) -> None:
    node(tmp_path, a=formatted(A), b=None, c="version=1\ncluster.id=c\nnode.id=x")
    paths = [str(tmp_path / name) for name in ("c", "b", "a", "absent")]
    found = LogDirectories.load_all(paths)
    assert list(found.formatted) == [str(tmp_path / "a")]
    assert found.empty == (str(tmp_path / "absent"), str(tmp_path / "b"))
    assert list(found.failed) == [str(tmp_path / "c")]


def test_random_uuids_are_unique() -> None:
    drawn = {random_uuid() for _ in range(1000)}
    assert len(drawn) == 1000
    assert not any(str(uuid).startswith("-") or is_reserved_directory(uuid) for uuid in drawn)


def test_ids_below_a_hundred_in_java_are_reserved() -> None:
    """Java reads the lower half as signed: an id with only its highest bit is reserved too."""
    assert is_reserved_directory(Uuid(bytes(15) + b"\x63"))
    assert not is_reserved_directory(Uuid(bytes(15) + b"\x64"))
    assert is_reserved_directory(Uuid(bytes(8) + b"\x80" + bytes(7)))
    assert not is_reserved_directory(Uuid(bytes(7) + b"\x01" + bytes(8)))
