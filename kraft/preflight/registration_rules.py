"""Rules for registrations: of nodes that are gone, and voters without one.

The controller checks new levels of features against every registration, also of a node that left
long ago (KAFKA-20395). Sources: Kafka's ``QuorumFeatures``, ``ClusterControlManager`` (4.3.1),
KIP-919, KIP-1312.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.preflight.facts import BrokerFacts, ClusterFacts, ControllerFacts
from kraft.preflight.findings import (
    CommandWords,
    FindingSeverity,
    PreflightFinding,
    RemedyStep,
)
from kraft.records.versions import MetadataVersion


def registration_findings(facts: ClusterFacts, words: CommandWords) -> Iterator[PreflightFinding]:
    """Yield the findings about registrations, whatever the change."""
    for _, controller in sorted(facts.controllers.items()):
        if controller.registered is not None and controller.is_gone:
            yield PreflightFinding(
                FindingSeverity.WARNING
                if _can_unregister_controllers(facts)
                else FindingSeverity.NOTE,
                "gone-controller",
                f"controller {controller.id}",
                f"it is registered, and gone: no voter, no fetches, {controller.silence}",
                "Its registration blocks every later upgrade of a feature to a level that it does "
                "not support.",
                gone_controller_steps(facts, controller, words),
            )
        if controller.is_voter and controller.registered is None:
            yield PreflightFinding(
                FindingSeverity.BLOCKS,
                "unregistered-voter",
                f"controller {controller.id}",
                "it is a voter, and has not registered"
                + (f" ({controller.silence})" if controller.running is None else ""),
                "The controller rejects every change of a feature until all voters have "
                "registered.",
                (
                    RemedyStep(
                        f"Start controller {controller.id}; a controller of Kafka 3.7 or newer "
                        "registers within seconds. Its log says why not "
                        "(ControllerRegistrationManager)."
                    ),
                ),
            )
    for _, broker in sorted(facts.brokers.items()):
        if broker.is_gone:
            yield PreflightFinding(
                FindingSeverity.WARNING,
                "gone-broker",
                f"broker {broker.id}",
                "it is registered, fenced, and does not fetch metadata",
                "Its registration blocks every later upgrade of a feature to a level that it does "
                "not support.",
                gone_broker_steps(broker, words),
            )


def gone_broker_steps(broker: BrokerFacts, words: CommandWords) -> tuple[RemedyStep, ...]:
    """Return what to do about the registration of a broker that is gone."""
    holds = ""
    if broker.replicas:
        holds = (
            f" {broker.replicas} partitions keep it among their replicas: move them first, with "
            "`kraft reassign`."
        )
    if broker.sole_replicas:
        holds += f" It has the only replica of {broker.sole_replicas} of them."
    return (
        RemedyStep(f"If broker {broker.id} comes back: start it with the new release."),
        RemedyStep(
            f"If it is gone for good: remove its registration.{holds}",
            words.kafka_cluster("unregister", "--id", broker.id),
            words.kraft("brokers", "unregister", "--id", broker.id),
        ),
    )


def gone_controller_steps(
    facts: ClusterFacts, controller: ControllerFacts, words: CommandWords
) -> tuple[RemedyStep, ...]:
    """Return what to do about the registration of a controller that is gone."""
    if _can_unregister_controllers(facts):
        return (
            RemedyStep(
                f"Remove the registration of controller {controller.id}.",
                words.kafka_cluster("unregister-controller", "--id", controller.id),
                words.kraft("quorum", "unregister-controller", "--controller-id", controller.id),
            ),
        )
    return (
        RemedyStep(
            "Before metadata.version 4.4 no command removes the registration of a controller. "
            "Replace it by a newer one: start a controller of the new release once, with "
            f"node.id={controller.id}, an empty log.dirs, controller.quorum.bootstrap.servers="
            f"{words.controllers} and no controller.quorum.voters. It registers as an observer.",
            f"kafka-storage.sh format -t {facts.cluster_id} -c FILE --no-initial-controllers && "
            "kafka-server-start.sh FILE",
            f"kraft storage format -t {facts.cluster_id} -c FILE --no-initial-controllers && "
            "kraft server start FILE",
        ),
        RemedyStep("Stop it when a new check does not report its registration any more."),
    )


def _can_unregister_controllers(facts: ClusterFacts) -> bool:
    return facts.metadata_version >= MetadataVersion.IBP_4_4_IV2
