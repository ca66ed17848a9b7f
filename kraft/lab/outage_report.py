"""What a sweep over outages found: its figures with names, worst first.

Owns the plan of a sweep (which outages, in which order), what each figure means, and what worse
means. Fed by `kraft.lab.outages` and `kraft.spark.outages`, read by the command line.

Invariants: figures lie in the plan's order: the listed outages, then the pairs of ``paired`` by
first and second broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

#: What is lost: one broker, a rack, a pair, or brokers that somebody named.
BROKER, RACK, PAIR, BROKERS = "broker", "rack", "pair", "brokers"

#: Places in a row of figures; `kraft._core.sweep.FIGURES` sets them.
_UNAVAILABLE, _UNCLEAN, _UNDER, _AT, _MOVED, _MOST, _BROKER, _LEADERS, _LIVING = range(9)


@dataclass(frozen=True, slots=True)
class Swept:
    """One outage of a plan; its brokers are fenced in this order."""

    kind: str
    brokers: tuple[int, ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Outages: those listed, then every pair of the brokers ``paired``, whose ids ascend."""

    listed: tuple[Swept, ...]
    paired: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.listed) + len(self.paired) * (len(self.paired) - 1) // 2


@dataclass(frozen=True, slots=True)
class Baseline:
    """The cluster before any outage, in the words of `Outage`, but as totals."""

    partitions: int
    living: int
    unavailable: int
    under_min_isr: int
    at_min_isr: int
    max_leaders: int
    leaders: int

    @property
    def leader_skew(self) -> float | None:
        return _skew(self.max_leaders, self.leaders, self.living)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "leader_skew": _rounded(self.leader_skew)}


@dataclass(frozen=True, slots=True)
class Outage:
    """What the loss of these brokers does; partitions count where they were not so before.

    ``unavailable``: no leader any more. ``unclean``: led by a replica out of sync, so that records
    are lost (unclean.leader.election.enable). ``under_min_isr``: fewer in sync than
    min.insync.replicas, or no leader, as ``kafka-topics --under-min-isr-partitions`` counts.
    ``at_min_isr``: led, and exactly as many in sync: the next loss stops writes. ``moved``: another
    leader. ``max_leaders``: what the most loaded of the ``living`` brokers leads then, which is
    ``most_loaded``; ``leader_skew`` is that over the mean. None where no broker is left.
    """

    kind: str
    brokers: tuple[int, ...]
    rack: str | None
    unavailable: int
    unclean: int
    under_min_isr: int
    at_min_isr: int
    moved: int
    max_leaders: int
    most_loaded: int | None
    leader_skew: float | None
    living: int

    @property
    def name(self) -> str:
        if self.kind == RACK:
            return f"rack {self.rack}"
        ids = ", ".join(map(str, self.brokers))
        return f"{'broker' if len(self.brokers) == 1 else 'brokers'} {ids}"

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "brokers": list(self.brokers),
            "leader_skew": _rounded(self.leader_skew),
        }


