"""This side's cluster in a sequence, and what generators ask of it.

Owns the setup of a sequence as JSON (``{"op": "reset", ...}``, the same that Kafka's side gets),
the clock, the broker sessions and the placer.
"""

from __future__ import annotations

import base64
import random
from typing import Any

from kraft._core.batch import BatchBuilder, assign_offsets
from kraft._core.placement import JavaRandom, StripedPlacer
from kraft.controller import BrokerSessions, Decision, LocalFeatures, Records, Settings
from kraft.controller.configs import AlterConfigPolicy
from kraft.controller.operations import Tip
from kraft.controller.topics import CreationRules
from kraft.image.replay import Cluster
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
#: What 4.3.1 supports: beyond it this side has the levels of 4.4.
KAFKA_FEATURES = SUPPORTED_FEATURES | {
    METADATA_VERSION: (MINIMUM_VERSION.value, LATEST_PRODUCTION.value),
    "share.version": (0, 1),
}


def text_of(id: bytes) -> str:
    """An id as Kafka writes it (Uuid.toString)."""
    return base64.urlsafe_b64encode(id).rstrip(b"=").decode()


def id_of(text: str) -> Uuid:
    return Uuid(base64.urlsafe_b64decode(text + "=="))


def drawn_id(dice: random.Random) -> Uuid:
    """An id as java.util.UUID.randomUUID makes it, and as Kafka accepts it."""
    id = bytearray(dice.randbytes(16))
    id[0] &= 0x7F  # nothing that begins with a dash
    id[6] = id[6] & 0x0F | 0x40
    id[8] = id[8] & 0x3F | 0x80
    return Uuid(bytes(id))


class View:
    """What generators of operations ask of a cluster, whatever keeps it.

    ``sessions`` are those of the controller that leads; the clock is in milliseconds.
    """

    cluster: Cluster
    sessions: BrokerSessions
    settings: Settings
    setup: dict[str, Any]
    now_ms: int
    #: What new topics and changed configurations are held against.
    creation_rules: CreationRules | None = None
    config_policy: AlterConfigPolicy | None = None
    #: Who decides on features.
    local_features = LocalFeatures(NODE_ID, (NODE_ID,), KAFKA_FEATURES)

    @property
    def level(self) -> int:
        return self.cluster.state.metadata_version

    def has_live_session(self, broker: int) -> bool:
        return self.sessions.is_alive(self.cluster, broker, self.now_ms)

    def brokers(self) -> list[int]:
        return sorted(self.cluster.state.brokers)

    def some_broker(self, dice: random.Random) -> int:
        """Mostly one that is registered."""
        known = self.brokers()
        return dice.choice(known) if known and dice.random() < 0.97 else UNKNOWN_BROKER

    def topics(self) -> list[str]:
        table = self.cluster.table
        return [table.topic_name(number) for number in table.topic_numbers()]

    def some_topic(self, dice: random.Random) -> str:
        """Mostly one that there is."""
        names = self.topics()
        return dice.choice(names) if names and dice.random() < 0.95 else "no-such-topic"

    def topic_id(self, name: str) -> Uuid:
        number = self.cluster.table.topic_number(name)
        return Uuid(self.cluster.table.topic_id_of(number)) if number >= 0 else Uuid(b"none" * 4)

    def rows(self, name: str) -> list[int]:
        """The rows of a topic by partition id; none where there is no such topic."""
        number = self.cluster.table.topic_number(name)
        if number < 0:
            return []
        found: list[int] = self.cluster.table.topic_rows(number).tolist()
        return found

    def some_partition(self, dice: random.Random) -> tuple[str, int, dict[str, Any] | None]:
        """A topic's name, a partition id, and the state of the partition if there is one."""
        name = self.some_topic(dice)
        rows = self.rows(name)
        if not rows or dice.random() < 0.02:
            return name, len(rows), None
        partition = dice.randrange(len(rows))
        return name, partition, self.cluster.table.state_of(rows[partition])


class World(View):
    """A ``Cluster`` that decisions are applied to, with what the log does not hold."""

    def __init__(self, setup: dict[str, Any]) -> None:
        static = setup["static_config"]
        self.setup = setup
        self.settings = Settings(
            min_insync_replicas=int(static.get("min.insync.replicas", "1")),
            unclean_leader_election_enable=static.get("unclean.leader.election.enable") == "true",
            num_partitions=setup["num_partitions"],
            default_replication_factor=setup["default_replication_factor"],
            node_id=NODE_ID,
        )
        self.max_elections: int = setup["max_elections"]
        self.placer = StripedPlacer(JavaRandom(setup["seed"]))
        self.now_ms = 1_000_000
        self.cluster = Cluster()
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
            self._tell_sessions(decision.records)

    def _write(self, records: Records) -> None:
        assign_offsets(records.batches, self.cluster.next_offset, 1)
        self.cluster.apply(records.batches)

    def _tell_sessions(self, written: Records) -> None:
        """As Kafka's replay does, so that operations may come from elsewhere than heartbeats."""
        for record in written:
            if isinstance(record, (RegisterBroker, UnregisterBroker)):
                self.sessions.follow(self.cluster, record.broker_id)
            elif isinstance(record, BrokerRegistrationChange):
                self.sessions.note_registration_change(self.cluster, record.broker_id)

    def tip(self, arguments: dict[str, Any]) -> tuple[Tip, list[Uuid]]:
        """Return what a request is decided on, and the list of the ids that it draws."""
        dice, drawn = random.Random(arguments.get("seed")), []

        def random_uuid() -> Uuid:
            drawn.append(drawn_id(dice))
            return drawn[-1]

        tip = Tip(self.cluster, self.sessions, self.settings, self.placer, random_uuid)
        tip.now_ms, tip.next_offset = self.now_ms, self.cluster.next_offset
        return tip, drawn
