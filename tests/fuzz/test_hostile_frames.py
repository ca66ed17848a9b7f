"""Mutated requests of every API and version, answered by a real controller without sockets.

`make fuzz TARGETS=dispatch` runs the same under the fuzzer, for as long as one likes.
"""

from __future__ import annotations

import random
import resource
from pathlib import Path

from tests.fuzz.served_node import ServedNode
from tests.reference.frame_mutations import mutated_stream
from tests.reference.request_frames import ALL, FrameWriter, Vocabulary

FRAMES = 20_000
MUTATIONS_OF_A_FRAME = 5
AT_ONCE = 32
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
