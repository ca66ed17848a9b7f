"""Requests -> records: what Kafka's controller would write.

Each function takes a ``Cluster`` (partitions and everything else, as committed records made them),
decides, and gives a ``Decision``: records, already encoded into batches, and the answer to whoever
asked. Deciding never changes the cluster; the records do, once they are applied. Pure: no socket,
file, thread, clock or random source; ids, offsets and the placer are arguments.

One module for each duty: ``brokers``, ``topics``, ``elections``, ``replication``,
``reassignment``, ``configs``.
"""

from kraft.controller.brokers import (
    RegistrationRequest,
    begin_controlled_shutdown,
    fence_broker,
    register_broker,
    shut_down_broker,
    take_directories_offline,
    unfence_broker,
    unregister_broker,
)
from kraft.controller.decision import Decision, Records
from kraft.controller.state import Cluster, Settings, election_context

__all__ = [
    "Cluster",
    "Decision",
    "Records",
    "RegistrationRequest",
    "Settings",
    "begin_controlled_shutdown",
    "election_context",
    "fence_broker",
    "register_broker",
    "shut_down_broker",
    "take_directories_offline",
    "unfence_broker",
    "unregister_broker",
]
