"""``kraft elect``: elect leaders of partitions, as ``kafka-leader-election`` does."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG, REFUSED
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.cli.partition_files import name_of, read_elections

app = typer.Typer(add_completion=False)


class ElectionOption(StrEnum):
    """The values of --election-type."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@app.command(epilog=EPILOG)
@takes_groups
def elect(
    quorum: QuorumOptions,
    election_type: Annotated[
        ElectionOption,
        typer.Option(
            "--election-type",
            help="preferred: make the first replica the leader. unclean: let any live replica lead "
            "partitions without a leader, which may lose records.",
        ),
    ],
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", help="The topic.", show_default=False),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", min=0, metavar="N", help="Its partition.", show_default=False),
    ] = None,
    path_to_json_file: Annotated[
        Path | None,
        typer.Option(
            "--path-to-json-file",
            metavar="FILE",
            help='The partitions: {"partitions": [{"topic": "a", "partition": 0}]}.',
            show_default=False,
        ),
    ] = None,
    all_topic_partitions: Annotated[
        bool, typer.Option("--all-topic-partitions", help="All partitions of the cluster.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Elect the preferred leader, or an unclean one, of partitions.

    A partition that has the wanted leader already is left as it is. Exit code 1 if a leader could not be elected.

    [bold]Examples[/bold]

      kraft elect --election-type preferred --all-topic-partitions --bootstrap-controller localhost:9093

      kraft elect --election-type unclean --topic orders --partition 3 --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.admin import ElectionType
    from kraft.cli.output import Output
    from kraft.errors import ELECTION_NOT_NEEDED

    given = (topic is not None) + (path_to_json_file is not None) + all_topic_partitions
    if given != 1 or (topic is None) != (partition is None):
        raise typer.BadParameter(
            "give --topic with --partition, --path-to-json-file or --all-topic-partitions"
        )
    partitions = None
    if path_to_json_file is not None:
        partitions = read_elections(path_to_json_file)
    elif topic is not None and partition is not None:
        partitions = [(topic, partition)]
    kind = ElectionType[election_type.name]
    with quorum.open() as admin:
        results = admin.elect_leaders(kind, partitions)
    errors = results.errors()
    idle = sorted(key for key, error in errors.items() if error.kafka_code == ELECTION_NOT_NEEDED)
    elected = sorted(results.keys() - errors.keys())
    failed = sorted(errors.keys() - set(idle))
    if as_json:
        document = {
            "electionType": kind.name,
            "elected": [{"topic": name, "partition": index} for name, index in elected],
            "notNeeded": [{"topic": name, "partition": index} for name, index in idle],
            "failed": [
                {
                    "topic": name,
                    "partition": index,
                    "error": errors[name, index].name,
                    "message": errors[name, index].message,
                }
                for name, index in failed
            ],
        }
        Output(as_json=True).document(document)
    else:
        if elected:
            names = ", ".join(map(name_of, elected))
            print(f"Successfully completed leader election ({kind.name}) for partitions {names}")
        if idle:
            names = ", ".join(map(name_of, idle))
            print(f"Valid replica already elected for partitions {names}")
    for key in failed:
        error = errors[key]
        print(
            f"error: completing leader election ({kind.name}) for partition {name_of(key)}: "
            f"{error.name}" + (f" ({error.message})" if error.message else ""),
            file=sys.stderr,
        )
    if failed:
        raise typer.Exit(REFUSED)
