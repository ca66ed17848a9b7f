"""Find a metadata directory by any path that users give, and parse its text files."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from kraft.errors import CorruptRecordError, StorageError, UnsupportedVersionError
from kraft.metadata.directory import (
    MetadataDirectory,
    MetaProperties,
    QuorumState,
    parse_meta_properties,
    parse_quorum_state,
)
from kraft.records import Uuid

REAL = sorted((Path(__file__).parents[2] / "data").glob("kafka-*/*/meta.properties"))

META_PROPERTIES = """#
#Sat Nov 21 06:39:04 UTC 2026
node.id=101
directory.id=7wxPfKyQQeapKm8JAvo_eQ
version=1
cluster.id=a-cluster
"""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a log.dir with the files of a controller; most of them have no valid content."""
    metadata = tmp_path / "__cluster_metadata-0"
    metadata.mkdir()
    (tmp_path / "meta.properties").write_text(META_PROPERTIES)
    (tmp_path / "bootstrap.checkpoint").write_bytes(b"bootstrap")
    (metadata / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    (metadata / "quorum-state").write_text(
        '{"leaderId":102,"leaderEpoch":2,"votedId":-1,'
        '"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    for base_offset in (900, 100):
        (metadata / f"{base_offset:020d}.log").write_bytes(b"log")
        (metadata / f"{base_offset:020d}.index").write_bytes(b"")
    for end_offset, epoch in ((1200, 3), (100, 1), (90, 1), (0, 0)):
        (metadata / f"{end_offset:020d}-{epoch:010d}.checkpoint").write_bytes(b"snapshot")
    for left in (
        "00000000000000001500-0000000003-123.checkpoint.part",
        "00000000000000000050-0000000001.checkpoint.deleted",
        "quorum-state.tmp",
    ):
        (metadata / left).write_bytes(b"")
    return tmp_path


class TestFind:
    def test_a_log_dir_has_every_file(self, log_dir: Path) -> None:
        found = MetadataDirectory.find(log_dir)

        assert found.log_dir == log_dir
        assert found.metadata_dir == log_dir / "__cluster_metadata-0"
        assert found.meta_properties == MetaProperties(
            1, "a-cluster", 101, Uuid.parse("7wxPfKyQQeapKm8JAvo_eQ")
        )
        assert found.quorum_state == QuorumState(1, 102, 2, -1, Uuid(bytes(16)), None)
        assert [segment.base_offset for segment in found.segments] == [100, 900]
        assert found.log_start_offset == 100
        assert [(s.end_offset, s.epoch) for s in found.snapshots] == [
            (0, 0),
            (90, 1),
            (100, 1),
            (1200, 3),
        ]
        assert found.bootstrap_checkpoint is not None
        assert found.bootstrap_checkpoint.size == 9
        assert [path.suffix for path in found.unfinished] == [".deleted", ".part", ".tmp"]

    def test_the_metadata_log_itself_may_be_named(self, log_dir: Path) -> None:
        found = MetadataDirectory.find(str(log_dir / "__cluster_metadata-0"))
        assert found.meta_properties is not None
        assert found.segments == MetadataDirectory.find(log_dir).segments

    def test_a_copy_under_another_name_is_recognized_by_its_files(self, log_dir: Path) -> None:
        copy = log_dir / "copied"
        shutil.move(log_dir / "__cluster_metadata-0", copy)
        assert MetadataDirectory.find(copy).metadata_dir == copy

    def test_a_single_segment_may_be_named(self, log_dir: Path) -> None:
        path = log_dir / "__cluster_metadata-0" / "00000000000000000900.log"
        found = MetadataDirectory.find(path)
        assert [(s.base_offset, s.size) for s in found.segments] == [(900, 3)]
        assert found.snapshots == ()
        assert found.log_start_offset == 900

    def test_a_single_snapshot_or_the_bootstrap_snapshot_may_be_named(self, log_dir: Path) -> None:
        path = log_dir / "__cluster_metadata-0" / "00000000000000001200-0000000003.checkpoint"
        found = MetadataDirectory.find(path).newest_snapshot()
        assert found is not None
        assert (found.end_offset, found.epoch) == (1200, 3)

        bootstrap = MetadataDirectory.find(log_dir / "bootstrap.checkpoint").snapshots[0]
        assert (bootstrap.end_offset, bootstrap.epoch) == (0, 0)

    def test_a_file_name_without_an_offset_is_accepted(self, tmp_path: Path) -> None:
        (tmp_path / "sent-by-mail.checkpoint").write_bytes(b"x")
        (tmp_path / "sent-by-mail.log").write_bytes(b"x")
        snapshot = MetadataDirectory.find(tmp_path / "sent-by-mail.checkpoint").newest_snapshot()
        assert snapshot is not None
        assert snapshot.end_offset == -1
        assert MetadataDirectory.find(tmp_path / "sent-by-mail.log").log_start_offset == -1

    def test_a_formatted_directory_that_never_started_has_its_bootstrap_records(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "meta.properties").write_text(META_PROPERTIES)
        (tmp_path / "bootstrap.checkpoint").write_bytes(b"x")
        found = MetadataDirectory.find(tmp_path)
        assert found.metadata_dir is None
        assert found.bootstrap_checkpoint is not None
        assert found.segments == found.snapshots == ()

    def test_find_changes_no_file(self, log_dir: Path) -> None:
        def state() -> list[tuple[str, int]]:
            return [(str(p), p.stat().st_mtime_ns) for p in sorted(log_dir.rglob("*"))]

        before = state()
        MetadataDirectory.find(log_dir)
        assert state() == before


class TestNothingThere:
    def test_a_path_that_does_not_exist_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="no such file or directory"):
            MetadataDirectory.find(tmp_path / "nowhere")

    def test_the_error_for_an_empty_directory_names_the_expected_files(
        self, tmp_path: Path
    ) -> None:
        with pytest.raises(StorageError, match=r"looked for __cluster_metadata-0/, bootstrap"):
            MetadataDirectory.find(tmp_path)

    def test_the_error_for_a_log_dir_without_metadata_asks_for_metadata_log_dir(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "meta.properties").write_text(META_PROPERTIES)
        with pytest.raises(StorageError, match=r"is metadata\.log\.dir another directory"):
            MetadataDirectory.find(tmp_path)

    def test_an_empty_metadata_log_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "__cluster_metadata-0").mkdir()
        with pytest.raises(StorageError, match="has no metadata log"):
            MetadataDirectory.find(tmp_path)

    def test_a_file_of_another_kind_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "server.properties").write_text("")
        with pytest.raises(StorageError, match="neither a directory nor a log segment"):
            MetadataDirectory.find(tmp_path / "server.properties")

    def test_the_log_of_a_data_partition_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "00000000000000000000.log").write_bytes(b"x")
        (tmp_path / "partition.metadata").write_text(
            "version: 0\ntopic_id: 7wxPfKyQQeapKm8JAvo_eQ\n"
        )
        with pytest.raises(StorageError, match="the log of a data partition"):
            MetadataDirectory.find(tmp_path)


