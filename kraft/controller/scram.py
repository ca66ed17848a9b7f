"""SCRAM credentials: set, deleted, described.

Owns which changes of credentials are accepted, and the keys that are kept instead of the salted
password (RFC 5802, section 3): what a client proves itself with (StoredKey) and what the server
proves itself with (ServerKey). Every user of a request has one change and one answer.

Invariant: no salt, key or salted password is in a repr, an error or a log. Sources: Kafka's
``ScramControlManager``, ``ScramImage.describe`` (4.3.1); KIP-554, KIP-900.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from kraft import records
from kraft.controller.arguments import is_integer, is_text
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, NO_RECORDS, Decision, Records
from kraft.controller.state import Cluster
from kraft.errors import (
    DuplicateResourceError,
    KraftError,
    PolicyViolationError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from kraft.image.security import SCRAM_SHA_256, SCRAM_SHA_512
from kraft.records import Record
from kraft.records.versions import MetadataVersion

#: The same for both mechanisms.
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384

# How many changes are looked at, or written, in one piece of a transaction; keys take their time.
_CHANGES_OF_PIECE = 400

_HASH_NAMES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}


class ScramDeletion(NamedTuple):
    """The credential of ``user`` for ``mechanism`` (its number in records) is to go."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """The credential of ``user`` for ``mechanism`` is to be this one, whether there is one or not.

    ``salted_password`` is PBKDF2 of the password with ``salt`` and ``iterations``: the password
    itself never gets here.
    """

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


class ScramDescription(NamedTuple):
    """A user's credentials: the iterations by mechanism."""

    iterations: dict[int, int]


def alter_scram_credentials(
    cluster: Cluster,
    *,
    deletions: Sequence[ScramDeletion] = (),
    upsertions: Sequence[ScramUpsertion] = (),
) -> Decision[dict[str, KraftError | None]]:
    """Deletes and sets credentials; the response says for each user why not.

    A user who is named twice, for whatever mechanisms, is changed not at all
    (DuplicateResourceError). Raises PolicyViolationError for more than 10,000 records.
    """
    changes = _Changes(cluster)
    for change in _in_order(deletions, upsertions):
        changes.add(change)
    if len(changes.accepted) > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"a request alters the credentials of at most {MAX_RECORDS_PER_BATCH} users"
        )
    written = map(_record, changes.accepted.values())
    level = cluster.state.metadata_version
    return Decision(Records.of(written, level), changes.response, is_atomic=True)


def alter_scram_credentials_in_pieces(
    cluster: Cluster,
    *,
    deletions: Sequence[ScramDeletion] = (),
    upsertions: Sequence[ScramUpsertion] = (),
) -> Generator[Records, None, dict[str, KraftError | None]]:
    """As above, without a limit: for one metadata transaction (KIP-868).

    Gives a few records at a time and returns the response. Until every change has been looked at,
    what it gives is empty.
    """
    changes = _Changes(cluster)
    for number, change in enumerate(_in_order(deletions, upsertions), 1):
        changes.add(change)
        if number % _CHANGES_OF_PIECE == 0:
            yield NO_RECORDS
    accepted = iter(changes.accepted.values())
    while piece := list(islice(accepted, _CHANGES_OF_PIECE)):
        yield Records.of(map(_record, piece), cluster.state.metadata_version)
    return changes.response


def describe_scram_credentials(
    cluster: Cluster, users: Sequence[str] = ()
) -> dict[str, ScramDescription | KraftError]:
    """The credentials of these users, of all who have any where none is named; nothing secret.

    ResourceNotFoundError for who has none, DuplicateResourceError for who is named twice.
    """
    credentials = cluster.state.scram_credentials
    if not users:
        found: dict[str, ScramDescription | KraftError] = {}
        for (mechanism, user), credential in sorted(credentials.items(), key=lambda item: item[0]):
            described = found.setdefault(user, ScramDescription({}))
            assert isinstance(described, ScramDescription)
            described.iterations[mechanism] = credential.iterations
        return found
    answers: dict[str, ScramDescription | KraftError] = {}
    for user in users:
        iterations = {
            mechanism: credentials[mechanism, user].iterations
            for mechanism in _HASH_NAMES
            if (mechanism, user) in credentials
        }
        if user in answers:
            answers[user] = DuplicateResourceError(
                f"the credentials of {user!r:.80} are described twice in one request"
            )
        elif not iterations:
            answers[user] = ResourceNotFoundError(f"{user!r:.80} has no SCRAM credentials")
        else:
            answers[user] = ScramDescription(iterations)
    return answers


def _in_order(
    deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
) -> Iterator[ScramDeletion | ScramUpsertion]:
    yield from deletions
    yield from upsertions


class _Changes:
    """The changes of a request that are accepted, one a user, and what each user is answered."""

    def __init__(self, cluster: Cluster) -> None:
        level = MetadataVersion.from_level(cluster.state.metadata_version)
        self.accepted: dict[str, ScramDeletion | ScramUpsertion] = {}
        self.response: dict[str, KraftError | None] = {}
        self._cluster = cluster
        self._is_supported = level.is_scram_supported

    def add(self, change: ScramDeletion | ScramUpsertion) -> None:
        user = change.user
        if self.response.get(user) is not None:
            return
        refusal: KraftError | None
        if self.accepted.pop(user, None) is not None:
            refusal = DuplicateResourceError(
                f"the credentials of {user!r:.80} are altered twice in one request"
            )
        elif not self._is_supported:
            refusal = UnsupportedVersionError(
                f"SCRAM credentials need metadata.version {MetadataVersion.IBP_3_5_IV2.text} or "
                "later"
            )
        else:
            refusal = _refusal(self._cluster, change)
        self.response[user] = refusal
        if refusal is None:
            self.accepted[user] = change


def _refusal(cluster: Cluster, change: ScramDeletion | ScramUpsertion) -> KraftError | None:
    """Why a change cannot be made; the message has nothing in it but the user's name."""
    user, mechanism = change.user, change.mechanism
    if not user or not is_text(user):
        return UnacceptableCredentialError("a credential needs the name of a user")
    if not is_integer(mechanism, min(_HASH_NAMES), max(_HASH_NAMES)):
        return UnsupportedSaslMechanismError(f"{mechanism!r:.80} is no number of a SCRAM mechanism")
    if isinstance(change, ScramDeletion):
        if (mechanism, user) not in cluster.state.scram_credentials:
            return ResourceNotFoundError(
                f"{user!r:.80} has no credential for SCRAM mechanism {mechanism}"
            )
        return None
    if not is_integer(change.iterations, MIN_ITERATIONS, MAX_ITERATIONS):
        return UnacceptableCredentialError(
            f"{change.iterations!r:.80} iterations for {user!r:.80}: allowed are "
            f"{MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    if not isinstance(change.salt, bytes) or not isinstance(change.salted_password, bytes):
        return UnacceptableCredentialError(f"salt and salted password of {user!r:.80} are bytes")
    if not change.salted_password:
        return UnacceptableCredentialError(f"the salted password of {user!r:.80} is empty")
    return None


def _record(change: ScramDeletion | ScramUpsertion) -> Record:
    if isinstance(change, ScramDeletion):
        return records.RemoveUserScramCredential(name=change.user, mechanism=change.mechanism)
    stored_key, server_key = scram_keys(change.mechanism, change.salted_password)
    return records.UserScramCredential(
        name=change.user,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=change.iterations,
    )


def scram_keys(mechanism: int, salted_password: bytes) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of a salted password, for a mechanism that there is."""
    hash_name = _HASH_NAMES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return stored_key, hmac.digest(salted_password, b"Server Key", hash_name)
