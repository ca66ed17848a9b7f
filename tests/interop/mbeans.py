"""The MBeans of a running node of Kafka, and those that kraft's metrics leave out, with reasons.

`ListMBeans` (Java) attaches to the process of a node and lists every attribute of every MBean.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from typing import Any, NamedTuple

from kraft.server.observation.catalog import METRICS
from kraft.server.observation.metric_names import ExportedMetric
from tests.interop.cluster import Node

TIMEOUT_S = 60


class Attribute(NamedTuple):
    """An attribute of the MBeans of a kind: domain, type and name of the MBean."""

    mbean: str
    name: str

    def __str__(self) -> str:
        return f"{self.mbean} {self.name}"


def attributes_of(node: Node) -> set[Attribute]:
    """Return all attributes of the MBeans of a node that Kafka runs."""
    assert node.process is not None
    command = node.jars.command(
        "ListMBeans", str(node.process.pid), classes=node.jars.compiled("ListMBeans")
    )
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    lines = (line.split("\t") for line in done.stdout.splitlines())
    return {Attribute(_kind(mbean), name) for mbean, name in lines}


def exported(metrics: Iterable[ExportedMetric[Any]] = METRICS) -> set[Attribute]:
    """Return the attributes that kraft's metrics show."""
    found = set()
    for metric in metrics:
        for name in metric.attribute.split(", "):
            names = PERCENTILES if name == "Percentile" else (name,)
            found |= {Attribute(metric.mbean, each) for each in names}
    return found


def reason_to_exclude(attribute: Attribute) -> str | None:
    """Return why kraft does not show an attribute, None where it is not excluded."""
    text = str(attribute)
    return next((reason for pattern, reason in EXCLUDED if re.fullmatch(pattern, text)), None)


def reason_to_exclude_of_broker(attribute: Attribute) -> str | None:
    """Return why the metrics of a broker do not show an attribute, None if it is not excluded."""
    text = str(attribute)
    return next(
        (reason for pattern, reason in EXCLUDED_OF_BROKER if re.fullmatch(pattern, text)), None
    )


def type_of(mbean: str) -> str:
    """Return the domain and the type of an MBean."""
    return mbean.partition(",")[0]


def _kind(mbean: str) -> str:
    """Return domain, type and name of an MBean; the other keys differ between MBeans of a kind."""
    domain, _, keys = mbean.partition(":")
    values = dict(key.partition("=")[::2] for key in keys.split(","))
    kept = (f"{key}={values[key]}" for key in ("type", "name") if key in values)
    return f"{domain}:{','.join(kept)}"


PERCENTILES = tuple(f"{part}thPercentile" for part in (50, 75, 95, 98, 99, 999))

_ONE_LOOP = "kraft has one event loop: AvgIdleRatio, poll-idle-ratio-avg and TotalTimeMs show it"
_BROKER = "of a broker's data, which a controller does not have"
_SAME = "another metric shows the same"

#: Patterns of "MBean attribute", and why kraft does not show what matches.
EXCLUDED: tuple[tuple[str, str], ...] = (
    (r"(?!kafka)[^:]*:.*", "of the Java virtual machine; process_… shows memory, CPU and files"),
    (
        r".* ((Mean|OneMinute|FiveMinute|FifteenMinute)Rate|RateUnit|LatencyUnit|EventType)",
        "Prometheus computes rates from the counter",
    ),
    (r".* (Mean|Min|Max|StdDev)", "_sum, _count and the quantiles say as much"),
    (r".*,name=(RequestBytes|LogFlushRateAndTimeMs) [0-9]+thPercentile", "_sum and _count suffice"),
    (r"kafka:type=kafka\.Log4jController .*", "DescribeConfigs of BROKER_LOGGER shows the levels"),
    (r".*:type=(app-info|ControllerServer,name=ClusterId) .*", "not a number; the log has them"),
    (r".*(kafka-metrics-count count|name=yammer-metrics-count Value)", "of Kafka's own registry"),
    (r".*,name=linux-disk-(read|write)-bytes .*", "of the machine: the node exporter shows it"),
    (r".*:type=raft-metrics current-vote-directory-id", "a text; quorum-state has it"),
    (r".*:type=plugins authorization-.*-rate-per-minute", "kafka.authorizer.logger has decisions"),
    (r".*:type=MetadataLoader,name=AvgIdleRatio .*", _ONE_LOOP),
    (
        r".*,name=(AcceptorBlocked|Idle|NetworkProcessorAvgIdle|\w*HandlerAvgIdle)Percent .*",
        _ONE_LOOP,
    ),
    (r".*,name=(RequestQueue|Local|Remote|ResponseQueue|ResponseSend)TimeMs .*", _ONE_LOOP),
    (r".*:type=RequestChannel,name=ResponseQueueSize .*", _ONE_LOOP),
    (r".*,name=(MessageConversionsTimeMs|TemporaryMemoryBytes) .*", _BROKER),
    (r".*,name=ThrottleTimeMs .*", "not measured yet: the response tells the client"),
    (r".*:type=BrokerTopicMetrics,.*", _BROKER),
    (r".*:type=(Produce|Fetch|Request|ControllerMutation) .*", "of Kafka's quota threads"),
    (r".*:type=DelayedOperationPurgatory,.*", _BROKER),
    (r"kafka\.log:type=Log,.*", _SAME + ": log-end-offset; the directory has the sizes"),
    (r"kafka\.log:type=LogFlushStats,.*", _SAME + ": commit-latency includes the sync"),
    (r".*,name=ExpiredConnectionsKilledCount .*", "of SASL sessions"),
    (r".*:type=(raft-channel|registration)-metrics .*", "of connections to other controllers"),
    (
        r".*:type=socket-server-metrics (.*-(rate|ratio|avg|max)|.*authentication.*|io-.*"
        r"|.*-throttle-time|select-total|network-io-total|MemoryPool.*|expired-.*|connections"
        r"|response-total)",
        "computed from totals, of Java's selectors, or of authentication",
    ),
)

#: The same for the MBeans of a broker.
EXCLUDED_OF_BROKER: tuple[tuple[str, str], ...] = (
    *EXCLUDED[1:3],
    (r".*:type=KafkaServer,name=ClusterId .*", "not a number; the log has it"),
    (r".*(name=yammer-metrics-count Value)", "of Kafka's own registry"),
    (r".*,name=linux-disk-(read|write)-bytes .*", "of the machine: the node exporter shows it"),
    (r".*Share(Fetch|Acknowledgement)RequestsPerSec .*", "of share groups"),
    (r".*,name=PartitionsWithLateTransactionsCount .*", "of transactions"),
    (r".*,name=\w+MessageConversionsPerSec .*", "of versions before 4.0"),
    (
        r".*,name=(BytesRejected|Invalid\w+Records|NoKeyCompactedTopicRecords)PerSec .*",
        "FailedProduceRequestsPerSec counts the batches that are not valid",
    ),
    (r".*,name=ReassignmentBytes(In|Out)PerSec .*", "ReplicationBytes…PerSec include them"),
    (r".*,name=ProducerIdCount .*", "not kept as a number yet"),
    (r".*,name=(DeadThreadCount|MinFetchRate) .*", "of Kafka's fetcher threads"),
    (r".*,name=(CordonedLogDirectoryCount|LogDirectoryCordoned) .*", "a setting has them"),
)

#: Exported metrics whose MBeans appear only after an event: a request, an error.
NOT_ALWAYS_REGISTERED: frozenset[Attribute] = frozenset()