class TestNewestSnapshot:
    def test_the_newest_snapshot_is_found_also_before_an_offset(self, log_dir: Path) -> None:
        found = MetadataDirectory.find(log_dir)
        newest = found.newest_snapshot()
        assert newest is not None
        assert newest.end_offset == 1200
        earlier = found.newest_snapshot(max_end_offset=1199)
        assert earlier is not None
        assert earlier.end_offset == 100

    def test_an_empty_snapshot_or_one_that_ends_before_the_log_starts_is_skipped(
        self, log_dir: Path
    ) -> None:
        metadata = log_dir / "__cluster_metadata-0"
        (metadata / "00000000000000001200-0000000003.checkpoint").write_bytes(b"")
        (metadata / "00000000000000000100-0000000001.checkpoint").unlink()
        found = MetadataDirectory.find(log_dir)
        assert found.newest_snapshot() is None


class TestMetaProperties:
    def test_version_0_has_broker_id_and_every_field_is_optional(self) -> None:
        assert parse_meta_properties("version=0\nbroker.id=3\ncluster.id=c\n") == MetaProperties(
            0, "c", 3, None
        )
        assert parse_meta_properties("") == MetaProperties(0, None, None, None)

    def test_the_line_format_is_javas(self) -> None:
        text = "! comment\r\nversion : 1\n  node.id\t7\ncluster.id=a\\\n   b\\u0063\\=\\:d\n"
        assert parse_meta_properties(text) == MetaProperties(1, "abc=:d", 7, None)

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("version=1\nnode.id=1\n", "has no cluster.id"),
            ("version=1\ncluster.id=c\n", "has no node.id"),
            ("version=1\ncluster.id=c\nnode.id=one\n", "node.id is 'one', not a number"),
            ("version=1\ncluster.id=c\nnode.id=99999999999\n", "not a number"),
            ("version=1\ncluster.id=c\nnode.id=3000000000\n", "not a number"),
            ("directory.id=short\n", "directory.id is 'short', not a uuid"),
            ("cluster.id=\\u00g0\n", "not an escape"),
        ],
    )
    def test_the_error_names_the_problem(self, text: str, complaint: str) -> None:
        with pytest.raises(CorruptRecordError, match=complaint) as caught:
            parse_meta_properties(text, "/a/meta.properties")
        assert "/a/meta.properties" in str(caught.value)

    def test_an_unknown_version_is_rejected(self) -> None:
        with pytest.raises(UnsupportedVersionError, match="version '2', supported are 0 and 1"):
            parse_meta_properties("version=2\n")


