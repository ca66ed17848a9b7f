"""``kraft transplant``: replace the controllers of a live cluster, Kafka's by kraft's, and back.

Nothing is changed. ``kraft.transplant`` has the plan and the rules; this module prints them.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG
from kraft.cli.findings import (
    DirectoriesOption,
    MinFreeOption,
    exit_by,
    finding_documents,
    is_blocked,
    print_findings,
    print_quorum,
    print_steps,
    quorum_document,
)
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.preflight.findings import MIN_FREE_MIB

if TYPE_CHECKING:
    from kraft.preflight.findings import CommandWords, PreflightFinding
    from kraft.transplant.steps import Replacement

app = typer.Typer(
    help="Plan, and check step by step, how kraft replaces the controllers of a live cluster.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

#: Between two looks of --wait, in seconds.
_PAUSE_S = 1.0


@app.callback()
def _transplant() -> None:
    """Plan, and check step by step, how kraft replaces the controllers of a live cluster.

    Changes nothing. Exit code 0: nothing stands against it; 3: it has a risk; 4: a finding blocks it.
    """  # noqa: E501  (help joins no lines: each paragraph is one)


@app.command(epilog=EPILOG)
@takes_groups
def plan(
    quorum: QuorumOptions,
    back: Annotated[
        bool, typer.Option("--back", help="Plan the way back: from kraft's controllers to Kafka's.")
    ] = False,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            metavar="PATH",
            help="The path of a controller's configuration on its machine, for the printed "
            "commands. It is not read.",
            show_default=False,
        ),
    ] = None,
    replacement: Annotated[
        list[Path] | None,
        typer.Option(
            "--replacement",
            metavar="FILE",
            help="The configuration of a new controller that replaces a voter (kraft.version 1), "
            "in place of taking over directories. Repeat it for each voter.",
            show_default=False,
        ),
    ] = None,
    replaced: Annotated[
        list[int] | None,
        typer.Option(
            "--replaced",
            metavar="N",
            min=0,
            help="Leave out this controller: it has been replaced already. Repeatable.",
            show_default=False,
        ),
    ] = None,
    directory: DirectoriesOption = None,
    min_free: MinFreeOption = MIN_FREE_MIB,
    as_json: JsonOption = False,
) -> None:
    """Look at a live cluster, and print what to type to replace its controllers one at a time.

    By default a kraft node takes over the directory, the node.id and the address of each controller. With --replacement new controllers are added, and the old ones removed. The plan is printed once nothing blocks it.

    [bold]Examples[/bold]

      kraft transplant plan --bootstrap-controller localhost:9093 -c /etc/kafka/controller.properties

      kraft transplant plan --bootstrap-controller localhost:9093 --replacement controller-4.properties --replacement controller-5.properties --replacement controller-6.properties

      kraft transplant plan --back --bootstrap-controller localhost:9093
    """  # noqa: E501
    from kraft.cli.output import Output, progress
    from kraft.preflight.gathering import gather
    from kraft.transplant.rules import plan_findings
    from kraft.transplant.steps import FILE, TransplantPlan, steps_of

    new = [_replacement(path) for path in replacement or ()]
    with progress("asking the controllers", 1.0, shown=not as_json) as advance:
        facts = gather(quorum.settings(), directories=directory or (), on_progress=advance)
    words = _words(quorum)
    planned = TransplantPlan.of(
        facts,
        is_back=back,
        replacements=new,
        replaced=replaced or (),
        config=config or FILE,
    )
    findings = plan_findings(facts, planned, words, min_free_mib=min_free)
    steps = [] if is_blocked(findings) else steps_of(planned, facts, words)
    output = Output(as_json=as_json)
    if as_json:
        output.document(
            {
                "plan": str(planned),
                "order": list(planned.order),
                **quorum_document(facts),
                "canStart": not is_blocked(findings),
                "findings": finding_documents(findings),
                "steps": [
                    {"number": number, **asdict(step)} for number, step in enumerate(steps, 1)
                ],
            }
        )
    else:
        kind = "static (kraft.version 0)" if facts.kraft_version == 0 else "dynamic"
        print_quorum(output, facts, [("Transplant", str(planned)), ("VoterKind", kind)])
        print_findings(output, findings, "the transplant")
        if steps:
            print("\nThe steps")
            print_steps(steps, are_numbered=True)
    exit_by(findings, "the transplant cannot start:")


@app.command(epilog=EPILOG)
@takes_groups
def check(
    quorum: QuorumOptions,
    controller_id: Annotated[
        int | None,
        typer.Option(
            "--controller-id",
            "-i",
            metavar="N",
            min=0,
            help="The controller that the next step stops or removes.",
            show_default=False,
        ),
    ] = None,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            help="Look again while something blocks or nothing answers, for at most this long.",
        ),
    ] = 0.0,
    directory: DirectoriesOption = None,
    min_free: MinFreeOption = MIN_FREE_MIB,
    as_json: JsonOption = False,
) -> None:
    """Check between two steps whether the quorum and the brokers are well enough for the next one.

    All voters must be caught up, no change of the voters pending, and no running broker fenced. With --controller-id also: a majority is left without this controller, and whether it leads.

    [bold]Examples[/bold]

      kraft transplant check --controller-id 102 --bootstrap-controller localhost:9093

      kraft transplant check --wait 60 --bootstrap-controller localhost:9093
    """  # noqa: E501
    from kraft.cli.output import Output, progress
    from kraft.network.quorum_client import QuorumUnreachableError
    from kraft.preflight.facts import ClusterFacts
    from kraft.preflight.gathering import gather
    from kraft.transplant.rules import step_findings

    words, settings = _words(quorum), quorum.settings()

    def look() -> tuple[ClusterFacts, list[PreflightFinding]]:
        facts = gather(settings, directories=directory or ())
        return facts, step_findings(facts, words, controller_id, min_free_mib=min_free)

    give_up_s = time.monotonic() + wait_s
    with progress("asking the controllers", 1.0, shown=not as_json):
        while True:
            is_over = time.monotonic() >= give_up_s
            try:
                facts, findings = look()
                if is_over or not is_blocked(findings):
                    break
            except QuorumUnreachableError:
                if is_over:
                    raise
            time.sleep(_PAUSE_S)
    output = Output(as_json=as_json)
    if as_json:
        output.document(
            {
                "controllerId": controller_id,
                **quorum_document(facts),
                "canContinue": not is_blocked(findings),
                "findings": finding_documents(findings),
            }
        )
    else:
        stops = "none" if controller_id is None else f"controller {controller_id}"
        print_quorum(output, facts, [("NextToStop", stops)])
        print_findings(output, findings, "the next step")
    exit_by(findings, "the next step has to wait:")


def _words(quorum: QuorumOptions) -> CommandWords:
    from kraft.preflight.findings import CommandWords

    config = quorum.command_config
    return CommandWords(quorum.bootstrap_controller, None if config is None else str(config))


def _replacement(path: Path) -> Replacement:
    """Read the configuration of a new controller, whose directory need not be formatted yet."""
    from kraft.errors import InvalidConfigError
    from kraft.preflight.gathering import address_text
    from kraft.server.config.loading import ServerConfig
    from kraft.transplant.steps import Replacement

    config = ServerConfig.load(path)
    if not config.is_controller:
        raise InvalidConfigError(f"{path}: process.roles has no controller")
    _, host, port, _ = config.advertised_controller_listeners[0]
    if not host or not port:
        raise InvalidConfigError(
            f"{path}: the address of the controller's listener is not known: name host and port "
            "in listeners, or in advertised.listeners"
        )
    return Replacement(str(path), config.node_id, address_text((host, port)))
