"""Subjects of certificates as Java writes them."""

from __future__ import annotations

import contextlib

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from kraft.errors import SaslAuthenticationError
from kraft.security.distinguished_names import subject_of
from tests.harness.certificates import authority

Attribute = x509.NameAttribute

# The texts are those of Java 17's X500Principal.getName() for the same certificates.
NAMES = [
    (
        x509.Name(
            [
                Attribute(NameOID.COUNTRY_NAME, "DE"),
                Attribute(NameOID.STATE_OR_PROVINCE_NAME, "BE"),
                Attribute(NameOID.LOCALITY_NAME, "Berlin"),
                Attribute(NameOID.ORGANIZATION_NAME, "Example"),
                Attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Ops"),
                Attribute(NameOID.COMMON_NAME, "kafka-1"),
            ]
        ),
        "CN=kafka-1,OU=Ops,O=Example,L=Berlin,ST=BE,C=DE",
    ),
    (
        x509.Name(
            [
                Attribute(NameOID.DOMAIN_COMPONENT, "example"),
                Attribute(NameOID.USER_ID, "u1"),
                Attribute(NameOID.STREET_ADDRESS, "Road 1"),
                Attribute(NameOID.EMAIL_ADDRESS, "a@b"),
                Attribute(NameOID.SERIAL_NUMBER, "7"),
            ]
        ),
        "2.5.4.5=#130137,1.2.840.113549.1.9.1=#1603614062,STREET=Road 1,UID=u1,DC=example",
    ),
    (
        x509.Name([Attribute(NameOID.COMMON_NAME, ' a, b+c="x";<y>#\\ ')]),
        'CN=\\ a\\, b\\+c\\=\\"x\\"\\;\\<y\\>\\#\\\\\\ ',
    ),
    (x509.Name([Attribute(NameOID.COMMON_NAME, "Jürgen 中")]), "CN=Jürgen 中"),
    (
        x509.Name(
            [
                x509.RelativeDistinguishedName(
                    [Attribute(NameOID.COMMON_NAME, "b"), Attribute(NameOID.USER_ID, "a")]
                ),
                x509.RelativeDistinguishedName([Attribute(NameOID.COUNTRY_NAME, "DE")]),
            ]
        ),
        "C=DE,CN=b+UID=a",
    ),
]


@pytest.mark.parametrize(("name", "text"), NAMES)
def test_the_text_of_a_name_equals_that_of_java(name: x509.Name, text: str) -> None:
    assert subject_of(authority().issue(name).certificate_der) == text


def test_the_text_of_an_empty_name_is_empty() -> None:
    assert subject_of(authority().issue(x509.Name([])).certificate_der) == ""


def test_any_bytes_are_a_name_or_malformed() -> None:
    good = authority().issue("alice").certificate_der
    for position in range(len(good)):
        for changed in (0, 0x80, 0xFF, good[position] ^ 1):
            bad = good[:position] + bytes([changed]) + good[position + 1 :]
            for der in (bad, good[:position]):
                with contextlib.suppress(SaslAuthenticationError):
                    assert isinstance(subject_of(der), str)
