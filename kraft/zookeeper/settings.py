"""The settings of the controllers, with Kafka's names and defaults (``KafkaConfig``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ZkEra(StrEnum):
    """The generations of Kafka's controller on ZooKeeper."""

    #: Kafka 0.8.2: listeners under one lock.
    V0_8 = "0.8"
    #: Kafka 1.1: one queue of events.
    V2018 = "2018"


@dataclass(frozen=True, slots=True)
class ZkControllerSettings:
    """The settings of the controller, with Kafka's names and the defaults of 1.1."""

    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_ms: int = 300_000


#: The defaults of Kafka 0.8.2.
SETTINGS_0_8 = ZkControllerSettings(unclean_leader_election_enable=True, delete_topic_enable=False)
