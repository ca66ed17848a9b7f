"""The first releases of Apache Kafka whose controllers serve an API, for errors of clients."""

from __future__ import annotations

from collections.abc import Mapping

#: API key -> release; without an entry every release of KRaft serves the API. Sources: KIP-900,
#: KAFKA-15219, KIP-919, KIP-853, KIP-1312.
FIRST_RELEASES: Mapping[int, str] = {
    51: "3.5",  # AlterUserScramCredentials
    38: "3.6",  # CreateDelegationToken
    39: "3.6",  # RenewDelegationToken
    40: "3.6",  # ExpireDelegationToken
    60: "3.7",  # DescribeCluster
    80: "3.9",  # AddRaftVoter
    81: "3.9",  # RemoveRaftVoter
    94: "4.4",  # UnregisterController
}
