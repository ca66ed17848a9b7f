"""Rules for new levels of features: who supports them, what they depend on, the way back.

Sources: Kafka's ``QuorumFeatures``, ``ClusterFeatureSupportDescriber``, ``FeatureControlManager``
(4.3.1), KIP-584, KIP-1022, KAFKA-16538, KAFKA-18979, KAFKA-21426. `kraft.controller.features`
rejects by the same rules; here every node that has to be changed is named, not the first one.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.errors import UnsupportedVersionError
from kraft.image.nodes import VersionRange
from kraft.preflight.changes import FeatureLevelChange
from kraft.preflight.facts import (
    KRAFT_VERSION,
    BrokerFacts,
    ClusterFacts,
    ControllerFacts,
    NodeFeatures,
    level_text,
    release_of,
)
from kraft.preflight.findings import (
    CommandWords,
    FindingSeverity,
    PreflightFinding,
    RemedyStep,
)
from kraft.preflight.registration_rules import gone_broker_steps, gone_controller_steps
from kraft.records.versions import (
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    MetadataVersion,
    feature_dependencies,
)

_UNSUPPORTED = VersionRange(0, 0)
_BLOCKS, _WARNING, _NOTE = FindingSeverity
#: The first release whose leader turns static voters into voters that can change.
FIRST_WITH_KRAFT_VERSION_UPGRADE = MetadataVersion.IBP_4_1_IV0

_ALL_SUPPORT = "The controller rejects a level that a registered node does not support."


def feature_findings(
    facts: ClusterFacts, change: FeatureLevelChange, words: CommandWords
) -> Iterator[PreflightFinding]:
    """Yield the findings about new levels of features, feature by feature."""
    for name, level in sorted(change.levels.items()):
        yield from _direction(facts, change, name, level)
        yield from _support(facts, name, level, words)
        yield from _dependencies(facts, change, name, level)
        yield from _way_back(facts, change, name, level)
    same = [name for name, level in change.levels.items() if facts.finalized.get(name, 0) == level]
    if same:
        yield PreflightFinding(
            _NOTE,
            "level-is-set",
            ", ".join(sorted(same)),
            "the level is set already" if len(same) == 1 else "the levels are set already",
            "Nothing changes there.",
        )
    yield from _release_changes_quorum(facts, change, words)


def rejection_findings(facts: ClusterFacts, words: CommandWords) -> Iterator[PreflightFinding]:
    """Yield the active controller's reasons in the dry run, where no other finding names one."""
    # One reason may be given for every feature of the change.
    for reason in dict.fromkeys(facts.dry_run.values()):
        names = sorted(name for name, each in facts.dry_run.items() if each == reason)
        wait = (
            "Wait some seconds, and check again: each voter reports its directory id and its "
            "endpoints to a new leader, and after its own start, once per "
            "controller.quorum.fetch.timeout.ms."
            if KRAFT_VERSION in names
            else "Remove the reason that the controller gives, and check again."
        )
        yield PreflightFinding(
            _BLOCKS,
            "controller-rejects",
            ", ".join(names),
            f"the controller rejects the change: {reason}",
            "The controller has checked the change without making it (a dry run).",
            (RemedyStep(wait), words.describe()),
        )


def _direction(
    facts: ClusterFacts, change: FeatureLevelChange, name: str, level: int
) -> Iterator[PreflightFinding]:
    current = facts.finalized.get(name, 0)
    if level != current and (level < current) is change.is_upgrade:
        other = "downgrade" if change.is_upgrade else "upgrade"
        yield PreflightFinding(
            _BLOCKS,
            "wrong-direction",
            name,
            f"the level is {level_text(name, current)}, and {level_text(name, level)} is "
            f"{'lower' if change.is_upgrade else 'higher'}",
            f"The controller rejects it as {'an upgrade' if change.is_upgrade else 'a downgrade'}.",
            (RemedyStep(f"Check a {other}.", kraft=f"kraft preflight {other} --help"),),
        )


