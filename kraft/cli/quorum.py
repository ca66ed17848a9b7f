"""``kraft quorum``: describe a running quorum and change its voters.

Words and columns are those of Kafka's ``kafka-metadata-quorum``.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.errors import INCONSISTENT_CLUSTER_ID, InvalidConfigError, StorageError

if TYPE_CHECKING:
    from kraft.admin.client import BlockingAdmin
    from kraft.raft.rpc import DescribedReplica, DescribeQuorumResponse
    from kraft.raft.voters import Endpoint, ReplicaKey

app = typer.Typer(
    help="Describe a running quorum and change its voters.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

REPLICATION_COLUMNS = (
    *("NodeId", "DirectoryId", "LogEndOffset", "Lag"),
    *("LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"),
)

_DUPLICATE_VOTER = 126

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print what would change, without changing it.")
]


@app.callback()
def _quorum() -> None:
    """Describe a running quorum and change its voters."""


@app.command(epilog=EPILOG)
@takes_groups
def describe(
    quorum: QuorumOptions,
    status: Annotated[
        bool, typer.Option("--status", help="Print leader, epoch, high watermark, lag and voters.")
    ] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Print log end offset and lag of each replica.")
    ] = False,
    human_readable: Annotated[
        bool,
        typer.Option(
            "--human-readable", help="With --replication: print timestamps as time passed."
        ),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="The pause of --watch, in seconds.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Print the state of the quorum as its leader reports it.

    [bold]Examples[/bold]

      kraft quorum describe --status --bootstrap-controller localhost:9093

      kraft quorum describe --replication --watch --bootstrap-controller localhost:9093
    """
    from kraft.cli.output import Output

    if status == replication:
        raise typer.BadParameter("give either --status or --replication")
    if human_readable and not replication:
        raise typer.BadParameter("--human-readable needs --replication")
    output = Output(as_json=as_json)
    with quorum.open() as admin:
        while True:
            if status:
                cluster_id = admin.describe_cluster().cluster_id
                _show_status(output, cluster_id, admin.describe_metadata_quorum(), watch)
            else:
                now_ms = time.time_ns() // 1_000_000 if human_readable else None
                _show_replication(output, admin.describe_metadata_quorum(), now_ms, watch)
            if not watch:
                return
            time.sleep(interval)


