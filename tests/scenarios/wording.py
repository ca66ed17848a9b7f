"""Trace lines of scenarios: one line per event, without brackets."""

from __future__ import annotations

from kraft import errors
from kraft._core.bytes.batch_records import iterate
from kraft.raft.interface import (
    AppendBatches,
    DropSnapshotDownload,
    InstallSnapshot,
    RoleChange,
    StoreSnapshotChunk,
    TruncateLog,
    Write,
    WriteElectionState,
)
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogSlice,
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    Request,
    Response,
    SnapshotSlice,
    UpdateKRaftVersionRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.voters import VoterSet
from kraft.records import control
from tests.scenarios.disk import split_batches

ERRORS = {
    value: name for name, value in vars(errors).items() if name.isupper() and type(value) is int
}


def ids(voters: VoterSet) -> str:
    return ",".join(map(str, sorted(voters.ids))) or "none"


def some(id: int) -> str:
    return "none" if id < 0 else str(id)


def snapshot(id: OffsetAndEpoch) -> str:
    return f"{id.offset}-{id.epoch}"


def role(change: RoleChange) -> str:
    leader = f" of {change.leader_id}" if change.role.name == "FOLLOWER" else ""
    active = " active" if change.is_active else ""
    return f"is {change.role.name.capitalize()}{leader} epoch {change.epoch}{active}"


def request(what: Request) -> str:
    name = type(what).__name__.removesuffix("Request")
    match what:
        case VoteRequest():
            pre = " pre" if what.is_pre_vote else ""
            return f"{name}{pre} epoch {what.epoch} log {what.last_offset}/{what.last_epoch}"
        case BeginQuorumEpochRequest():
            return f"{name} epoch {what.epoch}"
        case EndQuorumEpochRequest():
            successors = ",".join(str(key.id) for key in what.preferred_candidates)
            return f"{name} epoch {what.epoch} successors {successors or 'none'}"
        case FetchRequest():
            at = f"{what.offset}/{what.last_fetched_epoch}"
            return f"{name} epoch {what.epoch} from {at} hw {some(what.high_watermark)}"
        case FetchSnapshotRequest():
            return f"{name} {snapshot(what.snapshot_id)} from {what.position}"
        case AddRaftVoterRequest() | RemoveRaftVoterRequest():
            return f"{name} {what.voter.id}"
        case UpdateRaftVoterRequest():
            low, high = what.kraft_versions
            return f"{name} {what.voter.id} versions {low}-{high}"
        case UpdateKRaftVersionRequest():
            return f"{name} {what.level}"
        case ApiVersionsRequest() | DescribeQuorumRequest():
            return name
    raise AssertionError(what)


def response(what: Response) -> str:
    name = type(what).__name__.removesuffix("Response")
    leader = ""
    if hasattr(what, "leader_id"):
        leader = f" epoch {what.epoch} leader {some(what.leader_id)}"
    if what.error:
        return f"{name} {ERRORS[what.error]}{leader}"
    match what:
        case VoteResponse():
            return f"{name} {'granted' if what.is_granted else 'refused'}{leader}"
        case FetchResponse():
            if what.diverging_epoch is not None:
                epoch, end = what.diverging_epoch
                return f"{name} diverging epoch {epoch} ends {end}"
            if what.snapshot_id is not None:
                return f"{name} snapshot {snapshot(what.snapshot_id)}"
            assert not isinstance(what.records, LogSlice)
            batches = split_batches(bytes(what.records))
            span = "nothing"
            if batches:
                span = f"{batches[0].base_offset}..{batches[-1].end_offset}"
            return f"{name} {span} hw {some(what.high_watermark)}"
        case FetchSnapshotResponse():
            assert what.snapshot_id is not None
            assert not isinstance(what.data, SnapshotSlice)
            end = what.position + len(what.data)
            return f"{name} {snapshot(what.snapshot_id)} {what.position}..{end} of {what.size}"
        case DescribeQuorumResponse():
            states = [
                f"{kind} {' '.join(f'{s.key.id}@{some(s.log_end_offset)}' for s in of) or 'none'}"
                for kind, of in (("voters", what.voters), ("observers", what.observers))
            ]
            return f"{name} hw {some(what.high_watermark)} {' '.join(states)}"
    return f"{name} NONE{leader}"


def write(what: Write) -> str:
    match what:
        case WriteElectionState():
            return (
                f"writes quorum-state epoch {what.epoch} leader {some(what.leader_id)} "
                f"voted {some(what.voted_id)}"
            )
        case AppendBatches():
            records = " ".join(records_of(bytes(what.batches)))
            return f"writes {what.base_offset}..{what.end_offset} {records}"
        case TruncateLog():
            return f"cuts its log at {what.end_offset}"
        case StoreSnapshotChunk():
            end = what.position + len(what.data)
            return f"stores {snapshot(what.snapshot_id)} {what.position}..{end}"
        case InstallSnapshot():
            return f"installs {snapshot(what.snapshot_id)}"
        case DropSnapshotDownload():
            return f"drops {snapshot(what.snapshot_id)}"
    raise AssertionError(what)


def records_of(batches: bytes) -> list[str]:
    """Format records with bars between batches: values as text, control records by name."""
    words = []
    for batch in iterate(batches):
        words.append("|")
        for record in batch:
            value = bytes(record.value or b"")
            if record.control_type is None or record.control_type < 0:
                words.append(value.decode())
                continue
            decoded = control.decode_control(record.control_type, value)
            if isinstance(decoded, control.KRaftVoters):
                words.append(f"voters={ids(VoterSet.from_record(decoded))}")
            elif isinstance(decoded, control.KRaftVersion):
                words.append(f"kraft.version={decoded.kraft_version}")
            else:
                words.append(type(decoded).__name__)
    return words[1:]
