"""``kraft open``: a summary of a metadata directory, a running quorum or ZooKeeper on one screen.

Makes the summary and its JSON form. It never shows the salt or keys of a SCRAM credential, nor the
value of a setting: configs are counted, not listed.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import ClientConfigOption, QuorumOptions, progress_of_reading
from kraft.cli.exit_codes import EPILOG, FOUND
from kraft.cli.metadata_source import QuorumOption
from kraft.cli.options import (
    AtOption,
    JsonOption,
    NoColumnCacheOption,
    SalvageOption,
)
from kraft.cli.zookeeper_source import read_zookeeper
from kraft.zookeeper import SCHEME

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.metadata.directory import QuorumState
    from kraft.metadata.facade import Metadata
    from kraft.metadata.record_counts import RecordCounts
    from kraft.metadata.source import MetadataSource

app = typer.Typer(add_completion=False)

_LARGEST = 5


@app.command(epilog=EPILOG)
def open_(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR|FILE|ZOOKEEPER",
            help="A log.dir, a __cluster_metadata-0 directory, a segment (.log), a snapshot "
            "(.checkpoint), or zookeeper://HOST:PORT/CHROOT.",
            show_default=False,
        ),
    ] = None,
    at: AtOption = None,
    salvage: SalvageOption = False,
    no_column_cache: NoColumnCacheOption = False,
    bootstrap_controller: QuorumOption = None,
    command_config: ClientConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a summary of a metadata directory, a segment, a snapshot or a running quorum.

    With zookeeper://HOST:PORT/CHROOT it is that of a cluster that keeps its
    metadata in ZooKeeper, as a migration to KRaft would take it over.

    The state excludes records of a metadata transaction that is open or was
    aborted. A log does not say how much of it was committed: its last records
    may be uncommitted.

    [bold]Examples[/bold]

      kraft open /var/lib/kafka/metadata

      kraft open /var/lib/kafka/metadata --at 1200

      kraft open 00000000000000002334-0000000001.checkpoint --json

      kraft open --bootstrap-controller localhost:9093

      kraft open zookeeper://localhost:2181/kafka
    """
    from kraft.cli.output import Output
    from kraft.metadata.facade import open_metadata

    if (path is None) == (bootstrap_controller is None):
        raise typer.BadParameter("give either a path or --bootstrap-controller")
    is_in_files = path is not None and not path.startswith(SCHEME)
    if not is_in_files and (at is not None or salvage or no_column_cache):
        raise typer.BadParameter("--at, --salvage and --no-column-cache need a path")
    if path is not None and command_config is not None:
        raise typer.BadParameter("--command-config needs --bootstrap-controller")
    began = time.perf_counter()
    if path is None:
        assert bootstrap_controller is not None
        document = _summary_of_quorum(QuorumOptions(bootstrap_controller, command_config))
        document["openedMs"] = round((time.perf_counter() - began) * 1000, 3)
    elif not is_in_files:
        document = _summary_of_zookeeper(path)
        document["openedMs"] = round((time.perf_counter() - began) * 1000, 3)
    else:
        metadata = open_metadata(path, at=at, salvage=salvage, use_column_cache=not no_column_cache)
        opened_ms = (time.perf_counter() - began) * 1000
        document = summary(metadata, at)
        document["openedMs"] = round(opened_ms, 3)
    output = Output(as_json=as_json)
    if as_json:
        output.document(document)
    else:
        print_summary(output, document)
    if document["attention"]:
        raise typer.Exit(FOUND)


def summary(metadata: Metadata, at: int | None = None) -> dict[str, Any]:
    """Return the JSON document of ``kraft open`` without the time that opening took."""
    source = metadata.source
    assert source is not None
    log, snapshot, snapshot_name = _record_counts(source, metadata, at)
    document: dict[str, Any] = {
        "path": str(source.directory.path),
        **_identity(metadata, source),
        "offsets": _offsets(metadata, source, snapshot_name),
        "records": {"log": _records(log), "snapshot": _records(snapshot)},
        "attention": _attention(source, log),
    }
    if source.is_partial:
        return document
    document["quorum"] = _quorum(metadata, source.directory.quorum_state)
    _add_state(document, metadata)
    return document