@app.command("add-controller", epilog=EPILOG)
def add_controller(
    config: Annotated[
        Path | None,
        typer.Option(
            *("--config", "-c"),
            metavar="FILE",
            help="The configuration of the controller to add; its directory must be formatted. "
            "Default: --command-config, as in Kafka's tool.",
            show_default=False,
        ),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The settings of this client, as security.protocol. Default: the configuration "
            "of the controller, which may have them too.",
            show_default=False,
        ),
    ] = None,
    bootstrap_controller: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,…",
            help="Controllers to contact first. Default: controller.quorum.bootstrap.servers of "
            "FILE.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Make a controller a voter. It must be running and have caught up with the leader.

    [bold]Examples[/bold]

      kraft quorum add-controller -c controller-4.properties --bootstrap-controller localhost:9093

      kraft quorum add-controller -c controller-4.properties --command-config client.properties
    """
    config = config or command_config
    if config is None:
        raise typer.BadParameter("name the configuration of the controller to add: -c FILE")
    new = controller_of(config)
    controllers = bootstrap_controller or ",".join(new.servers)
    if not controllers:
        raise typer.BadParameter(
            "give --bootstrap-controller: the file has no controller.quorum.bootstrap.servers"
        )
    if not dry_run:
        with QuorumOptions(controllers, command_config or config).open() as admin:
            _add_voter(admin, new, controllers)
    done = "DRY RUN of adding" if dry_run else "Added"
    print(
        f"{done} controller {new.voter.id} with directory id {new.voter.directory_id!s} "
        f"and endpoints: {', '.join(map(_endpoint_text, new.endpoints))}"
    )


def _add_voter(admin: BlockingAdmin, new: NewController, controllers: str) -> None:
    """Add the voter. Where its id is already a voter's, raise with the command that removes the old
    one; where its directory is of another cluster, with both clusters.
    """
    from kraft.network.quorum_client import QuorumRefusedError

    voter = new.voter
    try:
        admin.add_raft_voter(voter, new.endpoints, cluster_id=new.cluster_id)
    except QuorumRefusedError as error:
        if error.kafka_code == INCONSISTENT_CLUSTER_ID:
            cluster_id = admin.describe_cluster().cluster_id
            error.add_note(
                f"{new.directory} belongs to cluster {new.cluster_id}, and {controllers} to "
                f"cluster {cluster_id}: give --bootstrap-controller of the first, or name a "
                f"directory that `kraft storage format --cluster-id {cluster_id}` has formatted"
            )
        if error.kafka_code == _DUPLICATE_VOTER:
            for old in (state.key for state in admin.describe_metadata_quorum().voters):
                if old == voter:
                    error.add_note("the voter has the same directory id: it was added before")
                elif old.id == voter.id:
                    error.add_note(
                        f"the voter has the directory id {old.directory_id!s}, this controller "
                        f"{voter.directory_id!s}. If the old directory is lost, remove it first: "
                        f"kraft quorum remove-controller --controller-id {old.id} "
                        f"--controller-directory-id {old.directory_id!s} "
                        f"--bootstrap-controller {controllers}"
                    )
        raise


@app.command("remove-controller", epilog=EPILOG)
@takes_groups
def remove_controller(
    quorum: QuorumOptions,
    controller_id: Annotated[
        int, typer.Option("--controller-id", "-i", min=0, help="The node id of the voter.")
    ],
    controller_directory_id: Annotated[
        str,
        typer.Option(
            "--controller-directory-id",
            "-d",
            metavar="UUID",
            help="The directory id of the voter, as `describe --status` prints it.",
        ),
    ],
    dry_run: DryRunOption = False,
) -> None:
    """Remove a controller from the voters; it may be down.

    [bold]Examples[/bold]

      kraft quorum remove-controller --controller-id 4 --controller-directory-id
      QxGcFvKcSqS8rXpRkTJEmA --bootstrap-controller localhost:9093
    """
    from kraft.raft.voters import ReplicaKey
    from kraft.records import Uuid

    try:
        directory_id = Uuid.parse(controller_directory_id)
    except ValueError as error:
        raise typer.BadParameter(f"--controller-directory-id: {error}") from error
    voter = ReplicaKey(controller_id, directory_id)
    admin = quorum.open()
    if not dry_run:
        with admin:
            admin.remove_raft_voter(voter)
    print(
        f"{'DRY RUN of removing' if dry_run else 'Removed'} KRaft controller {controller_id} "
        f"with directory id {directory_id!s}"
    )


@app.command("unregister-controller", epilog=EPILOG)
@takes_groups
def unregister_controller(
    quorum: QuorumOptions,
    controller_id: Annotated[
        int, typer.Option("--controller-id", "-i", min=0, help="The node id of the controller.")
    ],
) -> None:
    """Remove the registration of a controller that is gone for good. Needs Kafka 4.4's level.

    A stale registration can block upgrades of metadata.version. Remove the controller from the voters first.

    [bold]Examples[/bold]

      kraft quorum unregister-controller --controller-id 4 --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    with quorum.open() as admin:
        admin.unregister_controller(controller_id)
    print(f"Controller {controller_id} is no longer registered.")


# -- output


def status_fields(cluster_id: str, quorum: DescribeQuorumResponse) -> dict[str, Any]:
    """Return the fields of --status in Kafka's order; voters and observers as objects."""
    leader = _leader(quorum)
    slowest = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    times = (leader.last_caught_up_timestamp_ms, slowest.last_caught_up_timestamp_ms)
    lag_ms = times[0] - times[1] if min(times) >= 0 else -1
    return {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": 0 if slowest is leader else lag_ms,
        "CurrentVoters": [_replica(quorum, state) for state in quorum.voters],
        "CurrentObservers": [_replica(quorum, state) for state in quorum.observers],
    }


