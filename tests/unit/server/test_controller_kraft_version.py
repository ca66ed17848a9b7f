"""UpdateFeatures of kraft.version, which the raft layer of the node decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.controller.features import FeatureUpdate, LocalFeatures, UpdatedFeatures
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.errors import (
    InvalidUpdateVersionError,
)
from tests.harness.controller_nodes import (
    Quorum,
    RunScenario,
)


def update_features(*updates: FeatureUpdate, validate_only: bool = False) -> Operation:
    local = LocalFeatures(1)
    return requests.update_features(updates, local, validate_only=validate_only)


def test_update_features_raises_kraft_version_through_the_raft_layer(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, is_static=True)

    async def scenario() -> None:
        await quorum.start()
        await quorum.active()
        raise_it = FeatureUpdate("kraft.version", 1)
        node = quorum.running[1].driver.node
        checked = await quorum.ask(update_features(raise_it, validate_only=True))
        assert checked == UpdatedFeatures({}, 1)
        assert node.log.kraft_version == 0
        with pytest.raises(InvalidUpdateVersionError, match="only supports versions 0-1"):
            await quorum.ask(update_features(FeatureUpdate("kraft.version", 2)))
        both = await quorum.ask(update_features(raise_it, FeatureUpdate("group.version", 0, 2)))
        assert both == UpdatedFeatures({"group.version": 0}, 1)
        assert node.log.kraft_version == 1
        state = quorum.cluster(1).state
        assert state.quorum.kraft_version == 1
        assert [voter.id for voter in state.quorum.voters] == [1]
        assert "group.version" not in state.features
        assert await quorum.ask(update_features(raise_it)) == UpdatedFeatures({}, 1)
        with pytest.raises(InvalidUpdateVersionError, match="downgrade"):
            await quorum.ask(update_features(FeatureUpdate("kraft.version", 0, 3)))
        await quorum.stop()
        await quorum.start()
        await quorum.active()
        assert quorum.running[1].driver.node.log.kraft_version == 1

    run_scenario(scenario, quorum)


def test_an_error_of_the_raft_layer_for_kraft_version_is_the_response(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3, is_static=True)

    async def scenario() -> None:
        await quorum.start(1, 2)
        active = await quorum.active()
        with pytest.raises(
            InvalidUpdateVersionError, match=r"has not reported that it supports kraft\.version 1"
        ):
            await quorum.ask(
                update_features(
                    FeatureUpdate("kraft.version", 1),
                    FeatureUpdate("group.version", 0, 2),
                )
            )
        assert quorum.cluster(active).state.features["group.version"] == 1

    run_scenario(scenario, quorum)
