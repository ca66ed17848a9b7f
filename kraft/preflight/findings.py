"""A finding of ``kraft preflight``, and the commands that it names.

Every finding says what is wrong, why it matters for the change, and what to type: the commands of
Apache Kafka's tools and of kraft for the same step.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

#: A disk with less free space is a finding, in MiB.
MIN_FREE_MIB = 1024
#: The rules of a voter that does not have the log.
BEHIND_RULES = ("silent-voter", "lagging-voter", "replaced-directory")


class FindingSeverity(StrEnum):
    """How severe a finding is.

    ``BLOCKS``: the change will be rejected, or will stop the quorum. ``WARNING``: it can succeed,
    with a risk. ``NOTE``: something to know, such as that there is no way back.
    """

    BLOCKS = "blocks"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class RemedyStep:
    """One thing to do: ``text`` says what, ``kafka`` and ``kraft`` are commands, "" if none."""

    text: str
    kafka: str = ""
    kraft: str = ""


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """One finding: ``rule`` is a stable name for programs, ``subject`` the node or the feature."""

    severity: FindingSeverity
    rule: str
    subject: str
    found: str
    why: str
    steps: tuple[RemedyStep, ...] = field(default=())


def most_severe_first(findings: Iterable[PreflightFinding]) -> list[PreflightFinding]:
    """Return findings by their severity, otherwise in their order."""
    return sorted(findings, key=lambda each: list(FindingSeverity).index(each.severity))


@dataclass(frozen=True, slots=True)
class CommandWords:
    """Writes commands against the quorum that was checked.

    ``controllers`` is the value of --bootstrap-controller, ``client_config`` that of
    --command-config or None.
    """

    controllers: str
    client_config: str | None = None

    def kraft(self, *words: object) -> str:
        """Return ``kraft WORDS --bootstrap-controller …``."""
        return shlex.join(["kraft", *map(str, words), *self._connection()])

    def kafka(self, tool: str, *words: object) -> str:
        """Return ``TOOL.sh --bootstrap-controller … WORDS``, for kafka-features and others."""
        return shlex.join([f"{tool}.sh", *self._connection(), *map(str, words)])

    def kafka_cluster(self, action: str, *words: object) -> str:
        """Return a command of kafka-cluster, whose options follow the action."""
        options = ["--bootstrap-controller", self.controllers]
        if self.client_config is not None:
            # Deprecated in 4.3, which has --command-config too; older releases have this one only.
            options += ["--config", self.client_config]
        return shlex.join(["kafka-cluster.sh", action, *options, *map(str, words)])

    def describe(self) -> RemedyStep:
        """Return the step that shows the voters and their lag."""
        return RemedyStep(
            "See the voters and their lag.",
            self.kafka("kafka-metadata-quorum", "describe", "--replication"),
            self.kraft("quorum", "describe", "--replication"),
        )

    def _connection(self) -> list[str]:
        options = ["--bootstrap-controller", self.controllers]
        if self.client_config is not None:
            options += ["--command-config", self.client_config]
        return options
