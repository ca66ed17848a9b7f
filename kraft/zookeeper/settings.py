"""The settings of the 2018 controller, with Kafka's names and defaults (``KafkaConfig`` of 1.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ZkControllerSettings:
    """The settings of the controller, with Kafka's names and defaults."""

    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_ms: int = 300_000
