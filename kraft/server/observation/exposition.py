"""The page ``/metrics`` in Prometheus's text format.

`exposition` reads all values on the event loop, in a millisecond or two plus the slices that count
the partitions, and writes the text in a thread. Called by `routes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from kraft.server.driver import now_ms
from kraft.server.observation.catalog import METRICS, Reading
from kraft.server.observation.metric_names import ExportedMetric, MetricKind, Summary
from kraft.server.observation.observed_node import ObservedNode, count_partitions

#: The domain of metrics that a broker alone does not show.
OF_CONTROLLERS = "kafka.controller:"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Families(Collector):
    """A collector of metrics whose values were already read."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        yield from self._families


async def exposition(node: ObservedNode) -> bytes:
    """Return the page."""
    partitions = await count_partitions(lambda: node.state.table)
    families = read_families(Reading(node, partitions, now_ms()))
    return await asyncio.get_running_loop().run_in_executor(None, _text, families)


def read_families(reading: Reading) -> list[Family]:
    """Read the present values of all metrics."""
    node = reading.node
    families = [
        _family(metric, reading)
        for metric in METRICS
        if node.config.is_controller or not metric.mbean.startswith(OF_CONTROLLERS)
    ]
    for part in node.parts:
        read = part.reading(reading.now_ms)
        families += [_family(metric, read) for metric in part.metrics]
    return families


def _text(families: list[Family]) -> bytes:
    process = ProcessCollector(registry=None)
    return generate_latest(_Families([*families, *process.collect()]))


def _family(metric: ExportedMetric[Any], reading: Any) -> Family:
    # Read once: a metric may have a sample for each of a thousand brokers.
    name, label_names = metric.name, metric.label_names
    is_counter = metric.kind is MetricKind.COUNTER
    # A family of counters is named without the suffix of its samples.
    family = Family(
        name.removesuffix("_total") if is_counter else name, metric.help, metric.kind.value
    )
    values = metric.read(reading)
    samples = [((), values)] if isinstance(values, (int, float)) else values
    for label_values, value in samples:
        labels = dict(zip(label_names, label_values, strict=True))
        if isinstance(value, Summary):
            for quantile, part in value.quantiles.items():
                family.add_sample(name, {**labels, "quantile": quantile}, part)
            family.add_sample(f"{name}_count", labels, value.count)
            family.add_sample(f"{name}_sum", labels, value.total)
        else:
            family.add_sample(name, labels, float(value))
    return family