def _summary_of_quorum(quorum: QuorumOptions) -> dict[str, Any]:
    """Return the JSON document of a running quorum, without the time that reading took."""
    with quorum.open() as admin, progress_of_reading() as advance:
        metadata = admin.read_metadata(advance)
        described = admin.describe_metadata_quorum()
        cluster_id = admin.describe_cluster().cluster_id
    document: dict[str, Any] = {
        "bootstrapControllers": quorum.bootstrap_controller,
        "clusterId": cluster_id,
        "offsets": {"asOf": metadata.next_offset},
        "records": {"state": _records_of_state(metadata)},
        "attention": [],
        "quorum": {
            **_quorum(metadata, None),
            # A state that was read from a snapshot does not have them.
            "leaderId": described.leader_id,
            "leaderEpoch": described.epoch,
        },
    }
    _add_state(document, metadata)
    return document


def _summary_of_zookeeper(address: str) -> dict[str, Any]:
    """Return the JSON document of a cluster in ZooKeeper mode, without the time of reading it."""
    metadata = read_zookeeper(address)
    document: dict[str, Any] = {
        "zookeeper": address,
        "clusterId": metadata.cluster_id,
        "controller": {"id": metadata.controller_id, "epoch": metadata.controller_epoch},
        "offsets": {"asOf": metadata.next_offset},
        "records": {"state": _records_of_state(metadata)},
        "attention": list(metadata.notes),
    }
    _add_state(document, metadata)
    return document


def _records_of_state(metadata: Metadata) -> dict[str, Any]:
    from kraft.records import RECORD_TYPES_BY_KEY

    names = {key: made.__name__ for key, made in RECORD_TYPES_BY_KEY.items()}
    counts = metadata.record_counts
    by_type = {names.get(key, f"type {key}"): count for key, count in counts.items() if count}
    return {"records": sum(by_type.values()), "byType": dict(sorted(by_type.items()))}


def _add_state(document: dict[str, Any], metadata: Metadata) -> None:
    document["features"] = dict(metadata.features)
    document["metadataVersion"] = _version_name(metadata.metadata_version)
    document.update(_cluster(metadata))


def _identity(metadata: Metadata, source: MetadataSource) -> dict[str, Any]:
    properties = source.directory.meta_properties
    return {
        "clusterId": metadata.cluster_id,
        "nodeId": properties.node_id if properties else None,
        "directoryId": str(properties.directory_id)
        if properties and properties.directory_id
        else None,
    }


def _offsets(
    metadata: Metadata, source: MetadataSource, snapshot_name: str | None
) -> dict[str, Any]:
    first, last = source.offset_range
    return {
        "asOf": None if source.is_partial else metadata.next_offset,
        "oldestState": None if source.is_partial else first,
        "newestState": None if source.is_partial else last,
        "logStartOffset": _or_none(source.log_start_offset),
        "logEndOffset": _or_none(source.log_end_offset),
        "segments": len(source.directory.segments),
        "snapshots": [
            {"endOffset": each.end_offset, "epoch": each.epoch, "size": each.size}
            for each in source.directory.snapshots
        ],
        "loadedSnapshot": snapshot_name,
        "unfinishedFiles": [path.name for path in source.directory.unfinished],
    }


def _or_none(offset: int) -> int | None:
    return None if offset < 0 else offset


def _record_counts(
    source: MetadataSource, metadata: Metadata, at: int | None
) -> tuple[RecordCounts, RecordCounts, str | None]:
    """Return the counts of the log's records below ``at``, of the loaded snapshot's,
    and its name.
    """
    from kraft.metadata.record_counts import RecordCounts
    from kraft.metadata.snapshots import map_snapshot

    log, of_snapshot = RecordCounts(), RecordCounts()
    for piece in source.slices():
        log.add(piece.data, end_offset=at)
    snapshot = source.snapshot_to_load(at)
    if snapshot is not None:
        of_snapshot.add(map_snapshot(snapshot))
    return log, of_snapshot, snapshot.path.name if snapshot else None


def _records(counts: RecordCounts) -> dict[str, Any]:
    return {
        "batches": counts.batch_count,
        "records": counts.record_count,
        "size": counts.size,
        "byType": dict(sorted(counts.by_type.items())),
    }


def _attention(source: MetadataSource, log: RecordCounts) -> list[str]:
    """Return one sentence for each problem: damage, an open transaction, a missing start."""
    found = source.damage
    if log.open_transaction is not None:
        found.append(
            f"open transaction: the records from offset {log.open_transaction} on belong to a "
            "metadata transaction that has not ended; the state excludes them"
        )
    if source.is_partial:
        found.append(
            f"partial: the log begins at offset {source.log_start_offset} and no snapshot covers "
            "the records before it, so the state is unknown"
        )
    return found


