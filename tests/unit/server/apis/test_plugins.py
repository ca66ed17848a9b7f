"""Policies in Python: loading, and the responses to requests that they reject."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kraft.errors import InvalidConfigError, PolicyViolationError
from kraft.image.configs import TOPIC
from kraft.protocol.create_topics import CreatableConfig, CreatableTopic
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)
from kraft.server import plugins
from kraft.server.config.settings import ALTER_CONFIG_POLICY, CREATE_TOPIC_POLICY
from kraft.server.plugins import load_policies
from tests.harness.controller_nodes import Quorum, RunScenario
from tests.harness.listener_client import ask
from tests.unit.server.apis.broker_requests import brokers, create, leader

HERE = "tests.unit.server.apis.policies"
POLICY_VIOLATION = 44
INVALID_TOPIC = 17


def test_policies_decide_requests(
    run_scenario: RunScenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = Quorum(
        tmp_path,
        settings={
            CREATE_TOPIC_POLICY: f"{HERE}:Names",
            ALTER_CONFIG_POLICY: f"{HERE}:ShortRetention",
            "example.prefix": "team-",
        },
    )

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await brokers(node, 1)
        long = [CreatableConfig("retention.ms", "86400001")]
        made = await create(
            node,
            *(CreatableTopic(name, 1, 1) for name in ("team-a", "b", "broken", "invalid")),
            CreatableTopic("team-c", 1, 1, configs=long),
        )
        assert {topic.name: (topic.error_code, topic.error_message) for topic in made.topics} == {
            "team-a": (0, None),
            "b": (POLICY_VIOLATION, "the name b does not begin with team-"),
            "broken": (POLICY_VIOLATION, "'broken'"),
            "invalid": (INVALID_TOPIC, "the policy's own error"),
            "team-c": (POLICY_VIOLATION, "retention.ms is above a day"),
        }
        # A policy that fails in an unexpected way is logged with its traceback.
        failures = [record for record in caplog.records if "failed on" in record.msg]
        assert [record.exc_info is not None for record in failures] == [True]
        change = IncrementalAlterConfigsRequestData(
            [
                IncrementalAlterConfigsResource(
                    TOPIC, "team-a", [IncrementalConfig("retention.ms", 0, "90000000")]
                )
            ]
        )
        altered = await ask(
            node, INCREMENTAL_ALTER_CONFIGS, 1, change, IncrementalAlterConfigsResponseData
        )
        assert altered.responses[0].error_code == POLICY_VIOLATION
        assert altered.responses[0].error_message == "retention.ms is above a day"

    run_scenario(scenario, quorum)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("org.example.JavaPolicy", "cannot load Java classes: write the plugin in Python"),
        (f"{HERE}:Missing", "cannot be imported: AttributeError"),
        ("no.such.module:Name", "cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:NOT_CALLABLE", "is not a class or function"),
        (f"{HERE}:without_method", "has no method validate"),
        (f"{HERE}:failing", "failed with RuntimeError"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        load_policies({CREATE_TOPIC_POLICY: text})


def test_a_node_does_not_start_with_an_unknown_java_class(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings={ALTER_CONFIG_POLICY: "org.example.JavaPolicy"})

    async def scenario() -> None:
        with pytest.raises(InvalidConfigError, match=ALTER_CONFIG_POLICY):
            await quorum.start()

    run_scenario(scenario, quorum)


def test_a_plugin_may_be_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "policies-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: policies\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[kraft.plugins]\nnames = {HERE}:Names\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    policies = load_policies({CREATE_TOPIC_POLICY: "names", "example.prefix": "x"})
    assert policies.create_topic is not None
    assert policies.alter_config is None


def test_a_slow_policy_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policy = load_policies({ALTER_CONFIG_POLICY: f"{HERE}:ShortRetention"}).alter_config
    assert policy is not None
    monkeypatch.setattr(plugins, "SLOW_CALL_MS", -1.0)
    with caplog.at_level(logging.WARNING), pytest.raises(PolicyViolationError):
        policy((TOPIC, "a"), {"retention.ms": "86400001"})
    assert "the node could do nothing else meanwhile" in caplog.text
