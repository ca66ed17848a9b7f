"""Formatting: the files it creates, and those that a failure at any moment leaves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kraft import open_metadata
from kraft._core.bytes.batch_records import iterate
from kraft._core.log.disk import OsDisk
from kraft.errors import InvalidConfigError, InvalidRequestError, StorageError
from kraft.metadata.directory import MetadataDirectory
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterSet
from kraft.records import KRaftVersion, KRaftVoters, SnapshotHeader, Uuid, decode_control
from kraft.server.config.loading import ServerConfig
from kraft.server.storage.format import DirectoryKind, FormatRequest, format_storage
from kraft.server.storage.meta_properties import LogDirectories, load_identity
from tests.harness.configurations import (
    BROKER,
    CONTROLLER,
    changed,
    write_configuration,
)
from tests.unit.server.storage.power_loss import SURVIVALS, PowerLossDisk, PowerLossError

D1, D2 = Uuid(range(1, 17)), Uuid(range(2, 18))
NOW_MS = 1_700_000_000_000
CHECKPOINT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
STATIC = {
    "controller.quorum.bootstrap.servers": None,
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


def configured(
    tmp_path: Path, base: dict[str, str] = CONTROLLER, **changes: str | None
) -> ServerConfig:
    """Return a configuration with two directories to create: a (for the metadata) and b."""
    named = {name.replace("_", "."): value for name, value in changes.items()}
    named.setdefault("log.dirs", f"{tmp_path}/a,{tmp_path}/b")
    return ServerConfig.load(write_configuration(tmp_path, changed(base, named)))


def files(tmp_path: Path) -> list[str]:
    return sorted(
        str(path.relative_to(tmp_path))
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "server.properties"
    )


def control_records(path: Path) -> list[Any]:
    return [
        decode_control(int.from_bytes(record.key[2:4], "big"), record.value)
        for batch in iterate(path.read_bytes())
        if batch.is_control
        for record in batch.records()
    ]


def test_a_standalone_controller_is_its_only_voter(tmp_path: Path) -> None:
    config = configured(tmp_path)
    request = FormatRequest(cluster_id="c", is_standalone=True)
    report = format_storage(config, request, timestamp_ms=NOW_MS)
    assert files(tmp_path) == [
        f"a/{CHECKPOINT}",
        "a/bootstrap.checkpoint",
        "a/meta.properties",
        "b/bootstrap.checkpoint",
        "b/meta.properties",
    ]
    assert [(Path(each.path).name, each.kind) for each in report.formatted] == [
        ("b", DirectoryKind.LOG),
        ("a", DirectoryKind.DYNAMIC_METADATA_VOTER),
    ]
    identity = load_identity(config)
    header, version, voters, _ = control_records(tmp_path / "a" / CHECKPOINT)
    assert header == SnapshotHeader(last_contained_log_timestamp=NOW_MS)
    assert version == KRaftVersion(kraft_version=1)
    assert isinstance(voters, KRaftVoters)
    (voter,) = VoterSet.from_record(voters)
    assert voter.key == ReplicaKey(1, identity.directory_id)
    assert voter.endpoints == (Endpoint("CONTROLLER", "127.0.0.1", 9093),)
    assert voter.kraft_versions == KRaftVersionRange(0, 1)


def test_the_library_opens_what_was_formatted(tmp_path: Path) -> None:
    config = configured(tmp_path)
    request = FormatRequest(
        cluster_id="c",
        is_standalone=True,
        release="4.2",
        scram=("SCRAM-SHA-256=[name=alice,password=x]",),
    )
    format_storage(config, request, timestamp_ms=NOW_MS)
    found = MetadataDirectory.find(tmp_path / "a")
    assert found.meta_properties is not None
    assert found.meta_properties.cluster_id == "c"
    metadata = open_metadata(tmp_path / "a" / "bootstrap.checkpoint")
    assert metadata.metadata_version == 29
    assert len(metadata.scram_credentials) == 1


def test_the_first_voters_are_named_on_every_node(tmp_path: Path) -> None:
    config = configured(tmp_path)
    request = FormatRequest(
        cluster_id="c", initial_controllers=f"2@[::1]:9094:{D2!s}, 1@node-1:9093:{D1!s}"
    )
    format_storage(config, request, timestamp_ms=NOW_MS)
    assert load_identity(config).directory_id == D1
    voters = VoterSet.from_record(control_records(tmp_path / "a" / CHECKPOINT)[2])
    assert [voter.key for voter in voters] == [ReplicaKey(1, D1), ReplicaKey(2, D2)]
    assert [voter.endpoints[0].host for voter in voters] == ["node-1", "0:0:0:0:0:0:0:1"]


def test_a_node_that_is_not_a_first_voter_gets_another_directory_id(tmp_path: Path) -> None:
    config = configured(tmp_path, node_id="7")
    request = FormatRequest(cluster_id="c", initial_controllers=f"1@node-1:9093:{D1!s}")
    report = format_storage(config, request, timestamp_ms=NOW_MS)
    assert report.formatted[-1].kind is DirectoryKind.DYNAMIC_METADATA
    assert load_identity(config).directory_id != D1


@pytest.mark.parametrize("changes", [{}, STATIC])
def test_a_node_without_first_voters_has_no_checkpoint(
    tmp_path: Path, changes: dict[str, str | None]
) -> None:
    config = configured(tmp_path, **changes)
    request = FormatRequest(cluster_id="c", has_no_initial_controllers=True)
    report = format_storage(config, request, timestamp_ms=NOW_MS)
    assert f"a/{CHECKPOINT}" not in files(tmp_path)
    assert report.levels["kraft.version"] == (0 if changes else 1)


def test_a_checkpoint_of_an_interrupted_format_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "a" / CHECKPOINT
    left.parent.mkdir(parents=True)
    left.write_bytes(b"voters of another attempt")
    config = configured(tmp_path, **STATIC)
    format_storage(config, FormatRequest(cluster_id="c"), timestamp_ms=NOW_MS)
    assert not left.exists()


def test_a_formatted_directory_is_formatted_again_only_if_ignored(tmp_path: Path) -> None:
    config = configured(tmp_path, log_dirs=f"{tmp_path}/a")
    request = FormatRequest(cluster_id="c", is_standalone=True)
    format_storage(config, request, timestamp_ms=NOW_MS)
    first = load_identity(config)
    with pytest.raises(StorageError, match="a is already formatted; --ignore-formatted"):
        format_storage(config, request, timestamp_ms=NOW_MS)

    grown = configured(tmp_path)
    again = FormatRequest(cluster_id="c", is_standalone=True, ignore_formatted=True)
    report = format_storage(grown, again, timestamp_ms=NOW_MS)
    assert [Path(each.path).name for each in report.formatted] == ["b"]
    assert report.already_formatted == (f"{tmp_path}/a",)
    assert load_identity(grown).directory_id == first.directory_id
    other = FormatRequest(cluster_id="other", is_standalone=True, ignore_formatted=True)
    with pytest.raises(InvalidConfigError, match="belongs to cluster 'c'"):
        format_storage(grown, other, timestamp_ms=NOW_MS)


@pytest.mark.parametrize(
    ("base", "changes", "request_", "words"),
    [
        (CONTROLLER, {}, FormatRequest(cluster_id="c"), "so choose the first voters"),
        (CONTROLLER, STATIC, FormatRequest(cluster_id="c", is_standalone=True), "fixes the voters"),
        (BROKER, {}, FormatRequest(cluster_id="c", is_standalone=True), "is for controllers"),
        (CONTROLLER, {}, FormatRequest(cluster_id=""), "the cluster id is empty"),
        (
            CONTROLLER,
            {},
            FormatRequest(cluster_id="c", is_standalone=True, has_no_initial_controllers=True),
            "only one of",
        ),
        (
            CONTROLLER,
            {},
            FormatRequest(cluster_id="c", initial_controllers="1@a:1:xyz"),
            "a directory id of 22 characters, not 'xyz'",
        ),
        (
            CONTROLLER,
            {},
            FormatRequest(cluster_id="c", initial_controllers="1@a:1"),
            "id@host:port:directory, not '1@a:1'",
        ),
        (
            CONTROLLER,
            {},
            FormatRequest(cluster_id="c", initial_controllers=f"1@a:1:{D1!s},1@b:1:{D2!s}"),
            "1 appears twice",
        ),
        (
            CONTROLLER,
            {},
            FormatRequest(cluster_id="c", initial_controllers="1@a:1:AAAAAAAAAAAAAAAAAAAAAQ"),
            "which is reserved",
        ),
        (CONTROLLER, {}, FormatRequest(cluster_id="c", initial_controllers=","), "at least one"),
    ],
)
def test_invalid_options_are_rejected(
    tmp_path: Path,
    base: dict[str, str],
    changes: dict[str, str | None],
    request_: FormatRequest,
    words: str,
) -> None:
    config = configured(tmp_path, base, **changes)
    with pytest.raises(InvalidRequestError, match=words):
        format_storage(config, request_, timestamp_ms=NOW_MS)
    assert files(tmp_path) == []


class FailingDisk:
    """The real disk; the ``fails_at``-th change fails, and with ``dead`` all later ones too."""

    def __init__(self, fails_at: int, *, dead: bool) -> None:
        self._disk = OsDisk()
        self._left = fails_at
        self._dead = dead

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._disk, name)
        if name in ("exists", "list", "size"):
            return operation

        def counted(*arguments: Any, **named: Any) -> Any:
            if not named.get("read_only"):
                self.count(name)
            result = operation(*arguments, **named)
            return FailingFile(result, self) if name == "open" else result

        return counted

    def count(self, name: str) -> None:
        self._left -= 1
        if self._left == 0 or (self._dead and self._left < 0):
            raise StorageError(f"no {name}: the disk failed")

    @property
    def has_failed(self) -> bool:
        return self._left <= 0


class FailingFile:
    """A file of a FailingDisk; a failing append writes half of its bytes."""

    def __init__(self, file: Any, disk: FailingDisk) -> None:
        self._file = file
        self._disk = disk

    def append(self, buffers: Sequence[bytes]) -> int:
        try:
            self._disk.count("append")
        except StorageError:
            self._file.append([bytes(buffers[0])[: len(buffers[0]) // 2]])
            raise
        return int(self._file.append(buffers))

    def sync(self) -> None:
        self._disk.count("sync")
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


REQUEST = FormatRequest(cluster_id="c", is_standalone=True)


@pytest.mark.parametrize("dead", [False, True])
def test_a_failure_at_any_moment_leaves_no_partly_formatted_directory(
    tmp_path: Path, dead: bool
) -> None:
    """With ``dead`` no later change succeeds, as if the process had been killed there."""
    for fails_at in range(1, 1000):
        root = tmp_path / str(fails_at)
        root.mkdir()
        config = configured(root)
        disk = FailingDisk(fails_at, dead=dead)
        try:
            format_storage(config, REQUEST, timestamp_ms=NOW_MS, disk=disk)
        except StorageError:
            assert disk.has_failed
        else:
            assert fails_at > 20, "a format makes more than 20 changes to the disk"
            return
        found = LogDirectories.load_all(config.directories)
        assert not found.failed
        if not dead:
            assert files(root) == []
        elif found.empty:
            assert config.metadata_log_dir in found.empty
            with pytest.raises(StorageError, match="is not formatted"):
                load_identity(config)
        again = FormatRequest(cluster_id="c", is_standalone=True, ignore_formatted=True)
        format_storage(config, again, timestamp_ms=NOW_MS)
        directory_id = load_identity(config).directory_id
        voters = VoterSet.from_record(control_records(root / "a" / CHECKPOINT)[2])
        assert voters.is_voter(ReplicaKey(1, directory_id))
        assert len(control_records(root / "b" / "bootstrap.checkpoint")) == 2
    raise AssertionError("a format has no end")


def test_after_a_power_loss_a_formatted_directory_is_complete(
    tmp_path: Path,
) -> None:
    config = configured(tmp_path, log_dirs="/disk/x/a,/disk/x/b")

    def formatted(steps: int) -> tuple[PowerLossDisk, bool]:
        disk = PowerLossDisk("/disk", steps)
        drawn = itertools.cycle((D1, D2, Uuid(range(3, 19))))
        try:
            format_storage(
                config, REQUEST, timestamp_ms=NOW_MS, disk=disk, draw=lambda: next(drawn)
            )
        except PowerLossError:
            return disk, False
        return disk, True

    whole = formatted(1000)[0].left(False, False).files
    assert len(whole) == 5, "all five files of a format must be durable"
    for steps in range(1, 1000):
        disk, is_done = formatted(steps)
        for names, contents in SURVIVALS:
            left = disk.left(names, contents)
            found = LogDirectories.load_all(config.directories, disk=left)
            assert not found.failed
            for directory in found.formatted:
                for path, content in whole.items():
                    if directory == config.metadata_log_dir or path.startswith(f"{directory}/"):
                        assert left.files.get(path) == content, (steps, names, contents)
            assert is_done <= (not found.empty)
        if is_done:
            return
    raise AssertionError("a format has no end")
