"""``kraft topics create``, ``alter`` and ``delete``: change the topics of a running quorum.

Any controller can be named; the requests go to the active one, and to its successor if it fails.
Many topics go in requests of a bounded size. The quorum creates, changes or deletes each topic
completely or not at all, so that Ctrl-C never leaves a part of a topic.

A request whose connection fails is sent again. If the quorum carried out the first attempt, the
outcome of the second is ``done already``, which is not an error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import REFUSED
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption, ValidateOnlyOption
from kraft.errors import KraftError

if TYPE_CHECKING:
    from kraft.admin.client import BlockingAdmin
    from kraft.admin.results import ItemResults

#: Bounds of one request: Kafka's controller accepts at most 10,000 records in a request. A topic is
#: one record, plus one for each partition and one for each setting.
_TOPICS_A_REQUEST = 100
_RECORDS_A_REQUEST = 5000
#: At most this many results are printed one by one; the others are counted.
_MOST_LINES = 20
_MOST_TOPICS = 1_000_000

TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="NAME", help="A topic. Repeatable.", show_default=False),
]
CountOption = Annotated[
    int | None,
    typer.Option(
        "--count",
        min=1,
        max=_MOST_TOPICS,
        metavar="N",
        help="This many topics, whose names --name-pattern makes.",
        show_default=False,
    ),
]
PatternOption = Annotated[
    str | None,
    typer.Option(
        "--name-pattern",
        metavar="PATTERN",
        help="The name of each topic of --count: {} is its number from 0 on, {:05} the same with "
        "leading zeros.",
        show_default=False,
    ),
]
AssignmentOption = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="A:B,C:D,…",
        help="The brokers of each partition, partitions separated by commas, brokers by colons. "
        "Default: the controller places them.",
        show_default=False,
    ),
]


@dataclass(slots=True)
class TopicResult:
    """The outcome for one topic.

    ``outcome`` is the change ("created"), "done already", "exists", "absent" or "failed".
    """

    topic: str
    outcome: str
    error: str | None = None
    message: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """How one API changes topics.

    ``send`` sends a request for entries. ``details`` returns what is printed of a changed topic, by
    its value in the results. ``done_codes`` are the errors of a change that an earlier attempt has
    made. ``accepted_code`` is a success with the outcome ``accepted``: --if-exists and
    --if-not-exists.
    """

    verb: str
    outcome: str
    send: Callable[[BlockingAdmin, list[Any]], ItemResults[Any, Any]]
    details: Callable[[Any], dict[str, Any]]
    done_codes: tuple[int, ...]
    accepted_code: int | None = None
    accepted: str = ""


@takes_groups
def create(
    quorum: QuorumOptions,
    topics: TopicOption = None,
    count: CountOption = None,
    name_pattern: PatternOption = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The number of partitions of each topic, up to millions. Default: the "
            "controller's num.partitions.",
            show_default=False,
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=32767,
            metavar="N",
            help="The number of replicas of each partition. Default: the controller's "
            "default.replication.factor.",
            show_default=False,
        ),
    ] = None,
    replica_assignment: AssignmentOption = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="K=V",
            help="A setting of each topic. Repeatable.",
            show_default=False,
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Accept topics that exist, as they are.")
    ] = False,
    validate_only: ValidateOnlyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create topics. Needs registered brokers, as many as the replication factor.

    One topic is one request, and atomic with any number of partitions; many topics go in requests of at most 100 topics. Ctrl-C leaves the topics of the requests that were sent.

    [bold]Examples[/bold]

      kraft topics create --topic orders --partitions 6 --replication-factor 3 --bootstrap-controller localhost:9093

      kraft topics create --topic big --partitions 1000000 --replication-factor 3 --bootstrap-controller localhost:9093

      kraft topics create --count 1000 --name-pattern load-{:04} --partitions 10 --config retention.ms=60000 --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.admin.topics import TopicSpec
    from kraft.errors import TOPIC_ALREADY_EXISTS

    names = topic_names(topics, count, name_pattern)
    assignments = read_assignment(replica_assignment)
    if assignments and (partitions is not None or replication_factor is not None):
        raise typer.BadParameter(
            "--replica-assignment determines the partitions and the replication factor: give "
            "neither --partitions nor --replication-factor"
        )
    configs = dict(read_settings(config))
    change = TopicChange(
        "create",
        "created",
        lambda admin, entries: admin.create_topics(entries, validate_only=validate_only),
        lambda created: {
            "topicId": str(created.topic_id),
            "partitions": created.num_partitions,
            "replicationFactor": created.replication_factor,
        },
        (TOPIC_ALREADY_EXISTS,),
        TOPIC_ALREADY_EXISTS if if_not_exists else None,
        "exists",
    )
    entries = {
        name: TopicSpec(
            name,
            -1 if assignments or partitions is None else partitions,
            -1 if assignments or replication_factor is None else replication_factor,
            dict(enumerate(assignments)),
            configs,
        )
        for name in names
    }
    records = 1 + len(configs) + (len(assignments) or partitions or 1)
    _run(change, entries, records, quorum, as_json, validate_only)


@takes_groups
def alter(
    quorum: QuorumOptions,
    partitions: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="The number of partitions that each topic has afterwards."
        ),
    ],
    topics: TopicOption = None,
    count: CountOption = None,
    name_pattern: PatternOption = None,
    replica_assignment: AssignmentOption = None,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Skip topics that do not exist.")
    ] = False,
    validate_only: ValidateOnlyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Raise the number of partitions of topics.

    --replica-assignment has all partitions of the topic, as for kafka-topics; those that exist stay where they are.

    [bold]Examples[/bold]

      kraft topics alter --topic orders --partitions 12 --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.admin import NewPartitions
    from kraft.errors import INVALID_PARTITIONS, UNKNOWN_TOPIC_OR_PARTITION

    names = topic_names(topics, count, name_pattern)
    placed = read_assignment(replica_assignment)
    change = TopicChange(
        "extend",
        "extended",
        lambda admin, entries: admin.create_partitions(entries, validate_only=validate_only),
        lambda _: {"partitions": partitions},
        (INVALID_PARTITIONS,),
        UNKNOWN_TOPIC_OR_PARTITION if if_exists else None,
        "absent",
    )
    added: dict[str, list[list[int]] | None] = dict.fromkeys(names)
    if placed:
        with quorum.open() as admin:
            known = admin.read_metadata().topics
        existing = {name: known[name].partition_count if name in known else 0 for name in names}
        added = {name: placed[existing[name] :] for name in names}
    entries = {name: NewPartitions(name, partitions, added[name]) for name in names}
    _run(change, entries, partitions, quorum, as_json, validate_only)


@takes_groups
def delete(
    quorum: QuorumOptions,
    topics: TopicOption = None,
    count: CountOption = None,
    name_pattern: PatternOption = None,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Accept topics that do not exist.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete topics with their partitions. Names are exact, no patterns.

    [bold]Examples[/bold]

      kraft topics delete --topic orders --topic old --bootstrap-controller localhost:9093

      kraft topics delete --count 1000 --name-pattern load-{:04} --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.errors import UNKNOWN_TOPIC_OR_PARTITION

    names = topic_names(topics, count, name_pattern)
    change = TopicChange(
        "delete",
        "deleted",
        lambda admin, entries: admin.delete_topics(entries),
        lambda topic_id: {"topicId": str(topic_id)},
        (UNKNOWN_TOPIC_OR_PARTITION,),
        UNKNOWN_TOPIC_OR_PARTITION if if_exists else None,
        "absent",
    )
    entries = {name: name for name in names}
    _run(change, entries, 1, quorum, as_json, False)


# -- arguments


def topic_names(topics: list[str] | None, count: int | None, pattern: str | None) -> list[str]:
    """Return the names of the topics to change; raises a usage error."""
    if bool(topics) == (count is not None):
        raise typer.BadParameter("give either --topic, or --count and --name-pattern")
    if topics:
        if pattern is not None:
            raise typer.BadParameter("--name-pattern needs --count")
        names = topics
    else:
        assert count is not None
        if pattern is None:
            raise typer.BadParameter("--count needs --name-pattern")
        try:
            names = [pattern.format(number) for number in range(count)]
        except (IndexError, KeyError, ValueError, AttributeError) as error:
            raise typer.BadParameter(f"--name-pattern {pattern!r}: {error}") from error
    if len(set(names)) < len(names):
        reason = "has no {}" if pattern is not None else "repeats a topic"
        raise typer.BadParameter(f"--{'name-pattern' if pattern is not None else 'topic'} {reason}")
    return names


def read_assignment(text: str | None) -> list[list[int]]:
    """Return the brokers of ``1:2,2:3``, one entry a partition; raises a usage error."""
    if text is None:
        return []
    found = []
    for partition, part in enumerate(text.split(",")):
        brokers = part.split(":")
        if not all(id.strip().isdecimal() and int(id) < 1 << 31 for id in brokers):
            raise typer.BadParameter(
                f"--replica-assignment: partition {partition} is {part!r:.80}, not broker ids "
                "with colons between them"
            )
        found.append(list(map(int, brokers)))
    return found


def read_settings(given: list[str] | None) -> list[tuple[str, str]]:
    """Return names and values of ``K=V`` options; raises a usage error."""
    found = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"--config {text!r:.80} is not of the form K=V")
        found[name.strip()] = value.strip()
    return list(found.items())


# -- requests


def requests_of(entries: Sequence[Any], records_each: int) -> Iterator[Sequence[Any]]:
    """Yield runs of entries for one request each, every entry with so many records."""
    size = max(1, min(_TOPICS_A_REQUEST, _RECORDS_A_REQUEST // max(records_each, 1)))
    for start in range(0, len(entries), size):
        yield entries[start : start + size]


def carry_out(
    admin: BlockingAdmin, change: TopicChange, entries: dict[str, Any]
) -> list[TopicResult]:
    """Send one request; return a result for each topic."""
    results = []
    for name, each in change.send(admin, list(entries.values())).items():
        error = each.error
        if error is None:
            results.append(TopicResult(name, change.outcome, details=change.details(each.value)))
        elif error.kafka_code == change.accepted_code:
            results.append(TopicResult(name, change.accepted))
        else:
            is_done = each.is_repeated and error.kafka_code in change.done_codes
            outcome = "done already" if is_done else "failed"
            results.append(TopicResult(name, outcome, error.name, error.message))
    return results


def _run(
    change: TopicChange,
    entries: dict[str, Any],
    records_each: int,
    quorum: QuorumOptions,
    as_json: bool,
    validate_only: bool,
) -> None:
    """Send the requests, print the results; exit with REFUSED where a topic failed."""
    from kraft.cli.output import progress

    began = time.monotonic()
    results: list[TopicResult] = []
    names = list(entries)
    is_long = len(names) > _TOPICS_A_REQUEST
    title = (
        f"{change.verb} {len(names):,} topics" if len(names) > 1 else f"{change.verb} {names[0]}"
    )
    try:
        with (
            quorum.open() as admin,
            progress(title, len(names) if is_long else None) as advance,
        ):
            for run in requests_of(names, records_each):
                results += carry_out(admin, change, {name: entries[name] for name in run})
                advance(len(results))
    except (KraftError, KeyboardInterrupt) as error:
        from kraft.network.quorum_client import QuorumUnreachableError

        note = f"note: {len(results):,} of {len(names):,} topics have an answer"
        if not isinstance(error, QuorumUnreachableError) or error.may_be_done:
            note += "; a request without one may have been carried out"
        print(note, file=sys.stderr)
        if results:
            _show(change, results, time.monotonic() - began, as_json, validate_only)
        raise
    _show(change, results, time.monotonic() - began, as_json, validate_only)
    if any(each.outcome == "failed" for each in results):
        raise typer.Exit(REFUSED)


def _show(
    change: TopicChange,
    results: list[TopicResult],
    seconds: float,
    as_json: bool,
    validate_only: bool,
) -> None:
    from kraft.cli.output import Output

    if as_json:
        topics = [
            {
                "topic": each.topic,
                "outcome": each.outcome,
                **each.details,
                **({} if each.error is None else {"error": each.error, "message": each.message}),
            }
            for each in results
        ]
        document = {"validateOnly": validate_only, "seconds": round(seconds, 3)}
        Output(as_json=True).document_with_list(document, "topics", topics)
        return
    done = [each for each in results if each.outcome == change.outcome]
    rest = [each for each in results if each.outcome not in (change.outcome, "failed")]
    failed = [each for each in results if each.outcome == "failed"]
    word = f"would be {change.outcome}" if validate_only else change.outcome
    if len(done) <= _MOST_LINES:
        for each in done:
            print(f"{each.topic} {word}{_details(each)}")
    for each in rest[:_MOST_LINES]:
        print(f"{each.topic} {_reason(each)}")
    for each in failed[:_MOST_LINES]:
        message = f" ({each.message})" if each.message else ""
        print(f"error: {each.topic}: {each.error}{message}", file=sys.stderr)
    if len(failed) > _MOST_LINES:
        print(f"error: and {len(failed) - _MOST_LINES:,} more topics", file=sys.stderr)
    counts = [f"{len(done):,} {word}"]
    for outcome in ("exists", "absent", "done already"):
        number = sum(each.outcome == outcome for each in rest)
        counts += [f"{number:,} {outcome}"] if number else []
    counts += [f"{len(failed):,} failed"] if failed else []
    noun = "topic" if len(results) == 1 else "topics"
    print(f"{len(results):,} {noun}: {', '.join(counts)} in {seconds:.2f} s", flush=True)


def _details(result: TopicResult) -> str:
    details = result.details
    parts = []
    if details.get("partitions", -1) >= 0:
        count = details["partitions"]
        parts.append(f"{count:,} partition{'' if count == 1 else 's'}")
    if details.get("replicationFactor", -1) >= 0:
        parts.append(f"replication factor {details['replicationFactor']}")
    return f": {', '.join(parts)}" if parts else ""


def _reason(result: TopicResult) -> str:
    if result.outcome == "done already":
        return (
            f"done already: {result.error}; the first attempt had no response, so this command or "
            "another client has done it"
        )
    return "exists" if result.outcome == "exists" else "does not exist"
