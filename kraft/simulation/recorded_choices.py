"""Random choices of a run, recorded by who drew them, so that a replay can leave faults out.

One stream of random numbers serves a whole simulation. If a replay drew from that stream without
one fault, every later choice would differ, and the replay would say nothing about the fault.
`RecordedChoices` therefore records each value under the channel that drew it (this fault, the
messages from this machine to that one, ...). A replay reads each channel from its beginning, so
that a fault left out affects only its own channel. A channel that draws more than was recorded, or
another kind of value, continues with a random source of its own.

`cluster` selects the channel at each event. A replay that leaves nothing out makes exactly the same
choices as the recorded run.
"""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

#: A float of ``random()``, or the number of bits and the integer of ``getrandbits``.
Draw = float | tuple[int, int]


class RecordedChoices(Random):
    """A `Random` that records its choices by channel, or replays those of ``recorded``."""

    channel: Hashable

    def __init__(self, seed: int, recorded: RecordedChoices | None = None) -> None:
        super().__init__(seed)
        self._seed = seed
        self._recorded = recorded
        self._draws: dict[Hashable, list[Draw]] = {}
        self._sources: dict[Hashable, Random] = {}
        self.choose("build")

    def choose(self, *channel: Hashable) -> None:
        """Attribute the choices from now on to ``channel``."""
        self.channel = channel
        self._drawn = self._draws.setdefault(channel, [])

    def random(self) -> float:
        value = super().random() if self._recorded is None else self._replayed(self._recorded, 0)
        self._drawn.append(value)
        return value

    def getrandbits(self, k: int, /) -> int:
        if self._recorded is None:
            value = super().getrandbits(k)
        else:
            value = int(self._replayed(self._recorded, k))
        self._drawn.append((k, value))
        return value

    def _replayed(self, recorded: RecordedChoices, bits: int) -> float:
        """Return the next choice of the channel: ``bits`` random bits, or a float if that is 0."""
        draws = recorded._draws.get(self.channel, ())
        if len(self._drawn) < len(draws):
            draw = draws[len(self._drawn)]
            if isinstance(draw, float):
                if not bits:
                    return draw
            elif draw[0] == bits:
                return draw[1]
        source = self._sources.get(self.channel)
        if source is None:
            # A string seeds alike in every process; the hash of a tuple does not.
            source = self._sources[self.channel] = Random(f"{self._seed} {self.channel!r}")
        return source.getrandbits(bits) if bits else source.random()
