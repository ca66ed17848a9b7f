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
    fence_stale_broker,
    register_broker,
    shut_down_broker,
    unfence_broker,
    unregister_broker,
)
from kraft.controller.configs import alter_configs
from kraft.controller.controllers import ControllerRegistrationRequest, register_controller
from kraft.controller.decision import Decision, Records
from kraft.controller.directories import (
    DirectoryAssignment,
    assign_replicas_to_directories,
    take_directories_offline,
)
from kraft.controller.elections import (
    ElectionType,
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from kraft.controller.heartbeats import (
    HeartbeatAnswer,
    heartbeat_applied,
    heartbeat_expired,
    process_heartbeat,
)
from kraft.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from kraft.controller.reassignment import Reassignment, alter_reassignments, list_reassignments
from kraft.controller.replication import IsrChange, PartitionAnswer, alter_partitions, expand_isrs
from kraft.controller.sessions import BrokerControlState, BrokerSessions, Heartbeat
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
    "BrokerControlState",
    "BrokerSessions",
    "Cluster",
    "ControllerRegistrationRequest",
    "CreatedTopic",
    "Decision",
    "DirectoryAssignment",
    "ElectionType",
    "Heartbeat",
    "HeartbeatAnswer",
    "IsrChange",
    "NewTopic",
    "PartitionAnswer",
    "ProducerIdBlock",
    "Reassignment",
    "Records",
    "RegistrationRequest",
    "Settings",
    "allocate_producer_ids",
    "alter_configs",
    "alter_partitions",
    "alter_reassignments",
    "assign_replicas_to_directories",
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
    "fence_stale_broker",
    "heartbeat_applied",
    "heartbeat_expired",
    "list_reassignments",
    "process_heartbeat",
    "register_broker",
    "register_controller",
    "shut_down_broker",
    "take_directories_offline",
    "unfence_broker",
    "unregister_broker",
    "usable_brokers",
]
