"""AlterConfigs and IncrementalAlterConfigs of a broker: check, and forward what the quorum stores.

A broker changes its own loggers itself, and checks changes of its own settings and of those of all
brokers: a client has to send them to the broker that they concern. Resources that pass go to the
active controller, in a request of their own; a resource that the broker rejects, or that the
request names twice, does not. The response has all resources in the order of the request. Called by
a broker's node. Source: Kafka's ``ConfigAdminManager`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.broker.apis.forwarding import AdminForwarding
from kraft.broker.dynamic_settings import DynamicSettingsCheck
from kraft.controller.configs.config_changes import ConfigChange, ConfigOperation, value_after
from kraft.errors import (
    ClusterAuthorizationError,
    CorruptRecordError,
    InvalidRequestError,
    KraftError,
    UnforwardableRequestError,
    UnknownServerError,
)
from kraft.image.configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ConfigResource,
)
from kraft.image.publishing import Image
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.alter_configs import (
    ALTER_CONFIGS,
    AlterConfigsRequestData,
    AlterConfigsResource,
    AlterConfigsResponseData,
    AlteredResource,
)
from kraft.protocol.headers import Api
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
)
from kraft.security.controller_apis import CLUSTER_NAME
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi
from kraft.server.apis.error_responses import (
    altered_resource,
    reject_alter_configs,
    reject_incremental_alter_configs,
)
from kraft.server.apis.loggers import alter_loggers, check_node_name

#: Resources that the quorum stores as it decides, without a check of the broker.
_STORED = frozenset((TOPIC, CLIENT_METRICS, GROUP))


class _NamedChange(Protocol):
    name: str


class _ChangedResource(Protocol):
    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[_NamedChange]: ...


Changed = TypeVar("Changed", bound=_ChangedResource)


class ConfigChangeRules(NamedTuple):
    """What broker ``node_id`` checks: ``image`` returns the last image."""

    node_id: int
    image: Callable[[], Image]
    settings: DynamicSettingsCheck


def config_change_apis(rules: ConfigChangeRules, forwarding: AdminForwarding) -> Iterator[AnyApi]:
    """Yield AlterConfigs and IncrementalAlterConfigs."""
    yield _incremental_alter_configs(rules, forwarding)
    yield _alter_configs(rules, forwarding)


def _incremental_alter_configs(rules: ConfigChangeRules, forwarding: AdminForwarding) -> AnyApi:
    async def answer(
        data: IncrementalAlterConfigsRequestData, context: CallContext
    ) -> IncrementalAlterConfigsResponseData:
        def decide(resource: IncrementalAlterConfigsResource) -> bool:
            return _decide_changes(rules, resource, context, validate_only=data.validate_only)

        async def forward(
            resources: list[IncrementalAlterConfigsResource],
        ) -> list[AlteredResource]:
            request = IncrementalAlterConfigsRequestData(resources, data.validate_only)
            body = await _forwarded(forwarding, INCREMENTAL_ALTER_CONFIGS, request, context)
            return IncrementalAlterConfigsResponseData.decode(body, context.version).responses

        responses = await _answered(data.resources, decide, forward)
        return IncrementalAlterConfigsResponseData(responses=responses)

    return ListenerApi(
        INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequestData.decode,
        answer,
        reject_incremental_alter_configs,
    )


def _alter_configs(rules: ConfigChangeRules, forwarding: AdminForwarding) -> AnyApi:
    async def answer(
        data: AlterConfigsRequestData, context: CallContext
    ) -> AlterConfigsResponseData:
        async def forward(resources: list[AlterConfigsResource]) -> list[AlteredResource]:
            request = AlterConfigsRequestData(resources, data.validate_only)
            body = await _forwarded(forwarding, ALTER_CONFIGS, request, context)
            return AlterConfigsResponseData.decode(body, context.version).responses

        def decide(resource: AlterConfigsResource) -> bool:
            return _decide_values(rules, resource)

        responses = await _answered(data.resources, decide, forward)
        return AlterConfigsResponseData(responses=responses)

    return ListenerApi(ALTER_CONFIGS, AlterConfigsRequestData.decode, answer, reject_alter_configs)


async def _forwarded(
    forwarding: AdminForwarding, api: Api, request: Message, context: CallContext
) -> bytes:
    return await forwarding.forward(api, request.encode(context.version), context)


async def _answered(
    resources: list[Changed],
    decide: Callable[[Changed], bool],
    forward: Callable[[list[Changed]], Awaitable[list[AlteredResource]]],
) -> list[AlteredResource]:
    """Return the results of all resources, in their order.

    ``decide`` returns whether the broker has made the change of a resource; if not, ``forward``
    asks the controller. Both raise a KraftError to reject.
    """
    repeated = _repeated(resources)
    results: list[AlteredResource | None] = []
    for resource in resources:
        name = _name_of(resource)
        error: KraftError | None = None
        is_decided = True
        if name in repeated:
            error = InvalidRequestError("Each resource must appear at most once.")
        else:
            try:
                is_decided = decide(resource)
            except KraftError as rejected:
                error = rejected
        results.append(altered_resource(name, error) if is_decided else None)
    rest = [each for each, result in zip(resources, results, strict=True) if result is None]
    stored: dict[ConfigResource, AlteredResource] = {}
    missing: KraftError = UnknownServerError("the active controller returned no result")
    if rest:
        try:
            stored = {_name_of(result): result for result in await forward(rest)}
        except UnforwardableRequestError:
            raise
        except CorruptRecordError as error:
            missing = UnknownServerError(f"the active controller's response: {error}")
        except KraftError as error:
            missing = error
    return [
        result or stored.get(_name_of(resource)) or altered_resource(_name_of(resource), missing)
        for resource, result in zip(resources, results, strict=True)
    ]


class _Named(Protocol):
    resource_type: int
    resource_name: str


def _name_of(resource: _Named) -> ConfigResource:
    return resource.resource_type, resource.resource_name


def _repeated(resources: Iterable[_Named]) -> set[ConfigResource]:
    seen: set[ConfigResource] = set()
    repeated: set[ConfigResource] = set()
    for resource in resources:
        (repeated if _name_of(resource) in seen else seen).add(_name_of(resource))
    return repeated


def _decide_changes(
    rules: ConfigChangeRules,
    resource: IncrementalAlterConfigsResource,
    context: CallContext,
    *,
    validate_only: bool,
) -> bool:
    """Check the changes of a resource, and make those of loggers; return whether they are made."""
    _check_names(resource)
    _check_null(
        change.name
        for change in resource.configs
        if change.value is None and change.config_operation != ConfigOperation.DELETE
    )
    kind, name = _name_of(resource)
    if kind == BROKER_LOGGER:
        if not context.allows(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError(f"{context.principal} may not alter the loggers")
        alter_loggers(resource, rules.node_id, validate_only=validate_only)
        return True
    if kind == BROKER:
        changes = [
            ConfigChange(one.name, one.value, one.config_operation) for one in resource.configs
        ]
        _check_broker(rules, name, lambda present: _changed(resource, changes, present))
    elif kind not in _STORED:
        raise InvalidRequestError(f"Unknown resource type {kind}")
    return False


def _changed(
    resource: IncrementalAlterConfigsResource,
    changes: Sequence[ConfigChange],
    present: Mapping[str, str],
) -> dict[str, str]:
    """Return the settings of a resource after the changes. Raises KraftError."""
    after = dict(present)
    for change in changes:
        if change.operation not in ConfigOperation.__members__.values():
            raise InvalidRequestError(f"Unknown operations type {change.operation}")
    for change in changes:
        value = value_after(_name_of(resource), change, present.get(change.name))
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
    return after


def _decide_values(rules: ConfigChangeRules, resource: AlterConfigsResource) -> bool:
    """Check the new values of a resource; return False, since the quorum stores them."""
    _check_names(resource)
    _check_null(each.name for each in resource.configs if each.value is None)
    kind, name = _name_of(resource)
    if kind == BROKER:
        values = {each.name: each.value for each in resource.configs if each.value is not None}
        _check_broker(rules, name, lambda _: values)
    elif kind not in _STORED:
        # Loggers too: only IncrementalAlterConfigs changes them.
        raise InvalidRequestError(f"Unknown resource type {kind}")
    return False


def _check_broker(
    rules: ConfigChangeRules, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> None:
    """Check the settings that ``change`` makes of the present ones of a broker, or of all ("")."""
    if name:
        check_node_name(name, rules.node_id)
    configs = rules.image().state.configs
    for_all, for_node = configs.cluster_default(), configs.broker(rules.node_id)
    present = rules.settings.applied(for_node if name else for_all, is_for_all=not name)
    changed = change(present)
    rules.settings.check(changed, for_all, for_node, is_for_all=not name)


def _check_names(resource: _ChangedResource) -> None:
    if len({each.name for each in resource.configs}) < len(resource.configs):
        raise InvalidRequestError("Error due to duplicate config keys")


def _check_null(names: Iterable[str]) -> None:
    """Raise InvalidRequestError if there are configurations without the value that they need."""
    if without := ", ".join(names):
        raise InvalidRequestError(f"Null value not supported for : {without}")
