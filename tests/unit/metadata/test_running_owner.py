"""Open a directory while the node that owns it writes snapshots and deletes what precedes them.

The owner acts between two steps of the opening: at once after the files were listed, after the log
was opened, or when a snapshot was chosen. It is the moment that a test with processes rarely hits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kraft
from kraft._core.log.log import Log
from kraft.errors import MissingFileError
from kraft.metadata import source
from kraft.metadata.directory import METADATA_LOG, MetadataDirectory, list_again
from kraft.metadata.snapshots import load_snapshot
from kraft.records import FeatureLevel, Topic, Uuid
from kraft.records.batches import encode_records


class Owner:
    """A node that writes one topic a segment, and keeps its newest snapshot and what follows."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.metadata_dir = log_dir / METADATA_LOG
        self.metadata_dir.mkdir()
        self.log = Log.open(self.metadata_dir)
        self.topics: list[str] = []
        self.append(FeatureLevel(name="metadata.version", feature_level=29))

    def append(self, record: Any) -> None:
        self.log.append(encode_records([record], base_offset=self.log.log_end_offset, epoch=1))

    def create_topics(self, count: int) -> None:
        for _ in range(count):
            self.log.roll()
            name = f"topic-{len(self.topics)}"
            self.append(Topic(name=name, topic_id=Uuid(f"{name:>16}".encode())))
            self.topics.append(name)

    def clean(self) -> None:
        """Write a snapshot, then delete the segments and snapshots before it."""
        before = [*self.metadata_dir.glob("*.checkpoint")]
        kraft.open_metadata(self.log_dir).write_snapshot(self.metadata_dir, columns=False)
        self.create_topics(1)
        self.log.advance_log_start(self.log.log_end_offset - 1)
        for path in before:
            path.unlink()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path)
    owner.create_topics(3)
    owner.clean()
    owner.create_topics(3)
    with owner.log:
        yield owner


def acting(owner: Owner, step: Callable[..., Any], *, first: bool, times: int) -> Any:
    """Return ``step``; in its first calls the owner cleans before, or else after, the real step."""
    left = times
    is_cleaning = False

    def act() -> None:
        nonlocal left, is_cleaning
        # The owner itself opens the directory, for its snapshot.
        if left and not is_cleaning:
            left -= 1
            is_cleaning = True
            owner.clean()
            is_cleaning = False

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if first:
            act()
        result = step(*arguments, **options)
        if not first:
            act()
        return result

    return wrapped


@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("moment", ["listed", "log opened", "snapshot chosen"])
def test_the_opening_goes_on_where_the_owner_deletes_a_listed_file(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, moment: str, times: int, salvage: bool
) -> None:
    with monkeypatch.context() as patch:
        if moment == "listed":

            class Find:
                find = acting(owner, MetadataDirectory.find, first=False, times=times)

            patch.setattr(source, "MetadataDirectory", Find)
        elif moment == "log opened":

            class Open:
                open = acting(owner, Log.open, first=False, times=times)

            patch.setattr(source, "Log", Open)
        else:
            load = acting(owner, load_snapshot, first=True, times=times)
            patch.setattr(source, "load_snapshot", load)
        metadata = kraft.open_metadata(owner.log_dir, salvage=salvage)
    assert sorted(metadata.topics) == sorted(owner.topics)
    assert metadata.source is not None
    assert metadata.source.damage == []
    assert metadata.next_offset == owner.log.log_end_offset
    assert metadata.source.log_start_offset == owner.log.log_start_offset


def test_a_path_without_files_is_given_up() -> None:
    calls = []

    def read() -> None:
        calls.append(1)
        raise MissingFileError("cannot open a: no such file")

    with pytest.raises(MissingFileError, match="cannot open a"):
        list_again(read)
    assert len(calls) == 10
