"""Settings of `QuorumController` and its periodic tasks, with Kafka's defaults.

The settings of decisions are in `state.DecisionSettings`. Sources: ``KRaftConfigs``,
``ReplicationConfigs``, ``ServerConfigs``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kraft.controller.state import DecisionSettings


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Intervals in milliseconds; None switches a task off.

    ``max_transaction_ms`` bounds a metadata transaction. It has to be well below the session
    timeout: an event that would fence or unfence a broker waits that long. Rows of deleted
    partitions are dropped when they are more than half of the table, and at least
    ``min_dead_rows``.
    """

    decisions: DecisionSettings = field(default_factory=DecisionSettings)
    session_timeout_ms: int = 9_000
    max_idle_interval_ms: int | None = 500
    leader_imbalance_check_interval_ms: int | None = 300_000
    unclean_leader_election_interval_ms: int | None = 300_000
    delegation_token_expiry_check_interval_ms: int | None = None
    max_transaction_ms: int = 3_000
    min_dead_rows: int = 65_536

    def __post_init__(self) -> None:
        if not 0 < self.max_transaction_ms < self.session_timeout_ms:
            raise ValueError(
                f"max_transaction_ms {self.max_transaction_ms} is not between 0 and the session "
                f"timeout of {self.session_timeout_ms} ms: brokers would be fenced meanwhile"
            )