def _quorum(metadata: Metadata, state: QuorumState | None) -> dict[str, Any]:
    """``state`` is the node's quorum-state file."""
    quorum = metadata.quorum
    leader = quorum.leader_id
    if leader < 0 and state is not None and state.leader_epoch == quorum.leader_epoch:
        # A snapshot has no leader; the node's quorum-state has the leader of its epoch.
        leader = state.leader_id
    return {
        "leaderId": leader,
        "leaderEpoch": quorum.leader_epoch,
        "kraftVersion": quorum.kraft_version,
        "voters": [
            {
                "id": voter.id,
                "directoryId": str(voter.directory_id),
                "endpoints": [
                    f"{point.name}://{point.host}:{point.port}" for point in voter.endpoints
                ],
            }
            for voter in quorum.voters
        ]
        or [{"id": voter, "directoryId": None, "endpoints": []} for voter in quorum.voter_ids],
        "quorumState": None
        if state is None
        else {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": None
            if state.voted_directory_id is None
            else str(state.voted_directory_id),
        },
    }


def _version_name(level: int) -> str:
    from kraft.records import MetadataVersion

    return MetadataVersion.from_level(level).text


def _cluster(metadata: Metadata) -> dict[str, Any]:
    import numpy as np

    from kraft.cli.brokers import broker_documents, endpoint_documents
    from kraft.image.configs import RESOURCE_TYPES
    from kraft.metadata.health import Health

    health = Health(metadata)
    topic = metadata.partitions.topic[health.live]
    sizes = np.bincount(topic) if len(topic) else np.zeros(0, np.int64)
    largest = np.argsort(-sizes, kind="stable")[:_LARGEST]
    names = metadata.cluster.table.topic_name
    configs = Counter(
        RESOURCE_TYPES.get(resource_type, f"type {resource_type}")
        for (resource_type, _), settings in metadata.configs.items()
        for _ in settings
    )
    return {
        "brokers": broker_documents(metadata),
        "controllers": [
            {
                "controllerId": controller.id,
                "incarnationId": str(controller.incarnation_id),
                "endPoints": endpoint_documents(controller.endpoints.values()),
            }
            for _, controller in sorted(metadata.controllers.items())
        ],
        "topics": {
            "count": len(metadata.topics),
            "biggest": [
                {"topic": names(int(number)), "partitionCount": int(sizes[number])}
                for number in largest
                if sizes[number]
            ],
        },
        "partitions": {
            "count": len(metadata.partitions),
            "withoutLeader": int(health.without_leader.sum()),
            "underReplicated": int(health.under_replicated.sum()),
            "underMinIsr": int(health.under_min_isr.sum()),
            "reassigning": int(health.reassigning.sum()),
        },
        "configs": dict(sorted(configs.items())),
        "acls": len(metadata.acls),
        "scramCredentials": len(metadata.scram_credentials),
        "clientQuotas": sum(len(quotas) for quotas in metadata.client_quotas.values()),
        "delegationTokens": len(metadata.delegation_tokens),
        "nextProducerId": metadata.next_producer_id,
    }


def print_summary(output: Output, document: dict[str, Any]) -> None:
    """Print the document of :func:`summary` as text."""
    opened_ms = document.get("openedMs")
    offsets = document["offsets"]
    controller = document.get("controller")
    output.fields(
        "Cluster",
        [
            ("Path", document.get("path")),
            ("BootstrapControllers", document.get("bootstrapControllers")),
            ("ZooKeeper", document.get("zookeeper")),
            ("ClusterId", document["clusterId"]),
            ("NodeId", document.get("nodeId")),
            ("DirectoryId", document.get("directoryId")),
            ("MetadataVersion", document.get("metadataVersion")),
            ("Features", _pairs(document.get("features", {})) or None),
            ("State", _state_line(offsets)),
            ("Log", _log_line(offsets)),
            ("Snapshots", _snapshots_line(offsets)),
            ("Controller", controller and _pairs(controller)),
            ("Unfinished", ", ".join(offsets.get("unfinishedFiles", ())) or None),
            ("Opened", None if opened_ms is None else f"{opened_ms:.1f} ms"),
        ],
    )
    if "quorum" in document:
        _print_quorum(output, document["quorum"])
    if "brokers" in document:
        _print_nodes(output, document)
        _print_contents(output, document)
    _print_records(output, document["records"])
    for sentence in document["attention"]:
        output.note(sentence)


