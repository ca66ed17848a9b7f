"""Quota callbacks in Python: limits by the plugin's tags, and the changes that it receives."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.controller.quotas.callback import CallbackQuotas, QuotaKind
from kraft.controller.quotas.limits import UNLIMITED
from kraft.errors import THROTTLING_QUOTA_EXCEEDED, InvalidConfigError
from kraft.protocol.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequestData,
    AlterClientQuotasResponseData,
    QuotaEntity,
    QuotaEntry,
    QuotaOp,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.security.principals import KafkaPrincipal
from kraft.server.config.settings import QUOTA_CALLBACK
from kraft.server.plugins import load_quota_callback
from kraft.server.process import QuorumNode
from tests.harness.controller_nodes import Quorum, RunScenario, until
from tests.harness.listener_client import ask, forward
from tests.unit.server.apis.broker_requests import brokers, leader
from tests.unit.server.apis.principal_builders import Groups

HERE = "tests.unit.server.apis.principal_builders"
# A bucket of one token, refilled in an hour.
SLOW = {"controller.quota.window.num": "1", "controller.quota.window.size.seconds": "3600"}
ONE_AN_HOUR = 1 / 3600


async def set_quota(node: QuorumNode, user: str, key: str, limit: float | None) -> None:
    op = QuotaOp(key, limit or 0.0, limit is None)
    request = AlterClientQuotasRequestData([QuotaEntry([QuotaEntity("user", user)], [op])])
    answer = await ask(node, ALTER_CLIENT_QUOTAS, 1, request, AlterClientQuotasResponseData)
    assert answer.entries[0].error_code == 0


async def create(node: QuorumNode, name: str, user: str) -> int:
    request = CreateTopicsRequestData([CreatableTopic(name, 2, 1)], 30_000)
    answer = await forward(
        *(node, CREATE_TOPICS, 7, request, CreateTopicsResponseData),
        KafkaPrincipal("User", user),
    )
    assert isinstance(answer, CreateTopicsResponseData)
    return answer.topics[0].error_code


def test_the_users_of_a_group_share_a_quota(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, settings=SLOW | {QUOTA_CALLBACK: f"{HERE}:Groups"})
    Groups.made.clear()

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await brokers(node, 1)
        (groups,) = Groups.made
        await set_quota(node, "shop", "controller_mutation_rate", ONE_AN_HOUR)
        await set_quota(node, "shop", "producer_byte_rate", 5.0)
        await until(lambda: len([call for call in groups.calls if call[0] == "update"]) == 2)
        assert await create(node, "a", "shop_alice") == 0
        # Bob is of the same group: its bucket is empty.
        assert await create(node, "b", "shop_bob") == THROTTLING_QUOTA_EXCEEDED
        assert await create(node, "b", "other_bob") == 0
        # The limit is asked for once.
        asked = groups.asked
        assert await create(node, "c", "shop_alice") == THROTTLING_QUOTA_EXCEEDED
        assert groups.asked == asked
        await until(lambda: ("cluster", "a", "b") in groups.calls)
        await set_quota(node, "shop", "controller_mutation_rate", None)
        kind = QuotaKind.CONTROLLER_MUTATION
        await until(lambda: ("remove", kind, {"user": "shop"}) in groups.calls)
        assert ("update", kind, {"user": "shop"}, ONE_AN_HOUR) in groups.calls
        assert ("update", QuotaKind.PRODUCE, {"user": "shop"}, 5.0) in groups.calls
        assert await create(node, "c", "shop_alice") == 0
        # A plugin that fails limits nobody.
        assert await create(node, "d", "broken") == 0

    run_scenario(scenario, quorum)


def test_a_new_image_passes_only_changes_and_a_full_one_what_is_gone(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await set_quota(node, "shop", "controller_mutation_rate", 1.0)
        assert node.controller is not None
        images = node.controller.publishing.images
        groups = Groups({})
        quotas = Publisher(CallbackQuotas(groups))
        images.register(quotas)
        kind = QuotaKind.CONTROLLER_MUTATION
        await until(lambda: ("update", kind, {"user": "shop"}, 1.0) in groups.calls)
        await set_quota(node, "shop", "controller_mutation_rate", None)
        await set_quota(node, "team", "controller_mutation_rate", 2.0)
        await until(lambda: groups.limits == {"team": 2.0})
        clusters = [call for call in groups.calls if call[0] == "cluster"]
        assert len(clusters) == 1, "no topic and no broker changed since the first image"
        # A second full delta, as after a snapshot: the quota of another state is removed.
        quotas.quotas._set[(("user", "gone"),), "controller_mutation_rate"] = 1.0
        groups.limits["gone"] = 1.0
        images.unregister(quotas)
        images.register(quotas)
        await set_quota(node, "team", "producer_byte_rate", 2.0)
        await until(lambda: groups.limits == {"team": 2.0})

    run_scenario(scenario, quorum)


class Publisher:
    """A publisher that passes images to the quotas of a plugin."""

    name = "CallbackQuotas"

    def __init__(self, quotas: CallbackQuotas) -> None:
        self.quotas = quotas
        self.on_metadata_update = quotas.on_metadata_update


def test_limits_are_asked_for_again_where_the_plugin_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Groups({})
    groups.limits["shop"] = 3.0
    limits = CallbackQuotas(groups).limits(QuotaKind.CONTROLLER_MUTATION)
    alice = KafkaPrincipal("User", "shop_alice")

    def limit() -> float:
        return limits.limit_of(limits.account_of(alice, "c"))

    assert limit() == 3.0
    groups.factor = 2.0
    assert limit() == 3.0
    monkeypatch.setattr(groups, "quota_reset_required", lambda kind: True)
    assert limit() == 6.0


def test_only_two_methods_are_required(caplog: pytest.LogCaptureFixture) -> None:
    callback = load_quota_callback({QUOTA_CALLBACK: f"{HERE}:OnlyLimits"})
    assert callback is not None
    limits = CallbackQuotas(callback).limits(QuotaKind.REQUEST)
    for user, limit in (("alice", 1 / 3600), ("bob", UNLIMITED)):
        assert limits.limit_of(limits.account_of(KafkaPrincipal("User", user), "c")) == limit
    assert not caplog.records
    with pytest.raises(InvalidConfigError, match="has no method quota_metric_tags"):
        load_quota_callback({QUOTA_CALLBACK: f"{HERE}:ByListener"})
    with pytest.raises(InvalidConfigError, match="cannot load Java classes"):
        load_quota_callback({QUOTA_CALLBACK: "org.example.Callback"})
    assert load_quota_callback({}) is None
