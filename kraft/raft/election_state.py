"""Election state: the epoch, leader and vote that a node keeps in the ``quorum-state`` file.

    data_version 0 (kraft.version 0)
    {"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,
     "currentVoters":[{"voterId":1}],"data_version":0}
    data_version 1
    {"leaderId":1,"leaderEpoch":2,"votedId":3,"votedDirectoryId":"<base64 uuid>","data_version":1}

-1 and the zero uuid mean none. Leader and vote may both be set: a vote outlasts every other change
in its epoch. Sources: Kafka's ``ElectionState``, ``FileQuorumStateStore``,
``QuorumStateData.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike
from typing import NamedTuple

from kraft.errors import CorruptRecordError, UnsupportedVersionError
from kraft.raft.voters import ReplicaKey
from kraft.records import ZERO_UUID, Uuid

FILE_NAME = "quorum-state"
NO_LEADER = -1


class ElectionState(NamedTuple):
    """An epoch, its leader (-1: unknown) and the candidate that this node voted for in it."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None

    def to_bytes(self, kraft_version: int, voter_ids: Iterable[int] = ()) -> bytes:
        """Return the file's content; ``voter_ids`` is used for kraft.version 0 only."""
        voted_id = -1 if self.voted is None else self.voted.id
        content: dict[str, object]
        if kraft_version == 0:
            content = {
                "clusterId": "",
                "leaderId": self.leader_id,
                "leaderEpoch": self.epoch,
                "votedId": voted_id,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": id} for id in sorted(voter_ids)],
                "data_version": 0,
            }
        else:
            directory_id = self.voted.directory_id if self.voted is not None else None
            content = {
                "leaderId": self.leader_id,
                "leaderEpoch": self.epoch,
                "votedId": voted_id,
                "votedDirectoryId": str(directory_id or ZERO_UUID),
                "data_version": 1,
            }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(
        cls, content: bytes, *, path: str | PathLike[str] | None = None
    ) -> ElectionState:
        """Parse the file's content.

        Raises CorruptRecordError if it is malformed, UnsupportedVersionError if another version of
        kraft or Kafka wrote a format that this one does not know.
        """
        try:
            fields = json.loads(content)
            version = _integer(fields, "data_version")
            if version not in (0, 1):
                raise UnsupportedVersionError(
                    f"quorum-state has data_version {version}, supported are 0 and 1 (file {path})"
                )
            epoch, leader_id = _integer(fields, "leaderEpoch"), _integer(fields, "leaderId")
            voted_id = _integer(fields, "votedId")
            if not 0 <= epoch < 1 << 31:
                raise ValueError(f"leaderEpoch is {epoch}, not 0 to {(1 << 31) - 1}")
            if not (-1 <= leader_id < 1 << 31 and -1 <= voted_id < 1 << 31):
                raise ValueError(
                    f"leaderId is {leader_id} and votedId {voted_id}, not -1 to {(1 << 31) - 1}"
                )
            directory_id = None
            if version == 1:
                text = fields.get("votedDirectoryId")
                if not isinstance(text, str):
                    raise ValueError(f"votedDirectoryId is {text!r}, not a string")
                directory_id = Uuid.parse(text)
                directory_id = None if directory_id == ZERO_UUID else directory_id
            if voted_id == -1 and directory_id is not None:
                raise ValueError(f"votedDirectoryId is {text!r}, but there is no votedId")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptRecordError(f"malformed quorum-state: {error}", path=path) from error
        voted = ReplicaKey(voted_id, directory_id) if voted_id >= 0 else None
        return cls(epoch, leader_id, voted)


def _integer(fields: dict[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not an integer")
    return value
