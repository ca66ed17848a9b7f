"""``kraft reassign``: move the replicas of partitions, as ``kafka-reassign-partitions`` does.

The files, options and texts are those of Kafka's ``ReassignPartitionsCommand`` (4.3.1), except:

- ``generate`` places replicas by the rules of KRaft's controller, striped over the racks;
- replicas cannot be moved between the directories of a broker, which only brokers can do;
- ``cancel`` cancels every reassignment in the file; Kafka's leaves those that only add replicas;
- ``verify`` ends with exit code 3 where a partition has not reached its target.

Targets go in requests of at most `_AT_ONCE` partitions, because Kafka's controllers write at most
10,000 records for one request.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG, FOUND, REFUSED
from kraft.cli.metadata_source import SourceOptions
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.cli.partition_files import (
    TopicPartition,
    name_of,
    read_reassignments,
    read_topics_to_move,
    reassignment_document,
    reassignment_text,
)
from kraft.errors import InvalidRequestError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from kraft.metadata.facade import Metadata

app = typer.Typer(
    help="Move the replicas of partitions to other brokers.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

#: Partitions of one request.
_AT_ONCE = 1000

FileOption = Annotated[
    Path,
    typer.Option(
        "--reassignment-json-file",
        metavar="FILE",
        help='The targets: {"version": 1, "partitions": [{"topic": "a", "partition": 0, '
        '"replicas": \\[1, 2]}]}.',
        show_default=False,
    ),
]
PreserveThrottlesOption = Annotated[
    bool, typer.Option("--preserve-throttles", help="Leave throttles as they are.")
]


@app.callback()
def _reassign() -> None:
    """Move the replicas of partitions to other brokers."""


@app.command(epilog=EPILOG)
@takes_groups
def generate(
    source: SourceOptions,
    topics_to_move_json_file: Annotated[
        Path,
        typer.Option(
            "--topics-to-move-json-file",
            metavar="FILE",
            help='The topics: {"version": 1, "topics": [{"topic": "a"}]}.',
            show_default=False,
        ),
    ],
    broker_list: Annotated[
        str,
        typer.Option(
            "--broker-list",
            metavar="ID,…",
            help="The brokers to place the replicas on.",
            show_default=False,
        ),
    ],
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Ignore the racks of the brokers.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the present placement of topics, and a proposal on the given brokers.

    Nothing is changed. Save the first to go back, the second for `kraft reassign execute`.

    [bold]Examples[/bold]

      kraft reassign generate --topics-to-move-json-file topics.json --broker-list 1,2,3 --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    topics = read_topics_to_move(topics_to_move_json_file)
    brokers = _broker_ids(broker_list)
    metadata = source.read()
    current = {}
    for topic in topics:
        for row in metadata.topics[topic].rows:
            info = metadata.partitions.row(int(row))
            current[topic, info.partition] = list(info.replicas)
    proposed = _propose(metadata, topics, current, brokers, not disable_rack_aware)
    if as_json:
        document = {
            "current": reassignment_document(current),
            "proposed": reassignment_document(proposed),
        }
        Output(as_json=True).document(document)
        return
    print(f"Current partition replica assignment\n{reassignment_text(current)}\n")
    print(f"Proposed partition reassignment configuration\n{reassignment_text(proposed)}")


@app.command(epilog=EPILOG)
@takes_groups
def execute(
    quorum: QuorumOptions,
    reassignment_json_file: FileOption,
    additional: Annotated[
        bool,
        typer.Option(
            "--additional",
            help="Begin although other reassignments are in progress. With the same file again, "
            "change the throttle.",
        ),
    ] = False,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle",
            min=0,
            metavar="BYTES",
            help="Copy at most this many bytes per second between brokers, on each broker. "
            "`kraft reassign verify` removes the throttle. Default: no limit.",
            show_default=False,
        ),
    ] = None,
    disallow_replication_factor_change: Annotated[
        bool,
        typer.Option(
            "--disallow-replication-factor-change",
            help="Fail for a partition whose number of replicas would change.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Begin to move partitions to the brokers in the file. The brokers move the data afterwards.

    [bold]Examples[/bold]

      kraft reassign execute --reassignment-json-file move.json --throttle 50000000 --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output, progress
    from kraft.cli.replica_throttles import moves_of, set_throttles

    target = read_reassignments(reassignment_json_file)
    output = Output(as_json=as_json)
    errors: dict[TopicPartition, Any] = {}
    with quorum.open() as admin:
        ongoing = admin.list_partition_reassignments()
        if ongoing and not additional:
            raise InvalidRequestError(
                f"{len(ongoing)} partitions are being reassigned; give --additional to begin "
                "further reassignments, or to change the throttle with the same file"
            )
        metadata = admin.read_metadata()
        _check_brokers(metadata, {broker for replicas in target.values() for broker in replicas})
        current = {
            partition: list(metadata.partitions.find(*partition).replicas) for partition in target
        }
        if not as_json:
            print(
                f"Current partition replica assignment\n\n{reassignment_text(current)}\n\n"
                "Save this to use as the --reassignment-json-file option during rollback"
            )
        if throttle is not None:
            output.note(
                "run `kraft reassign verify` until the reassignment is complete: it removes the "
                "throttle"
            )
            set_throttles(admin, moves_of(ongoing, current, target), throttle)
            if not as_json:
                print(f"The inter-broker throttle limit was set to {throttle} B/s")
        is_long = len(target) > _AT_ONCE
        with progress("reassigning", len(target), shown=is_long) as advance:
            done = 0
            for run in _runs(target):
                errors |= admin.alter_partition_reassignments(
                    run,
                    allow_replication_factor_change=not disallow_replication_factor_change,
                ).errors()
                done += len(run)
                advance(done)
    started = sorted(target.keys() - errors.keys())
    if as_json:
        document = {
            "current": reassignment_document(current),
            "started": [{"topic": topic, "partition": index} for topic, index in started],
            "failed": _failures(errors),
        }
        output.document(document)
    elif started:
        noun = "reassignment" if len(started) == 1 else "reassignments"
        print(f"Successfully started partition {noun} for {','.join(map(name_of, started))}")
    _report(errors, "reassigning")


@app.command(epilog=EPILOG)
@takes_groups
def verify(
    quorum: QuorumOptions,
    reassignment_json_file: FileOption,
    preserve_throttles: PreserveThrottlesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the state of each reassignment in the file; remove the throttles when all are complete.

    Exit code 3 if a partition has not reached its target yet.

    [bold]Examples[/bold]

      kraft reassign verify --reassignment-json-file move.json --bootstrap-controller localhost:9093
    """
    from kraft.cli.output import Output
    from kraft.cli.replica_throttles import clear_throttles

    target = read_reassignments(reassignment_json_file)
    states: dict[TopicPartition, str] = {}
    replicas_of: dict[TopicPartition, list[int]] = {}
    is_cleared = False
    with quorum.open() as admin:
        ongoing = admin.list_partition_reassignments()
        metadata = admin.read_metadata()
        for partition, replicas in target.items():
            replicas_of[partition] = _replicas_of(metadata, partition)
            if partition in ongoing:
                states[partition] = "in progress"
            else:
                is_there = replicas_of[partition] == replicas
                states[partition] = "completed" if is_there else "not at its target"
        if not as_json:
            print("Status of partition reassignment:")
            for partition, state in sorted(states.items()):
                print(_state_text(partition, state, replicas_of[partition], target[partition]))
            print()
        topics = sorted({topic for topic, _ in target if topic in metadata.topics})
        if not ongoing and not preserve_throttles:
            is_cleared = True
            brokers = _brokers_to_clear(metadata, target)
            if not as_json:
                _show_clearing(brokers, topics)
            clear_throttles(admin, brokers, topics)
    if as_json:
        document = {
            "partitions": [
                {
                    "topic": topic,
                    "partition": index,
                    "state": states[topic, index],
                    "replicas": replicas_of[topic, index],
                    "target": target[topic, index],
                }
                for topic, index in sorted(target)
            ],
            "throttlesCleared": is_cleared,
        }
        Output(as_json=True).document(document)
    if any(state != "completed" for state in states.values()):
        raise typer.Exit(FOUND)


