"""What stands against replacing the controllers of a live cluster, or against the next step.

All rules of ``kraft preflight`` apply too. Sources: KIP-853 (voters), KIP-630 (the metadata log),
Kafka's ``KafkaRaftServer`` and ``StorageTool`` (a node's directories).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kraft.preflight.facts import ClusterFacts, level_text, release_of
from kraft.preflight.findings import (
    BEHIND_RULES,
    MIN_FREE_MIB,
    CommandWords,
    FindingSeverity,
    PreflightFinding,
    RemedyStep,
    most_severe_first,
)
from kraft.preflight.quorum_rules import current_voters
from kraft.preflight.rules import check
from kraft.records.versions import SUPPORTED_FEATURES
from kraft.transplant.settings_rules import settings_findings
from kraft.transplant.steps import TransplantPlan

_BLOCKS, _WARNING, _NOTE = FindingSeverity


def plan_findings(
    facts: ClusterFacts,
    plan: TransplantPlan,
    words: CommandWords,
    *,
    min_free_mib: int = MIN_FREE_MIB,
) -> list[PreflightFinding]:
    """Return what stands against a plan, the most severe first."""
    return most_severe_first(
        [
            *check(facts, None, words, min_free_mib=min_free_mib),
            *(_release_findings(facts) if plan.is_back else _level_findings(facts)),
            *_voter_findings(facts, plan, words),
            *_combined_findings(facts),
            *(() if plan.is_back else settings_findings(facts, plan.order)),
        ]
    )


def step_findings(
    facts: ClusterFacts,
    words: CommandWords,
    next_id: int | None = None,
    *,
    min_free_mib: int = MIN_FREE_MIB,
) -> list[PreflightFinding]:
    """Return what stands against the next step, the most severe first.

    ``next_id`` is the controller that the step stops or removes; it may be stopped already. None:
    no controller is to be stopped, only the quorum and the brokers are checked.
    """
    general = [
        replace(each, severity=_BLOCKS)
        if each.rule in BEHIND_RULES and each.subject != f"controller {next_id}"
        else each
        for each in check(facts, None, words, min_free_mib=min_free_mib)
    ]
    own = [] if next_id is None else list(_next_findings(facts, next_id, words))
    return most_severe_first([*general, *_fenced_findings(facts, words), *own])


# -- the plan


def _level_findings(facts: ClusterFacts) -> Iterator[PreflightFinding]:
    """Yield the finalized levels that a kraft node does not support."""
    for name, level in sorted(facts.finalized.items()):
        lowest, highest = SUPPORTED_FEATURES.get(name, (0, 0))
        if not level or lowest <= level <= highest:
            continue
        yield PreflightFinding(
            _BLOCKS,
            "level",
            name,
            f"its level is {level_text(name, level)}; kraft supports "
            + (f"{lowest} to {highest}" if highest else "no level of this feature"),
            "A controller that does not support a finalized level cannot lead the quorum.",
            (RemedyStep("Install a kraft that supports it, or lower the level while it can be."),),
        )


def _release_findings(facts: ClusterFacts) -> Iterator[PreflightFinding]:
    release = release_of(facts.metadata_version)
    yield PreflightFinding(
        _NOTE,
        "release",
        "metadata.version",
        f"its level is {level_text('metadata.version', facts.metadata_version)}",
        f"The controllers that come back must be of {release} or newer: an older one ends with an "
        "error when it reads the level.",
    )


def _voter_findings(
    facts: ClusterFacts, plan: TransplantPlan, words: CommandWords
) -> Iterator[PreflightFinding]:
    voters = facts.voters
    if plan.replacements and facts.kraft_version == 0:
        yield PreflightFinding(
            _BLOCKS,
            "static-voters",
            "voters",
            "kraft.version is 0: the voters are static",
            "Static voters cannot be added or removed. A node of the other kind takes over the "
            "directory, the node.id and the address of each.",
            (RemedyStep("Plan without --replacement, or first make the voters dynamic."),),
        )
    if plan.replacements and len(plan.replacements) != len(plan.order):
        yield PreflightFinding(
            _BLOCKS,
            "replacements",
            "voters",
            f"{len(plan.order)} voters are to be replaced, by {len(plan.replacements)} controllers",
            "Each voter is replaced by one controller, so that the quorum keeps its size.",
            (
                RemedyStep("Give --replacement FILE once for each voter."),
                RemedyStep("If a voter has been replaced already, remove it, and plan again."),
            ),
        )
    if len(voters) < 3 and not plan.replacements:
        yield PreflightFinding(
            _WARNING,
            "few-voters",
            "voters",
            f"there {'is one voter' if len(voters) == 1 else 'are two voters'}",
            "While one is stopped, nothing can be committed: no topic is created, and no new "
            "leader of a partition is elected.",
            (
                RemedyStep("Add controllers first, or choose a quiet time."),
                words.describe(),
            ),
        )


def _combined_findings(facts: ClusterFacts) -> Iterator[PreflightFinding]:
    for voter in facts.voters:
        if voter.id in facts.brokers:
            yield PreflightFinding(
                _BLOCKS,
                "combined-node",
                f"controller {voter.id}",
                "it is a broker too (process.roles=broker,controller)",
                "kraft runs controllers. Its node would take over the directory, and the broker "
                "with its partitions would be gone.",
                (
                    RemedyStep(
                        "Move the controllers to nodes of their own first: add controllers with "
                        "other node ids, and remove this one from the voters."
                    ),
                ),
            )


# -- the next step


def _fenced_findings(facts: ClusterFacts, words: CommandWords) -> Iterator[PreflightFinding]:
    for id, broker in sorted(facts.brokers.items()):
        if broker.is_fenced and broker.is_fetching:
            yield PreflightFinding(
                _BLOCKS,
                "fenced-broker",
                f"broker {id}",
                "it runs, and is fenced",
                "It leads no partition until it is unfenced. A broker that has just started, or "
                "has just lost its controller, needs some seconds.",
                (
                    RemedyStep(
                        "Wait until it is unfenced.",
                        words.kafka_cluster("list-endpoints", "--include-fenced-brokers"),
                        words.kraft("brokers", "list"),
                    ),
                ),
            )


def _next_findings(
    facts: ClusterFacts, next_id: int, words: CommandWords
) -> Iterator[PreflightFinding]:
    subject = f"controller {next_id}"
    voters = facts.voters
    if next_id not in {each.id for each in voters}:
        yield PreflightFinding(
            _BLOCKS,
            "not-a-voter",
            subject,
            "it is not a voter",
            f"The voters are {', '.join(str(each.id) for each in voters)}.",
            (words.describe(),),
        )
        return
    others = [each for each in current_voters(facts) if each.id != next_id]
    needed = len(voters) // 2 + 1
    if len(others) < needed and len(voters) > 2:
        yield PreflightFinding(
            _BLOCKS,
            "majority",
            subject,
            f"without it {len(others)} of {len(voters)} voters have the log, and {needed} are a "
            "majority",
            "Once it is stopped, nothing can be committed.",
            (RemedyStep("Wait until all voters are caught up."), words.describe()),
        )
    if next_id == facts.leader_id:
        yield PreflightFinding(
            _NOTE,
            "leader",
            subject,
            "it leads the quorum",
            "It resigns when it is stopped, and another voter is elected, in a second or two. "
            "Brokers serve their partitions meanwhile; changes of the cluster wait.",
        )
