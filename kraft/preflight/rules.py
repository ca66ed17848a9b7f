"""``check``: all rules of ``kraft preflight`` over the facts and a planned change."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.preflight.changes import (
    ControllerReplacement,
    DynamicQuorumChange,
    FeatureLevelChange,
    PlannedChange,
)
from kraft.preflight.facts import KRAFT_VERSION, ClusterFacts
from kraft.preflight.feature_rules import feature_findings, rejection_findings
from kraft.preflight.findings import (
    BEHIND_RULES,
    MIN_FREE_MIB,
    CommandWords,
    FindingSeverity,
    PreflightFinding,
    most_severe_first,
)
from kraft.preflight.quorum_rules import disk_findings, partition_findings, quorum_findings
from kraft.preflight.registration_rules import registration_findings
from kraft.preflight.voter_rules import (
    dynamic_findings,
    kraft_version_findings,
    replacement_findings,
)

#: A finding about the change says the same as the general one, and more.
_GENERAL_OF = {
    "stale-controller": "gone-controller",
    "stale-broker": "gone-broker",
    "voter-not-current": "silent-voter",
}


def check(
    facts: ClusterFacts,
    change: PlannedChange,
    words: CommandWords,
    *,
    min_free_mib: int = MIN_FREE_MIB,
) -> list[PreflightFinding]:
    """Return the findings about a change, the most severe first."""
    own = list(_change_findings(facts, change, words))
    general = [
        *quorum_findings(facts, words),
        *registration_findings(facts, words),
        *partition_findings(facts, words),
    ]
    if not any(each.severity is FindingSeverity.BLOCKS for each in own + general):
        own += rejection_findings(facts, words)
    general += disk_findings(facts, min_free_mib)
    told = {(_GENERAL_OF.get(each.rule), each.subject) for each in own}
    if isinstance(change, ControllerReplacement):
        # A voter that is down, or has a new disk, is the reason to replace it.
        told |= {(rule, f"controller {change.old_id}") for rule in BEHIND_RULES}
    found = own + [each for each in general if (each.rule, each.subject) not in told]
    return most_severe_first(found)


def _change_findings(
    facts: ClusterFacts, change: PlannedChange, words: CommandWords
) -> Iterator[PreflightFinding]:
    match change:
        case FeatureLevelChange():
            if change.levels.get(KRAFT_VERSION, 0) > facts.kraft_version == 0:
                yield from kraft_version_findings(facts, words)
            yield from feature_findings(facts, change, words)
        case DynamicQuorumChange():
            yield from dynamic_findings(facts, change, words)
        case ControllerReplacement():
            yield from replacement_findings(facts, change, words)
        case None:
            return
