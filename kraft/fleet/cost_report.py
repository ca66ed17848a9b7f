"""The model's answer for one cluster: work, costs and limits, with and without a tree, as rows.

``kraft lab fleet-cost`` prints it as tables or JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from kraft.fleet.cost_model import (
    Cluster,
    Coefficients,
    ControllerMachine,
    Estimate,
    Limit,
    cold_start,
    limits,
    memory_of,
    rack_loss,
    steady_rates,
)
from kraft.fleet.texts import number_text, value_text


class CostRow(NamedTuple):
    """One line of the report: the value without a tree and with one; errors where fitted."""

    name: str
    unit: str
    values: tuple[float, ...]
    errors: tuple[float, ...] = ()

    def texts(self) -> list[str]:
        """Return the values with their units and errors."""
        shown = [value_text(value, self.unit) for value in self.values]
        if not self.errors:
            return shown
        return [
            f"{text} ± {number_text(error, digits=2)}"
            for text, error in zip(shown, self.errors, strict=True)
        ]


@dataclass(frozen=True)
class CostReport:
    """Rows for each cluster of `clusters`: the first without a tree of observers."""

    clusters: tuple[Cluster, ...]
    machine: ControllerMachine
    rows: tuple[CostRow, ...]
    limits: tuple[tuple[Limit, ...], ...]

    @property
    def names(self) -> list[str]:
        """The names of the columns of values."""
        return [
            "every broker fetches" if each.fan_out is None else f"tree of {each.fan_out}"
            for each in self.clusters
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document of ``kraft lab fleet-cost --json``."""
        return {
            "machine": asdict(self.machine),
            "clusters": [
                {
                    **asdict(cluster),
                    "children": cluster.children,
                    "depth": cluster.depth,
                    "work": {
                        row.name: {
                            "value": row.values[place],
                            "unit": row.unit,
                            **({"error": row.errors[place]} if row.errors else {}),
                        }
                        for row in self.rows
                    },
                    "limits": [
                        {**asdict(limit), "share": limit.share, "breaks_at": _finite(limit)}
                        for limit in self.limits[place]
                    ],
                }
                for place, cluster in enumerate(self.clusters)
            ],
        }


def cost_report(
    cluster: Cluster,
    machine: ControllerMachine,
    coefficients: Coefficients | None,
    fan_out: int | None,
) -> CostReport:
    """Return the costs of a cluster, and beside it of the same with a tree of ``fan_out``."""
    clusters = [replace(cluster, fan_out=None)]
    if fan_out is not None:
        clusters.append(replace(cluster, fan_out=fan_out))
    return CostReport(
        tuple(clusters),
        machine,
        tuple(_rows(clusters, machine, coefficients)),
        tuple(tuple(limits(each, machine, coefficients)) for each in clusters),
    )


def breaking_text(limit: Limit, cluster: Cluster) -> str:
    """Return what breaks first and at which size, or that nothing does."""
    finite = _finite(limit)
    if finite is None:
        return "no limit is reached by growth"
    at = cluster.scaled(finite)
    return f"{limit.name} reaches its limit at {at.brokers:,} brokers, {at.partitions:,} partitions"


def _finite(limit: Limit) -> float | None:
    """Return the factor at which a limit breaks; None for never, which JSON cannot express."""
    return None if limit.breaks_at == float("inf") else limit.breaks_at


def _rows(
    clusters: Sequence[Cluster], machine: ControllerMachine, coefficients: Coefficients | None
) -> Iterator[CostRow]:
    steady = [steady_rates(each) for each in clusters]
    losses = [rack_loss(each, machine.burst_s) for each in clusters]
    starts = [cold_start(each) for each in clusters]

    def row(name: str, unit: str, *values: float) -> CostRow:
        return CostRow(name, unit, values)

    yield row("children that fetch", "", *(each.children for each in clusters))
    yield row("fetches to the last broker", "", *(each.depth for each in clusters))
    yield row("heartbeats", "/s", *(each.heartbeats for each in steady))
    yield row("observer fetches", "/s", *(each.fetches for each in steady))
    yield row("bytes out", "bytes/s", *(each.bytes_out for each in steady))
    yield row("rack loss: records", "records", *(each.records for each in losses))
    yield row("rack loss: log", "bytes", *(each.log_bytes for each in losses))
    yield row("rack loss: observer fetches", "", *(each.fetches for each in losses))
    yield row("rack loss: bytes out", "bytes", *(each.bytes_out for each in losses))
    yield row(
        "rack loss: time of the network",
        "s",
        *(each.bytes_out / machine.network_bytes_s for each in losses),
    )
    yield row("cold start: snapshot", "bytes", *(each.log_bytes for each in starts))
    yield row("cold start: bytes out", "bytes", *(each.bytes_out for each in starts))
    yield row(
        "cold start: time of the network",
        "s",
        *(each.bytes_out / machine.network_bytes_s for each in starts),
    )
    if coefficients is None:
        return
    yield _estimated("CPU", "cores", [coefficients.cpu(each.row()) for each in steady])
    yield _estimated(
        "rack loss: CPU", "core-seconds", [coefficients.cpu(each.row()) for each in losses]
    )
    yield _estimated(
        "cold start: CPU", "core-seconds", [coefficients.cpu(each.row()) for each in starts]
    )
    memory = [memory_of(each, coefficients) for each in clusters]
    if None not in memory:
        yield row("memory of one controller", "bytes", *(each or 0.0 for each in memory))


def _estimated(name: str, unit: str, estimates: Sequence[Estimate]) -> CostRow:
    return CostRow(
        name,
        unit,
        tuple(each.value for each in estimates),
        tuple(each.error for each in estimates),
    )
