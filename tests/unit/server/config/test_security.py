"""The security settings of controller listeners, and the key stores that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.errors import InvalidConfigError
from kraft.network.tls_context import tls_contexts
from kraft.security.protocols import SecurityProtocol
from kraft.security.sasl.client import ClientCredentials
from kraft.server.config.key_stores import read_tls_settings
from kraft.server.config.loading import ServerConfig
from kraft.server.config.security import SecuritySettings
from kraft.server.opening import check_served
from tests.harness.certificates import authority
from tests.harness.configurations import CONTROLLER, write_configuration

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OWN = "listener.name.controller."
NODE = authority().issue("controller-1")
SSL = CONTROLLER | {
    "listener.security.protocol.map": "CONTROLLER:SSL",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/nowhere/key.pem",
}
SASL = CONTROLLER | {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    f"{OWN}plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required username="admin" password="hush" user_admin="hush";'
    ),
}


def loaded(directory: Path, base: dict[str, str], changes: dict[str, str]) -> ServerConfig:
    return ServerConfig.load(write_configuration(directory, base | changes))


def security(directory: Path, base: dict[str, str], **changes: str) -> SecuritySettings:
    return loaded(directory, base, changes).security["CONTROLLER"]


def test_plaintext_is_the_default(tmp_path: Path) -> None:
    config = loaded(tmp_path, CONTROLLER, {"ssl.keystore.location": "/nowhere"})
    assert config.security["CONTROLLER"] == SecuritySettings(SecurityProtocol.PLAINTEXT)
    assert [each.name for each in config.no_effect] == ["ssl.keystore.location"]


def test_a_listeners_own_settings_replace_the_general_ones(tmp_path: Path) -> None:
    own = {
        f"{OWN}ssl.keystore.location": "/own.pem",
        f"{OWN}ssl.client.auth": "required",
        "ssl.client.auth": "none",
        "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.key.password": "hush",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
    }
    config = loaded(tmp_path, SSL, own)
    found = config.security["CONTROLLER"]
    assert found.tls is not None
    assert found.tls.key_store.location == "/own.pem"
    assert found.tls.client_auth == "required"
    assert found.tls.cipher_suites == ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")
    assert not found.tls.checks_host
    assert found.mapping_rules == "RULE:^CN=(.*)$/$1/"
    assert found.files == ("/own.pem",)
    unused = {each.name for each in config.no_effect}
    assert unused == {"ssl.keystore.location", "ssl.client.auth"}
    assert "hush" not in repr(config)


def test_the_sasl_settings_are_read(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        SASL,
        {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            f"{OWN}scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            "connections.max.reauth.ms": "60000",
            f"{OWN}plain.connections.max.reauth.ms": "30000",
            "connection.failed.authentication.delay.ms": "7",
        },
    )
    found = config.security["CONTROLLER"]
    assert found.tls is None
    assert found.modules["PLAIN"].users == {"admin": "hush"}
    assert list(found.modules) == ["PLAIN", "SCRAM-SHA-512"]
    assert found.max_reauth_ms == {"PLAIN": 30_000, "SCRAM-SHA-512": 60_000}
    assert found.credentials == ClientCredentials("PLAIN", "admin", "hush")
    assert (found.failure_delay_ms, found.max_receive_size) == (7, 524_288)
    assert config.no_effect == ()
    assert "hush" not in repr(config)


def test_sasl_ssl_asks_for_certificates_only_where_the_listener_says_so(tmp_path: Path) -> None:
    both = SSL | SASL | {"listener.security.protocol.map": "CONTROLLER:SASL_SSL"}
    found = loaded(tmp_path, both, {"ssl.client.auth": "required"}).security["CONTROLLER"]
    assert found.tls is not None
    assert found.tls.client_auth == "none"
    found = loaded(tmp_path, both, {f"{OWN}ssl.client.auth": "required"}).security["CONTROLLER"]
    assert found.tls is not None
    assert found.tls.client_auth == "required"


def test_scram_between_controllers_is_a_warning(tmp_path: Path) -> None:
    changes = {
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
        f"{OWN}scram-sha-256.sasl.jaas.config": (
            f"{SCRAM_MODULE} required username=admin password=hush;"
        ),
    }
    assert "after a restart of the whole" in loaded(tmp_path, SASL, changes).warnings[0]
    assert loaded(tmp_path, SASL, {}).warnings == ()


def test_listeners_wait_for_the_acls_unless_they_start_early(tmp_path: Path) -> None:
    two = {
        "listeners": "CONTROLLER://127.0.0.1:9093,OTHER://127.0.0.1:9094",
        "controller.listener.names": "CONTROLLER,OTHER",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    assert loaded(tmp_path, CONTROLLER | two, {}).waiting_listeners == frozenset()
    early = {"early.start.listeners": "controller"}
    assert loaded(tmp_path, CONTROLLER | two, early).waiting_listeners == {"OTHER"}
    with pytest.raises(InvalidConfigError, match=r"early\.start\.listeners has X, not in"):
        check_served(loaded(tmp_path, CONTROLLER | two, {"early.start.listeners": "X"}))


REJECTED = [
    (SSL, {"ssl.keystore.location": None}, r"ssl\.keystore\.location is missing: a TLS listener"),
    (SSL, {"ssl.keystore.type": "BCFKS"}, "expected PEM, PKCS12 or JKS"),
    (SSL, {"ssl.keystore.type": "JKS", "ssl.truststore.certificates": "x"}, "texts need PEM"),
    (SSL, {"ssl.client.auth": "maybe"}, "one of required, requested, none"),
    (SSL, {"ssl.engine.factory.class": "a.B"}, "names a Java class"),
    (SSL, {"ssl.principal.mapping.rules": "RULE:("}, r"line \d+: ssl\.principal\.mapping\.rules"),
    (SASL, {"sasl.enabled.mechanisms": "GSSAPI"}, "has 'GSSAPI', which kraft does not support"),
    (SASL, {"sasl.enabled.mechanisms": None}, "has 'GSSAPI', which kraft does not support"),
    (SASL, {"sasl.enabled.mechanisms": "OAUTHBEARER"}, "SSL with client certificates"),
    (SASL, {"sasl.mechanism.controller.protocol": None}, r"controller\.protocol has 'GSSAPI'"),
    (SASL, {f"{OWN}plain.sasl.jaas.config": None}, "needs it, with the login module"),
    (SASL, {f"{OWN}plain.sasl.jaas.config": "x"}, r"line \d+: .*has no control flag"),
    (SASL, {f"{OWN}plain.sasl.jaas.config": f"{SCRAM_MODULE} required;"}, "PLAIN needs the login"),
    (SASL, {f"{OWN}plain.sasl.jaas.config": f"{PLAIN_MODULE} required;"}, "has no username, which"),
    (SASL, {f"{OWN}plain.sasl.server.callback.handler.class": "a.B"}, "names a Java class"),
    (
        SASL,
        {"config.providers": "f", "sasl.server.max.receive.size": "${f:a}"},
        "takes its value from a config provider",
    ),
]


@pytest.mark.parametrize(("base", "changes", "reason"), REJECTED)
def test_contradictory_settings_are_rejected(
    tmp_path: Path, base: dict[str, str], changes: dict[str, str | None], reason: str
) -> None:
    given = {name: value for name, value in (base | changes).items() if value is not None}
    # The configuration loads, so that the node can be formatted, as in Kafka.
    config = ServerConfig.load(write_configuration(tmp_path, given))
    with pytest.raises(InvalidConfigError, match=reason) as rejected:
        check_served(config)
    assert str(tmp_path) in str(rejected.value)
    assert "hush" not in str(rejected.value)


def one_line(pem: str) -> str:
    return pem.replace("\n", " ")


def test_key_stores_are_read_in_every_form(tmp_path: Path) -> None:
    """Files and texts, PEM and PKCS12, with and without a password give the same contexts."""
    trust = tmp_path / "trust.pem"
    trust.write_text(authority().pem)
    pem = tmp_path / "key.pem"
    pem.write_text(NODE.pem)
    secret = tmp_path / "secret.pem"
    secret.write_text(NODE.encrypted_key_pem("hush") + NODE.certificate_pem)
    store = tmp_path / "key.p12"
    store.write_bytes(NODE.pkcs12("hush"))
    trusted = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "ssl.client.auth": "required",
    }
    forms = [
        {"ssl.keystore.location": str(pem)},
        {"ssl.keystore.location": str(secret), "ssl.key.password": "hush"},
        {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": "hush",
        },
        {"ssl.keystore.location": str(store), "ssl.keystore.type": "JKS"}
        | {"ssl.keystore.password": "hush"},
        {
            "ssl.keystore.key": one_line(NODE.key_pem),
            "ssl.keystore.certificate.chain": one_line(NODE.certificate_pem),
            "ssl.truststore.certificates": one_line(authority().pem),
        },
    ]
    for form in forms:
        base = {name: value for name, value in SSL.items() if name != "ssl.keystore.location"}
        inline = "ssl.truststore.certificates" in form
        mine = trusted if not inline else {"ssl.truststore.type": "PEM"}
        found = loaded(tmp_path, base | mine, form).security["CONTROLLER"]
        assert found.tls is not None
        contexts = tls_contexts(read_tls_settings(found.tls))
        assert len(contexts.client.get_ca_certs()) == 1
        shown = read_tls_settings(found.tls)
        assert (shown.certificates or "").startswith(NODE.certificate_pem)


@pytest.mark.parametrize(
    ("content", "changes", "reason"),
    [
        (None, {}, "cannot read .*No such file"),
        (b"no PEM", {}, "has no private key in PEM"),
        (NODE.key_pem.encode(), {}, "has no certificate in PEM"),
        (
            (NODE.encrypted_key_pem("hush") + NODE.certificate_pem).encode(),
            {"ssl.key.password": "wrong"},
            "cannot be used",
        ),
        (
            (NODE.encrypted_key_pem("hush") + NODE.certificate_pem).encode(),
            {},
            "an encrypted key needs ssl.key.password",
        ),
        (
            (authority().issue("other").key_pem + NODE.certificate_pem).encode(),
            {},
            "key values mismatch",
        ),
        (b"\xfe\xed\xfe\xed\0\0", {"ssl.keystore.type": "JKS"}, "keytool -importkeystore"),
        (b"0\x82\0\0", {"ssl.keystore.type": "PKCS12"}, "not a PKCS12 file, or its password"),
        (
            NODE.pem.encode(),
            {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": NODE.key_pem},
            r"ssl\.truststore\.certificates has no certificate",
        ),
        (NODE.pem.encode(), {"ssl.enabled.protocols": "TLSv1.1"}, "one or more of TLSv1.2"),
        (NODE.pem.encode(), {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "cannot switch off"),
        (NODE.pem.encode(), {"ssl.cipher.suites": "RC4"}, "'RC4', which is not supported"),
    ],
)
def test_unusable_key_stores_are_rejected(
    tmp_path: Path, content: bytes | None, changes: dict[str, str], reason: str
) -> None:
    store = tmp_path / "store"
    if content is not None:
        store.write_bytes(content)
    given = {name: one_line(value) for name, value in changes.items()}
    found = loaded(tmp_path, SSL, {"ssl.keystore.location": str(store)} | given)
    settings = found.security["CONTROLLER"].tls
    assert settings is not None
    with pytest.raises(InvalidConfigError, match=reason):
        tls_contexts(read_tls_settings(settings))
