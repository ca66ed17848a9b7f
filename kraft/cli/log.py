"""``kraft log dump``: every batch and every record, in the format of Kafka's ``kafka-dump-log``.

Formats a batch and a record as ``kafka-dump-log --cluster-metadata-decoder`` does, so that one
parser reads both, or as JSON lines, and applies the filters. Holds one batch in memory at a time.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kraft.cli.exit_codes import EPILOG, FOUND
from kraft.cli.options import JsonOption, MetadataPath, SalvageOption

if TYPE_CHECKING:
    from kraft._core.bytes.batch_records import RawRecord, RecordBatch
    from kraft.cli.topic_filter import TopicFilter
    from kraft.metadata.source import MetadataSource
    from kraft.records import Record

app = typer.Typer(no_args_is_help=True, add_completion=False, epilog=EPILOG)

# One encoder for all lines, as creating one takes longer than encoding a short line. JSON lines are
# ASCII, so that stdout's encoding cannot change them; text is not escaped, as in Kafka's tools.
_ENCODE_ASCII = json.JSONEncoder(separators=(",", ":")).encode
_ENCODE_TEXT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
# Jackson writes the hexadecimal digits of control characters in upper case.
_CONTROL_CHARACTER = re.compile(r"\\\\|\\u00[01][a-f]")
_CYAN, _PLAIN = "\x1b[36m", "\x1b[0m"


class Wanted(NamedTuple):
    """The filters; None selects every record."""

    types: frozenset[type[Record]] | None
    topics: TopicFilter | None
    since: int
    until: int | None

    @property
    def is_everything(self) -> bool:
        return self == (None, None, 0, None)


@app.callback()
def _log() -> None:
    """Print the metadata log, batch by batch."""


@app.command(epilog=EPILOG)
def dump(
    path: MetadataPath,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only records of this type, such as PartitionChange. Repeatable.",
            show_default=False,
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="Only records of this topic (a name or a topic id), its partitions and its "
            "configs. Repeatable.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        int, typer.Option(metavar="OFFSET", min=0, help="Only records from this offset on.")
    ] = 0,
    until: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET",
            min=0,
            help="Only records below this offset. Default: up to the end.",
            show_default=False,
        ),
    ] = None,
    batches: Annotated[
        bool, typer.Option("--batches", help="Print batches without their records.")
    ] = False,
    salvage: SalvageOption = False,
    show_secrets: Annotated[
        bool,
        typer.Option(
            "--show-secrets", help="Print salts, keys and passwords, which are hidden by default."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every batch and record of a log, segment or snapshot, in the format of kafka-dump-log.

    For a directory, prints the log; name a .checkpoint file to print a snapshot.
    With filters, prints only the batches that contain a selected record. With
    --json, prints one object a line with Kafka's names: a record, or with
    --batches a batch.

    [bold]Examples[/bold]

      kraft log dump /var/lib/kafka/metadata --since 1200

      kraft log dump /var/lib/kafka/metadata --topic payments --type PartitionChange

      kraft log dump 00000000000000000000.log --json | jq .type | sort | uniq -c
    """
    from kraft.cli.output import Output
    from kraft.cli.topic_filter import TopicFilter
    from kraft.metadata.log_records import record_type_named
    from kraft.metadata.source import MetadataSource

    source = MetadataSource(path, salvage=salvage)
    wanted = Wanted(
        frozenset(map(record_type_named, types)) if types else None,
        TopicFilter.of(topics, source, since) if topics else None,
        since,
        until,
    )
    write = _JsonLines() if as_json else _Text()
    write.show_secrets = show_secrets
    for batch, file in _batches(source, since, until):
        records = _wanted_records(batch, wanted, file)
        if batches:
            if wanted.is_everything or next(records, None) is not None:
                write.batch(batch, file)
        else:
            write.records(batch, file, records, is_whole=wanted.is_everything)
    write.flush()
    found = source.damage
    for sentence in found:
        Output().note(sentence)
    if found:
        raise typer.Exit(FOUND)


