"""Plugins of a controller: policies, a principal builder and a quota callback in Python.

A setting such as ``create.topic.policy.class.name`` names a Python object, ``package.module:Name``,
or an entry point of the group `ENTRY_POINTS`. The object is called once, when the node starts, with
the node's settings as text, and returns the plugin: a class with the constructor
``__init__(self, settings)`` is the usual form. Kafka's Java classes cannot be loaded.

A plugin runs on the node's event loop: while it decides, the node does nothing else, and brokers
may be fenced. There is no time limit, as in Kafka; a call of a policy that takes more than 5 ms is
logged.

Called by `kraft.server.process` and `kraft.server.node_security` at the start, and by the decisions
on topics and configurations. The protocols of the other plugins are
`kraft.security.principal_builders.PrincipalBuilder` and
`kraft.controller.quotas.callback.QuotaCallback`. Sources: Kafka's ``CreateTopicPolicy`` (KIP-108),
``AlterConfigPolicy`` (KIP-133), ``KafkaPrincipalBuilder`` (KIP-189), ``ClientQuotaCallback``
(KIP-257).
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from kraft.controller.configs.config_changes import AlterConfigPolicy
from kraft.controller.quotas.callback import QuotaCallback
from kraft.controller.topics.topic_creation import CreateTopicPolicy, TopicMetadata
from kraft.errors import InvalidConfigError, KraftError, PolicyViolationError
from kraft.image.configs import ConfigResource
from kraft.security.principal_builders import PrincipalBuilder
from kraft.server.config.settings import (
    ALTER_CONFIG_POLICY,
    CREATE_TOPIC_POLICY,
    DEFAULT_PRINCIPAL_BUILDER,
    QUOTA_CALLBACK,
)

logger = logging.getLogger(__name__)

#: The group of entry points that settings may name.
ENTRY_POINTS: Final = "kraft.plugins"
#: A longer call is logged.
SLOW_CALL_MS: Final = 5.0


class NewTopicPolicy(Protocol):
    """Decides whether topics may be created (``create.topic.policy.class.name``)."""

    def validate(self, topic: TopicMetadata) -> None:
        """Return to allow the topic; raise an exception to reject it.

        The client receives POLICY_VIOLATION with the text of the exception. The topic has passed
        all other checks, and its replicas have been placed.
        """


class ConfigPolicy(Protocol):
    """Decides whether configurations may change (``alter.config.policy.class.name``)."""

    def validate(self, resource: ConfigResource, configs: Mapping[str, str | None]) -> None:
        """Return to allow the changes of a resource; raise an exception to reject all of them.

        ``resource`` is its type, as in ``kraft.image.configs`` (`TOPIC`, `BROKER`, ...), and its
        name. ``configs`` are the values that the request sets; None deletes. The client receives
        POLICY_VIOLATION with the text of the exception. A new topic's configuration is checked
        before the topic itself.
        """


class Policies(NamedTuple):
    """The policies of a node; None allows everything."""

    create_topic: CreateTopicPolicy | None = None
    alter_config: AlterConfigPolicy | None = None


def load_policies(settings: Mapping[str, str]) -> Policies:
    """Load the policies that a node's settings name.

    Raises InvalidConfigError for a Java class, a name that cannot be imported, and a factory that
    raises.
    """
    create_topic = load_plugin(CREATE_TOPIC_POLICY, settings)
    alter_config = load_plugin(ALTER_CONFIG_POLICY, settings)
    return Policies(
        None if create_topic is None else _topic_check(create_topic),
        None if alter_config is None else _config_check(alter_config),
    )


def load_principal_builder(
    name: str | None, settings: Mapping[str, str]
) -> PrincipalBuilder | None:
    """Return the builder that the setting ``name`` names; None for Kafka's default builder.

    Raises InvalidConfigError, as `load_policies`.
    """
    if name is None or settings[name].strip() == DEFAULT_PRINCIPAL_BUILDER:
        return None
    builder: PrincipalBuilder | None = load_plugin(name, settings, ("build",))
    return builder


def load_quota_callback(settings: Mapping[str, str]) -> QuotaCallback | None:
    """Return the plugin of ``client.quota.callback.class``; None where it is not set.

    Raises InvalidConfigError, as `load_policies`.
    """
    callback: QuotaCallback | None = load_plugin(
        QUOTA_CALLBACK, settings, ("quota_metric_tags", "quota_limit")
    )
    return callback


def load_plugin(
    name: str, settings: Mapping[str, str], methods: tuple[str, ...] = ("validate",)
) -> Any:
    """Return the plugin that the setting ``name`` names; None where it is not set.

    Raises InvalidConfigError, as `load_policies`, and for a plugin without one of ``methods``.
    """
    text = settings.get(name, "").strip()
    if not text:
        return None
    factory = _factory(name, text)
    try:
        plugin = factory(settings)
    except Exception as error:
        raise InvalidConfigError(f"{name}: {text} failed with {error!r}") from error
    for method in methods:
        if not callable(getattr(plugin, method, None)):
            raise InvalidConfigError(f"{name}: {text} has no method {method}")
    return plugin


def _factory(name: str, text: str) -> Callable[[Mapping[str, str]], Any]:
    module, colon, path = text.partition(":")
    if not colon:
        # Imported here: most nodes have no plugins, and its import takes 5 ms.
        from importlib.metadata import entry_points

        found = tuple(entry_points(group=ENTRY_POINTS, name=text))
        if not found:
            raise InvalidConfigError(
                f"{name} is {text!r:.200}, which names no Python object; kraft cannot load Java "
                "classes: write the plugin in Python and name it as package.module:Name, or as an "
                f"entry point of the group {ENTRY_POINTS}, or remove the setting"
            )
        module, _, path = found[0].value.partition(":")
    try:
        factory: Any = importlib.import_module(module.strip())
        for attribute in path.strip().split("."):
            factory = getattr(factory, attribute)
    except Exception as error:
        raise InvalidConfigError(
            f"{name} is {text!r:.200}, which cannot be imported: {error!r}"
        ) from error
    if not callable(factory):
        raise InvalidConfigError(f"{name}: {text} is not a class or function")
    made: Callable[[Mapping[str, str]], Any] = factory
    return made


def _topic_check(policy: NewTopicPolicy) -> CreateTopicPolicy:
    def check(topic: TopicMetadata) -> None:
        _call(CREATE_TOPIC_POLICY, f"topic {topic.name!r}", lambda: policy.validate(topic))

    return check


def _config_check(policy: ConfigPolicy) -> AlterConfigPolicy:
    def check(resource: ConfigResource, configs: Mapping[str, str | None]) -> None:
        _call(
            ALTER_CONFIG_POLICY,
            f"resource {resource[1]!r}",
            lambda: policy.validate(resource, configs),
        )

    return check


def _call(setting: str, subject: str, validate: Callable[[], None]) -> None:
    """Call a policy. Raises its KraftError, and PolicyViolationError for another exception."""
    begin_s = time.perf_counter()
    try:
        validate()
    except KraftError:
        raise
    except Exception as error:
        if not isinstance(error, ValueError):
            logger.warning("%s failed on %s: %r", setting, subject, error, exc_info=error)
        raise PolicyViolationError(str(error)) from error
    finally:
        taken_ms = 1000 * (time.perf_counter() - begin_s)
        if taken_ms > SLOW_CALL_MS:
            logger.warning(
                "%s took %.1f ms on %s; the node could do nothing else meanwhile",
                *(setting, taken_ms, subject),
            )
