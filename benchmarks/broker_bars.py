"""The rows of the suite `brokers`: Apache Kafka's brokers on both kinds of controllers."""

from __future__ import annotations

from benchmarks.conditions import Row, at_least

_PAUSE = "most of it is the followers' timeout, and an election with a random delay"

BROKER_ROWS = (
    Row(
        "3 brokers of Kafka's: 45,000 replicas created through them, until all have applied them",
        "brokers_create",
        "kafka_brokers_create",
        (at_least(1),),
        floor="brokers_files",
        note="CPU: of the three controllers; the floor: one thread creates the files of as many "
        "replicas",
    ),
    Row(
        "a broker with 15,000 partitions restarts: from its registration until it is in every ISR",
        "brokers_restart",
        "kafka_brokers_restart",
        (at_least(1),),
        floor=None,
    ),
    Row(
        "kill -9 of the leader at 45,000 replicas: longest time of an administrator's change",
        "brokers_pause",
        "kafka_brokers_pause",
        (at_least(1),),
        floor=None,
        note=_PAUSE,
    ),
    Row(
        "the same, elected to the first change appended",
        "brokers_first_write",
        "kafka_brokers_first_write",
        (at_least(5),),
        floor=None,
        note="Kafka's controllers without a leader say so at once, and the broker then waits for "
        "a backoff or for the connection to the dead one; kraft's answer when there is a leader",
    ),
    Row(
        "the same, from when the broker knows the leader",
        "brokers_known_write",
        "kafka_brokers_known_write",
        (),
        floor=None,
    ),
)
