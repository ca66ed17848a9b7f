"""The result of a sweep over outages: figures with names, worst outage first.

Defines the plan of a sweep (which outages, in which order), the meaning of each figure, and the
order by severity. `kraft.lab.outages` and `kraft.spark.outages` make reports; the command line
prints them.

Invariants: figures are in the plan's order: the listed outages, then the pairs of ``paired`` by
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

#: The kind of an outage: one broker, a rack, a pair, or brokers named by the caller.
BROKER, RACK, PAIR, BROKERS = "broker", "rack", "pair", "brokers"

#: Indexes into a row of figures, in the order of `kraft._core.sweep.kernels.FIGURES`.
_UNAVAILABLE, _UNCLEAN, _UNDER, _AT, _MOVED, _MOST, _BROKER, _LEADERS, _LIVING = range(9)


@dataclass(frozen=True, slots=True)
class PlannedOutage:
    """One outage of a plan; its brokers are fenced in this order."""

    kind: str
    brokers: tuple[int, ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class OutagePlan:
    """The listed outages, then every pair of the brokers in ``paired``, whose ids ascend."""

    listed: tuple[PlannedOutage, ...]
    paired: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.listed) + len(self.paired) * (len(self.paired) - 1) // 2


@dataclass(frozen=True, slots=True)
class Baseline:
    """The cluster before any outage: the figures of `Outage`, as totals."""

    partitions: int
    living: int
    unavailable: int
    under_min_isr: int
    at_min_isr: int
    max_leaders: int
    leaders: int

    @property
    def leader_skew(self) -> float | None:
        """The leaders of the most loaded broker divided by the mean; None without leaders."""
        return _skew(self.max_leaders, self.leaders, self.living)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "leader_skew": _rounded(self.leader_skew)}


@dataclass(frozen=True, slots=True)
class Outage:
    """The effects of losing these brokers; a partition counts where it was not so before.

    - ``unavailable``: no leader any more.
    - ``unclean``: led by a replica out of sync (unclean.leader.election.enable); records are lost.
    - ``under_min_isr``: fewer in sync than min.insync.replicas, or no leader, as ``kafka-topics
      --under-min-isr-partitions`` counts.
    - ``at_min_isr``: led, and exactly min.insync.replicas in sync: the next loss stops writes.
    - ``moved``: another leader.
    - ``max_leaders``: partitions led by ``most_loaded``, the most loaded of the ``living`` brokers;
      ``leader_skew`` is that divided by the mean. None where no broker is left.
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
        """The outage in words: ``rack a``, ``broker 1``, ``brokers 1, 2``."""
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
    """The outages of a plan with their effects.

    ``figures`` is i32 [outages, figures] as `kraft._core.sweep.kernels.evaluate` returns them, in
    the plan's order; ``broker_ids`` i32 [brokers] are the ids of broker numbers.
    """

    def __init__(
        self,
        plan: OutagePlan,
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
        """Yield the outages, worst first."""
        return (self.outage(int(place)) for place in self.order)

    def outage(self, place: int) -> Outage:
        """Return the outage at this index of the plan."""
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
        """Return the ``count`` worst outages, worst first; None for all."""
        return [self.outage(int(place)) for place in self.order[:count]]

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Indexes into the plan, worst first: i64 [outages].

        Compares, in this order: more partitions unavailable, more unclean elections, more under min
        ISR, fewer brokers lost, more at min ISR, greater skew, more leaders moved, order of the
        plan.
        """
        column = self.figures.T
        lost = np.full(len(self), 2)
        lost[: len(self.plan.listed)] = [len(each.brokers) for each in self.plan.listed]
        # lexsort: the last key is the first to compare.
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
        """The leader skew of each outage in the plan's order; 0 without leaders: f8 [outages]."""
        column = self.figures.T.astype(np.float64)
        led = column[_LEADERS] > 0
        skew = column[_MOST] * column[_LIVING] / np.where(led, column[_LEADERS], 1)
        return np.where(led, skew, 0.0)

    def greatest(self, figure: str) -> float:
        """Return the maximum over all outages of ``unavailable``, ``unclean``, ``under_min_isr`` or
        ``leader_skew``; 0 without outages.
        """
        values = self.leader_skew if figure == "leader_skew" else self.figures[:, _PLACES[figure]]
        return float(values.max(initial=0))

    def count_of(self, kind: str) -> int:
        """Return the number of outages of a kind."""
        listed = sum(each.kind == kind for each in self.plan.listed)
        return listed + (len(self) - len(self.plan.listed) if kind == PAIR else 0)

    def to_arrow(self) -> pa.Table:
        """Return all outages as a table, worst first, with the columns of `Outage`."""
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
        """Return a JSON document: the baseline, the number of outages by kind, the
        worst outages.
        """
        kinds = (BROKER, RACK, PAIR, BROKERS)
        return {
            "baseline": self.baseline.as_dict(),
            "outages": {kind: self.count_of(kind) for kind in kinds if self.count_of(kind)},
            "worst": [outage.as_dict() for outage in self.worst(top)],
        }

    def _swept(self, place: int) -> PlannedOutage:
        if place < len(self.plan.listed):
            return self.plan.listed[place]
        first, second = self._pairs
        pair = place - len(self.plan.listed)
        paired = self.plan.paired
        return PlannedOutage(PAIR, (paired[first[pair]], paired[second[pair]]))

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
