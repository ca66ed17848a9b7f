"""Names of metrics: from Kafka's MBeans to Prometheus, as the JMX exporter writes them.

Kafka's controller registers MBeans, and the JMX exporter converts their attributes for Prometheus
by the rules in a file. This module follows the rules of the exporter's example
``kafka-kraft-3_0_0.yml``, so that dashboards for that file also work with kraft. MBeans with the
key ``listener`` or ``feature-name`` get a label here; the example writes them without one.

    kafka.controller:type=KafkaController,name=OfflinePartitionsCount  Value
        kafka_controller_kafkacontroller_offlinepartitionscount
    kafka.controller:type=ControllerEventManager,name=EventQueueTimeMs  99thPercentile
        kafka_controller_controllereventmanager_eventqueuetimems{quantile="0.99"}
    kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Fetch,version=17  Count
        kafka_network_requestmetrics_requests_total{request="Fetch",version="17"}
    kafka.server:type=raft-metrics  high-watermark
        kafka_server_raft_metrics_high_watermark
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

Source = TypeVar("Source")


class MetricKind(Enum):
    """The type of a metric in Prometheus's text format."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Summary:
    """Recent quantiles by their text; count and total since the start. Times in milliseconds."""

    quantiles: Mapping[str, float]
    count: int
    total: float


#: A value, or a value for each of several values of the labels.
Values = float | Iterable[tuple[tuple[str, ...], float | Summary]]


@dataclass(frozen=True, slots=True)
class ExportedMetric(Generic[Source]):
    """One metric: the attribute of Kafka's MBean that it shows, and how to read it.

    ``mbean`` is without the keys that differ between MBeans of a kind: these are ``labels``.
    ``info`` names the label of a text, whose value is 1.
    """

    mbean: str
    attribute: str
    help: str
    read: Callable[[Source], Values]
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE
    info: str = ""

    @property
    def name(self) -> str:
        """The name in Prometheus's text format, of a counter with its ``_total``."""
        base = prometheus_name(self.mbean, self.attribute)
        if self.info:
            return f"{base}_info"
        return f"{base}_total" if self.kind is MetricKind.COUNTER else base

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels in Prometheus's text format."""
        own = (self.info,) if self.info else ()
        return tuple(name.replace("-", "_") for name in (*self.labels, *own))


def prometheus_name(mbean: str, attribute: str) -> str:
    """Return the name of an MBean's attribute, without a suffix of its type."""
    domain, _, keys = mbean.partition(":")
    values = dict(key.split("=", 1) for key in keys.split(","))
    parts = [domain, values["type"]]
    if "name" in values:
        parts.append(values["name"].removesuffix("PerSec"))
    else:
        parts.append(attribute.removesuffix("-total"))
    return "_".join(parts).replace(".", "_").replace("-", "_").lower()
