"""Mutated requests of every API and version, answered by a real controller without sockets.

`make fuzz TARGETS=dispatch` runs the same under the fuzzer, for as long as one likes.
"""

from __future__ import annotations

import random
import resource
from pathlib import Path
from typing import Any

from kraft._core.codec.message_schema import FieldSpec
from tests.fuzz.served_node import ServedNode
from tests.reference.frame_mutations import mutated_stream
from tests.reference.request_frames import ALL, FrameWriter, Vocabulary

FRAMES = 20_000
MUTATIONS_OF_A_FRAME = 5
AT_ONCE = 32
LONG_TEXT = "\x01" * 20_000
#: The log, the topics and the records of the requests that are valid; a leak would be larger.
MOST_GROWTH = 96 * 1024 * 1024


def test_mutated_frames_of_every_api_and_version_harm_no_node(tmp_path: Path) -> None:
    chance = random.Random(20)
    with ServedNode(tmp_path / "node") as node:
        writer = FrameWriter(node.vocabulary, chance)
        before, done = resident_bytes(), 0
        while done < FRAMES:
            valid = [writer.frame(key, version) for key, version in ALL]
            streams = [
                mutated_stream(frame, chance, valid)
                for frame in valid
                for _ in range(MUTATIONS_OF_A_FRAME)
            ]
            streams += valid
            chance.shuffle(streams)
            for first in range(0, len(streams), AT_ONCE):
                node.play(streams[first : first + AT_ONCE])
            done += len(streams)
            assert node.is_healthy()
        assert [each for each in node.announced if not node.answered[each]] == []
        assert resident_bytes() - before < MOST_GROWTH
        # Both kinds of outcome are frequent: the mutations are neither all fatal nor all harmless.
        closed = sum(count for (_, error), count in node.outcomes.items() if error == -1000)
        accepted = sum(count for (_, error), count in node.outcomes.items() if error == 0)
        assert min(closed, accepted) > FRAMES // 10


class LongTextWriter(FrameWriter):
    """Writes some strings as `LONG_TEXT`."""

    def _value(self, name: str, spec: FieldSpec, version: int, is_flexible: bool) -> Any:
        if spec.kind == "string" and self.chance.random() < 0.4:
            return LONG_TEXT
        return super()._value(name, spec, version, is_flexible)


def test_text_that_is_too_long_once_it_is_read_harms_no_node(tmp_path: Path) -> None:
    """Each byte that is not UTF-8 becomes U+FFFD, which has three bytes when it is written."""
    with ServedNode(tmp_path / "node") as node:
        writer = LongTextWriter(node.vocabulary, random.Random(21))
        drawn = [writer.frame(key, version) for key, version in ALL for _ in range(4)]
        long, malformed = LONG_TEXT.encode(), b"\xff" * len(LONG_TEXT)
        streams = [frame.replace(long, malformed) for frame in drawn]
        assert sum(malformed in stream for stream in streams) > 100
        for first in range(0, len(streams), AT_ONCE):
            node.play(streams[first : first + AT_ONCE])
        assert node.is_healthy()


def test_the_same_seed_makes_the_same_frames() -> None:
    def drawn() -> list[bytes]:
        chance = random.Random(3)
        writer = FrameWriter(Vocabulary("cluster", {}), chance)
        frames = [writer.frame(key, version) for key, version in ALL]
        return [mutated_stream(frame, chance, frames) for frame in frames]

    assert drawn() == drawn()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
