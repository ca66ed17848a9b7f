"""Forward admin requests of clients to the active controller, in envelopes (KIP-590).

The controller decides as if the client had asked it: the envelope has the client's request with its
header, its principal and its address. The controller therefore checks the client's permissions and
quotas; a broker checks only the connection of requests for delegation tokens. `ApiVersions` of a
broker lists only versions that the active controller has too (`advertised_apis`).

A request without an answer within `FORWARDING_TIMEOUT_MS` is answered with REQUEST_TIMED_OUT, and
an envelope that the controller rejects with UNKNOWN_SERVER_ERROR. A version that the controller
lacks closes the client's connection, so that the client asks for the versions again. Called by a
broker's node; `config_changes` forwards a part of a request. Sources: Kafka's ``KafkaApis``,
``ForwardingManagerImpl``, ``RequestHandlerHelper.sendForwardedResponse``,
``ApiVersionsResponse.intersectForwardableApis`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_address
from typing import Any, NamedTuple

from kraft._core.codec.metadata_codec import Message
from kraft.broker.request_channels import ActiveControllerChannel
from kraft.errors import (
    NONE,
    UNSUPPORTED_VERSION,
    CorruptRecordError,
    KraftError,
    UnforwardableRequestError,
    UnknownServerError,
    UnsupportedVersionError,
    error_name,
)
from kraft.protocol.alter_configs import ALTER_CONFIGS
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.apis import RPC_BY_KEY
from kraft.protocol.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreateDelegationTokenRequestData,
)
from kraft.protocol.envelope import ENVELOPE, EnvelopeRequestData, EnvelopeResponseData
from kraft.protocol.expire_delegation_token import EXPIRE_DELEGATION_TOKEN
from kraft.protocol.headers import Api, Body, read_response_header, request_frame
from kraft.protocol.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from kraft.protocol.renew_delegation_token import RENEW_DELEGATION_TOKEN
from kraft.security.principals import KafkaPrincipal
from kraft.server.apis.api import AnsweringApi, CallContext, Reply
from kraft.server.apis.credentials import token_owner, token_requester
from kraft.server.apis.error_responses import REJECTIONS, Rejection, encode_rejection
from kraft.server.apis.forwarding import FORWARDABLE

#: How long a forwarded request is sent to one controller after the other. As Kafka's, it is not the
#: client's own timeout, which no request has in its header.
FORWARDING_TIMEOUT_MS = 60_000
#: APIs that a broker decides in part, see `config_changes`.
_PARTLY_FORWARDED = frozenset((ALTER_CONFIGS.key, INCREMENTAL_ALTER_CONFIGS.key))
#: The size of a frame before a header.
_FRAME_SIZE = 4


class AdminForwarding:
    """Sends requests of clients to the active controller.

    ``encode_principal`` returns the bytes of a principal for envelopes, from the name of the
    client's listener and the principal.
    """

    def __init__(
        self,
        controller: ActiveControllerChannel,
        encode_principal: Callable[[str, KafkaPrincipal], bytes],
        *,
        timeout_ms: float = FORWARDING_TIMEOUT_MS,
    ) -> None:
        self.controller = controller
        self._encode_principal = encode_principal
        self.timeout_ms = timeout_ms

    async def forward(self, api: Api, body: Body, context: CallContext) -> bytes:
        """Return the body of the controller's response, in the version of the request.

        Raises RequestTimedOutError if no controller answers in time, UnforwardableRequestError if
        the controller does not support the request, and UnknownServerError if it rejects the
        envelope or if its response is not one to this request.
        """
        frame = request_frame(
            api, context.version, context.correlation, context.client_id, bytes(body)
        )
        envelope = EnvelopeRequestData(
            frame[_FRAME_SIZE:],
            self._encode_principal(context.listener, context.principal),
            _packed(context.host),
        )
        try:
            response = await self.controller.call(
                ENVELOPE, envelope, EnvelopeResponseData, timeout_ms=self.timeout_ms
            )
        except UnsupportedVersionError as error:
            raise UnforwardableRequestError(str(error)) from error
        if response.error_code == UNSUPPORTED_VERSION:
            raise UnforwardableRequestError(
                f"the active controller does not support version {context.version} of {api.name}"
            )
        if response.error_code != NONE or response.response_data is None:
            raise UnknownServerError(
                f"the active controller rejected the envelope of {api.name} with "
                f"{error_name(response.error_code)}"
            )
        return _body_of(api, response.response_data, context)


def _packed(host: str) -> bytes:
    """Return the 4 or 16 bytes of a client's address, which `java_host` has written."""
    return ip_address(host.partition("%")[0]).packed


