"""The authentication of a node's listeners, and its reload when files change.

Every `RELOAD_INTERVAL_S` a thread checks the files of keys and certificates and the configuration
file (users and passwords of PLAIN). After a change it reads them again: new connections use the new
ones, existing connections keep theirs. Files that cannot be used are logged, and the old keys,
certificates and users stay. Changing the security protocol of a listener or its
``principal.builder.class`` needs a restart.

Called by ``kraft.server.process``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kraft.errors import KraftError
from kraft.network.authentication import ListenerSecurity
from kraft.security.principal_builders import encode_envelope_principal, envelope_principal
from kraft.security.principals import KafkaPrincipal
from kraft.security.sasl.connection import SaslListenerSettings
from kraft.security.sasl.credentials import PublishedCredentials
from kraft.security.sasl.mechanism import SaslServer
from kraft.security.sasl.plain import PLAIN, PlainServer
from kraft.security.sasl.scram import SCRAM_MECHANISMS, ScramServer
from kraft.security.ssl_principals import SslPrincipalMapper
from kraft.server.config.loading import ServerConfig
from kraft.server.config.security import SecuritySettings, plain_users
from kraft.server.plugins import load_principal_builder

if TYPE_CHECKING:
    from kraft.network.tls_context import TlsContexts

logger = logging.getLogger(__name__)

RELOAD_INTERVAL_S = 10.0

# A file's modification time, size and inode number; None if it cannot be read.
_Stamp = tuple[int, int, int] | None


class NodeSecurity:
    """The `ListenerSecurity` of each listener; ``credentials`` has the users of SCRAM.

    Raises InvalidConfigError for files that cannot be used.
    """

    def __init__(
        self,
        config: ServerConfig,
        credentials: PublishedCredentials,
        *,
        reload_interval_s: float = RELOAD_INTERVAL_S,
    ) -> None:
        self._config = config
        self._credentials = credentials
        self._reload_interval_s = reload_interval_s
        self._stamps = _stamps(config)
        self._builders = {
            name: load_principal_builder(settings.principal_builder, config.given)
            for name, settings in config.security.items()
        }
        self.listeners = {
            name: self._listener(name, settings, _contexts(settings))
            for name, settings in config.security.items()
        }
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch the files. Call it on the loop, and `close` too."""
        if any(each.tls or each.sasl for each in self.listeners.values()):
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._reload_interval_s)
            stamps = await loop.run_in_executor(None, _stamps, self._config)
            if stamps == self._stamps:
                continue
            # A change during the reading is found at the next check.
            self._stamps = stamps
            try:
                config, contexts, self._stamps = await loop.run_in_executor(
                    None, self._read, stamps
                )
            except KraftError as error:
                logger.error(
                    "cannot reload keys, certificates and users; listeners use the old ones: %s",
                    error,
                )
                continue
            self._apply(config, contexts)
            logger.info("reloaded the keys, certificates and users of the listeners")

    def _read(
        self, stamps: dict[str, _Stamp]
    ) -> tuple[ServerConfig, dict[str, TlsContexts | None], dict[str, _Stamp]]:
        """Read the configuration and its files again; return the stamps of all these files.

        ``stamps`` were taken before. Raises InvalidConfigError.
        """
        config = ServerConfig.load(self._config.path, self._config.overrides)
        if config.security_problem is not None:
            raise config.security_problem
        new_stamps = {path: stamps.get(path, now) for path, now in _stamps(config).items()}
        contexts = {name: _contexts(one) for name, one in config.security.items()}
        return config, contexts, new_stamps

    def _apply(self, config: ServerConfig, contexts: Mapping[str, TlsContexts | None]) -> None:
        for name, listener in self.listeners.items():
            settings = config.security.get(name)
            if settings is None or settings.protocol is not listener.protocol:
                logger.error(
                    "restart the node to change the security protocol of listener %s", name
                )
                continue
            new = self._listener(name, settings, contexts[name])
            # Connections hold this object: replace its parts.
            listener.tls, listener.sasl = new.tls, new.sasl
            listener.credentials, listener.mapper = new.credentials, new.mapper
            listener.failure_delay_ms = new.failure_delay_ms
        self._config = config

    def _listener(
        self, name: str, settings: SecuritySettings, contexts: TlsContexts | None
    ) -> ListenerSecurity:
        sasl = None
        if settings.protocol.has_sasl:
            sasl = SaslListenerSettings(
                {each: self._server(each, settings) for each in settings.modules},
                settings.max_reauth_ms,
                settings.max_receive_size,
            )
        return ListenerSecurity(
            settings.protocol,
            contexts,
            sasl,
            settings.credentials,
            SslPrincipalMapper(settings.mapping_rules),
            settings.failure_delay_ms,
            self._builders[name],
        )

    def envelope_principal(self, listener: str, data: bytes) -> KafkaPrincipal:
        """Return the principal in an Envelope that the listener received.

        Raises InvalidRequestError.
        """
        return envelope_principal(self._builders.get(listener), data)

    def encode_envelope_principal(self, listener: str, principal: KafkaPrincipal) -> bytes:
        """Return the bytes of the principal of a client of the listener, for an Envelope.

        Raises UnknownServerError if the listener's builder fails.
        """
        return encode_envelope_principal(self._builders.get(listener), principal)

    def _server(self, mechanism: str, settings: SecuritySettings) -> Callable[[], SaslServer]:
        """Return a function that begins the server's side of an exchange."""
        if mechanism == PLAIN:
            users = plain_users(settings)
            return lambda: PlainServer(users.get)
        scram = SCRAM_MECHANISMS[mechanism]
        return lambda: ScramServer(scram, self._credentials, secrets.token_urlsafe(24))


def _contexts(settings: SecuritySettings) -> TlsContexts | None:
    if settings.tls is None:
        return None
    # Imported for a listener with TLS only: a node should start fast.
    from kraft.network.tls_context import tls_contexts
    from kraft.server.config.key_stores import read_tls_settings

    return tls_contexts(read_tls_settings(settings.tls))


def _stamps(config: ServerConfig) -> dict[str, _Stamp]:
    paths = [str(config.path), *(path for each in config.security.values() for path in each.files)]
    return {path: _stamp(path) for path in paths}


def _stamp(path: str) -> _Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
