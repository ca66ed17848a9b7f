"""``kraft topics``: list and describe topics in the format of ``kafka-topics``.

Reads a metadata directory or a running quorum. Selects the partitions of each filter
(``kraft.metadata.health`` has the rules) and prints, to a pipe, exactly the text of Kafka's
``TopicCommand``, so that one parser reads both. Topics are ordered by name. The subcommands that
change topics are in ``kraft.cli.topic_changes``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exit_codes import EPILOG
from kraft.cli.metadata_source import SourceOptions
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.cli.topic_changes import alter, create, delete
from kraft.protocol.metadata import INTERNAL_TOPICS

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.metadata.facade import Metadata
    from kraft.metadata.health import Mask
    from kraft.metadata.partitions import PartitionInfo, TopicInfo

app = typer.Typer(
    help="List and describe topics; create, delete and extend those of a running quorum.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

# Topic config -> the broker config that sets its default (from Kafka's ServerTopicConfigSynonyms:
# dynamic cluster-wide configs with the same unit).
_BROKER_DEFAULTS = {
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.message.bytes": "message.max.bytes",
    "index.interval.bytes": "log.index.interval.bytes",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "cleanup.policy": "log.cleanup.policy",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    "min.insync.replicas": "min.insync.replicas",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "preallocate": "log.preallocate",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
}
_PARTITION_COLUMNS = (
    *("Topic", "Partition", "Leader", "Replicas", "Isr"),
    *("Adding Replicas", "Removing Replicas", "Elr", "LastKnownElr"),
)
# A progress bar appears from this number of rows on.
_MANY_ROWS = 50_000


@app.callback()
def _topics() -> None:
    """List and describe topics; create, delete and extend those of a running quorum."""


@app.command("list", epilog=EPILOG)
@takes_groups
def list_topics(
    source: SourceOptions,
    exclude_internal: Annotated[
        bool,
        typer.Option("--exclude-internal", help="Leave out Kafka's own topics (__…_offsets, …)."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the names of all topics, sorted.

    A quorum has no API for this: the command reads the metadata from the leader, as a controller
    does that starts, up to the last committed record.

    [bold]Examples[/bold]

      kraft topics list --bootstrap-controller localhost:9093

      kraft topics list --from /var/lib/kafka/metadata --at 1200
    """
    from kraft.cli.output import Output, write_lines

    metadata = source.read()
    names = sorted(metadata.topics)
    if exclude_internal:
        names = [name for name in names if name not in INTERNAL_TOPICS]
    if as_json:
        Output(as_json=True).document(names)
        return
    write_lines(names)