class OutageReport:
    """The outages of a plan with what each does.

    ``figures`` is i32 [outages, figures] as `kraft._core.sweep.evaluate` gives them, in the plan's
    order; ``broker_ids`` i32 [brokers] are the ids behind numbers.
    """

    def __init__(
        self,
        plan: Plan,
        figures: NDArray[np.int32],
        broker_ids: NDArray[np.int32],
        baseline: Baseline,
    ) -> None:
        assert len(figures) == len(plan)
        self.plan = plan
        self.figures = figures
        self.broker_ids = broker_ids
        self.baseline = baseline

    def __len__(self) -> int:
        return len(self.figures)

    def __iter__(self) -> Iterator[Outage]:
        """Worst first."""
        return (self.outage(int(place)) for place in self.order)

    def outage(self, place: int) -> Outage:
        """The outage at this place of the plan."""
        swept = self._swept(place)
        figures = [int(each) for each in self.figures[place]]
        alive = figures[_BROKER] >= 0
        return Outage(
            swept.kind,
            swept.brokers,
            swept.rack,
            figures[_UNAVAILABLE],
            figures[_UNCLEAN],
            figures[_UNDER],
            figures[_AT],
            figures[_MOVED],
            figures[_MOST],
            int(self.broker_ids[figures[_BROKER]]) if alive else None,
            _skew(figures[_MOST], figures[_LEADERS], figures[_LIVING]),
            figures[_LIVING],
        )

    def worst(self, count: int | None = None) -> list[Outage]:
        """The worst outages, the very worst first; None for all."""
        return [self.outage(int(place)) for place in self.order[:count]]

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Places in the plan, worst first: more partitions unavailable, else more elected
        uncleanly, else more under min ISR, else the loss of fewer brokers, else more at min ISR, a
        greater skew, more leaders moved, else as planned.
        """
        column = self.figures.T
        lost = np.full(len(self), 2)
        lost[: len(self.plan.listed)] = [len(each.brokers) for each in self.plan.listed]
        # The last key counts most.
        keys = [
            -column[_MOVED],
            -self.leader_skew,
            -column[_AT],
            lost,
            *(-column[place] for place in (_UNDER, _UNCLEAN, _UNAVAILABLE)),
        ]
        return np.asarray(np.lexsort(keys))

    @property
    def leader_skew(self) -> NDArray[np.float64]:
        """Of each outage, in the plan's order; 0 where nothing is led: f8 [outages]."""
        column = self.figures.T.astype(np.float64)
        led = column[_LEADERS] > 0
        skew = column[_MOST] * column[_LIVING] / np.where(led, column[_LEADERS], 1)
        return np.where(led, skew, 0.0)

    def greatest(self, figure: str) -> float:
        """The most that any outage has of ``unavailable``, ``unclean``, ``under_min_isr`` or
        ``leader_skew``; 0 of no outages.
        """
        values = self.leader_skew if figure == "leader_skew" else self.figures[:, _PLACES[figure]]
        return float(values.max(initial=0))

    def count_of(self, kind: str) -> int:
        """Outages of a kind."""
        listed = sum(each.kind == kind for each in self.plan.listed)
        return listed + (len(self) - len(self.plan.listed) if kind == PAIR else 0)

    def to_arrow(self) -> pa.Table:
        """All outages, worst first, one row each, with the columns of `Outage`."""
        import pyarrow as pa

        order = self.order
        column = self.figures[order].T
        swept = [self._swept(int(place)) for place in order]
        alive = column[_BROKER] >= 0
        return pa.table(
            {
                "kind": pa.array([each.kind for each in swept], pa.string()),
                "brokers": pa.array([each.brokers for each in swept], pa.list_(pa.int32())),
                "rack": pa.array([each.rack for each in swept], pa.string()),
                **{name: column[place] for name, place in _PLACES.items()},
                "most_loaded": pa.array(self.broker_ids[column[_BROKER]], mask=~alive),
                "leader_skew": pa.array(self.leader_skew[order], mask=column[_LEADERS] <= 0),
            }
        )

    def as_dict(self, top: int | None = None) -> dict[str, Any]:
        """For JSON: the baseline, how many outages were swept, the worst of them."""
        kinds = (BROKER, RACK, PAIR, BROKERS)
        return {
            "baseline": self.baseline.as_dict(),
            "outages": {kind: self.count_of(kind) for kind in kinds if self.count_of(kind)},
            "worst": [outage.as_dict() for outage in self.worst(top)],
        }

    def _swept(self, place: int) -> Swept:
        if place < len(self.plan.listed):
            return self.plan.listed[place]
        first, second = self._pairs
        pair = place - len(self.plan.listed)
        paired = self.plan.paired
        return Swept(PAIR, (paired[first[pair]], paired[second[pair]]))

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        first, second = np.triu_indices(len(self.plan.paired), 1)
        return first, second


_PLACES = {
    "unavailable": _UNAVAILABLE,
    "unclean": _UNCLEAN,
    "under_min_isr": _UNDER,
    "at_min_isr": _AT,
    "moved": _MOVED,
    "max_leaders": _MOST,
    "living": _LIVING,
}


def _skew(most: int, leaders: int, living: int) -> float | None:
    return most * living / leaders if leaders > 0 else None


def _rounded(skew: float | None) -> float | None:
    return None if skew is None else round(skew, 4)