def _support(
    facts: ClusterFacts, name: str, level: int, words: CommandWords
) -> Iterator[PreflightFinding]:
    nodes: list[NodeFeatures] = [each.features for each in facts.brokers.values()]
    for each in facts.controllers.values():
        nodes += [features for features in (each.running, each.registered) if features is not None]
    if name not in SUPPORTED_FEATURES and not any(name in features for features in nodes):
        known = ", ".join(sorted({*SUPPORTED_FEATURES, *(n for node in nodes for n in node)}))
        yield PreflightFinding(
            _BLOCKS,
            "unknown-feature",
            name,
            "no node knows a feature of this name",
            f"Known are {known}.",
            (
                RemedyStep(
                    "See the features and their levels.",
                    words.kafka("kafka-features", "describe"),
                    words.kraft("features", "describe"),
                ),
            ),
        )
        return
    for _, controller in sorted(facts.controllers.items()):
        yield from _controller_support(facts, controller, name, level, words)
    for _, broker in sorted(facts.brokers.items()):
        if not _supports(broker.features, name, level):
            yield _broker_finding(broker, name, level, words)


def _controller_support(
    facts: ClusterFacts, controller: ControllerFacts, name: str, level: int, words: CommandWords
) -> Iterator[PreflightFinding]:
    subject = f"controller {controller.id}"
    known, running = controller.registered, controller.running
    if known is None and not controller.is_voter:
        known = running
    if known is None:
        # registration_rules reports a voter without registration.
        return
    if _supports(known, name, level):
        return
    wanted = f"{name} {level_text(name, level)}"
    if controller.is_gone:
        yield PreflightFinding(
            _BLOCKS,
            "stale-controller",
            subject,
            f"it is gone ({controller.silence}), and its registration {_range_text(known, name)}, "
            f"not {level_text(name, level)}",
            f"{_ALL_SUPPORT} The registration of a controller stays when the controller leaves "
            "(KAFKA-20395).",
            gone_controller_steps(facts, controller, words),
        )
        return
    if running is not None and _supports(running, name, level):
        yield PreflightFinding(
            _BLOCKS,
            "old-registration",
            subject,
            f"its process supports {wanted}, but its registration is of an earlier start, and "
            f"{_range_text(known, name)}",
            f"{_ALL_SUPPORT} A controller registers again within seconds of its start.",
            (
                RemedyStep(
                    f"Wait some seconds and check again. If this stays, restart controller "
                    f"{controller.id} and look for ControllerRegistrationManager in its log."
                ),
            ),
        )
        return
    release = release_of(controller.metadata_version_max)
    state = (
        f"its process has the levels of {release}"
        if running is not None
        else f"it is down ({controller.silence})"
    )
    yield PreflightFinding(
        _BLOCKS,
        "controller-level",
        subject,
        f"{state}, and {_range_text(known, name)}, not {level_text(name, level)}",
        _ALL_SUPPORT,
        (
            RemedyStep(
                f"Install a release that supports {wanted} on controller {controller.id} and "
                "start it. One controller after the other, the leader last; go on when its lag "
                "is 0.",
            ),
            words.describe(),
        ),
    )


def _broker_finding(
    broker: BrokerFacts, name: str, level: int, words: CommandWords
) -> PreflightFinding:
    supported = _range_text(broker.features, name)
    if broker.is_gone:
        return PreflightFinding(
            _BLOCKS,
            "stale-broker",
            f"broker {broker.id}",
            f"it is fenced and does not fetch metadata, and its registration {supported}, not "
            f"{level_text(name, level)}",
            f"{_ALL_SUPPORT} The registration of a broker stays when the broker is gone.",
            gone_broker_steps(broker, words),
        )
    return PreflightFinding(
        _BLOCKS,
        "broker-level",
        f"broker {broker.id}",
        f"it has the levels of {release_of(_metadata_max(broker.features))}, and {supported}, not "
        f"{level_text(name, level)}",
        _ALL_SUPPORT,
        (
            RemedyStep(
                f"Install a release that supports {name} {level_text(name, level)} on broker "
                f"{broker.id} and restart it. It registers with its new levels."
            ),
        ),
    )