@app.command(epilog=EPILOG)
@takes_groups
def cancel(
    quorum: QuorumOptions,
    reassignment_json_file: FileOption,
    preserve_throttles: PreserveThrottlesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Cancel the reassignments in the file; their partitions keep the replicas that they had.

    Also removes the throttles.

    [bold]Examples[/bold]

      kraft reassign cancel --reassignment-json-file move.json --bootstrap-controller localhost:9093
    """
    from kraft.cli.output import Output
    from kraft.cli.replica_throttles import clear_throttles

    target = read_reassignments(reassignment_json_file)
    errors: dict[TopicPartition, Any] = {}
    with quorum.open() as admin:
        active: dict[TopicPartition, None] = {}
        for run in _runs(target):
            active |= dict.fromkeys(admin.list_partition_reassignments(run))
        for run in _runs(active):
            # Without replicas each reassignment is cancelled.
            errors |= admin.alter_partition_reassignments(run).errors()
        cancelled = sorted(active.keys() - errors.keys())
        if not as_json:
            if cancelled:
                noun = "reassignment" if len(cancelled) == 1 else "reassignments"
                names = ",".join(map(name_of, cancelled))
                print(f"Successfully cancelled partition {noun} for: {names}")
            elif not errors:
                print("None of the specified partition reassignments are active.")
        if not preserve_throttles and not errors:
            metadata = admin.read_metadata()
            topics = sorted({topic for topic, _ in target})
            brokers = _brokers_to_clear(metadata, target)
            if not as_json:
                _show_clearing(brokers, topics)
            clear_throttles(admin, brokers, topics)
    if as_json:
        document = {
            "cancelled": [{"topic": topic, "partition": index} for topic, index in cancelled],
            "failed": _failures(errors),
        }
        Output(as_json=True).document(document)
    _report(errors, "cancelling the reassignment of")


@app.command("list", epilog=EPILOG)
@takes_groups
def list_reassignments(
    source: SourceOptions,
    as_json: JsonOption = False,
) -> None:
    """Print the reassignments in progress.

    [bold]Examples[/bold]

      kraft reassign list --bootstrap-controller localhost:9093

      kraft reassign list --from /var/lib/kafka/metadata
    """
    from kraft.cli.output import Output

    quorum = source.quorum()
    found: dict[TopicPartition, Any] = {}
    if quorum is not None:
        with quorum.open() as admin:
            found |= admin.list_partition_reassignments()
    else:
        metadata = source.read_directory()
        # A reassignment makes a row irregular.
        for row in metadata.partitions.irregular_rows:
            info = metadata.partitions.row(int(row))
            if info.adding_replicas or info.removing_replicas:
                found[info.topic, info.partition] = info
    if as_json:
        document = [
            {
                "topic": topic,
                "partition": index,
                "replicas": list(each.replicas),
                "addingReplicas": list(each.adding_replicas),
                "removingReplicas": list(each.removing_replicas),
            }
            for (topic, index), each in sorted(found.items())
        ]
        Output(as_json=True).document(document)
        return
    print("Current partition reassignments:" if found else "No partition reassignments found.")
    for partition, each in sorted(found.items()):
        text = f"{name_of(partition)}: replicas: {_ids(each.replicas)}."
        if each.adding_replicas:
            text += f" adding: {_ids(each.adding_replicas)}."
        if each.removing_replicas:
            text += f" removing: {_ids(each.removing_replicas)}."
        print(text)


# -- placement


def _propose(
    metadata: Metadata,
    topics: Sequence[str],
    current: Mapping[TopicPartition, list[int]],
    broker_ids: Sequence[int],
    uses_racks: bool,
) -> dict[TopicPartition, list[int]]:
    """Place every partition of the topics on the brokers, as many replicas as its first one has."""
    import secrets

    from kraft._core.decide.placement import (
        JavaRandom,
        PlacementSpec,
        StripedPlacer,
        UsableBroker,
        UsableBrokers,
    )

    _check_brokers(metadata, set(broker_ids))
    chosen = [metadata.brokers[id] for id in broker_ids]
    racks = {broker.rack is None for broker in chosen}
    if uses_racks and len(racks) > 1:
        raise InvalidRequestError(
            "some of the brokers have a rack and others have none: give --disable-rack-aware"
        )
    usable = UsableBrokers(
        [
            UsableBroker(broker.id, broker.rack if uses_racks else None, broker.fenced)
            for broker in chosen
        ]
    )
    placer = StripedPlacer(JavaRandom(secrets.randbits(48)))
    proposed: dict[TopicPartition, list[int]] = {}
    for topic in topics:
        indexes = sorted(index for name, index in current if name == topic)
        spec = PlacementSpec(0, len(indexes), len(current[topic, indexes[0]]))
        for index, replicas in zip(indexes, placer.place(spec, usable), strict=True):
            proposed[topic, index] = [int(broker) for broker in replicas]
    return proposed


def _check_brokers(metadata: Metadata, broker_ids: set[int]) -> None:
    unknown = sorted(broker_ids - metadata.brokers.keys())
    if unknown:
        raise InvalidRequestError(
            f"broker {unknown[0]} is not registered; registered are "
            f"{_ids(sorted(metadata.brokers)) or 'none'}"
        )


def _broker_ids(text: str) -> list[int]:
    """Return the ids of ``1,2``; raises a usage error."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) < 1 << 31 for part in parts):
        raise typer.BadParameter(f"--broker-list: {text!r:.80} is not a list of broker ids")
    if len(set(parts)) < len(parts):
        raise typer.BadParameter(f"--broker-list: {text!r:.80} names a broker twice")
    return [int(part) for part in parts]


def _replicas_of(metadata: Metadata, partition: TopicPartition) -> list[int]:
    """Return the replicas of a partition; none if it does not exist, as Kafka's tool has it."""
    try:
        return list(metadata.partitions.find(*partition).replicas)
    except UnknownTopicOrPartitionError:
        return []


# -- requests and output


def _runs(target: Mapping[TopicPartition, Any]) -> Iterator[dict[TopicPartition, Any]]:
    items = list(target.items())
    for start in range(0, len(items), _AT_ONCE):
        yield dict(items[start : start + _AT_ONCE])


def _brokers_to_clear(
    metadata: Metadata, target: Mapping[TopicPartition, Sequence[int]]
) -> list[int]:
    """Return every broker that may have a throttle: the sources are not known any more."""
    return sorted({*metadata.brokers, *(id for replicas in target.values() for id in replicas)})


def _show_clearing(brokers: Sequence[int], topics: Sequence[str]) -> None:
    print(f"Clearing broker-level throttles on broker{_s(brokers)} {_ids(brokers)}")
    print(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")


def _state_text(
    partition: TopicPartition, state: str, replicas: Sequence[int], target: Sequence[int]
) -> str:
    name = name_of(partition)
    if state == "in progress":
        return f"Reassignment of partition {name} is still in progress."
    if state == "completed":
        return f"Reassignment of partition {name} is completed."
    return (
        f"There is no active reassignment of partition {name}, but replica set is "
        f"{_ids(replicas)} rather than {_ids(target)}."
    )


def _failures(errors: Mapping[TopicPartition, Any]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": index, "error": error.name, "message": error.message}
        for (topic, index), error in sorted(errors.items())
    ]


def _report(errors: Mapping[TopicPartition, Any], doing: str) -> None:
    """Print the errors and exit, if there are some."""
    for partition, error in sorted(errors.items()):
        message = f" ({error.message})" if error.message else ""
        print(f"error: {doing} {name_of(partition)}: {error.name}{message}", file=sys.stderr)
    if errors:
        raise typer.Exit(REFUSED)


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


def _s(items: Sequence[object]) -> str:
    return "" if len(items) == 1 else "s"
