"""The changes that ``kraft preflight`` knows, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraft.controller.features import UpgradeType
from kraft.preflight.facts import KRAFT_VERSION, ClusterFacts, level_text
from kraft.preflight.findings import CommandWords, RemedyStep
from kraft.raft.voters import Endpoint, ReplicaKey


@dataclass(frozen=True, slots=True)
class FeatureLevelChange:
    """New levels of features, by name; ``release`` is the value of --release-version, if given."""

    levels: Mapping[str, int]
    upgrade_type: UpgradeType = UpgradeType.UPGRADE
    release: str | None = None

    @property
    def is_upgrade(self) -> bool:
        return self.upgrade_type is UpgradeType.UPGRADE

    @property
    def verb(self) -> str:
        return "upgrade" if self.is_upgrade else "downgrade"

    def words(self) -> list[str]:
        """Return the words of the change, the same for kafka-features and ``kraft features``."""
        if self.release is not None:
            return [self.verb, "--release-version", self.release, *self._unsafe()]
        levels = sorted(self.levels.items())
        return [
            self.verb,
            *(word for name, level in levels for word in ("--feature", f"{name}={level}")),
            *self._unsafe(),
        ]

    def _unsafe(self) -> list[str]:
        return ["--unsafe"] if self.upgrade_type is UpgradeType.UNSAFE_DOWNGRADE else []

    def __str__(self) -> str:
        levels = ", ".join(
            f"{name} to {level_text(name, level)}" for name, level in sorted(self.levels.items())
        )
        return f"{self.verb} {levels}"


@dataclass(frozen=True, slots=True)
class DynamicQuorumChange:
    """Static voters become voters that can change: kraft.version 0 to 1 (KIP-853, KAFKA-16538)."""

    def as_levels(self) -> FeatureLevelChange:
        return FeatureLevelChange({KRAFT_VERSION: 1})

    def __str__(self) -> str:
        return "static voters become voters that can change (kraft.version 1)"


@dataclass(frozen=True, slots=True)
class ControllerReplacement:
    """A voter is replaced by another controller, or by a new directory of the same.

    ``new`` and ``endpoints`` are of the replacement's configuration and formatted directory, None
    and empty where it is not known; ``config`` is the file's path.
    """

    old_id: int
    new: ReplicaKey | None = None
    endpoints: tuple[Endpoint, ...] = ()
    config: str = "FILE"

    def __str__(self) -> str:
        by = "another controller" if self.new is None else f"controller {self.new!r}"
        return f"voter {self.old_id} is replaced by {by}"


#: A planned change; None: any change, only what is wrong in general is checked.
PlannedChange = FeatureLevelChange | DynamicQuorumChange | ControllerReplacement | None


def commands_of(
    change: PlannedChange, facts: ClusterFacts, words: CommandWords
) -> list[RemedyStep]:
    """Return the steps that carry out the change."""
    match change:
        case FeatureLevelChange():
            return [_feature_step(change, words)]
        case DynamicQuorumChange():
            if facts.kraft_version > 0:
                return []
            return [_feature_step(change.as_levels(), words)]
        case ControllerReplacement():
            return _replacement_steps(change, facts, words)
        case None:
            return []


def _feature_step(change: FeatureLevelChange, words: CommandWords) -> RemedyStep:
    return RemedyStep(
        f"Carry out the {change.verb}.",
        words.kafka("kafka-features", *change.words()),
        words.kraft("features", *change.words()),
    )


def _replacement_steps(
    change: ControllerReplacement, facts: ClusterFacts, words: CommandWords
) -> list[RemedyStep]:
    old = facts.controllers.get(change.old_id)
    directory = "DIRECTORY_ID" if old is None or old.directory_id is None else old.directory_id
    removal = remove_voter_step(change.old_id, str(directory), words)
    addition = add_voter_step(change, words)
    if change.new is not None and change.new.id != change.old_id:
        # The new voter first: the quorum never has fewer voters than before.
        return [addition, removal]
    return [removal, addition]


def remove_voter_step(id: int, directory_id: str, words: CommandWords) -> RemedyStep:
    """Return the step that removes a voter."""
    voter = ("--controller-id", id, "--controller-directory-id", directory_id)
    return RemedyStep(
        f"Remove voter {id}.",
        words.kafka("kafka-metadata-quorum", "remove-controller", *voter),
        words.kraft("quorum", "remove-controller", *voter),
    )


def add_voter_step(change: ControllerReplacement, words: CommandWords) -> RemedyStep:
    """Return the step that adds the replacement.

    Kafka's tool reads the settings of the client from the replacement's configuration.
    """
    own = CommandWords(words.controllers, change.config)
    id = change.old_id if change.new is None else change.new.id
    text = f"Add controller {id}, once it runs and has caught up with the leader."
    if words.client_config is not None:
        text += (
            f" Kafka's tool has no other file for the settings of {words.client_config}: append "
            f"them to {change.config} before."
        )
    return RemedyStep(
        text,
        own.kafka("kafka-metadata-quorum", "add-controller"),
        words.kraft("quorum", "add-controller", "-c", change.config),
    )