def _batches(
    source: MetadataSource, since: int, until: int | None
) -> Iterator[tuple[RecordBatch, str]]:
    """Yield the batches that have an offset in the range, each with the path of its file."""
    from kraft._core.bytes.batch_records import iterate
    from kraft.cli.output import progress
    from kraft.errors import CorruptRecordError

    total = sum(each.size for each in source.directory.segments or source.directory.snapshots)
    done = 0
    with progress("dumping", total, shown=not sys.stdout.isatty()) as advance:
        for data, path, position in source.slices_or_snapshot(since):
            try:
                for batch in iterate(data, base_position=position):
                    if until is not None and batch.base_offset >= until:
                        return
                    if batch.last_offset >= since:
                        yield batch, path
                    advance(done + batch.position - position)
            except CorruptRecordError as error:
                raise error.at(path=path) from None
            done += len(data)


def _wanted_records(
    batch: RecordBatch, wanted: Wanted, path: str
) -> Iterator[tuple[RawRecord, Record | None]]:
    """Yield the selected records; None for one of an unknown type or version."""
    from kraft.errors import CorruptRecordError, UnsupportedVersionError
    from kraft.records import decode_control, decode_control_key, decode_value

    # The topic filter learns ids from Topic records, so it needs every record decoded.
    keys = (
        None
        if wanted.types is None or wanted.topics is not None or batch.is_control
        else {each.schema.api_key for each in wanted.types}
    )
    for raw in batch:
        if raw.offset < wanted.since or (wanted.until is not None and raw.offset >= wanted.until):
            continue
        value = raw.value_view
        if keys is not None and value is not None and value[1:2] and value[1] not in keys:
            continue
        try:
            if value is None:
                raise CorruptRecordError("a metadata record has no value")
            record: Record | None = (
                decode_control(decode_control_key(raw.key or b""), value)
                if batch.is_control
                else decode_value(value)
            )
        except UnsupportedVersionError:
            record = None
        except CorruptRecordError as error:
            raise error.at(path=path, offset=raw.offset, position=batch.position) from None
        if wanted.topics is not None and not wanted.topics.matches(record):
            continue
        if wanted.types is not None and type(record) not in wanted.types:
            continue
        yield raw, record


class _Text:
    """Prints the lines of ``kafka-dump-log``; a file's header precedes its first batch."""

    def __init__(self) -> None:
        self.show_secrets = False
        self._file = ""
        colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._begin, self._end = (_CYAN, _PLAIN) if colours else ("", "")

    def batch(self, batch: RecordBatch, file: str) -> None:
        self._header(file)
        fields = " ".join(f"{name}: {_java(value)}" for name, value in batch_fields(batch).items())
        sys.stdout.write(f"{self._begin}{fields}{self._end}\n")

    def records(
        self,
        batch: RecordBatch,
        file: str,
        records: Iterable[tuple[RawRecord, Record | None]],
        *,
        is_whole: bool,
    ) -> None:
        lines = [self._line(batch, raw, record) for raw, record in records]
        if lines or is_whole:
            self.batch(batch, file)
            sys.stdout.write("".join(lines))

    def flush(self) -> None:
        sys.stdout.flush()

    def _header(self, file: str) -> None:
        if file == self._file:
            return
        self._file = file
        name = Path(file).name
        sys.stdout.write(f"Dumping {file}\n")
        begin, dash, epoch = name.partition(".")[0].partition("-")
        if name.endswith(".checkpoint") and dash:
            sys.stdout.write(f"Snapshot end offset: {int(begin)}, epoch: {int(epoch)}\n")
        elif name == "bootstrap.checkpoint":
            sys.stdout.write("KRaft bootstrap snapshot\n")
        elif begin.isdigit():
            sys.stdout.write(f"Log starting offset: {int(begin)}\n")

    def _line(self, batch: RecordBatch, raw: RawRecord, record: Record | None) -> str:
        sequence = -1 if batch.base_sequence < 0 else batch.base_sequence + raw.offset
        keys = ",".join(key.decode(errors="replace") for key, _ in raw.headers)
        return (
            f"| offset: {raw.offset} {_time_name(batch)}: {raw.timestamp_ms} "
            f"keySize: {_size(raw.key_view)} valueSize: {_size(raw.value_view)} "
            f"sequence: {sequence} headerKeys: [{keys}] {self._payload(batch, raw, record)}\n"
        )

    def _payload(self, batch: RecordBatch, raw: RawRecord, record: Record | None) -> str:
        fields = record_fields(raw, record, show_secrets=self.show_secrets)
        if not batch.is_control or record is None:
            return "payload: " + _java_json(fields)
        # Kafka prints a colon after this type only.
        colon = ":" if fields["type"] == "LeaderChange" else ""
        data = {"version": fields["version"], **fields["data"]}
        return f"{fields['type']}{colon} " + _java_json(data)


