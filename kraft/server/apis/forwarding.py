"""Envelope: answer a client's request that a broker forwards (KIP-590).

The request inside is answered as if the client had sent it. The broker finds the new leader by the
envelope's NOT_CONTROLLER, so a response with that error has no body. Source: ``EnvelopeUtils`` and
``RequestChannel.Request.buildResponseSend`` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address

from kraft._core.codec.fetch import decode_request_header
from kraft.errors import (
    INVALID_REQUEST,
    NOT_CONTROLLER,
    PRINCIPAL_DESERIALIZATION_FAILURE,
    UNSUPPORTED_VERSION,
    KraftError,
)
from kraft.protocol.envelope import ENVELOPE, EnvelopeRequestData, EnvelopeResponseData
from kraft.protocol.headers import response_header
from kraft.security.hosts import java_host
from kraft.security.principals import KafkaPrincipal
from kraft.server.apis.api import AnsweringApi, AnyApi, CallContext, ListenerApi

#: APIs that brokers forward (``ApiKeys.forwardable``); the handlers decide which are served.
FORWARDABLE = frozenset(
    (19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 67, 80, 81, 94)
)
#: The size of a frame before the header of a response.
_FRAME_SIZE = 4


def envelope_api(
    apis: Mapping[int, AnsweringApi], read_principal: Callable[[str, bytes], KafkaPrincipal]
) -> AnyApi:
    """Return the API that answers forwarded requests to ``apis``, which are by API key.

    ``read_principal`` returns the principal from the name of the listener and the bytes of an
    envelope; it raises a KraftError for a principal that it cannot read.
    """
    flexible_since = {key: each.api.flexible_since for key, each in apis.items()}

    async def answer(data: EnvelopeRequestData, context: CallContext) -> EnvelopeResponseData:
        try:
            host = java_host(str(ip_address(data.client_host_address)))
        except ValueError:
            return EnvelopeResponseData(error_code=INVALID_REQUEST)
        try:
            principal = read_principal(context.listener, bytes(data.request_principal or b""))
        except KraftError:
            return EnvelopeResponseData(error_code=PRINCIPAL_DESERIALIZATION_FAILURE)
        try:
            key, inner_version, correlation, client_id, position = decode_request_header(
                data.request_data, flexible_since
            )
        except KraftError:
            return EnvelopeResponseData(error_code=UNSUPPORTED_VERSION)
        forwarded = apis.get(key)
        if key not in FORWARDABLE or forwarded is None:
            return EnvelopeResponseData(error_code=INVALID_REQUEST)
        if inner_version not in forwarded.api:
            return EnvelopeResponseData(error_code=UNSUPPORTED_VERSION)
        try:
            inner = CallContext(
                inner_version,
                forwarded.api.name,
                principal,
                host,
                client_id or "",
                context.listener,
                is_forwarded=True,
                authorizer=context.authorizer,
                quotas=context.quotas,
            )
            reply = await forwarded.reply(inner, memoryview(data.request_data)[position:])
        except KraftError:
            return EnvelopeResponseData(error_code=UNSUPPORTED_VERSION)
        if reply.is_not_controller:
            return EnvelopeResponseData(error_code=NOT_CONTROLLER)
        assert isinstance(reply.body, bytes), "no forwarded request is for records"
        start = response_header(forwarded.api, inner_version, correlation, len(reply.body))
        return EnvelopeResponseData(start[_FRAME_SIZE:] + reply.body)

    return ListenerApi(
        ENVELOPE,
        EnvelopeRequestData.decode,
        answer,
        lambda _, error: EnvelopeResponseData(error_code=error.kafka_code),
    )
