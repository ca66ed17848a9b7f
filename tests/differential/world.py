"""This side's cluster in a sequence, and the view of it for generators.

Holds the setup of a sequence as JSON (``{"op": "reset", ...}``, the same as on Kafka's side), the
clock, the broker sessions and the placer.
"""

from __future__ import annotations

import base64
import random
from typing import Any

from kraft._core.bytes.batch import BatchBuilder, assign_offsets
from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft.controller.brokers.sessions import BrokerSessions
from kraft.controller.configs.config_changes import AlterConfigPolicy
from kraft.controller.decision import Decision, Records
from kraft.controller.features import LocalFeatures
from kraft.controller.runtime.operations import DecisionContext
from kraft.controller.state import DecisionSettings
from kraft.controller.topics.topic_creation import CreationRules
from kraft.image.replay import MetadataState
from kraft.records import (
    BrokerRegistrationChange,
    KRaftVersion,
    RegisterBroker,
    UnregisterBroker,
    Uuid,
)
from kraft.records.batches import encode_control_records
from kraft.records.versions import (
    LATEST_PRODUCTION,
    METADATA_VERSION,
    MINIMUM_VERSION,
    SUPPORTED_FEATURES,
)

CLUSTER_ID = "differential"
NODE_ID = 3000
UNKNOWN_BROKER = 99
#: The levels of 4.3.1; this side also supports those of 4.4.
KAFKA_FEATURES = SUPPORTED_FEATURES | {
    METADATA_VERSION: (MINIMUM_VERSION.value, LATEST_PRODUCTION.value),
    "share.version": (0, 1),
}


def text_of(id: bytes) -> str:
    """Return an id in Kafka's text form (Uuid.toString)."""
    return base64.urlsafe_b64encode(id).rstrip(b"=").decode()


def id_of(text: str) -> Uuid:
    return Uuid(base64.urlsafe_b64decode(text + "=="))


def drawn_id(dice: random.Random) -> Uuid:
    """Draw an id like java.util.UUID.randomUUID, in a form that Kafka accepts."""
    id = bytearray(dice.randbytes(16))
    id[0] &= 0x7F  # nothing that begins with a dash
    id[6] = id[6] & 0x0F | 0x40
    id[8] = id[8] & 0x3F | 0x80
    return Uuid(bytes(id))


class View:
    """The view of a cluster for generators of operations, independent of its implementation.

    ``sessions`` are those of the active controller; the clock is in milliseconds.
    """

    cluster: MetadataState
    sessions: BrokerSessions
    settings: DecisionSettings
    setup: dict[str, Any]
    now_ms: int
    #: Policies for new topics and changed configurations.
    creation_rules: CreationRules | None = None
    config_policy: AlterConfigPolicy | None = None
    #: This controller, for feature updates.
    local_features = LocalFeatures(NODE_ID, (NODE_ID,), KAFKA_FEATURES)

    @property
    def level(self) -> int:
        return self.cluster.state.metadata_version

    def has_live_session(self, broker: int) -> bool:
        return self.sessions.is_alive(self.cluster, broker, self.now_ms)

    def brokers(self) -> list[int]:
        return sorted(self.cluster.state.brokers)

    def some_broker(self, dice: random.Random) -> int:
        """Draw a broker, mostly a registered one."""
        known = self.brokers()
        return dice.choice(known) if known and dice.random() < 0.97 else UNKNOWN_BROKER

    def topics(self) -> list[str]:
        table = self.cluster.table
        return [table.topic_name(number) for number in table.topic_numbers()]

    def some_topic(self, dice: random.Random) -> str:
        """Draw a topic name, mostly of an existing topic."""
        names = self.topics()
        return dice.choice(names) if names and dice.random() < 0.95 else "no-such-topic"

    def topic_id(self, name: str) -> Uuid:
        number = self.cluster.table.topic_number(name)
        return Uuid(self.cluster.table.topic_id_of(number)) if number >= 0 else Uuid(b"none" * 4)

    def rows(self, name: str) -> list[int]:
        """Return the rows of a topic by partition id; empty without such a topic."""
        number = self.cluster.table.topic_number(name)
        if number < 0:
            return []
        found: list[int] = self.cluster.table.topic_rows(number).tolist()
        return found

    def some_partition(self, dice: random.Random) -> tuple[str, int, dict[str, Any] | None]:
        """Draw a topic's name, a partition id, and the state of the partition if it exists."""
        name = self.some_topic(dice)
        rows = self.rows(name)
        if not rows or dice.random() < 0.02:
            return name, len(rows), None
        partition = dice.randrange(len(rows))
        return name, partition, self.cluster.table.state_of(rows[partition])


class World(View):
    """A ``MetadataState`` that decisions are applied to, with the state that is not in the log."""

    def __init__(self, setup: dict[str, Any]) -> None:
        static = setup["static_config"]
        self.setup = setup
        self.settings = DecisionSettings(
            min_insync_replicas=int(static.get("min.insync.replicas", "1")),
            unclean_leader_election_enable=static.get("unclean.leader.election.enable") == "true",
            num_partitions=setup["num_partitions"],
            default_replication_factor=setup["default_replication_factor"],
            node_id=NODE_ID,
        )
        self.max_elections: int = setup["max_elections"]
        self.placer = StripedPlacer(JavaRandom(setup["seed"]))
        self.now_ms = 1_000_000
        self.cluster = MetadataState()
        if setup["kraft_version"]:
            self.cluster.apply(
                encode_control_records(
                    [KRaftVersion(version=0, kraft_version=setup["kraft_version"])], epoch=1
                )
            )
        builder = BatchBuilder()
        for value in setup["records"]:
            builder.append(bytes.fromhex(value))
        self._write(Records.finished(builder))
        self.sessions = BrokerSessions(setup["session_timeout_ms"])
        self.sessions.activate(self.cluster, self.now_ms)

    def write(self, decision: Decision[Any]) -> None:
        if len(decision.records):
            self._write(decision.records)
            self._update_sessions(decision.records)

    def _write(self, records: Records) -> None:
        assign_offsets(records.batches, self.cluster.next_offset, 1)
        self.cluster.apply(records.batches)

    def _update_sessions(self, written: Records) -> None:
        """Update the sessions like Kafka's replay, for operations other than heartbeats."""
        for record in written:
            if isinstance(record, (RegisterBroker, UnregisterBroker)):
                self.sessions.reset_broker(self.cluster, record.broker_id)
            elif isinstance(record, BrokerRegistrationChange):
                self.sessions.note_registration_change(self.cluster, record.broker_id)

    def context(self, arguments: dict[str, Any]) -> tuple[DecisionContext, list[Uuid]]:
        """Return the decision context of a request, and the list of the ids that it draws."""
        dice, drawn = random.Random(arguments.get("seed")), []

        def random_uuid() -> Uuid:
            drawn.append(drawn_id(dice))
            return drawn[-1]

        context = DecisionContext(
            self.cluster, self.sessions, self.settings, self.placer, random_uuid
        )
        context.now_ms, context.next_offset = self.now_ms, self.cluster.next_offset
        return context, drawn