def replication_rows(quorum: DescribeQuorumResponse, now_ms: int | None) -> list[list[object]]:
    """Return the rows of --replication: the leader, the followers, the observers.

    With ``now_ms`` timestamps are shown as the time passed since then.
    """
    from kraft.records import ZERO_UUID

    leader = _leader(quorum)
    followers = [voter for voter in quorum.voters if voter is not leader]
    groups = (([leader], "Leader"), (followers, "Follower"), (quorum.observers, "Observer"))

    def shown_time(timestamp_ms: int) -> object:
        if timestamp_ms < 0 or now_ms is None:
            return timestamp_ms
        return f"{max(now_ms - timestamp_ms, 0)} ms ago"

    return [
        [
            state.key.id,
            str(state.key.directory_id or ZERO_UUID),
            state.log_end_offset,
            leader.log_end_offset - state.log_end_offset,
            shown_time(state.last_fetch_timestamp_ms),
            shown_time(state.last_caught_up_timestamp_ms),
            status,
        ]
        for group, status in groups
        for state in group
    ]


def _show_status(
    output: Any, cluster_id: str, quorum: DescribeQuorumResponse, is_watched: bool
) -> None:
    fields = status_fields(cluster_id, quorum)
    if output.as_json:
        output.document(fields)
        return
    _clear(output, is_watched)
    for name, value in fields.items():
        print(f"{name + ':':<24}{json.dumps(value) if isinstance(value, list) else value}")


def _show_replication(
    output: Any, quorum: DescribeQuorumResponse, now_ms: int | None, is_watched: bool
) -> None:
    rows = replication_rows(quorum, now_ms)
    if output.as_json:
        output.document([dict(zip(REPLICATION_COLUMNS, row, strict=True)) for row in rows])
        return
    _clear(output, is_watched)
    output.table("", REPLICATION_COLUMNS, rows)


def _clear(output: Any, is_watched: bool) -> None:
    """Clear a watched terminal; a pipe gets one state after another."""
    if is_watched and output.is_terminal:
        print("\033[H\033[2J", end="")


def _leader(quorum: DescribeQuorumResponse) -> DescribedReplica:
    from kraft.network.quorum_client import QuorumUnreachableError

    for voter in quorum.voters:
        if voter.key.id == quorum.leader_id:
            return voter
    # A leader whose removal is not yet committed still leads.
    raise QuorumUnreachableError(
        f"the leader, {quorum.leader_id}, is not a voter any more: retry after the next election"
    )


def _replica(quorum: DescribeQuorumResponse, state: DescribedReplica) -> dict[str, Any]:
    made: dict[str, Any] = {"id": state.key.id}
    if state.key.directory_id is not None:
        made["directoryId"] = str(state.key.directory_id)
    if quorum.nodes.get(state.key.id):
        made["endpoints"] = [_endpoint_text(at) for at in quorum.nodes[state.key.id]]
    return made


def _endpoint_text(endpoint: Endpoint) -> str:
    return f"{endpoint.name}://{_address_text(endpoint.host, endpoint.port)}"


def _address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# -- arguments and configuration


class NewController(NamedTuple):
    """The voter of a configuration, its directory, and the addresses of its quorum."""

    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    servers: list[str]
    directory: str
    cluster_id: str


def controller_of(path: Path) -> NewController:
    from kraft.raft.voters import ReplicaKey
    from kraft.server.config.loading import ServerConfig
    from kraft.server.storage.meta_properties import LogDirectories

    config = ServerConfig.load(path)
    if not config.is_controller:
        raise InvalidConfigError(f"{path}: process.roles has no controller")
    directory = config.metadata_log_dir
    loaded = LogDirectories.load_all([directory])
    if directory in loaded.failed:
        raise StorageError(loaded.failed[directory])
    found = loaded.formatted.get(directory)
    if found is None or found.directory_id is None or found.cluster_id is None:
        what = "is not formatted" if found is None else "has no directory.id or cluster.id"
        raise StorageError(f"{directory} {what}: only a formatted controller can be added")
    loaded.check(node_id=config.node_id)
    raft = config.raft(found.directory_id, found.cluster_id)
    servers = [_address_text(at.host, at.port) for at in config.bootstrap_servers]
    voter = ReplicaKey(config.node_id, found.directory_id)
    return NewController(voter, raft.endpoints, servers, directory, found.cluster_id)
