"""The rows of the suite `network`: whole quorums as processes, over Kafka's protocol."""

from __future__ import annotations

from benchmarks.conditions import (
    Condition,
    Row,
    at_least,
    at_least_a_second,
    at_most_gib,
    at_most_kib,
    at_most_ms,
    at_most_of_a_core,
    at_most_p999_ms,
    at_most_times,
    no_worse_p99,
    none_missed,
    share_of_bytes,
)


def _beside_kafka(
    title: str, work: str, *conditions: Condition, note: str = "", floor: str | None = None
) -> Row:
    """Return the row of a work that both kinds of quorum do."""
    return Row(title, f"network_{work}", f"kafka_network_{work}", conditions, floor, note=note)


_FEWER = "the peer with 96,000 partitions; compared by the record"
_HALF = "the peer with 1M partitions"

NETWORK_ROWS = (
    _beside_kafka(
        "three controllers: create 1M partitions, request to response, all committed",
        "create",
        at_least_a_second(1_000_000),
        at_most_times(2, "network_bare_writers"),
        floor="network_bare_writers",
        note="here one request; the peer 96,000 partitions, in requests of 8,000, eight in flight",
    ),
    _beside_kafka(
        "heartbeats of 300 brokers meanwhile, from when each was due",
        "create_heartbeats",
        at_most_p999_ms(50),
    ),
    _beside_kafka(
        "topics of 10 partitions, one a request, 64 in flight, linger 0",
        "create_small",
        at_least(1.5),
    ),
    _beside_kafka("the same, each request", "create_small_requests", no_worse_p99()),
    _beside_kafka(
        "all leaders shrink the ISRs of 1M partitions at once (AlterPartition)",
        "shrink",
        at_least(10),
        note=_FEWER,
    ),
    _beside_kafka(
        "zonal outage at 1M partitions, 100 of 300 brokers: first to last committed record",
        "outage",
        at_least(10),
        note=_FEWER,
    ),
    _beside_kafka(
        "failover at 2M partitions: elected to the first request appended",
        "failover",
        at_most_ms(10),
        note=_HALF,
    ),
    _beside_kafka("the same, elected to the response of that request", "failover_answered"),
    _beside_kafka("the same, from kill -9 of the leader on", "failover_from_kill"),
    _beside_kafka(
        "cold start at 2M partitions, killed, 20 MB of log after the snapshot: exec to all "
        "applied, Vote and Fetch answered",
        "cold_start",
        at_most_ms(500),
        note=_HALF,
    ),
    Row(
        "the same, killed within seconds after the snapshot: its columns are not written yet",
        "network_cold_fresh",
        "kafka_network_cold_start",
        (),
        None,
        note=_HALF,
    ),
    _beside_kafka(
        "memory of the active controller at 2M partitions",
        "memory",
        share_of_bytes("kafka_network_memory", 1 / 5),
        note="resident without mapped files; the peer's live heap after a full collection, classes "
        f"and code; {_HALF}",
    ),
    Row(
        "10M partitions: memory of three controllers",
        "network_huge_memory",
        None,
        (at_most_gib(8),),
        floor=None,
    ),
    Row(
        "10M partitions: cold start",
        "network_huge_start",
        None,
        (at_most_ms(2000),),
        floor=None,
    ),
    Row(
        "10M partitions: failover, elected to the first request appended",
        "network_huge_failover",
        None,
        (at_most_ms(50),),
        floor=None,
    ),
    *(
        _beside_kafka(
            f"CPU of the active controller for a second of heartbeats of 1,000 brokers, {title}",
            f"heartbeats_{kind}",
            at_most_of_a_core(share),
        )
        for kind, title, share in (
            ("plain", "plain", 0.10),
            ("tls", "mutual TLS", 0.15),
            ("tls_asyncio", "mutual TLS without uvloop", 0.15),
        )
    ),
    *(
        _beside_kafka(
            f"1,000 brokers reconnect at once with mutual TLS{title}",
            f"reconnect_{kind}",
            none_missed(),
            note="missed: a broker waited over 2 s for the controller; its own work on the same "
            "cores is in the seconds only",
        )
        for kind, title in (("tls", ""), ("tls_asyncio", ", without uvloop"))
    ),
    *(
        Row(
            f"memory a connection with mutual TLS{title}",
            f"network_connection_{kind}",
            None,
            (at_most_kib(limit),),
            floor=None,
        )
        for kind, title, limit in (("tls", "", 100), ("tls_asyncio", ", without uvloop", 200))
    ),
)
