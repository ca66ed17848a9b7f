"""The state that committed records make, apart from topics and partitions.

``ClusterState`` replays typed records, reverts to an offset, lists the changes since an offset and
returns the records of a snapshot; ``diff`` compares two states by meaning. Each kind of state has
a module: ``nodes`` (brokers, controllers), ``features`` (and producer ids), ``configs``,
``quotas``, ``security`` (ACLs, SCRAM, tokens), ``quorum``. All write old values to the ``journal``.
Pure: no socket, file, thread, clock or random source.
"""

from kraft.image.cluster import Changed, ClusterState
from kraft.image.configs import Configs
from kraft.image.diff import Change, diff
from kraft.image.features import Features
from kraft.image.nodes import BrokerRegistration, ControllerRegistration, NodeEndpoint, VersionRange
from kraft.image.quorum import Quorum, QuorumVoter, QuorumVoterEndpoint
from kraft.image.quotas import ClientQuotas, quota_entity
from kraft.image.security import AccessControl, ScramCredential, Token

__all__ = [
    "AccessControl",
    "BrokerRegistration",
    "Change",
    "Changed",
    "ClientQuotas",
    "ClusterState",
    "Configs",
    "ControllerRegistration",
    "Features",
    "NodeEndpoint",
    "Quorum",
    "QuorumVoter",
    "QuorumVoterEndpoint",
    "ScramCredential",
    "Token",
    "VersionRange",
    "diff",
    "quota_entity",
]
