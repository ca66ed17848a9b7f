"""All APIs of the controller, as handlers of the listener."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import chain

from kraft.controller.features import LocalFeatures
from kraft.controller.security.delegation_tokens import TokenSettings
from kraft.network.handler import Handler
from kraft.raft.rpc import Request, Response
from kraft.security.authorizer import Authorizer
from kraft.security.principals import KafkaPrincipal
from kraft.server.apis.acls import acl_apis
from kraft.server.apis.api import AnyApi, handler_of
from kraft.server.apis.brokers import broker_apis
from kraft.server.apis.config_descriptions import describe_configs_api
from kraft.server.apis.configs import config_apis
from kraft.server.apis.credentials import credential_apis
from kraft.server.apis.forwarding import envelope_api
from kraft.server.apis.partitions import partition_apis
from kraft.server.apis.quorum import FORWARDED_RAFT_APIS, RaftApi
from kraft.server.apis.topics import topic_apis
from kraft.server.client_quotas import ClientQuotaState
from kraft.server.controller import ControllerRunner
from kraft.server.plugins import Policies


def controller_handlers(
    runner: ControllerRunner,
    ask: Callable[[Request], Awaitable[Response]],
    *,
    cluster_id: str,
    listener: str,
    local: LocalFeatures,
    tokens: TokenSettings,
    authorizer: Authorizer | None,
    quotas: ClientQuotaState | None,
    policies: Policies,
    read_principal: Callable[[str, bytes], KafkaPrincipal],
    errors: Counter[tuple[str, int]],
) -> dict[int, Handler]:
    """Return the handlers by API key.

    ``ask`` passes a request to the raft node; ``listener`` names the controller listener; ``local``
    describes the features of this node. Without an ``authorizer`` every request is allowed; without
    ``quotas`` no request is throttled. ``read_principal`` reads the principals of envelopes, see
    `envelope_api`. ``errors`` counts the responses by API and error.
    """
    apis = {
        each.api.key: each
        for each in chain(
            broker_apis(runner, cluster_id, local),
            topic_apis(runner, policies),
            partition_apis(runner),
            config_apis(runner, local, policies),
            acl_apis(runner),
            credential_apis(runner, tokens),
            (_describe_configs(runner),),
        )
    }
    raft_apis = {api.key: RaftApi(api, ask, listener) for api in FORWARDED_RAFT_APIS}
    envelope = envelope_api({**apis, **raft_apis}, read_principal)
    served = {**apis, envelope.api.key: envelope}
    return {key: handler_of(each, authorizer, quotas, errors) for key, each in served.items()}


def _describe_configs(runner: ControllerRunner) -> AnyApi:
    settings = runner.controller.settings.decisions
    assert settings.node_id is not None
    return describe_configs_api(
        settings.node_id, settings.config_rules.static, lambda: runner.publishing.images.image
    )
