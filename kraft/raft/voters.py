"""Voters: replica keys, endpoints, voter sets and their control record.

A voter is a node id together with the directory of its log (KIP-853). Static voters (kraft.version
0) have no directory id and match any. Sources: Kafka's ``VoterSet``, ``ReplicaKey``, ``Endpoints``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraft.errors import InvalidConfigError
from kraft.records import ZERO_UUID, Uuid, control


class ReplicaKey(NamedTuple):
    """A replica of the metadata log; ``directory_id`` is None if it is unknown."""

    id: int
    directory_id: Uuid | None = None

    def __repr__(self) -> str:
        return str(self.id) if self.directory_id is None else f"{self.id}/{self.directory_id!s}"


def place_in(candidates: tuple[ReplicaKey, ...], key: ReplicaKey) -> int:
    """Return the place of a voter among preferred candidates; their number if it has none."""
    for place, candidate in enumerate(candidates):
        if candidate.id == key.id and (
            None in (candidate.directory_id, key.directory_id)
            or candidate.directory_id == key.directory_id
        ):
            return place
    return len(candidates)


class Endpoint(NamedTuple):
    """An address of a node; ``name`` is the name of its listener."""

    name: str
    host: str
    port: int

    def __repr__(self) -> str:
        return f"{self.name}://{self.host}:{self.port}"


class KRaftVersionRange(NamedTuple):
    """The levels of kraft.version that a node supports, both bounds included."""

    min: int = 0
    max: int = 0

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min <= level <= self.max


class VoterNode(NamedTuple):
    """A voter with its endpoints; the first one is of the default listener."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_versions: KRaftVersionRange = KRaftVersionRange()

    @property
    def id(self) -> int:
        return self.key.id

    def is_equivalent(self, other: VoterNode) -> bool:
        """Return whether key, versions and endpoints are equal; endpoints have no order."""
        return (
            self.key == other.key
            and self.kraft_versions == other.kraft_versions
            and set(self.endpoints) == set(other.endpoints)
        )

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None


class VoterSet:
    """The voters of a quorum by id; immutable."""

    __slots__ = ("_voters", "ids")

    def __init__(self, voters: Iterable[VoterNode] = ()) -> None:
        self._voters = {voter.key.id: voter for voter in voters}
        self.ids = frozenset(self._voters)

    @classmethod
    def parse(cls, setting: str, listener: str) -> VoterSet:
        """Parse the static voters of ``controller.quorum.voters``: ``id@host:port,…``.

        Raises InvalidConfigError if the setting is malformed or names an id twice.
        """
        voters = []
        for part in filter(None, (part.strip() for part in setting.split(","))):
            id_text, at, address = part.partition("@")
            host, colon, port = address.rpartition(":")
            if not (at and colon and id_text.isdigit() and port.isdigit() and int(port) < 65536):
                raise InvalidConfigError(
                    f"controller.quorum.voters: {part!r} is not of the form id@host:port"
                )
            endpoint = Endpoint(listener, host.removeprefix("[").removesuffix("]"), int(port))
            voters.append(VoterNode(ReplicaKey(int(id_text)), (endpoint,)))
        if len({voter.id for voter in voters}) != len(voters):
            raise InvalidConfigError(f"controller.quorum.voters names an id twice: {setting}")
        return cls(voters)

    def __len__(self) -> int:
        return len(self._voters)

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self._voters.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(self.ids)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(repr(voter.key) for voter in self)})"

    def get(self, id: int) -> VoterNode | None:
        return self._voters.get(id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Return whether a voter has this id, and this directory id unless it has none."""
        voter = self._voters.get(key.id)
        return voter is not None and (
            voter.key.directory_id is None or voter.key.directory_id == key.directory_id
        )

    @property
    def majority(self) -> int:
        return len(self._voters) // 2 + 1

    def with_voter(self, voter: VoterNode) -> VoterSet:
        """Return the set with ``voter`` added, or in place of the voter with its id."""
        return VoterSet({**self._voters, voter.id: voter}.values())

    def without(self, id: int) -> VoterSet:
        return VoterSet(voter for voter in self if voter.id != id)

    def has_overlapping_majority(self, other: VoterSet) -> bool:
        """Return whether the sets differ by one voter at most, so that their majorities overlap."""
        mine = {voter.key for voter in self}
        theirs = {voter.key for voter in other}
        return len(mine - theirs) <= 1 and len(theirs - mine) <= 1

    def to_record(self) -> control.KRaftVoters:
        """Return the KRaftVoters control record, with voters by id."""
        return control.KRaftVoters(
            voters=[
                control.KRaftVoter(
                    voter_id=voter.id,
                    voter_directory_id=voter.key.directory_id or ZERO_UUID,
                    endpoints=[
                        control.VoterEndpoint(name=name, host=host, port=port)
                        for name, host, port in voter.endpoints
                    ],
                    kraft_version_feature=control.KRaftVersionFeature(
                        min_supported_version=voter.kraft_versions.min,
                        max_supported_version=voter.kraft_versions.max,
                    ),
                )
                for voter in sorted(self, key=lambda voter: voter.id)
            ]
        )

    @classmethod
    def from_record(cls, record: control.KRaftVoters) -> VoterSet:
        return cls(
            VoterNode(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple(Endpoint(at.name, at.host, at.port) for at in voter.endpoints),
                KRaftVersionRange(
                    voter.kraft_version_feature.min_supported_version,
                    voter.kraft_version_feature.max_supported_version,
                ),
            )
            for voter in record.voters
        )
