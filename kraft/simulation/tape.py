"""What a seed drew, kept by who drew it, so that a history can be run again with something missing.

Owns the random source of replays. One stream serves a whole simulation: leave one fault out, and
everything behind it is drawn anew, so that nothing is learned of the fault. A `Tape` writes down
every value under the channel that asked for it (this fault, the messages from that machine to that
one, ...). A second run reads each channel from its beginning: what is left out is missed by its own
channel only. Where a channel goes further than it did, or asks for something else, it draws from a
source of its own.

Fed by `cluster`, which names the channel at each event. With nothing left out the second run is the
first one, draw by draw.
"""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

#: A float of ``random()``, or the number of bits and the integer of ``getrandbits``.
Draw = float | tuple[int, int]


class Tape(Random):
    """A `Random` of this seed that remembers; given what another one remembered, it reads that."""

    channel: Hashable

    def __init__(self, seed: int, recorded: Tape | None = None) -> None:
        super().__init__(seed)
        self._seed = seed
        self._recorded = recorded
        self._draws: dict[Hashable, list[Draw]] = {}
        self._sources: dict[Hashable, Random] = {}
        self.choose("build")

    def choose(self, *channel: Hashable) -> None:
        """What is drawn from here on is drawn by ``channel``."""
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

    def _replayed(self, recorded: Tape, bits: int) -> float:
        """The next draw of this channel: ``bits`` of them, or a float where that is 0."""
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
            # A text seeds alike in every process; the hash of a tuple does not.
            source = self._sources[self.channel] = Random(f"{self._seed} {self.channel!r}")
        return source.getrandbits(bits) if bits else source.random()
