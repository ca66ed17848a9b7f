"""Principals: text, wire form, super users, and the rules for certificates."""

from __future__ import annotations

import pytest

from kraft.errors import (
    CorruptRecordError,
    InvalidConfigError,
    SaslAuthenticationError,
    UnsupportedVersionError,
)
from kraft.security.principals import (
    KafkaPrincipal,
    decode_principal,
    encode_principal,
    parse_principal,
    parse_super_users,
)
from kraft.security.ssl_principals import SslPrincipalMapper


def test_a_principal_has_its_form_in_an_envelope() -> None:
    principal = KafkaPrincipal("User", "alice", token_authenticated=True)
    encoded = encode_principal(principal)
    assert encoded == b"\0\0" + b"\x05User" + b"\x06alice" + b"\x01" + b"\0"
    decoded = decode_principal(encoded)
    assert decoded == principal
    assert decoded.token_authenticated
    # Equality ignores how the principal was authenticated.
    assert decoded == KafkaPrincipal("User", "alice")


@pytest.mark.parametrize("encoded", [b"", b"\0", b"\0\1\x05User", b"\xff\xff"])
def test_another_version_of_a_principal_is_rejected(encoded: bytes) -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_principal(encoded)


@pytest.mark.parametrize("cut", range(2, 13))
def test_a_truncated_principal_is_rejected(cut: int) -> None:
    with pytest.raises(CorruptRecordError):
        decode_principal(encode_principal(KafkaPrincipal("User", "alice"))[:cut])


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users(" User:a;; User:CN=b,OU=c ;Group:d:e") == {
        "User:a",
        "User:CN=b,OU=c",
        "Group:d:e",
    }
    assert parse_super_users("") == frozenset()
    with pytest.raises(InvalidConfigError, match="User:alice"):
        parse_super_users("User:a;b")
    assert parse_principal("Group:d:e") == KafkaPrincipal("Group", "d:e")


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", "CN=a,OU=b", "CN=a,OU=b"),
        ("RULE:^CN=(.*?),OU=b.*$/$1/", "CN=Al,OU=b,O=c", "Al"),
        ("RULE:^CN=(.*?),OU=x.*$/$1/, RULE:^CN=(.*?),.*$/$1@b/U", "CN=Al,OU=b", "AL@B"),
        ("RULE:x/y/,DEFAULT", "CN=a", "CN=a"),
        ("RULE:CN=(.*)/$12/L", "CN=A", "a2"),
        ("RULE:CN=(.*)/$1$7/", "CN=A", "A$7"),
        (r"RULE:CN=(.*)\/(.*)/$2\$\/$1/", "CN=a/b", "b$/a"),
        ("RULE:(?<cn>CN).*/${cn}/", "CN=a", "CN"),
    ],
)
def test_the_first_matching_rule_names_the_certificate(
    rules: str, name: str, expected: str
) -> None:
    assert SslPrincipalMapper(rules).name(name) == expected


def test_a_certificate_without_a_rule_has_no_principal() -> None:
    with pytest.raises(SaslAuthenticationError, match="CN=a"):
        SslPrincipalMapper("RULE:CN=b/x/").name("CN=a")


@pytest.mark.parametrize(
    "rules", ["RULE:a/b", "DEFAULTX", "RULE:(/b/", "RULE:a/b/LU", "RULE:a/$1/", "RULE:(a)/$/", "x"]
)
def test_a_malformed_rule_is_rejected(rules: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"ssl\.principal\.mapping\.rules"):
        SslPrincipalMapper(rules)