V0 = (
    '{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
    '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
)
V1 = (
    '{"leaderId":-1,"leaderEpoch":3,"votedId":2,'
    '"votedDirectoryId":"7wxPfKyQQeapKm8JAvo_eQ","data_version":1}'
)


class TestQuorumState:
    def test_version_0_names_the_static_voters(self) -> None:
        assert parse_quorum_state(V0) == QuorumState(0, 1, 3, -1, None, (1, 2))
        nobody = V0.replace('[{"voterId":1},{"voterId":2}]', "null")
        assert parse_quorum_state(nobody).voters is None

    def test_version_1_names_the_directory_that_was_voted_for(self) -> None:
        voted = Uuid.parse("7wxPfKyQQeapKm8JAvo_eQ")
        assert parse_quorum_state(V1) == QuorumState(1, -1, 3, 2, voted, None)

    def test_only_the_first_line_counts_and_unknown_fields_are_ignored(self) -> None:
        assert parse_quorum_state(V1 + "\nrubbish") == parse_quorum_state(V1)
        assert parse_quorum_state(V1.replace("{", '{"more":[1],', 1)) == parse_quorum_state(V1)

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("", "is not JSON"),
            ("[" * 100_000, "is not JSON"),
            ("[1]", "is not a JSON object"),
            ("{}", "has no field data_version"),
            (V1.replace('"leaderEpoch":3,', ""), "has no field leaderEpoch"),
            (V1.replace(":3,", ":3.0,"), "leaderEpoch is 3.0, not an integer"),
            (V1.replace(":3,", ":true,"), "leaderEpoch is True, not an integer"),
            (V1.replace(":3,", ":NaN,"), "NaN is not a JSON number"),
            (V1.replace(":3,", ":2147483648,"), "leaderEpoch is 2147483648, not an integer in"),
            (V1.replace("7wxPf", "!"), "votedDirectoryId is '!KyQ"),
            (V1.replace('"7wxPfKyQQeapKm8JAvo_eQ"', "7"), "votedDirectoryId is 7, not text"),
            (V0.replace('{"voterId":2}', "2"), "currentVoters is not an array of objects"),
            (V0.replace('"voterId":2', '"id":2'), "has no field voterId"),
        ],
    )
    def test_the_error_names_the_problem(self, text: str, complaint: str) -> None:
        with pytest.raises(CorruptRecordError, match=complaint):
            parse_quorum_state(text)

    def test_an_unknown_version_is_rejected(self) -> None:
        with pytest.raises(UnsupportedVersionError, match="data_version 2, supported are 0 and 1"):
            parse_quorum_state(V1.replace('n":1}', 'n":2}'))

    def test_a_file_of_another_size_or_encoding_is_refused_unread(self, log_dir: Path) -> None:
        path = log_dir / "__cluster_metadata-0" / "quorum-state"
        path.write_bytes(b" " * ((1 << 20) + 1))
        with pytest.raises(CorruptRecordError, match="larger than 1048576 bytes"):
            MetadataDirectory.find(log_dir)
        path.write_bytes(b'{"\xff')
        with pytest.raises(CorruptRecordError, match=r"not UTF-8 .*quorum-state, byte 2"):
            MetadataDirectory.find(log_dir)


@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_kafkas_directories_are_read_and_not_changed(path: Path) -> None:
    def digest() -> str:
        hashed = hashlib.sha256()
        for file in sorted(path.parent.rglob("*")):
            hashed.update(str(file).encode())
            hashed.update(file.read_bytes() if file.is_file() else b"")
        return hashed.hexdigest()

    before = digest()
    found = MetadataDirectory.find(path.parent)

    assert found.meta_properties is not None
    assert found.meta_properties.cluster_id
    assert found.quorum_state is not None
    assert found.quorum_state.leader_epoch > 0
    assert found.segments
    assert digest() == before


def test_kafkas_directories_are_in_the_test_data() -> None:
    assert REAL
