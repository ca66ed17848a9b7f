"""Print what ``kraft preflight`` and ``kraft transplant`` found, and end with its exit code; the
options of both.

Exit code 0: nothing stands against it; 3 (FOUND): a warning; 4 (FAILED): a finding that blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exit_codes import FAILED, FOUND

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.preflight.facts import ClusterFacts, ControllerFacts
    from kraft.preflight.findings import PreflightFinding, RemedyStep

DirectoriesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--directory",
        metavar="DIR",
        help="Also check the disk of this metadata directory of a controller of this machine. "
        "Repeatable.",
        show_default=False,
    ),
]
MinFreeOption = Annotated[
    int,
    typer.Option(
        "--min-free",
        metavar="MIB",
        min=0,
        help="With --directory: report a disk with less free space, in MiB.",
    ),
]
FINDING_COLUMNS = ("NUMBER", "SEVERITY", "WHERE", "FOUND")
NODE_COLUMNS = ("NODE", "ROLE", "LEVELS", "ADDRESS", "LAG", "STATE")


def is_blocked(findings: Iterable[PreflightFinding]) -> bool:
    """Return whether a finding blocks the change, or the step."""
    return any(each.severity == "blocks" for each in findings)


def exit_by(findings: Sequence[PreflightFinding], what: str) -> None:
    """End with the exit code of the worst finding; ``what`` begins the error of blocking ones."""
    count = sum(each.severity == "blocks" for each in findings)
    if count:
        print(
            f"error: {what} {count} finding{'s' if count > 1 else ''} that block"
            f"{'' if count > 1 else 's'} it",
            file=sys.stderr,
        )
        raise typer.Exit(FAILED)
    if any(each.severity == "warning" for each in findings):
        raise typer.Exit(FOUND)


def print_quorum(output: Output, facts: ClusterFacts, fields: Sequence[tuple[str, object]]) -> None:
    """Print the given fields, the quorum and its nodes."""
    from kraft.preflight.facts import level_text

    output.fields(
        "Quorum",
        [
            *fields,
            ("ClusterId", facts.cluster_id),
            ("LeaderId", facts.leader_id),
            ("Voters", ", ".join(str(each.id) for each in facts.voters)),
            (
                "Levels",
                ", ".join(
                    f"{name} {level_text(name, level)}"
                    for name, level in sorted(facts.finalized.items())
                ),
            ),
        ],
    )
    output.table("Nodes", NODE_COLUMNS, _node_rows(facts), numbers=("NODE", "LAG"))


def print_findings(output: Output, findings: Sequence[PreflightFinding], what: str) -> None:
    """Print the findings, why each matters and what to do; ``what`` is what they stand against."""
    if findings:
        rows = [
            (number, each.severity.value, each.subject, each.found)
            for number, each in enumerate(findings, 1)
        ]
        output.table("Findings", FINDING_COLUMNS, rows, numbers=("NUMBER",))
        print("\nWhy, and what to do")
        for number, finding in enumerate(findings, 1):
            print(f"{number}. {finding.subject}: {finding.why}")
            print_steps(finding.steps)
    if not any(each.severity != "note" for each in findings):
        print(f"\nNothing stands against {what}.")


def print_steps(steps: Sequence[RemedyStep], *, are_numbered: bool = False) -> None:
    """Print what to do and the commands for it, which can be copied."""
    for number, step in enumerate(steps, 1):
        mark = f"{number:>3}." if are_numbered else "   -"
        first, *more = step.text.splitlines()
        print(f"{mark} {first}")
        for line in more:
            print(f"     {line}")
        for command in (step.kafka, step.kraft):
            if command:
                print(f"       {command}")


def quorum_document(facts: ClusterFacts) -> dict[str, Any]:
    """Return the quorum and its nodes with stable keys."""
    rows = [dict(zip(NODE_COLUMNS, row, strict=True)) for row in _node_rows(facts)]
    return {
        "clusterId": facts.cluster_id,
        "leaderId": facts.leader_id,
        "voters": [each.id for each in facts.voters],
        "features": dict(sorted(facts.finalized.items())),
        "nodes": [{name.lower(): value for name, value in row.items()} for row in rows],
    }


def finding_documents(findings: Iterable[PreflightFinding]) -> list[dict[str, Any]]:
    """Return the findings with stable keys."""
    return [
        {
            **asdict(each),
            "severity": each.severity.value,
            "steps": [asdict(step) for step in each.steps],
        }
        for each in findings
    ]


def _node_rows(facts: ClusterFacts) -> list[tuple[object, ...]]:
    """Return a row of `NODE_COLUMNS` for each controller and broker."""
    from kraft.preflight.facts import release_of
    from kraft.records.versions import METADATA_VERSION

    rows: list[tuple[object, ...]] = []
    for id, each in sorted(facts.controllers.items()):
        role = "leader" if id == facts.leader_id else "voter" if each.is_voter else "controller"
        lag = "" if each.replica is None else each.replica.lag
        release = release_of(each.metadata_version_max)
        rows.append((id, role, release, each.address or "", lag, _controller_state(each)))
    for id, broker in sorted(facts.brokers.items()):
        levels = broker.features.get(METADATA_VERSION)
        release = release_of(None if levels is None else levels.max)
        state = "gone" if broker.is_gone else "fenced" if broker.is_fenced else "running"
        rows.append((id, "broker", release, broker.address, "", state))
    return rows


def _controller_state(controller: ControllerFacts) -> str:
    if controller.is_gone:
        return "gone"
    states = ["running" if controller.running is not None else "no answer"]
    if controller.registered is None:
        states.append("not registered")
    if controller.is_voter and controller.replica is not None and not controller.replica.is_current:
        states.append("lags" if controller.replica.is_fetching else "does not fetch")
    return ", ".join(states)