class _JsonLines:
    """Prints one JSON object a line: a record, or a batch."""

    def __init__(self) -> None:
        self.show_secrets = False

    def batch(self, batch: RecordBatch, file: str) -> None:
        self._write({"file": file, **batch_fields(batch)})

    def records(
        self,
        batch: RecordBatch,
        file: str,
        records: Iterable[tuple[RawRecord, Record | None]],
        *,
        is_whole: bool,
    ) -> None:
        for raw, record in records:
            self._write(
                {
                    "file": file,
                    "position": batch.position,
                    "offset": raw.offset,
                    _time_name(batch): raw.timestamp_ms,
                    "partitionLeaderEpoch": batch.partition_leader_epoch,
                    "isControl": batch.is_control,
                    **record_fields(raw, record, show_secrets=self.show_secrets),
                }
            )

    def flush(self) -> None:
        sys.stdout.flush()

    def _write(self, line: dict[str, Any]) -> None:
        sys.stdout.write(_ENCODE_ASCII(line) + "\n")


def batch_fields(batch: RecordBatch) -> dict[str, Any]:
    """Return a batch with the names of ``kafka-dump-log``, in its order."""
    has_sequence = batch.base_sequence >= 0
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.record_count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.base_sequence + batch.last_offset_delta if has_sequence else -1,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "position": batch.position,
        _time_name(batch): batch.max_timestamp,
        "size": batch.size,
        "magic": batch.magic,
        "compresscodec": batch.codec,
        "crc": batch.crc,
        # A batch with a wrong CRC was rejected before.
        "isvalid": True,
    }


def record_fields(
    raw: RawRecord, record: Record | None, *, show_secrets: bool = False
) -> dict[str, Any]:
    """Return ``{"type", "version", "data"}``; for an unknown record its API key and size."""
    from kraft.metadata.kafka_json import data_of, type_name

    if record is not None:
        data = data_of(record, show_secrets=show_secrets)
        return {"type": type_name(type(record)), "version": record.version, "data": data}
    value = raw.value or b""
    shown = {"hex": value.hex()} if show_secrets else {}
    api_key = raw.control_type if raw.is_control else value[1] if len(value) > 1 else None
    return {"type": f"UNKNOWN_{api_key}", "version": None, "data": {"size": len(value), **shown}}


def _time_name(batch: RecordBatch) -> str:
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


def _size(view: memoryview | None) -> int:
    return -1 if view is None else len(view)


def _java_json(fields: dict[str, Any]) -> str:
    """Return JSON as Jackson writes it."""
    text = _ENCODE_TEXT(fields)
    if "\\u00" not in text:
        return text
    return _CONTROL_CHARACTER.sub(lambda found: found[0][:2] + found[0][2:].upper(), text)


def _java(value: object) -> str:
    if value is None:
        return "OptionalLong.empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
