"""Policies for topics and configurations in sequences; ``java/QuorumNode.java`` has the same."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.controller.topics.topic_creation import CreationRules, TopicMetadata
from kraft.errors import PolicyViolationError
from kraft.image.configs import ConfigResource


def topic_rules() -> CreationRules:
    """Return rules whose policy reads each field of its argument."""
    return CreationRules(policy=_refuse_topic, config_policy=refuse_config)


def _refuse_topic(topic: TopicMetadata) -> None:
    if topic.num_partitions == 3:
        raise PolicyViolationError("three partitions")
    if topic.replication_factor == 4:
        raise PolicyViolationError("four replicas")
    if topic.assignments is not None and len(topic.assignments) == 3:
        raise PolicyViolationError("three assignments")
    if topic.configs.get("retention.ms") == "1000":
        raise PolicyViolationError("a second")
    if topic.name == "new-3":
        raise ValueError("a policy that fails")


def refuse_config(resource: ConfigResource, altered: Mapping[str, str | None]) -> None:
    """Raise PolicyViolationError for some changes of configurations."""
    if resource[1] == "topic-1" and len(altered) > 1:
        raise PolicyViolationError("several at once")
    if altered.get("retention.ms") == "1000":
        raise PolicyViolationError("a second")
    if "cleanup.policy" in altered and altered["cleanup.policy"] is None:
        raise PolicyViolationError("nothing in place of cleanup.policy")
    if altered.get("min.insync.replicas") == "3":
        raise ValueError("a policy that fails")