def _print_quorum(output: Output, quorum: dict[str, Any]) -> None:
    state = quorum["quorumState"]
    output.fields(
        "Quorum",
        [
            ("LeaderId", "none known" if quorum["leaderId"] < 0 else quorum["leaderId"]),
            ("LeaderEpoch", quorum["leaderEpoch"]),
            ("KRaftVersion", quorum["kraftVersion"]),
            *(
                (
                    f"Voter {voter['id']}",
                    " ".join([*voter["endpoints"], voter["directoryId"] or ""]).strip(),
                )
                for voter in quorum["voters"]
            ),
            ("QuorumState", _pairs(state) if state else None),
        ],
    )


def _print_nodes(output: Output, document: dict[str, Any]) -> None:
    from kraft.cli.brokers import BROKER_COLUMNS, BROKER_NUMBERS, broker_row, endpoints_text

    if document["brokers"]:
        rows = map(broker_row, document["brokers"])
        output.table("Brokers", BROKER_COLUMNS, rows, numbers=BROKER_NUMBERS)
    if document["controllers"]:
        output.table(
            "Controllers",
            ("ID", "ENDPOINTS", "INCARNATION_ID"),
            [
                (each["controllerId"], endpoints_text(each["endPoints"]), each["incarnationId"])
                for each in document["controllers"]
            ],
            numbers=("ID",),
        )


def _print_contents(output: Output, document: dict[str, Any]) -> None:
    partitions = document["partitions"]
    largest = ", ".join(
        f"{_short(each['topic'])} ({each['partitionCount']:,})"
        for each in document["topics"]["biggest"]
    )
    output.fields(
        "Contents",
        [
            ("Topics", f"{document['topics']['count']:,}"),
            ("Biggest", largest or None),
            ("Partitions", f"{partitions['count']:,}"),
            ("WithoutLeader", f"{partitions['withoutLeader']:,}"),
            ("UnderReplicated", f"{partitions['underReplicated']:,}"),
            ("UnderMinIsr", f"{partitions['underMinIsr']:,}"),
            ("Reassigning", f"{partitions['reassigning']:,}"),
            ("Configs", _pairs(document["configs"]) or "0"),
            ("Acls", document["acls"]),
            ("ScramCredentials", document["scramCredentials"]),
            ("ClientQuotas", document["clientQuotas"]),
            ("DelegationTokens", document["delegationTokens"]),
            ("NextProducerId", max(document["nextProducerId"], 0)),
        ],
    )


def _print_records(output: Output, records: dict[str, Any]) -> None:
    if "state" in records:
        state = records["state"]["byType"]
        counted = sorted(state.items(), key=lambda item: -item[1])
        lines = [(name, f"{count:,}") for name, count in counted]
        lines.append(("all records", f"{records['state']['records']:,}"))
        output.table("Records", ("TYPE", "STATE"), lines, numbers=("STATE",))
        return
    log, snapshot = records["log"]["byType"], records["snapshot"]["byType"]
    names = sorted(log.keys() | snapshot.keys(), key=lambda name: -log.get(name, 0))
    rows: list[tuple[object, ...]] = [
        (name, f"{log.get(name, 0):,}", f"{snapshot.get(name, 0):,}") for name in names
    ]
    for label, key in (("records", "records"), ("batches", "batches"), ("bytes", "size")):
        rows.append((f"all {label}", f"{records['log'][key]:,}", f"{records['snapshot'][key]:,}"))
    output.table("Records", ("TYPE", "LOG", "SNAPSHOT"), rows, numbers=("LOG", "SNAPSHOT"))


def _state_line(offsets: dict[str, Any]) -> str | None:
    if offsets["asOf"] is None:
        return None
    if "newestState" not in offsets:
        return f"as of offset {offsets['asOf']}"
    return (
        f"as of offset {offsets['asOf']}; available: "
        f"{offsets['oldestState']} to {offsets['newestState']}"
    )


def _log_line(offsets: dict[str, Any]) -> str | None:
    if offsets.get("logStartOffset") is None:
        return None
    segments = offsets["segments"]
    return (
        f"offsets {offsets['logStartOffset']} to {offsets['logEndOffset']} in {segments} "
        f"segment{'s' if segments != 1 else ''}"
    )


def _snapshots_line(offsets: dict[str, Any]) -> str | None:
    snapshots = offsets.get("snapshots")
    if not snapshots:
        return None
    ends = ", ".join(str(each["endOffset"]) for each in snapshots[-_LARGEST:])
    more = "… " if len(snapshots) > _LARGEST else ""
    loaded = f"; loaded: {offsets['loadedSnapshot']}" if offsets["loadedSnapshot"] else ""
    return f"{len(snapshots)}, ending at offset {more}{ends}{loaded}"


def _pairs(mapping: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in mapping.items())


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:39]}…"
