"""AlterUserScramCredentials and DescribeUserScramCredentials.

Checks changes of credentials, and derives the keys that are stored instead of the salted password
(RFC 5802, section 3): StoredKey, which verifies the client, and ServerKey, which proves the server.
Each user of a request has one change and one result.

Invariant: no repr, error or log contains a salt, key or salted password. Sources: Kafka's
``ScramControlManager``, ``ScramImage.describe`` (4.3.1); KIP-554, KIP-900.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from kraft import records
from kraft.controller.arguments import MAX_INT32, is_integer, is_text
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    NO_RECORDS,
    ChunkedDecision,
    Decision,
    Records,
    in_chunks,
)
from kraft.controller.state import ClusterMetadata, ReadableMetadata
from kraft.errors import (
    DuplicateResourceError,
    KraftError,
    PolicyViolationError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from kraft.records import Record
from kraft.records.versions import MetadataVersion
from kraft.security.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS_BY_NUMBER,
    scram_keys,
)

# Changes that one chunk of a transaction checks or writes; deriving keys takes time.
_CHANGES_PER_CHUNK = 400


class ScramDeletion(NamedTuple):
    """Delete the credential of ``user`` for ``mechanism`` (its number in records)."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """Set the credential of ``user`` for ``mechanism``, whether one exists or not.

    ``salted_password`` is PBKDF2 of the password with ``salt`` and ``iterations``; the client never
    sends the password.
    """

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


class ScramDescription(NamedTuple):
    """A user's credentials: iterations by mechanism."""

    iterations: dict[int, int]


def alter_user_scram_credentials(
    cluster: ClusterMetadata,
    *,
    deletions: Sequence[ScramDeletion] = (),
    upsertions: Sequence[ScramUpsertion] = (),
    at_once: int = MAX_RECORDS_PER_BATCH,
) -> ChunkedDecision[dict[str, KraftError | None]]:
    """Delete and set credentials; the response maps each user to an error or None.

    A user who is named twice, for any mechanisms, is not changed (DuplicateResourceError). The
    records of more than ``at_once`` changes are written in chunks. Raises PolicyViolationError for
    more than 10,000 records at once.
    """
    is_large = len(deletions) + len(upsertions) > at_once
    if is_large:
        yield NO_RECORDS
    level = cluster.state.metadata_version
    changes = _Changes(cluster)
    asked: Iterator[ScramDeletion | ScramUpsertion] = chain(deletions, upsertions)
    for number, change in enumerate(asked, 1):
        changes.add(change)
        if number % _CHANGES_PER_CHUNK == 0:
            yield NO_RECORDS
    written = map(_record, changes.accepted.values())
    if is_large:
        last = yield from in_chunks(written, _CHANGES_PER_CHUNK, level)
    elif len(changes.accepted) > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"a request alters the credentials of at most {MAX_RECORDS_PER_BATCH} users"
        )
    else:
        last = Records.of(written, level)
    return Decision(last, changes.response, is_atomic=True)


def describe_user_scram_credentials(
    cluster: ReadableMetadata, users: Sequence[str] = ()
) -> dict[str, ScramDescription | KraftError]:
    """Describe the credentials of these users, or of all if none is named; without secrets.

    ResourceNotFoundError for a user without credentials, DuplicateResourceError for a user who is
    named twice.
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
            for mechanism in SCRAM_MECHANISMS_BY_NUMBER
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


class _Changes:
    """The accepted changes of a request, one per user, and the result of each user."""

    def __init__(self, cluster: ClusterMetadata) -> None:
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
                "A user credential cannot be altered twice in the same request"
            )
        elif not self._is_supported:
            refusal = UnsupportedVersionError("The current metadata.version does not support SCRAM")
        else:
            refusal = _refusal(self._cluster, change)
        self.response[user] = refusal
        if refusal is None:
            self.accepted[user] = change


def _refusal(cluster: ClusterMetadata, change: ScramDeletion | ScramUpsertion) -> KraftError | None:
    """Return the error of an invalid change, or None; the messages are Kafka's, without secrets."""
    user, mechanism = change.user, change.mechanism
    if not user or not is_text(user):
        return UnacceptableCredentialError("Username must not be empty")
    if not is_integer(mechanism, min(SCRAM_MECHANISMS_BY_NUMBER), max(SCRAM_MECHANISMS_BY_NUMBER)):
        return UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
    if isinstance(change, ScramDeletion):
        if (mechanism, user) not in cluster.state.scram_credentials:
            return ResourceNotFoundError("Attempt to delete a user credential that does not exist")
        return None
    if not is_integer(change.iterations, -1 - MAX_INT32, MAX_INT32):
        return UnacceptableCredentialError(f"{change.iterations!r:.80} is no number of iterations")
    if change.iterations < MIN_ITERATIONS:
        return UnacceptableCredentialError("Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        return UnacceptableCredentialError("Too many iterations")
    if not isinstance(change.salt, bytes) or not isinstance(change.salted_password, bytes):
        return UnacceptableCredentialError(f"salt and salted password of {user!r:.80} are bytes")
    if not change.salted_password:
        return UnacceptableCredentialError(f"the salted password of {user!r:.80} is empty")
    return None


def _record(change: ScramDeletion | ScramUpsertion) -> Record:
    if isinstance(change, ScramDeletion):
        return records.RemoveUserScramCredential(name=change.user, mechanism=change.mechanism)
    mechanism = SCRAM_MECHANISMS_BY_NUMBER[change.mechanism]
    stored_key, server_key = scram_keys(mechanism, change.salted_password)
    return records.UserScramCredential(
        name=change.user,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=change.iterations,
    )