def _body_of(api: Api, response: bytes, context: CallContext) -> bytes:
    try:
        correlation, position = read_response_header(response, api, context.version)
    except CorruptRecordError as error:
        raise UnknownServerError(f"the controller's response to {api.name}: {error}") from error
    if correlation != context.correlation:
        raise UnknownServerError(
            f"the active controller answered request {correlation} instead of the request "
            f"{context.correlation} of {api.name}"
        )
    return response[position:]


class _ForwardedApi:
    """An API whose requests the active controller answers.

    ``check`` raises a KraftError for a request that the broker itself rejects.
    """

    def __init__(
        self,
        rejection: Rejection,
        forwarding: AdminForwarding,
        check: Callable[[Body, CallContext], None] | None,
    ) -> None:
        self.api = rejection.api
        self._rejection = rejection
        self._forwarding = forwarding
        self._check = check
        self._throttle = ThrottleReader.of(self.api)

    async def reply(self, context: CallContext, body: Body) -> Reply:
        """Answer the request.

        Raises CorruptRecordError for a malformed body, UnforwardableRequestError if the client has
        to ask for the versions of the APIs again.
        """
        try:
            if self._check is not None:
                self._check(body, context)
            response = await self._forwarding.forward(self.api, body, context)
        except UnforwardableRequestError:
            raise
        except KraftError as error:
            request = self._rejection.decode(body, context.version)
            rejected = self._rejection.reject(request, error)
            body = encode_rejection(rejected, context.version)
            return Reply(body, error=error.kafka_code)
        # The client waits at the broker for the controller's quotas: the broker's connection to the
        # controller is shared by all clients.
        return Reply(response, throttle_ms=self._throttle.read(response, context.version))


class ThrottleReader(NamedTuple):
    """Reads the throttle time of encoded responses; ``first_since`` is the first version in which
    it is the first field, None where it is not.
    """

    response: type[Message] | None
    first_since: int | None

    @classmethod
    def of(cls, api: Api) -> ThrottleReader:
        response = RPC_BY_KEY[api.key].response
        specs = {} if response is None else response.schema.specs
        if "throttle_time_ms" not in specs:
            return cls(None, None)
        is_first = next(iter(specs)) == "throttle_time_ms"
        return cls(response, specs["throttle_time_ms"].since if is_first else None)

    def read(self, body: bytes, version: int) -> int:
        """Return the milliseconds that the client has to wait.

        Only small responses have the field at another place, and are decoded for it.
        """
        if self.response is None:
            return 0
        if self.first_since is None:
            response: Any = self.response.decode(body, version)
            throttle_ms: int = response.throttle_time_ms
            return throttle_ms
        return int.from_bytes(body[:4], "big") if version >= self.first_since else 0


def forwarding_apis(forwarding: AdminForwarding) -> Iterator[AnsweringApi]:
    """Yield the APIs that the active controller decides alone."""
    checks: dict[int, Callable[[Body, CallContext], None]] = {
        CREATE_DELEGATION_TOKEN.key: _check_token_creation,
        RENEW_DELEGATION_TOKEN.key: _check_token_connection,
        EXPIRE_DELEGATION_TOKEN.key: _check_token_connection,
    }
    for key, rejection in REJECTIONS.items():
        if key not in _PARTLY_FORWARDED:
            yield _ForwardedApi(rejection, forwarding, checks.get(key))


def _check_token_creation(body: Body, context: CallContext) -> None:
    token_owner(CreateDelegationTokenRequestData.decode(body, context.version), context)


def _check_token_connection(body: Body, context: CallContext) -> None:
    token_requester(context)


def advertised_apis(served: Iterable[Api], controller: PeerVersions | None) -> list[Api]:
    """Return the APIs for the ApiVersions response of a broker that serves ``served``.

    Of an API that the broker forwards, only the versions that the active controller has as well;
    all of them while no controller is known.
    """
    advertised = []
    for api in served:
        if controller is None or api.key not in FORWARDABLE:
            advertised.append(api)
            continue
        lowest, highest = controller.ranges.get(api.key, (0, -1))
        lowest, highest = max(lowest, api.lowest), min(highest, api.highest)
        if lowest <= highest:
            advertised.append(api._replace(lowest=lowest, highest=highest))
    return advertised
