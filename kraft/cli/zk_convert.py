"""``kraft zk convert``: write the KRaft metadata directory of a cluster that is in ZooKeeper."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.configuration import controller_endpoints
from kraft.cli.exit_codes import FOUND
from kraft.cli.options import JsonOption
from kraft.cli.zookeeper_source import progress_of_reading

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.raft.voters import Endpoint
    from kraft.server.config.loading import ServerConfig
    from kraft.zookeeper.convert import Converted
    from kraft.zookeeper.passwords import PasswordDecoder

_ENCODER_SECRET = "password.encoder.secret"


def convert_(
    zookeeper: Annotated[
        str,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT/CHROOT",
            help="The zookeeper.connect of the cluster's brokers.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="The new metadata directory; it must not exist or must be empty.",
            show_default=False,
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The configuration of the controller that starts on DIR: its node id, its "
            "listeners, and whether its voters are static (controller.quorum.voters). Default: "
            "node 3000, or the next id that no broker has, of a static quorum.",
            show_default=False,
        ),
    ] = None,
    broker_config: Annotated[
        Path | None,
        typer.Option(
            "--broker-config",
            metavar="FILE",
            help="The configuration of a broker, for its password.encoder.secret: decode the "
            "passwords in settings of brokers. Default: leave them encrypted, and say so.",
            show_default=False,
        ),
    ] = None,
    release_version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="The metadata.version of the new cluster, 3.6-IV1 or later. Default: 3.9.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the KRaft metadata directory of a cluster that is in ZooKeeper.

    The directory has what Kafka 3.9's own migration would write: topics, replicas, leaders, in-sync replicas and epochs, settings, quotas, ACLs, SCRAM credentials, delegation tokens and producer ids. A kraft or Kafka controller starts on it, and brokers then register in KRaft mode with their data. Stop all brokers first, so that nothing changes after the conversion. ZooKeeper is read, never written. Exit code 3: something was left out or assumed; stderr says what.

    [bold]Examples[/bold]

      kraft zk convert --zookeeper localhost:2181/kafka --out /tmp/metadata

      kraft zk convert --zookeeper localhost:2181 --out /var/lib/kafka/metadata -c controller.properties
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.configuration import load_configuration
    from kraft.cli.output import Output, progress
    from kraft.metadata.new_directory import check_is_new
    from kraft.records import MetadataVersion
    from kraft.zookeeper.convert import convert
    from kraft.zookeeper.opened import LEVEL
    from kraft.zookeeper.reading import read_tree

    output = Output(as_json=as_json)
    # Before the tree is read, which may take minutes.
    check_is_new(out)
    level = LEVEL if release_version is None else MetadataVersion.from_text(release_version)
    loaded = None if config is None else load_configuration(output, config)
    if loaded is not None and not loaded.is_controller:
        raise typer.BadParameter(f"{config}: process.roles has no controller")
    with progress_of_reading() as on_progress:
        tree = read_tree(zookeeper, on_progress=on_progress)
    with progress("converting", len(tree)) as advance:
        done = convert(
            tree,
            out,
            timestamp_ms=time.time_ns() // 1_000_000,
            node_id=None if loaded is None else loaded.node_id,
            is_broker=loaded is not None and loaded.is_broker,
            endpoints=_endpoints(loaded),
            voter_ids=() if loaded is None else tuple(loaded.voters.ids),
            level=level,
            decode_password=None if broker_config is None else _decoder(broker_config),
            on_progress=advance,
        )
    _show_converted(output, done)
    if done.notes:
        raise typer.Exit(FOUND)


def _decoder(path: Path) -> PasswordDecoder:
    """Return the decoder with the secret in a broker's configuration."""
    from kraft.metadata.properties import parse_properties
    from kraft.zookeeper.passwords import PasswordDecoder

    secret = parse_properties(path.read_text(encoding="latin-1"), path).get(_ENCODER_SECRET)
    if not secret:
        raise typer.BadParameter(f"{path} has no {_ENCODER_SECRET}")
    return PasswordDecoder(secret)


def _endpoints(config: ServerConfig | None) -> tuple[Endpoint, ...]:
    """Return the addresses of a controller whose voters may change; none for a static quorum."""
    return () if config is None or config.voters else controller_endpoints(config)


def _show_converted(output: Output, done: Converted) -> None:
    if output.as_json:
        output.document(
            {
                "path": str(done.path),
                "clusterId": done.cluster_id,
                "nodeId": done.node_id,
                "directoryId": str(done.directory_id),
                "offset": done.offset,
                "epoch": done.epoch,
                "metadataVersion": done.metadata_version.text,
                "kraftVersion": int(done.is_dynamic),
                "brokers": list(done.brokers),
                "records": done.records,
                "notes": list(done.notes),
            }
        )
        return
    voters = "only this node" if done.is_dynamic else "as controller.quorum.voters names them"
    output.fields(
        "Converted",
        [
            ("Path", done.path),
            ("ClusterId", done.cluster_id),
            ("NodeId", done.node_id),
            ("Offset", done.offset),
            ("LeaderEpoch", done.epoch),
            ("MetadataVersion", done.metadata_version.text),
            ("Voters", voters),
            ("BrokersToStart", ", ".join(map(str, done.brokers)) or "none"),
            ("Records", ", ".join(f"{name} {count}" for name, count in done.records.items())),
        ],
    )
    for sentence in done.notes:
        output.note(sentence)
