"""All APIs of a broker, as handlers of its listener."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from kraft.broker.apis.config_changes import ConfigChangeRules, config_change_apis
from kraft.broker.apis.configs import config_apis
from kraft.broker.apis.data_apis import data_apis
from kraft.broker.apis.descriptions import description_apis
from kraft.broker.apis.find_coordinator import find_coordinator_api
from kraft.broker.apis.forwarding import AdminForwarding, forwarding_apis
from kraft.broker.apis.groups import group_apis
from kraft.broker.apis.metadata import metadata_apis
from kraft.broker.apis.topic_creation import TopicCreation
from kraft.broker.config import BROKER_SETTINGS
from kraft.broker.dynamic_settings import DynamicSettingsCheck
from kraft.broker.producer_ids import AllocatedProducerIds
from kraft.broker.services import BrokerServices
from kraft.network.handler import Handler
from kraft.security.authorizer import Authorizer
from kraft.security.controller_apis import BROKER_OPERATIONS
from kraft.server.apis.api import handler_of
from kraft.server.client_quotas import ClientQuotaState
from kraft.server.config.settings import SETTINGS


def broker_handlers(
    broker: BrokerServices,
    forwarding: AdminForwarding,
    creation: TopicCreation,
    producer_ids: AllocatedProducerIds,
    *,
    authorizer: Authorizer | None,
    quotas: ClientQuotaState | None,
    errors: Counter[tuple[str, int]],
) -> dict[int, Handler]:
    """Return the handlers by API key; the last arguments are those of `handler_of`."""
    config = broker.config
    check = DynamicSettingsCheck(
        config.node_id,
        config.given,
        SETTINGS | BROKER_SETTINGS,
        frozenset(config.log_dirs),
        config.limits,
    )
    apis = chain(
        data_apis(
            broker,
            producer_ids,
            fetch_max_bytes=broker.settings.fetch_max_bytes,
        ),
        metadata_apis(broker.cache, creation),
        group_apis(broker),
        (find_coordinator_api(broker),),
        config_apis(config.node_id, config.given, broker.image),
        config_change_apis(ConfigChangeRules(config.node_id, broker.image, check), forwarding),
        description_apis(broker.image, config.tokens()),
        forwarding_apis(forwarding),
    )
    return {
        each.api.key: handler_of(each, authorizer, quotas, errors, BROKER_OPERATIONS)
        for each in apis
    }
