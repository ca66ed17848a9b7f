"""SCRAM credentials on the command line of a format."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from kraft.errors import InvalidRequestError
from kraft.server.storage.scram import parse_scram


def test_the_keys_are_those_of_the_example_in_rfc_7677() -> None:
    """The example of RFC 7677, section 3: user "user", password "pencil"."""
    record = parse_scram(
        "SCRAM-SHA-256=[name=user,password=pencil,salt=W22ZaJ0SNY7soEsUEjb6gQ==,iterations=4096]"
    )
    assert (record.name, record.mechanism, record.iterations) == ("user", 1, 4096)
    # The RFC's server signature is computed from the same server key.
    auth = (
        "n=user,r=rOprNGfwEbeRWgbNEkqO,"
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = hmac.digest(record.server_key, auth.encode(), "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_signature = hmac.digest(record.stored_key, auth.encode(), "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, client_signature, strict=True))
    assert hashlib.sha256(client_key).digest() == record.stored_key


def test_without_a_salt_a_random_one_is_used() -> None:
    record = parse_scram("SCRAM-SHA-512=[name=a,password=b]", draw=lambda: b"salt")
    assert (record.salt, record.mechanism, record.iterations) == (b"salt", 2, 4096)
    assert len(record.stored_key) == len(record.server_key) == 64


def test_a_salted_password_gives_the_keys_of_the_password() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"b", b"salt", 4096)
    salt_text, salted_text = (base64.b64encode(each).decode() for each in (b"salt", salted))
    made = parse_scram(f'SCRAM-SHA-256=[name=a,salt="{salt_text}",saltedpassword="{salted_text}"]')
    assert made == parse_scram(f"SCRAM-SHA-256=[name=a,password=b,salt={salt_text}]")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SCRAM-SHA-256", "begins with one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-1=[name=a,password=secret]", "not with 'SCRAM-SHA-1'"),
        ("SCRAM-SHA-256=name=a", "in brackets"),
        ("SCRAM-SHA-256=[password=secret]", "needs a name"),
        ("SCRAM-SHA-256=[name=a]", "needs a password"),
        ("SCRAM-SHA-256=[name=a,password=se,cret]", "no equals sign in entry 3"),
        ("SCRAM-SHA-256=[name=a,pasword=secret]", "unknown in .*: pasword"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=4095]", "expected 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=16385]", "expected 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=many]", "expected 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,salt=!]", "the salt of a is not base64"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0]", "needs the salt"),
    ],
)
def test_an_invalid_credential_is_rejected_without_its_secrets_in_the_error(
    text: str, words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words) as refused:
        parse_scram(text)
    assert "secret" not in str(refused.value)
    assert "cret" not in str(refused.value)