@app.command(epilog=EPILOG)
@takes_groups
def describe(
    source: SourceOptions,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="Only this topic (a name or a topic id). Repeatable.",
            show_default=False,
        ),
    ] = None,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated-partitions",
            help="Only partitions with fewer replicas in sync than the replication factor.",
        ),
    ] = False,
    unavailable: Annotated[
        bool,
        typer.Option("--unavailable-partitions", help="Only partitions without a live leader."),
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions",
            help="Only partitions without a leader, or with fewer replicas in sync than "
            "min.insync.replicas.",
        ),
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option(
            "--at-min-isr-partitions",
            help="Only partitions with exactly min.insync.replicas in sync.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print topics and partitions as kafka-topics --describe does.

    The source is a metadata directory, as of any available offset, or a running quorum.

    Configs are the topic's own and the cluster's dynamic defaults; a broker's
    configuration file is not in the metadata. Give at most one of the four
    partition filters; it omits the topics' lines.

    [bold]Examples[/bold]

      kraft topics describe --from /var/lib/kafka/metadata --topic payments

      kraft topics describe --bootstrap-controller localhost:9093 --under-replicated-partitions

      kraft topics describe --from /var/lib/kafka/metadata --at 1200 --unavailable-partitions --json
    """
    from kraft.cli.output import Output

    filters = {
        "under_replicated": under_replicated,
        "unavailable": unavailable,
        "under_min_isr": under_min_isr,
        "at_min_isr": at_min_isr,
    }
    given = [name for name, wanted in filters.items() if wanted]
    if len(given) > 1:
        raise typer.BadParameter("only one of the partition filters can be given at a time")
    metadata = source.read()
    mask = _mask(metadata, given[0]) if given else None
    selected = _selected(metadata, topics)
    output = Output(as_json=as_json)
    if as_json:
        shown = (
            (topic_document(metadata, topic), map(_partition_document, partitions))
            for topic, partitions in _partitions_by_topic(metadata, selected, mask)
            if mask is None or mask[topic.rows].any()
        )
        output.documents_with_lists(shown, "partitions")
    elif output.is_terminal:
        _print_tables(output, metadata, selected, mask)
    else:
        _print_lines(metadata, selected, mask)


def topic_document(metadata: Metadata, topic: TopicInfo) -> dict[str, Any]:
    """Return a topic without its partitions as JSON with Kafka's names."""
    return {
        "topic": topic.name,
        "topicId": str(topic.id),
        "partitionCount": topic.partition_count,
        "replicationFactor": _replication_factor(metadata, topic),
        "configs": configs_of(metadata, topic.name),
    }


def _partition_document(info: PartitionInfo) -> dict[str, Any]:
    return {
        "partition": info.partition,
        "leader": info.leader,
        "leaderEpoch": info.leader_epoch,
        "partitionEpoch": info.partition_epoch,
        "leaderRecoveryState": info.leader_recovery_state,
        "replicas": list(info.replicas),
        "isr": list(info.isr),
        "addingReplicas": list(info.adding_replicas),
        "removingReplicas": list(info.removing_replicas),
        "elr": list(info.elr),
        "lastKnownElr": list(info.last_known_elr),
        "directories": list(map(_uuid_text, info.directories)),
    }


def configs_of(metadata: Metadata, topic: str) -> dict[str, str]:
    """Return the configs that differ from Kafka's defaults: the topic's own, else the cluster's."""
    from kraft.metadata.kafka_json import settings_of

    cluster = metadata.configs.cluster_default()
    settings = {
        name: cluster[broker_name]
        for name, broker_name in _BROKER_DEFAULTS.items()
        if broker_name in cluster
    }
    return settings_of({**settings, **metadata.configs.topic(topic)})


def _mask(metadata: Metadata, name: str) -> Mask:
    from kraft.metadata.health import Health

    mask: Mask = getattr(Health(metadata), name)
    return mask


def _selected(metadata: Metadata, names: Sequence[str] | None) -> list[TopicInfo]:
    """Return the topics to show, by name; raise for an unknown name, as Kafka's tool does."""
    from kraft.errors import UnknownTopicIdError, UnknownTopicOrPartitionError

    if not names:
        return [metadata.topics[name] for name in sorted(metadata.topics)]
    found = {}
    for name in names:
        try:
            topic = (
                metadata.topics[name] if name in metadata.topics else metadata.topics.by_id(name)
            )
        except (UnknownTopicIdError, ValueError):
            raise UnknownTopicOrPartitionError(
                f"Topic '{name}' does not exist as expected"
            ) from None
        found[topic.name] = topic
    return [found[name] for name in sorted(found)]


def _partitions_by_topic(
    metadata: Metadata, topics: Sequence[TopicInfo], mask: Mask | None
) -> Iterator[tuple[TopicInfo, Iterator[PartitionInfo]]]:
    """Yield each topic with its partitions, those of ``mask`` only; use them up one by one."""
    import numpy as np

    selected = [topic.rows if mask is None else topic.rows[mask[topic.rows]] for topic in topics]
    # Across topics: most have few partitions.
    partitions = metadata.partitions.rows(np.concatenate(selected)) if selected else iter(())
    for topic, rows in zip(topics, selected, strict=True):
        yield topic, islice(partitions, len(rows))


def _replication_factor(metadata: Metadata, topic: TopicInfo) -> int:
    """Return the first partition's number of replicas, without those that are being added."""
    if topic.partition_count == 0:
        return 0
    first = metadata.partitions.row(int(topic.rows[0]))
    return len(first.replicas) - len(first.adding_replicas)


def _header(metadata: Metadata, topic: TopicInfo) -> list[tuple[str, object]]:
    settings = configs_of(metadata, topic.name)
    return [
        ("Topic", topic.name),
        ("TopicId", topic.id),
        ("PartitionCount", topic.partition_count),
        ("ReplicationFactor", _replication_factor(metadata, topic)),
        ("Configs", ",".join(f"{name}={value}" for name, value in settings.items())),
    ]


def _partition(info: PartitionInfo) -> list[tuple[str, object]]:
    """Return a partition's columns; those of a reassignment only while there is one."""
    moving = info.adding_replicas or info.removing_replicas
    return [
        ("Topic", info.topic),
        ("Partition", info.partition),
        ("Leader", info.leader if info.leader >= 0 else "none"),
        ("Replicas", _list(info.replicas)),
        ("Isr", _list(info.isr)),
        *([("Adding Replicas", _list(info.adding_replicas))] if moving else []),
        *([("Removing Replicas", _list(info.removing_replicas))] if moving else []),
        ("Elr", _list(info.elr)),
        ("LastKnownElr", _list(info.last_known_elr)),
    ]


def _print_lines(metadata: Metadata, topics: Sequence[TopicInfo], mask: Mask | None) -> None:
    from kraft.cli.output import progress, write_lines

    total = sum(topic.partition_count for topic in topics)
    done = 0
    with progress("describing", total, shown=_is_long(total)) as advance:
        for topic, partitions in _partitions_by_topic(metadata, topics, mask):
            if mask is None:
                write_lines([_line(_header(metadata, topic))])
            write_lines(map(_partition_line, partitions))
            done += topic.partition_count
            advance(done)


def _is_long(rows: int) -> bool:
    # Lines on the same terminal already show progress.
    return rows >= _MANY_ROWS and not sys.stdout.isatty()


def _print_tables(
    output: Output, metadata: Metadata, topics: Sequence[TopicInfo], mask: Mask | None
) -> None:
    if mask is not None:
        found = [
            _partition(info)
            for _, partitions in _partitions_by_topic(metadata, topics, mask)
            for info in partitions
        ]
        if found:
            _print_table(output, "", found)
        return
    for topic, partitions in _partitions_by_topic(metadata, topics, None):
        header = _header(metadata, topic)
        title = "  ".join(f"{name}: {value}" for name, value in header)
        rows = [_partition(info) for info in partitions]
        # The title names the topic: omit that column.
        _print_table(output, title, [row[1:] for row in rows])


def _print_table(output: Output, title: str, rows: list[list[tuple[str, object]]]) -> None:
    names = {name for row in rows for name, _ in row}
    columns = [name for name in _PARTITION_COLUMNS if name in names]
    output.table(
        title,
        columns,
        [[dict(row).get(name, "") for name in columns] for row in rows],
        numbers=("Partition", "Leader"),
    )


def _partition_line(info: PartitionInfo) -> str:
    return "\t" + _line(_partition(info))


def _line(fields: Sequence[tuple[str, object]]) -> str:
    return "\t".join([f"{name}: {value}" for name, value in fields])


#: A cluster has some thousand directories, and a million partitions name them.
_uuid_text = lru_cache(maxsize=4096)(str)


@lru_cache(maxsize=4096)
def _list(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


for _command in (create, alter, delete):
    app.command(epilog=EPILOG)(_command)
