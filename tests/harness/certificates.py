"""Certificate authorities and certificates for tests, with keys of P-256 (quick to make)."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

_LIFE = datetime.timedelta(days=2)


@dataclass(frozen=True)
class KeyPair:
    """A key and its certificate, signed by ``issuer_pem``'s authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def certificate_der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def key_pem(self) -> str:
        return self.encrypted_key_pem(None)

    @property
    def pem(self) -> str:
        """Return key and certificate, as in a PEM key store file of Kafka."""
        return self.key_pem + self.certificate_pem

    def encrypted_key_pem(self, password: str | None) -> str:
        how: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            how = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how
        ).decode()

    def pkcs12(self, password: str) -> bytes:
        how = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"node", self.key, self.certificate, [self.issuer], how
        )


class Authority:
    """A certificate authority."""

    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = _signed(
            self._name, self._name, self._key, self._key, is_authority=True, hosts=()
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self,
        name: str | x509.Name,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        *,
        is_expired: bool = False,
    ) -> KeyPair:
        """Return a key and its certificate; a subject given as a string is the common name."""
        if isinstance(name, str):
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _signed(
            name, self._name, key, self._key, is_authority=False, hosts=hosts, is_expired=is_expired
        )
        return KeyPair(key, signed, self.certificate)


@cache
def authority(name: str = "test authority") -> Authority:
    """Return an authority that the tests of a process share."""
    return Authority(name)


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
    hosts: Sequence[str],
    is_expired: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    end = now - _LIFE / 2 if is_expired else now + _LIFE
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFE)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if hosts:
        names = [_general_name(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