def _dependencies(
    facts: ClusterFacts, change: FeatureLevelChange, name: str, level: int
) -> Iterator[PreflightFinding]:
    proposed = {**facts.finalized, **change.levels}
    try:
        needed = feature_dependencies(name, level)
    except UnsupportedVersionError:
        # A newer release's level: only its controllers know the dependencies.
        return
    for other, least in needed.items():
        if proposed.get(other, 0) < least:
            yield PreflightFinding(
                _BLOCKS,
                "dependency",
                name,
                f"level {level} depends on {other} {level_text(other, least)}; it is "
                f"{level_text(other, proposed.get(other, 0))}",
                "The controller rejects a level without the levels that it depends on (KIP-1022).",
                (
                    RemedyStep(
                        f"Change both together: add --feature {other}={least}.",
                    ),
                ),
            )


def _way_back(
    facts: ClusterFacts, change: FeatureLevelChange, name: str, level: int
) -> Iterator[PreflightFinding]:
    current = facts.finalized.get(name, 0)
    if name == KRAFT_VERSION:
        if level < current:
            yield PreflightFinding(
                _BLOCKS,
                "no-way-back",
                name,
                "kraft.version cannot be lowered",
                "The log has the voters since level 1; static voters cannot come back.",
                (RemedyStep("Keep kraft.version. Voters can be added and removed."),),
            )
        elif level > current:
            yield PreflightFinding(
                _NOTE,
                "no-way-back",
                name,
                "kraft.version cannot be lowered again",
                "From then on the log names the voters, and not controller.quorum.voters.",
            )
        return
    if name != METADATA_VERSION:
        return
    lost = [
        each for each in MetadataVersion if level < each <= current and each.did_metadata_change
    ]
    if lost and not change.is_upgrade:
        lowest = max(lost)
        yield PreflightFinding(
            _BLOCKS,
            "metadata-lost",
            name,
            f"{', '.join(level_text(name, each) for each in lost)} brought records that "
            f"{level_text(name, level)} cannot express",
            "The controller rejects a downgrade that could lose metadata, with --unsafe too.",
            (
                RemedyStep(
                    f"Go back to {lowest.text} at the lowest."
                    if lowest < current
                    else f"Stay at {lowest.text}: no lower level keeps the metadata."
                ),
            ),
        )
    gained = [
        each for each in MetadataVersion if current < each <= level and each.did_metadata_change
    ]
    if gained and change.is_upgrade:
        yield PreflightFinding(
            _NOTE,
            "no-way-back",
            name,
            f"a level below {level_text(name, max(gained))} cannot be set again",
            "That level brings records that lower levels cannot express. Run the new release at "
            "the old level for some days, as the software can be downgraded until then.",
        )


def _release_changes_quorum(
    facts: ClusterFacts, change: FeatureLevelChange, words: CommandWords
) -> Iterator[PreflightFinding]:
    if (
        change.release is None
        or not change.is_upgrade
        or facts.kraft_version > 0
        or change.levels.get(KRAFT_VERSION, 0) == 0
    ):
        return
    levels = {name: level for name, level in change.levels.items() if name != KRAFT_VERSION}
    apart = FeatureLevelChange(levels).words()
    yield PreflightFinding(
        _WARNING,
        "release-changes-quorum",
        KRAFT_VERSION,
        f"--release-version {change.release} also sets kraft.version to 1",
        "That turns the static voters into voters that can change, for ever (KAFKA-21426).",
        (
            RemedyStep(
                "Name the features instead, without kraft.version.",
                words.kafka("kafka-features", *apart),
                words.kraft("features", *apart),
            ),
            RemedyStep(
                "If the voters shall be able to change, check that on its own.",
                kraft=words.kraft("preflight", "dynamic-quorum"),
            ),
        ),
    )


def _supports(features: NodeFeatures, name: str, level: int) -> bool:
    supported = features.get(name, _UNSUPPORTED)
    return supported.min <= level <= supported.max


def _metadata_max(features: NodeFeatures) -> int | None:
    return features[METADATA_VERSION].max if METADATA_VERSION in features else None


def _range_text(features: NodeFeatures, name: str) -> str:
    if name not in features:
        return f"does not have {name}"
    supported = features[name]
    if name == METADATA_VERSION:
        return f"supports {name} up to {level_text(name, supported.max)}"
    return f"supports {name} {supported.min} to {supported.max}"
