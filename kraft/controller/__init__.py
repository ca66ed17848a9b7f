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
from kraft.controller.configs import alter_configs
from kraft.controller.decision import Decision, Records
from kraft.controller.elections import (
    ElectionType,
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from kraft.controller.reassignment import Reassignment, alter_reassignments, list_reassignments
from kraft.controller.replication import IsrChange, PartitionAnswer, alter_partitions, expand_isrs
from kraft.controller.state import Cluster, Settings, election_context
from kraft.controller.topics import (
    CreatedTopic,
    NewTopic,
    create_partitions,
    create_topic,
    create_topics,
    delete_topic,
    usable_brokers,
)

__all__ = [
    "Cluster",
    "CreatedTopic",
    "Decision",
    "ElectionType",
    "IsrChange",
    "NewTopic",
    "PartitionAnswer",
    "Reassignment",
    "Records",
    "RegistrationRequest",
    "Settings",
    "alter_configs",
    "alter_partitions",
    "alter_reassignments",
    "balance_leaders",
    "begin_controlled_shutdown",
    "create_partitions",
    "create_topic",
    "create_topics",
    "delete_topic",
    "elect_leaders",
    "elect_unclean_leaders",
    "election_context",
    "expand_isrs",
    "fence_broker",
    "list_reassignments",
    "register_broker",
    "shut_down_broker",
    "take_directories_offline",
    "unfence_broker",
    "unregister_broker",
    "usable_brokers",
]
