"""SCRAM credentials: valid and invalid changes, and the keys derived from a password."""

from __future__ import annotations

import base64
import hashlib

import pytest

from kraft import records
from kraft.controller.security.scram import (
    ScramDeletion,
    ScramDescription,
    ScramUpsertion,
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
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
from tests.harness.decisions import Lab, whole

SALT = b"salt-that-nobody-shows"
SALTED = b"salted-password-that-nobody-shows"


def upsertion(
    user: str = "alice",
    mechanism: int = SCRAM_SHA_256,
    iterations: int = 4096,
    salted_password: bytes = SALTED,
) -> ScramUpsertion:
    return ScramUpsertion(user, mechanism, iterations, SALT, salted_password)


def upserted(*upsertions: ScramUpsertion) -> Lab:
    lab = Lab(brokers=0)
    answer = lab.do(alter_user_scram_credentials(lab.cluster, upsertions=upsertions))
    assert set(answer.values()) == {None}
    return lab


def refusal(lab: Lab, change: ScramUpsertion | ScramDeletion) -> KraftError | None:
    if isinstance(change, ScramUpsertion):
        decision = whole(alter_user_scram_credentials(lab.cluster, upsertions=[change]))
    else:
        decision = whole(alter_user_scram_credentials(lab.cluster, deletions=[change]))
    assert len(decision.records) == (decision.response[change.user] is None)
    return decision.response[change.user]


def test_the_keys_are_those_of_the_example_in_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    lab = upserted(ScramUpsertion("user", SCRAM_SHA_256, 4096, salt, salted))
    credential = lab.cluster.state.scram_credentials[SCRAM_SHA_256, "user"]
    # RFC 7677: StoredKey is the hash of the ClientKey that the example's proof reveals.
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        f"c=biws,r={nonce}"
    ).encode()
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = _hmac(credential.stored_key, message)
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key
    server = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert _hmac(credential.server_key, message) == server


def _hmac(key: bytes, message: bytes) -> bytes:
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in key.ljust(64, b"\0")) + message).digest()
    return hashlib.sha256(bytes(b ^ 0x5C for b in key.ljust(64, b"\0")) + inner).digest()


def test_a_credential_is_set_replaced_described_and_deleted() -> None:
    lab = upserted(upsertion(), upsertion("bob", SCRAM_SHA_512, 16384))
    assert len(lab.cluster.state.scram_credentials[SCRAM_SHA_512, "bob"].stored_key) == 64
    assert refusal(lab, upsertion(iterations=8192)) is None
    lab.do(alter_user_scram_credentials(lab.cluster, upsertions=[upsertion(iterations=8192)]))
    lab.do(alter_user_scram_credentials(lab.cluster, upsertions=[upsertion(mechanism=2)]))
    alice = ScramDescription({SCRAM_SHA_256: 8192, SCRAM_SHA_512: 4096})
    bob = ScramDescription({SCRAM_SHA_512: 16384})
    assert describe_user_scram_credentials(lab.cluster) == {"alice": alice, "bob": bob}
    deletion = whole(
        alter_user_scram_credentials(lab.cluster, deletions=[ScramDeletion("alice", 1)])
    )
    assert list(deletion.records) == [records.RemoveUserScramCredential("alice", 1)]
    assert deletion.is_atomic
    lab.do(deletion)
    alice = ScramDescription({SCRAM_SHA_512: 4096})
    assert describe_user_scram_credentials(lab.cluster, ["alice"]) == {"alice": alice}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (upsertion(user=""), UnacceptableCredentialError, "Username must not be empty"),
        (upsertion(mechanism=0), UnsupportedSaslMechanismError, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=3), UnsupportedSaslMechanismError, "Unknown SCRAM mechanism"),
        (upsertion(iterations=4095), UnacceptableCredentialError, "Too few iterations"),
        (upsertion(iterations=16385), UnacceptableCredentialError, "Too many iterations"),
        (
            upsertion(salted_password=b""),
            UnacceptableCredentialError,
            "the salted password of 'alice' is empty",
        ),
        (
            ScramDeletion("", SCRAM_SHA_256),
            UnacceptableCredentialError,
            "Username must not be empty",
        ),
        (ScramDeletion("alice", 9), UnsupportedSaslMechanismError, "Unknown SCRAM mechanism"),
        *(
            (
                ScramDeletion(user, mechanism),
                ResourceNotFoundError,
                "Attempt to delete a user credential that does not exist",
            )
            for user, mechanism in (("alice", SCRAM_SHA_512), ("bob", SCRAM_SHA_256))
        ),
    ],
)
def test_invalid_values_are_rejected_with_kafkas_messages(
    change: ScramUpsertion | ScramDeletion, error: type[KraftError], message: str
) -> None:
    refused = refusal(upserted(upsertion()), change)
    assert type(refused) is error
    assert str(refused) == message


