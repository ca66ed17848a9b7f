"""Committed records -> state, for everything that is no topic or partition.

``ClusterState`` replays typed records, goes back to an offset, says what changed since one, and
gives the records of a snapshot; ``diff`` compares two states by meaning. One module for each
duty: ``nodes`` (brokers, controllers), ``features`` (and producer ids), ``configs``, ``quotas``,
``security`` (ACLs, SCRAM, tokens), ``quorum``, ``journal``. Pure: no socket, file, thread, clock
or random source.
"""

from kraft.image.cluster import Changed, ClusterState
from kraft.image.configs import Configs
from kraft.image.diff import Change, diff
from kraft.image.features import Features
from kraft.image.nodes import BrokerRegistration, ControllerRegistration, Endpoint, VersionRange
from kraft.image.quorum import Quorum, Voter, VoterEndpoint
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
    "Endpoint",
    "Features",
    "Quorum",
    "ScramCredential",
    "Token",
    "VersionRange",
    "Voter",
    "VoterEndpoint",
    "diff",
    "quota_entity",
]
