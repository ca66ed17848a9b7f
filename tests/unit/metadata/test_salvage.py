"""Damage each file of recorded directories: what salvaging reads, skips and reports."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random

import pytest

import kraft
from kraft._core.bytes.batch import scan
from kraft._core.log.log import Log
from kraft.errors import InvalidRequestError, KraftError, StorageError
from kraft.metadata.directory import METADATA_LOG, MetadataDirectory
from kraft.metadata.facade import Metadata
from kraft.metadata.salvage import salvage
from kraft.records import FeatureLevel, NoOp, RemoveTopic, Uuid
from kraft.records.batches import encode_records
from tests.harness.metadata_files import overwrite

DATA = Path(__file__).parents[2] / "data"
NODES = (
    "kafka-4.3/controller-101",
    "kafka-4.3/controller-103",
    "kafka-4.3/broker-1",
    "kafka-3.9/controller-101",
    "kafka-4.3-transaction/controller-201-open",
)
# Files that are derived from the log; opening reads the log and not these files.
_DERIVED = (".index", ".timeindex", ".snapshot", ".deleted", "leader-epoch-checkpoint")


def _cut(content: bytearray, dice: Random) -> None:
    del content[dice.randrange(len(content)) :]


def _flip(content: bytearray, dice: Random) -> None:
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)


def _zero(content: bytearray, dice: Random) -> None:
    begin = dice.randrange(len(content))
    size = min(len(content) - begin, dice.choice((1, 8, 61, 512, 4096)))
    content[begin : begin + size] = bytes(size)


def _scribble(content: bytearray, dice: Random) -> None:
    begin = dice.randrange(len(content))
    size = min(len(content) - begin, dice.choice((2, 16, 300)))
    content[begin : begin + size] = dice.randbytes(size)


def _flip_a_header(content: bytearray, dice: Random) -> None:
    """Flip a bit in the first 21 bytes of a batch, which the CRC of the batch does not cover."""
    positions = scan(bytes(content)).positions
    if len(positions) == 0:
        return _flip(content, dice)
    content[int(dice.choice(positions.tolist())) + dice.randrange(21)] ^= 1 << dice.randrange(8)
    return None


def _empty(content: bytearray, dice: Random) -> None:
    content.clear()


Damage = Callable[[bytearray, Random], None]
DAMAGES: tuple[Damage, ...] = (
    _cut,
    _flip,
    _zero,
    _scribble,
    _flip_a_header,
    _flip_a_header,
    _empty,
)


def log_dir(tmp_path: Path, node: str) -> Path:
    return Path(shutil.copytree(DATA / node, tmp_path / node))


@cache
def original(node: str) -> Metadata:
    return kraft.open_metadata(DATA / node)


def damaged_files(
    directory: Path, node: str, damages: Sequence[Damage] = DAMAGES
) -> Iterator[tuple[Path, bytes, str]]:
    """Damage one file after the other; yield its path, its original content, and the damage."""
    dice = Random(node)
    for path in sorted(each for each in directory.rglob("*") if each.is_file()):
        before = path.read_bytes()
        for damage in damages:
            content = bytearray(before)
            if content or damage is _empty:
                damage(content, dice)
            if content == before:
                continue
            path.write_bytes(content)
            yield path, before, f"{damage.__name__} of {path.name}"
        path.unlink()
        yield path, before, f"{path.name} removed"
        path.write_bytes(before)


def least_offset(directory: Path, path: Path, before: bytes, whole: Metadata) -> int:
    """Return the offset up to which records must be read: the damage, or a later snapshot."""
    if path.suffix != ".log":
        return whole.next_offset
    after = path.read_bytes() if path.exists() else b""
    same = next(
        (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    headers = scan(before)
    last_whole = int((headers.positions + headers.sizes <= same).sum())
    least = int(headers.last_offsets[last_whole - 1]) + 1 if last_whole else int(path.stem)
    assert whole.source is not None
    snapshots = [each.end_offset for each in whole.source.directory.snapshots]
    if whole.source.log_start_offset > 0 and least < min(snapshots):
        least = 0
    return max(least, *snapshots)


@pytest.fixture(params=NODES)
def node(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def copy(tmp_path: Path, node: str) -> Path:
    return log_dir(tmp_path, node)


def test_records_before_a_damaged_file_are_read_and_the_rest_is_reported(
    copy: Path, node: str
) -> None:
    whole = original(node)
    for path, before, what in damaged_files(copy, node):
        try:
            found = kraft.open_metadata(copy, salvage=True)
        except KraftError as error:
            pytest.fail(f"{what}: {error}")
        assert found.source is not None
        assert found.next_offset >= least_offset(copy, path, before, whole), what
        if found.next_offset != whole.next_offset or found.state != whole.state:
            is_shorter = path.suffix == ".log"
            assert is_shorter or found.source.damage, what
        if found.next_offset == whole.next_offset and not found.source.gaps:
            assert not kraft.diff(whole, found), what
        if path.exists() and not path.name.endswith(_DERIVED) and path.suffix != ".log":
            names_it = any(path.name in sentence for sentence in found.source.damage)
            is_newest = path.suffix != ".checkpoint" or path == newest_snapshot(copy, whole)
            assert names_it or not is_newest or is_readable(path), what


def newest_snapshot(directory: Path, whole: Metadata) -> Path:
    found = MetadataDirectory.find(directory, salvage=True)
    return max(found.snapshots, key=lambda each: (each.epoch, each.end_offset)).path


def is_readable(path: Path) -> bool:
    """Return whether opening cannot detect the damage.

    Examples: another number in a text file, a line that became a comment, an empty snapshot.
    """
    if path.suffix == ".checkpoint":
        return path.stat().st_size == 0
    try:
        MetadataDirectory.find(path.parent)
    except KraftError:
        return False
    return True


@pytest.mark.parametrize("node", ["kafka-4.3/controller-103", "kafka-3.9/controller-101"])
def test_the_salvaged_directory_is_sound_and_equals_a_past_state(node: str, tmp_path: Path) -> None:
    copy = log_dir(tmp_path, node)
    whole = original(node)
    damages = (_cut, _flip_a_header)
    for number, (path, before, what) in enumerate(damaged_files(copy, node, damages)):
        if path.name.endswith(_DERIVED):
            continue
        target = tmp_path / f"salvaged-{number}"
        done = salvage(copy, target)
        again = kraft.open_metadata(target)
        assert again.source is not None
        assert again.source.damage == [], what
        assert again.next_offset == done.end_offset >= least_offset(copy, path, before, whole), what
        assert not kraft.diff(whole.at(done.end_offset), again), what
        for snapshot in again.source.directory.snapshots:
            assert kraft.open_metadata(snapshot.path).next_offset == snapshot.end_offset
        if done.end_offset < whole.next_offset and path.exists() and path.stat().st_size:
            assert done.left_out, what
        shutil.rmtree(target)


def snapshots_of(directory: Path) -> list[Path]:
    return sorted((directory / METADATA_LOG).glob("*.checkpoint"))


def test_a_damaged_newest_snapshot_falls_back_to_older_ones_and_to_the_log(tmp_path: Path) -> None:
    directory = log_dir(tmp_path, "kafka-3.9/controller-101")
    whole = original("kafka-3.9/controller-101")
    for broken, path in enumerate(reversed(snapshots_of(directory)), 1):
        overwrite(path, 700, b"????")
        with pytest.raises(kraft.CorruptRecordError, match="falls back to an older snapshot"):
            kraft.open_metadata(directory)
        found = kraft.open_metadata(directory, salvage=True)
        assert not kraft.diff(whole, found)
        assert found.source is not None
        assert [each.path for each in found.source.left_out] == [
            *reversed(snapshots_of(directory)[-broken:])
        ]
        assert found.first_offset == [841, 497, 0][broken - 1]


def test_states_that_only_a_damaged_snapshot_holds_are_out_of_range(tmp_path: Path) -> None:
    directory = log_dir(tmp_path, "kafka-4.3/controller-103")
    overwrite(snapshots_of(directory)[0], 700, b"????")
    assert kraft.open_metadata(directory, at=2605, salvage=True).next_offset == 2605
    with pytest.raises(kraft.OffsetOutOfRangeError, match="has offsets 2605 to 2622"):
        kraft.open_metadata(directory, at=1600, salvage=True)


@pytest.mark.parametrize("name", ["meta.properties", "quorum-state", "partition.metadata"])
def test_a_damaged_text_file_raises_or_is_skipped(tmp_path: Path, name: str) -> None:
    directory = log_dir(tmp_path, "kafka-4.3/controller-101")
    (path,) = directory.rglob(name)
    overwrite(path, path.read_bytes().find(b"d"), b"\xff")
    if name == "partition.metadata":
        path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ\n")
    with pytest.raises(KraftError, match=name if name != "partition.metadata" else "topic id"):
        kraft.open_metadata(directory)
    found = kraft.open_metadata(directory, salvage=True)
    assert not kraft.diff(original("kafka-4.3/controller-101"), found)
    assert found.source is not None
    (sentence,) = found.source.damage
    assert sentence.startswith(f"skipped: {path}: ")


def test_the_directory_of_a_data_partition_is_rejected_even_when_salvaging(
    tmp_path: Path,
) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(b"")
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: lXGj5VebQnKyEbV4-aMVmQ\n")
    with pytest.raises(StorageError, match="data partition"):
        kraft.open_metadata(tmp_path, salvage=True)


def first_log(tmp_path: Path) -> tuple[Path, Path]:
    """Copy a whole log in one segment without its snapshots; return its directory and file."""
    directory = log_dir(tmp_path, "kafka-4.3/broker-1")
    for path in snapshots_of(directory):
        path.unlink()
    (segment,) = (directory / METADATA_LOG).glob("*.log")
    return directory, segment


def test_one_damaged_base_offset_loses_only_that_batch_of_a_lone_segment(tmp_path: Path) -> None:
    _, segment = first_log(tmp_path)
    headers = scan(segment.read_bytes())
    number = int((headers.base_offsets <= 2000).sum())
    offset = int(headers.base_offsets[number])
    overwrite(segment, int(headers.positions[number]), (offset + (1 << 33)).to_bytes(8, "big"))
    found = kraft.open_metadata(segment, salvage=True)
    assert found.source is not None
    (gap,) = found.source.gaps
    assert (gap.offset, gap.next_offset) == (offset, int(headers.base_offsets[number + 1]))
    offsets = [record.offset for record in found.records()]
    lost = range(offset, gap.next_offset)
    assert offsets == [each for each in range(headers.last_offsets[-1] + 1) if each not in lost]
    whole = original("kafka-4.3/broker-1")
    assert found.next_offset == whole.next_offset
    assert found.topics.keys() == whole.topics.keys()


def test_records_that_contradict_those_before_a_gap_end_the_state(tmp_path: Path) -> None:
    directory, segment = first_log(tmp_path)
    headers = scan(segment.read_bytes())
    # Overwrite the registrations of brokers that later records refer to.
    overwrite(segment, int(headers.positions[2]), b"?" * 3000)
    found = kraft.open_metadata(directory, salvage=True)
    assert found.source is not None
    (gap,) = found.source.gaps
    (left_out,) = found.source.left_out
    assert "contradict" in left_out.reason
    assert gap.offset <= found.next_offset < original("kafka-4.3/broker-1").next_offset
    assert found.source.offset_range[1] == found.next_offset or gap.offset == found.next_offset
    assert [record.offset for record in found.records()][-1] == 2621


def test_records_after_a_gap_are_salvaged_only_if_a_snapshot_covers_it(tmp_path: Path) -> None:
    directory = log_dir(tmp_path, "kafka-4.3/broker-1")
    (segment,) = (directory / METADATA_LOG).glob("*.log")
    headers = scan(segment.read_bytes())
    number = int((headers.base_offsets < 2000).sum())
    overwrite(segment, int(headers.positions[number]), b"?" * 50)
    offset = int(headers.base_offsets[number])
    done = salvage(directory, tmp_path / "covered")
    assert (done.log_start_offset, done.end_offset) == (
        int(headers.base_offsets[number + 1]),
        2622,
    )
    assert done.snapshots == ("00000000000000002605-0000000002.checkpoint",)
    assert any("a snapshot covers them" in each for each in done.left_out)
    assert not kraft.diff(original("kafka-4.3/broker-1"), kraft.open_metadata(tmp_path / "covered"))
    overwrite(snapshots_of(directory)[-1], 700, b"????")
    done = salvage(directory, tmp_path / "not-covered")
    assert (done.log_start_offset, done.end_offset) == (0, offset)
    assert any("after a gap" in each for each in done.left_out)


def test_a_snapshot_beyond_a_lost_log_is_salvaged_alone(tmp_path: Path) -> None:
    directory = log_dir(tmp_path, "kafka-4.3/controller-103")
    for path in (directory / METADATA_LOG).glob("*.log"):
        path.write_bytes(b"")
    done = salvage(directory, tmp_path / "new")
    assert (done.log_start_offset, done.end_offset, done.epoch) == (2605, 2605, 2)
    again = kraft.open_metadata(tmp_path / "new")
    assert not kraft.diff(original("kafka-4.3/controller-103").at(2605), again)


def test_a_directory_that_was_only_formatted_is_salvaged(tmp_path: Path) -> None:
    directory = log_dir(tmp_path, "kafka-4.3/broker-1")
    shutil.rmtree(directory / METADATA_LOG)
    salvage(directory, tmp_path / "new")
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == [
        "bootstrap.checkpoint",
        "meta.properties",
    ]


def test_a_lost_meta_properties_is_rewritten_with_the_voters_directory_id(tmp_path: Path) -> None:
    directory = log_dir(tmp_path, "kafka-4.3/controller-101")
    before = MetadataDirectory.find(directory).meta_properties
    assert before is not None
    (directory / "meta.properties").write_bytes(b"version=1\n")
    done = salvage(directory, tmp_path / "without")
    assert any("give the cluster id and the node id" in each for each in done.left_out)
    assert not (tmp_path / "without" / "meta.properties").exists()
    salvage(directory, tmp_path / "with", cluster_id=before.cluster_id, node_id=101)
    assert MetadataDirectory.find(tmp_path / "with").meta_properties == before
    with pytest.raises(InvalidRequestError, match="together"):
        salvage(directory, tmp_path / "half", node_id=101)


def test_a_source_without_sound_parts_and_an_existing_target_are_rejected(tmp_path: Path) -> None:
    directory = log_dir(tmp_path, "kafka-4.3/controller-103")
    with pytest.raises(InvalidRequestError, match="already exists"):
        salvage(directory, directory)
    for path in snapshots_of(directory):
        path.write_bytes(b"?")
    with pytest.raises(StorageError, match="no snapshot is sound"):
        salvage(directory, tmp_path / "new")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kafka-4.3"]


def test_a_snapshot_beyond_the_end_of_the_log_is_the_newest_state(tmp_path: Path) -> None:
    directory = log_dir(tmp_path, "kafka-3.9/broker-1")
    (segment,) = (directory / METADATA_LOG).glob("*.log")
    headers = scan(segment.read_bytes())
    whole_batches = int((headers.last_offsets < 900).sum())
    with segment.open("r+b") as file:
        file.truncate(int(headers.positions[whole_batches]))
    found = kraft.open_metadata(directory)
    assert found.source is not None
    assert found.source.offset_range == (0, 1523)
    assert found.next_offset == 1523
    end = found.source.log_end_offset
    assert found.at(end).next_offset == end
    with pytest.raises(kraft.OffsetOutOfRangeError, match=f"from offset {end} on are missing"):
        found.at(end + 1)


def test_salvaging_does_not_change_the_source(tmp_path: Path) -> None:
    directory = log_dir(tmp_path, "kafka-4.3/controller-101")
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    salvage(directory, tmp_path / "new")
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    for path in (tmp_path / "new").rglob("*"):
        if path.suffix in (".log", ".checkpoint") or path.name in ("quorum-state",):
            assert path.read_bytes() == before[directory / path.relative_to(tmp_path / "new")]


def test_a_snapshot_inside_a_batch_that_contradicts_it_is_salvaged_alone(tmp_path: Path) -> None:
    directory = tmp_path / "node"
    level = FeatureLevel("metadata.version", 21)
    with Log.open(directory / METADATA_LOG) as log:
        log.append(encode_records([level]))
        unknown = RemoveTopic(Uuid(b"no such topic---"))
        log.append(encode_records([NoOp(), NoOp(), unknown], base_offset=1))
    with Log.open(tmp_path / "other" / METADATA_LOG) as log:
        log.append(encode_records([level, NoOp()]))
    kraft.open_metadata(tmp_path / "other").write_snapshot(directory / METADATA_LOG, columns=False)
    done = salvage(directory, tmp_path / "new")
    assert (done.log_start_offset, done.end_offset) == (2, 2)
    assert kraft.open_metadata(tmp_path / "new").next_offset == 2