def test_a_user_named_twice_is_not_changed_but_the_others_are() -> None:
    lab = upserted(upsertion("alice"), upsertion("carol"))
    decision = whole(
        alter_user_scram_credentials(
            lab.cluster,
            deletions=[
                ScramDeletion("alice", 1),
                ScramDeletion("nobody", 1),
                ScramDeletion("carol", 1),
            ],
            upsertions=[
                upsertion("alice", SCRAM_SHA_512),
                upsertion("alice", SCRAM_SHA_512),
                upsertion("bob"),
                upsertion("nobody"),
            ],
        )
    )
    answers = {user: type(error) for user, error in decision.response.items()}
    assert answers == {
        "alice": DuplicateResourceError,
        "nobody": ResourceNotFoundError,
        "carol": type(None),
        "bob": type(None),
    }
    lab.do(decision)
    assert sorted(user for _, user in lab.cluster.state.scram_credentials) == ["alice", "bob"]


def test_before_3_5_there_are_no_credentials() -> None:
    lab = Lab(brokers=0)
    lab.write(records.FeatureLevel("metadata.version", 10))
    assert isinstance(refusal(lab, upsertion()), UnsupportedVersionError)
    assert isinstance(refusal(lab, ScramDeletion("", 9)), UnsupportedVersionError)
    lab.write(records.FeatureLevel("metadata.version", 11))
    assert refusal(lab, upsertion()) is None


def test_more_than_ten_thousand_users_are_rejected_as_a_whole() -> None:
    many = [upsertion(f"u{i}") for i in range(10_001)]
    with pytest.raises(PolicyViolationError, match="at most 10000"):
        whole(alter_user_scram_credentials(Lab(brokers=0).cluster, upsertions=many, at_once=10_001))


def test_chunks_have_no_limit() -> None:
    lab = upserted(upsertion("gone"))
    chunks = alter_user_scram_credentials(
        lab.cluster,
        deletions=[ScramDeletion("gone", SCRAM_SHA_256), ScramDeletion("nobody", SCRAM_SHA_256)],
        upsertions=[upsertion(f"u{i}") for i in range(999)],
        at_once=1_000,
    )
    response, counts = lab.do_chunks(chunks)
    assert counts == [0, 0, 0, 400, 400, 200]
    refused = {user: type(error) for user, error in response.items() if error is not None}
    assert refused == {"nobody": ResourceNotFoundError}
    users = {user for _, user in lab.cluster.state.scram_credentials}
    assert users == {f"u{i}" for i in range(999)}


def test_users_without_credentials_and_duplicates_get_errors() -> None:
    lab = upserted(upsertion())
    answers = describe_user_scram_credentials(
        lab.cluster, ["bob", "alice", "bob", "alice", "bob", "x"]
    )
    assert {user: type(answer) for user, answer in answers.items()} == {
        "bob": DuplicateResourceError,
        "alice": DuplicateResourceError,
        "x": ResourceNotFoundError,
    }


def test_no_repr_shows_a_secret() -> None:
    lab = upserted(upsertion())
    credential = lab.cluster.state.scram_credentials[SCRAM_SHA_256, "alice"]
    decision = whole(
        alter_user_scram_credentials(
            lab.cluster,
            upsertions=[upsertion(iterations=1), upsertion("bob", 0), upsertion("carol")],
        )
    )
    described = describe_user_scram_credentials(lab.cluster)
    shown = f"{upsertion()!r} {credential!r} {decision!r} {described!r} {lab.cluster.state!r}"
    shown += f"{lab.cluster.state.scram_credentials!r} {[*decision.records]!r}"
    assert "name='carol'" in shown
    for secret in (SALT, SALTED, credential.stored_key, credential.server_key):
        assert repr(secret)[2:12] not in shown
        assert secret.hex()[:10] not in shown
