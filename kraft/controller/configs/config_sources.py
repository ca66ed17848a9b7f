"""Sources of configuration values, and the effective configuration of a new topic.

CreateTopics returns the effective configuration from the state of the active controller, with the
texts as they were written. ``config_description`` describes existing resources, with parsed values.
Sources: Kafka's ``KafkaConfigSchema.resolveEffectiveTopicConfigs``, ``ConfigSynonym``,
``DescribeConfigsResponse.ConfigSource`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kraft.configdef import ConfigType, ConfigValueError, read, text_of
from kraft.controller.config_schema import TOPIC_CONFIGS, Synonym

DYNAMIC_TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
DYNAMIC_BROKER_LOGGER_CONFIG: Final = 6
CLIENT_METRICS_CONFIG: Final = 7
GROUP_CONFIG: Final = 8

#: Topic configurations that are hidden unless the topic sets them.
INTERNAL_TOPIC_CONFIGS: Final = frozenset(("internal.segment.bytes",))


class EffectiveConfig(NamedTuple):
    """An effective value of a topic configuration, with its source."""

    name: str
    value: str | None
    source: int


class TopicDefaults:
    """The defaults of new topics, by the settings of the active controller.

    ``for_node`` are the dynamic settings of this node, ``for_all`` those of all brokers, ``static``
    the texts of the properties file.
    """

    def __init__(
        self, static: Mapping[str, str], for_all: Mapping[str, str], for_node: Mapping[str, str]
    ) -> None:
        sources = (
            (for_node, DYNAMIC_BROKER_CONFIG),
            (for_all, DYNAMIC_DEFAULT_BROKER_CONFIG),
            (static, STATIC_BROKER_CONFIG),
        )
        #: The defaults by the names of the configurations, ascending.
        self.configs: dict[str, EffectiveConfig] = {}
        for name, definition in sorted(TOPIC_CONFIGS.items()):
            found = (
                (_converted(synonym, values[synonym.name]), source)
                for values, source in sources
                for synonym in definition.synonyms
                if synonym.name in values
            )
            value, source = next(found, (text_of(definition.default), DEFAULT_CONFIG))
            self.configs[name] = EffectiveConfig(name, value, source)

    def of_topic(self, configs: Mapping[str, str | None]) -> list[EffectiveConfig]:
        """Return the effective configuration of a topic that is created with ``configs``."""
        return [
            EffectiveConfig(name, configs[name], DYNAMIC_TOPIC_CONFIG) if name in configs else one
            for name, one in self.configs.items()
            if name in configs or name not in INTERNAL_TOPIC_CONFIGS
        ]


def _converted(synonym: Synonym, text: str) -> str:
    """Return a broker setting in the unit of the topic's; as in Kafka, 0 for an invalid number."""
    if synonym.factor == 1:
        return text
    try:
        return str(read(ConfigType.INT, text) * synonym.factor)
    except ConfigValueError:
        return "0"
