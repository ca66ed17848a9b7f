"""The security settings of a controller listener: TLS, SASL, and how this node connects to others.

Each setting may be given for one listener, ``listener.name.<listener>.<setting>``, and some for one
mechanism of it; the value for one listener replaces the value for all. This module reads texts and
checks them; ``kraft.server.config.key_stores`` reads the files that they name at the node's start.

Sources: Kafka's ``SslConfigs``, ``SaslConfigs``, ``BrokerSecurityConfigs``, ``ChannelBuilders``,
``JaasContext`` (4.3.1); KIP-103, KIP-651, KIP-684.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from kraft.configdef import ConfigType
from kraft.errors import InvalidConfigError
from kraft.security.protocols import SecurityProtocol
from kraft.security.sasl.client import (
    LOGIN_MODULES,
    ClientCredentials,
    check_login_module,
    client_credentials,
)
from kraft.security.sasl.jaas import LoginModule, parse_jaas_of_listener
from kraft.security.sasl.plain import PLAIN
from kraft.security.sasl.scram import SCRAM_MECHANISMS
from kraft.security.ssl_principals import SslPrincipalMapper
from kraft.server.config.listeners import ListenerConfig
from kraft.server.config.settings import PRINCIPAL_BUILDER
from kraft.server.config.values import Setting, read_setting

#: The types of key stores and trust stores.
PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"

_INT, _LONG, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
_LIST, _PASSWORD = ConfigType.LIST, ConfigType.PASSWORD
#: The settings of a listener, and of a client, by name.
SECURITY_SETTINGS = {
    rule.name: rule
    for rule in (
        Setting("ssl.keystore.type", _STRING, JKS),
        Setting("ssl.keystore.location", _STRING, None),
        Setting("ssl.keystore.password", _PASSWORD, None),
        Setting("ssl.keystore.key", _PASSWORD, None),
        Setting("ssl.keystore.certificate.chain", _PASSWORD, None),
        Setting("ssl.key.password", _PASSWORD, None),
        Setting("ssl.truststore.type", _STRING, JKS),
        Setting("ssl.truststore.location", _STRING, None),
        Setting("ssl.truststore.password", _PASSWORD, None),
        Setting("ssl.truststore.certificates", _PASSWORD, None),
        Setting("ssl.client.auth", _STRING, "none", allowed=("required", "requested", "none")),
        Setting("ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), is_set=True),
        Setting("ssl.cipher.suites", _LIST, ()),
        Setting("ssl.endpoint.identification.algorithm", _STRING, "https"),
        Setting("ssl.engine.factory.class", _STRING, None),
        Setting("ssl.principal.mapping.rules", _STRING, "DEFAULT"),
        Setting("sasl.enabled.mechanisms", _LIST, ("GSSAPI",), is_set=True),
        Setting("sasl.jaas.config", _PASSWORD, None),
        Setting("sasl.mechanism.controller.protocol", _STRING, "GSSAPI"),
        Setting("sasl.mechanism.inter.broker.protocol", _STRING, "GSSAPI"),
        Setting("sasl.server.max.receive.size", _INT, 524_288),
        Setting("sasl.server.callback.handler.class", _STRING, None),
        Setting("sasl.mechanism", _STRING, "GSSAPI"),
        Setting(
            "security.protocol",
            _STRING,
            "PLAINTEXT",
            allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        ),
        Setting("early.start.listeners", _LIST, None),
        Setting(PRINCIPAL_BUILDER, _STRING, None),
        Setting("connections.max.reauth.ms", _LONG, 0),
        Setting("connection.failed.authentication.delay.ms", _INT, 100, lowest=0),
    )
}
T = TypeVar("T")
_MECHANISMS = ", ".join(LOGIN_MODULES)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A key store or trust store: inline PEM texts, or a file of a type.

    ``key`` and ``certificates`` are inline texts; of a key store ``certificates`` is its chain.
    """

    type: str
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsFileSettings:
    """The ssl.* settings of a listener; names as in `tls_context.TlsSettings`."""

    key_store: StoreSettings
    trust_store: StoreSettings
    key_password: str | None = field(repr=False)
    client_auth: str
    versions: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    checks_host: bool


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """How a listener authenticates its peers.

    ``modules`` has the login module of each enabled SASL mechanism, ``max_reauth_ms`` the limit of
    its sessions. ``credentials`` are those of this node, on the listener that the quorum uses.
    ``principal_builder`` is the name of the setting that names the class of the listener's builder.
    """

    protocol: SecurityProtocol
    tls: TlsFileSettings | None = None
    modules: dict[str, LoginModule] = field(default_factory=dict, repr=False)
    max_reauth_ms: dict[str, int] = field(default_factory=dict)
    max_receive_size: int = 0
    credentials: ClientCredentials | None = None
    mapping_rules: str = "DEFAULT"
    failure_delay_ms: int = 100
    principal_builder: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The files that hold keys and certificates."""
        if self.tls is None:
            return ()
        stores = (self.tls.key_store, self.tls.trust_store)
        return tuple(each.location for each in stores if each.location is not None)


class SecurityReader:
    """Reads the settings of listeners; ``used`` are the names of those that had an effect.

    ``values`` and ``where`` are the given settings and their places; ``default_where`` is the place
    of an error about a setting that is not given.
    """

    def __init__(self, values: dict[str, str], where: dict[str, str], default_where: str) -> None:
        self._values = values
        self._where = where
        self._default_where = default_where
        self.used: set[str] = set()

    def read(
        self, listener: ListenerConfig, *, mechanism: str | None = None, is_bound: bool = True
    ) -> SecuritySettings:
        """Return the settings of a listener.

        ``mechanism`` is the setting with the SASL mechanism of this node's own connections to such
        listeners of other nodes, None if it makes none. ``is_bound``: this node has the listener.
        Raises InvalidConfigError.
        """
        protocol = SecurityProtocol[listener.security_protocol]
        prefix = f"listener.name.{listener.name.lower()}."
        modules: dict[str, LoginModule] = {}
        max_reauth_ms: dict[str, int] = {}
        max_receive_size, credentials, rules, delay_ms = 0, None, "DEFAULT", 100
        if protocol is SecurityProtocol.SSL:
            rules = self._value("ssl.principal.mapping.rules", prefix)
            self._check(lambda: SslPrincipalMapper(rules), "ssl.principal.mapping.rules", prefix)
        if protocol.has_sasl and is_bound:
            for enabled in self._value("sasl.enabled.mechanisms", prefix):
                self._check_mechanism(enabled, "sasl.enabled.mechanisms", prefix)
                modules[enabled] = self._module(enabled, prefix)
                own = f"{prefix}{enabled.lower()}."
                max_reauth_ms[enabled] = self._value("connections.max.reauth.ms", own, prefix)
            max_receive_size = self._value("sasl.server.max.receive.size", prefix)
        if protocol.has_sasl and mechanism is not None:
            credentials = self._credentials(prefix, mechanism)
        if protocol is not SecurityProtocol.PLAINTEXT:
            delay_ms = self._value("connection.failed.authentication.delay.ms", prefix)
        return SecuritySettings(
            protocol,
            self._tls(protocol, prefix, is_client=not is_bound) if protocol.has_tls else None,
            modules,
            max_reauth_ms,
            max_receive_size,
            credentials,
            rules,
            delay_ms,
            self._principal_builder(prefix),
        )

    def _principal_builder(self, prefix: str) -> str | None:
        """Return the name of the setting that names the listener's builder, None without one."""
        if not self._value(PRINCIPAL_BUILDER, prefix):
            return None
        own = prefix + PRINCIPAL_BUILDER
        return own if own in self._values else PRINCIPAL_BUILDER

    def early_listeners(self) -> frozenset[str] | None:
        """Return the listeners of early.start.listeners in upper case; None where it is not set."""
        names = self._value("early.start.listeners")
        return None if names is None else frozenset(name.upper() for name in names if name)

    def read_client(self) -> SecuritySettings:
        """Return the settings of a client's configuration. Raises InvalidConfigError."""
        protocol = SecurityProtocol[self._value("security.protocol")]
        credentials = None
        if protocol.has_sasl:
            mechanism: str = self._value("sasl.mechanism")
            self._check_mechanism(mechanism, "sasl.mechanism", "")
            module = self._module(mechanism, "", is_client=True)
            credentials = self._check(
                lambda: client_credentials(mechanism, module), "sasl.jaas.config", ""
            )
        return SecuritySettings(
            protocol,
            self._tls(protocol, "", is_client=True) if protocol.has_tls else None,
            credentials=credentials,
        )

    def _tls(
        self, protocol: SecurityProtocol, prefix: str, *, is_client: bool = False
    ) -> TlsFileSettings:
        if self._value("ssl.engine.factory.class", prefix):
            self._fail(
                *("ssl.engine.factory.class", prefix),
                "names a Java class, which kraft cannot run: remove it and set ssl.keystore.*",
            )
        key_store = self._store("keystore", "certificate.chain", prefix)
        has_key = key_store.certificates is not None and key_store.key is not None
        if key_store.location is None and not has_key and not is_client:
            self._fail(
                *("ssl.keystore.location", prefix),
                "is missing: a TLS listener needs a key and its certificates, as a file "
                "(ssl.keystore.location, ssl.keystore.type=PEM) or as texts (ssl.keystore.key, "
                "ssl.keystore.certificate.chain)",
            )
        # As in Kafka, peers of SASL_SSL need certificates only where the listener itself says so.
        is_own = f"{prefix}ssl.client.auth" in self._values
        asks = protocol is SecurityProtocol.SSL or is_own
        return TlsFileSettings(
            key_store,
            self._store("truststore", "certificates", prefix),
            self._value("ssl.key.password", prefix),
            self._value("ssl.client.auth", prefix) if asks else "none",
            self._value("ssl.enabled.protocols", prefix),
            tuple(filter(None, self._value("ssl.cipher.suites", prefix))),
            self._value("ssl.endpoint.identification.algorithm", prefix).lower() == "https",
        )

    def _store(self, name: str, certificates: str, prefix: str) -> StoreSettings:
        kind = self._value(f"ssl.{name}.type", prefix).upper()
        if kind not in (PEM, PKCS12, JKS):
            self._fail(f"ssl.{name}.type", prefix, f"is {kind!r:.40}; expected PEM, PKCS12 or JKS")
        inline = self._value(f"ssl.{name}.{certificates}", prefix)
        if inline is not None and kind != PEM:
            self._fail(f"ssl.{name}.type", prefix, f"is {kind}; texts need PEM")
        return StoreSettings(
            kind,
            self._value(f"ssl.{name}.location", prefix),
            self._value(f"ssl.{name}.password", prefix),
            self._value("ssl.keystore.key", prefix) if name == "keystore" else None,
            inline,
        )

    def _credentials(self, prefix: str, name: str) -> ClientCredentials:
        mechanism: str = self._value(name)
        self._check_mechanism(mechanism, name, "")
        module = self._module(mechanism, prefix)
        own = f"{prefix}{mechanism.lower()}."
        return self._check(lambda: client_credentials(mechanism, module), "sasl.jaas.config", own)

    def _module(self, mechanism: str, prefix: str, *, is_client: bool = False) -> LoginModule:
        """Return the login module of a mechanism at this listener, or of a client."""
        own = "" if is_client else f"{prefix}{mechanism.lower()}."
        name = "sasl.jaas.config"
        if self._value("sasl.server.callback.handler.class", own):
            self._fail(
                *("sasl.server.callback.handler.class", own),
                "names a Java class, which kraft cannot run: remove it; users of PLAIN are "
                "user_<name>=<password> in sasl.jaas.config, users of SCRAM are in the metadata",
            )
        text = self._values.get(own + name)
        if text is None:
            self._fail(
                *(name, own),
                f"is missing: {mechanism} needs it, with the login module "
                f"{LOGIN_MODULES[mechanism]} (kraft reads no JAAS file)",
            )
        self.used.add(own + name)
        module = self._check(lambda: parse_jaas_of_listener(text), name, own)
        self._check(lambda: check_login_module(mechanism, module), name, own)
        return module

    def _check_mechanism(self, mechanism: str, name: str, prefix: str) -> None:
        if mechanism not in LOGIN_MODULES:
            self._fail(
                *(name, prefix),
                f"has {mechanism!r:.40}, which kraft does not support; set it to {_MECHANISMS}, "
                "or use SSL with client certificates",
            )

    def _value(self, name: str, *prefixes: str) -> Any:
        """Return the value that is given with the first of these prefixes, else the general one.

        A setting of a mechanism has no general form without the prefix of its listener.
        """
        rule = SECURITY_SETTINGS[name]
        for full in (*(prefix + name for prefix in prefixes), name):
            text = self._values.get(full)
            if text is None:
                continue
            if "config.providers" in self._values and "${" in text:
                self._fail(
                    name, "", "takes its value from a config provider; write the value itself"
                )
            self.used.add(full)
            where = self._where.get(full, self._default_where)
            return read_setting(rule._replace(name=full), text, where)
        return rule.default

    def _check(self, make: Callable[[], T], name: str, prefix: str) -> T:
        """Return the result of ``make``; its InvalidConfigError gets the place of the setting."""
        try:
            return make()
        except InvalidConfigError as error:
            own = prefix if prefix + name in self._values else ""
            where = self._where.get(own + name, self._default_where)
            raise InvalidConfigError(f"{where}: {own}{error}") from None

    def _fail(self, name: str, prefix: str, reason: str) -> NoReturn:
        full = prefix + name if prefix + name in self._values or name not in self._values else name
        raise InvalidConfigError(f"{self._where.get(full, self._default_where)}: {full} {reason}")


def plain_users(settings: SecuritySettings) -> dict[str, str]:
    """Return the passwords of the users of PLAIN, by name."""
    module = settings.modules.get(PLAIN)
    return {} if module is None else module.users


def uses_scram(settings: SecuritySettings) -> bool:
    """Return whether this node authenticates to other nodes by SCRAM."""
    return settings.credentials is not None and settings.credentials.mechanism in SCRAM_MECHANISMS
