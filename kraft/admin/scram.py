"""Describe and alter the SCRAM credentials of users (KIP-554).

The client salts a password itself (`scram_upsertion`), so that no password is sent.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from enum import IntEnum

from kraft.admin.calls import ControllerCalls
from kraft.admin.results import ItemResults, in_order, result_of
from kraft.controller.security.scram import ScramDeletion, ScramDescription, ScramUpsertion
from kraft.errors import NONE, RESOURCE_NOT_FOUND, InvalidArgumentError
from kraft.image.security import SCRAM_SHA_256, SCRAM_SHA_512
from kraft.metadata.quorum_reader import read_metadata
from kraft.protocol.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequestData,
    AlterUserScramCredentialsResponseData,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kraft.security.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS_BY_NUMBER,
)

#: The iterations of Kafka's tools.
DEFAULT_ITERATIONS = 4096
_SALT_BYTES = 24


class ScramMechanismType(IntEnum):
    """A SCRAM mechanism by its number in records and requests (``ScramMechanism``)."""

    SCRAM_SHA_256 = SCRAM_SHA_256
    SCRAM_SHA_512 = SCRAM_SHA_512


def scram_upsertion(
    user: str,
    mechanism: ScramMechanismType,
    password: str,
    iterations: int = DEFAULT_ITERATIONS,
    salt: bytes | None = None,
) -> ScramUpsertion:
    """Return the change that sets a user's password; the default ``salt`` is random.

    Takes milliseconds: PBKDF2 with ``iterations`` (4096 to 16384). Raises InvalidArgumentError.
    Source: ``UserScramCredentialUpsertion``.
    """
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise InvalidArgumentError(
            f"iterations is {iterations}; expected {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    if not user or not password:
        raise InvalidArgumentError("a SCRAM credential needs a user and a password, neither empty")
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    hash_name = SCRAM_MECHANISMS_BY_NUMBER[mechanism].hash_name
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    return ScramUpsertion(user, mechanism, iterations, salt, salted)


def describe_user_scram_credentials(
    calls: ControllerCalls, users: Iterable[str] | None = None
) -> ItemResults[str, ScramDescription]:
    """Return the mechanisms and iterations of users, by default of all that have a credential.

    A controller has no API for it (a broker has, DescribeUserScramCredentials): the client reads
    the metadata from the active controller. Where an authorizer is configured, this needs
    CLUSTER_ACTION on the cluster. Items fail with RESOURCE_NOT_FOUND. Raises QuorumRefusedError,
    QuorumUnreachableError. Source: ``ScramImage.describe``.
    """
    found: dict[str, dict[int, int]] = {}
    for (mechanism, user), credential in read_metadata(calls.client).scram_credentials.items():
        found.setdefault(user, {})[mechanism] = credential.iterations
    results = {}
    for user in sorted(found) if users is None else dict.fromkeys(users):
        error = NONE if user in found else RESOURCE_NOT_FOUND
        description = ScramDescription(found.get(user, {}))
        message = "the user has no SCRAM credential"
        results[user] = result_of(
            error, message, f"describing the SCRAM credentials of user {user!r}", description
        )
    return ItemResults(results)


def alter_user_scram_credentials(
    calls: ControllerCalls, changes: Iterable[ScramDeletion | ScramUpsertion]
) -> ItemResults[str, None]:
    """Set and delete credentials; return the outcome of each user.

    Items fail with RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE, UNACCEPTABLE_CREDENTIAL. Raises
    QuorumUnreachableError. Source: ``KafkaAdminClient.alterUserScramCredentials``.
    """
    given = list(changes)
    request = AlterUserScramCredentialsRequestData(
        [
            ScramCredentialDeletion(each.user, each.mechanism)
            for each in given
            if isinstance(each, ScramDeletion)
        ],
        [
            ScramCredentialUpsertion(
                each.user, each.mechanism, each.iterations, each.salt, each.salted_password
            )
            for each in given
            if isinstance(each, ScramUpsertion)
        ],
    )
    response, is_repeated = calls.call(
        ALTER_USER_SCRAM_CREDENTIALS,
        request,
        AlterUserScramCredentialsResponseData,
        lambda response: [each.error_code for each in response.results],
    )
    results = {
        each.user: result_of(
            each.error_code, each.error_message, _altering(each.user), None, is_repeated
        )
        for each in response.results
    }
    return in_order(dict.fromkeys(each.user for each in given), results, _altering)


def _altering(user: str) -> str:
    return f"altering the SCRAM credentials of user {user!r}"
