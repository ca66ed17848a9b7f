"""APIs of configurations, quotas and features.

IncrementalAlterConfigs, AlterConfigs, AlterClientQuotas, UpdateFeatures. As in Kafka, only
UpdateFeatures has a deadline. `loggers` changes the levels of this node's loggers. Source:
``ControllerApis`` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from kraft.controller.configs.client_quotas import QuotaAlteration
from kraft.controller.configs.config_changes import ConfigChange
from kraft.controller.features import FeatureUpdate, LocalFeatures, UpgradeType
from kraft.controller.runtime import requests
from kraft.errors import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    KraftError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from kraft.image.configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ConfigResource,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequestData,
    AlterClientQuotasResponseData,
    QuotaEntity,
    QuotaEntry,
)
from kraft.protocol.alter_configs import (
    ALTER_CONFIGS,
    AlterConfigsRequestData,
    AlterConfigsResource,
    AlterConfigsResponseData,
    AlteredResource,
)
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
)
from kraft.protocol.update_features import (
    UPDATE_FEATURES,
    FeatureResult,
    UpdateFeaturesRequestData,
    UpdateFeaturesResponseData,
)
from kraft.security.controller_apis import CLUSTER_NAME
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi
from kraft.server.apis.error_responses import (
    altered_quotas,
    altered_resource,
    reject_alter_client_quotas,
    reject_alter_configs,
    reject_incremental_alter_configs,
    reject_update_features,
)
from kraft.server.apis.loggers import alter_loggers
from kraft.server.apis.slices import in_slices
from kraft.server.controller import ControllerRunner
from kraft.server.plugins import Policies

#: The last version of UpdateFeatures with a result for each feature.
_LAST_WITH_RESULTS = 1
_KNOWN_TYPES = frozenset((TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP))


class NamedResource(Protocol):
    """The type and name of a resource in a request."""

    resource_type: int
    resource_name: str


Named = TypeVar("Named", bound=NamedResource)


def config_apis(
    runner: ControllerRunner, local: LocalFeatures, policies: Policies
) -> Iterator[AnyApi]:
    """Yield the APIs of configurations, quotas and features.

    ``local`` describes the features of this node.
    """
    yield _incremental_alter_configs(runner, policies)
    yield _alter_configs(runner, policies)
    yield _alter_client_quotas(runner)
    yield _update_features(runner, local)


def _incremental_alter_configs(runner: ControllerRunner, policies: Policies) -> AnyApi:
    async def answer(
        data: IncrementalAlterConfigsRequestData, context: CallContext
    ) -> IncrementalAlterConfigsResponseData:
        known, rejected = await _allowed_resources(data.resources, context)
        loggers = [each for each in known if each.resource_type == BROKER_LOGGER]
        known = [each for each in known if each.resource_type != BROKER_LOGGER]
        answered = [_alter_loggers(runner, each, data.validate_only) for each in loggers]
        if not known and answered:
            # Every controller changes its own loggers, also one that is not active.
            refused = [altered_resource(*each) for each in rejected.items()]
            return IncrementalAlterConfigsResponseData(responses=refused + answered)
        operation = requests.incremental_alter_configs(
            await in_slices(_changes, known),
            validate_only=data.validate_only,
            is_forwarded=context.is_forwarded,
            policy=policies.alter_config,
        )
        results = await runner.submit(operation)
        responses = await in_slices(_altered, (rejected | results).items())
        responses += answered
        return IncrementalAlterConfigsResponseData(responses=responses)

    return ListenerApi(
        INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequestData.decode,
        answer,
        reject_incremental_alter_configs,
    )


def _alter_loggers(
    runner: ControllerRunner, resource: IncrementalAlterConfigsResource, validate_only: bool
) -> AlteredResource:
    node_id = runner.controller.settings.decisions.node_id
    assert node_id is not None
    error: KraftError | None = None
    try:
        alter_loggers(resource, node_id, validate_only=validate_only)
    except KraftError as rejected:
        error = rejected
    return altered_resource(_name_of(resource), error)


def _alter_configs(runner: ControllerRunner, policies: Policies) -> AnyApi:
    async def answer(
        data: AlterConfigsRequestData, context: CallContext
    ) -> AlterConfigsResponseData:
        known, rejected = await _allowed_resources(data.resources, context)
        operation = requests.alter_configs(
            await in_slices(_values, known),
            validate_only=data.validate_only,
            is_forwarded=context.is_forwarded,
            policy=policies.alter_config,
        )
        results = await runner.submit(operation)
        responses = await in_slices(_altered, (rejected | results).items())
        return AlterConfigsResponseData(responses=responses)

    return ListenerApi(ALTER_CONFIGS, AlterConfigsRequestData.decode, answer, reject_alter_configs)


def _name_of(resource: NamedResource) -> ConfigResource:
    return resource.resource_type, resource.resource_name


async def _allowed_resources(
    resources: Iterable[Named], context: CallContext
) -> tuple[list[Named], dict[ConfigResource, KraftError | None]]:
    """Return the resources that the client may alter, and the errors of the others."""
    allowed: list[Named] = []
    rejected: dict[ConfigResource, KraftError | None] = {}

    def check(resource: Named) -> None:
        error = _refusal(resource.resource_type, resource.resource_name, context)
        if error is None:
            allowed.append(resource)
        else:
            rejected[_name_of(resource)] = error

    await in_slices(check, resources)
    return allowed, rejected


def _changes(
    resource: IncrementalAlterConfigsResource,
) -> tuple[ConfigResource, list[ConfigChange]]:
    """Return the changes of a resource."""
    return _name_of(resource), [
        ConfigChange(each.name, each.value, each.config_operation) for each in resource.configs
    ]


def _values(resource: AlterConfigsResource) -> tuple[ConfigResource, dict[str, str | None]]:
    """Return the new values of a resource."""
    return _name_of(resource), {each.name: each.value for each in resource.configs}


def _refusal(resource_type: int, name: str, context: CallContext) -> KraftError | None:
    """Return why the client may not alter a resource, None if it may."""
    if resource_type not in _KNOWN_TYPES:
        return UnsupportedVersionError(f"Unknown resource type {resource_type}.")
    if resource_type == TOPIC:
        if context.allows(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, name):
            return None
        return TopicAuthorizationError(f"{context.principal} may not alter topic {name!r}")
    if resource_type == GROUP:
        if context.allows(AclOperation.ALTER_CONFIGS, ResourceType.GROUP, name):
            return None
        return GroupAuthorizationError(f"{context.principal} may not alter group {name!r}")
    if context.allows(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    return ClusterAuthorizationError(f"{context.principal} may not alter the cluster's resources")


def _altered(result: tuple[ConfigResource, KraftError | None]) -> AlteredResource:
    return altered_resource(*result)


def _alter_client_quotas(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: AlterClientQuotasRequestData, context: CallContext
    ) -> AlterClientQuotasResponseData:
        alterations = await in_slices(_alteration, data.entries)
        operation = requests.alter_client_quotas(alterations, validate_only=data.validate_only)
        results = await runner.submit(operation)
        return AlterClientQuotasResponseData(
            entries=await in_slices(
                lambda result: altered_quotas(
                    [QuotaEntity(*part) for part in result[0]], result[1]
                ),
                results.items(),
            )
        )

    return ListenerApi(
        ALTER_CLIENT_QUOTAS,
        AlterClientQuotasRequestData.decode,
        answer,
        reject_alter_client_quotas,
    )


def _alteration(entry: QuotaEntry) -> QuotaAlteration:
    return QuotaAlteration(
        {part.entity_type: part.entity_name for part in entry.entity},
        [(op.key, None if op.remove else op.value) for op in entry.ops],
    )


def _update_features(runner: ControllerRunner, local: LocalFeatures) -> AnyApi:
    async def answer(
        data: UpdateFeaturesRequestData, context: CallContext
    ) -> UpdateFeaturesResponseData:
        updates = [
            FeatureUpdate(
                update.feature,
                update.max_version_level,
                # Version 0 has only the flag.
                UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type,
            )
            for update in data.feature_updates
        ]
        operation = requests.update_features(updates, local, validate_only=data.validate_only)
        await runner.submit(operation, timeout_ms=data.timeout_ms)
        response = UpdateFeaturesResponseData()
        if context.version <= _LAST_WITH_RESULTS:
            response.results = [FeatureResult(update.name) for update in updates]
        return response

    return ListenerApi(
        UPDATE_FEATURES, UpdateFeaturesRequestData.decode, answer, reject_update_features
    )
