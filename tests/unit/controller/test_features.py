"""Upgrade and downgrade feature levels: all updates of a request are applied, or none."""

from __future__ import annotations

import pytest

from kraft import records
from kraft.controller.brokers.broker_lifecycle import (
    begin_controlled_shutdown,
    fence_broker,
    register_broker,
)
from kraft.controller.features import (
    FeatureUpdate,
    LocalFeatures,
    UpdatedFeatures,
    UpgradeType,
    finalized_features,
    update_features,
)
from kraft.controller.state import DecisionSettings
from kraft.errors import InvalidRequestError, InvalidUpdateVersionError
from kraft.image import VersionRange
from kraft.image.configs import BROKER
from kraft.records import Record
from kraft.records.versions import SUPPORTED_FEATURES
from tests.harness.decisions import FEATURES, Lab, registration

ELR = "eligible.leader.replicas.version"
LOCAL = LocalFeatures(node_id=3000)
SAFE, UNSAFE = UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
ALL = {name: VersionRange(*levels) for name, levels in SUPPORTED_FEATURES.items()}


def lab_of(level: int, brokers: int = 0) -> Lab:
    lab = Lab(brokers=brokers)
    lab.write(records.FeatureLevel(name="metadata.version", feature_level=level))
    return lab


def update(lab: Lab, *updates: FeatureUpdate, local: LocalFeatures = LOCAL) -> UpdatedFeatures:
    return lab.do(update_features(lab.cluster, updates, local))


def refuse(lab: Lab, *updates: FeatureUpdate, local: LocalFeatures = LOCAL) -> str:
    """Return the reason of the rejection; check that nothing changed."""
    before = finalized_features(lab.cluster)
    with pytest.raises(InvalidUpdateVersionError) as refused:
        update(lab, *updates, local=local)
    assert finalized_features(lab.cluster) == before
    return str(refused.value)


def a_controller(node_id: int, **levels: tuple[int, int]) -> Record:
    return records.RegisterController(
        controller_id=node_id,
        features=[
            records.Feature(
                name=name.replace("_", "."),
                min_supported_version=lowest,
                max_supported_version=highest,
            )
            for name, (lowest, highest) in levels.items()
        ],
    )


def test_every_metadata_version_can_be_raised_to_the_newest() -> None:
    for level in range(7, 31):
        lab = lab_of(level)
        update(lab, FeatureUpdate("metadata.version", 30))
        assert finalized_features(lab.cluster)["metadata.version"] == 30


def test_metadata_version_is_lowered_only_without_loss() -> None:
    # Each level can be lowered to the lowest level after which no level added new records.
    for level, lowest in ((29, 23), (22, 17), (16, 15), (12, 11), (10, 8)):
        for way in (SAFE, UNSAFE):
            lab = lab_of(level)
            update(lab, FeatureUpdate("metadata.version", lowest, way))
            assert lab.cluster.state.metadata_version == lowest
        lab = lab_of(level)
        for way in (SAFE, UNSAFE):
            assert refuse(lab, FeatureUpdate("metadata.version", lowest - 1, way)) == (
                f"Unsupported metadata.version downgrade from {level} to {lowest - 1}. "
                + (
                    "Unsafe metadata downgrade is not supported in this version."
                    if way == UNSAFE
                    else "Refusing to perform the requested downgrade because it might delete "
                    "metadata information."
                )
                if lowest > 7
                else "Invalid update version 6 for feature metadata.version. Local controller 3000 "
                "only supports versions 7-33"
            )


def test_a_downgrade_needs_the_upgrade_type() -> None:
    lab = lab_of(25)
    start = "Invalid update version {} for feature metadata.version. "
    assert refuse(lab, FeatureUpdate("metadata.version", 24)) == start.format(24) + (
        "Can't downgrade the version of this feature without setting the upgrade type to either "
        "safe or unsafe downgrade."
    )
    assert refuse(lab, FeatureUpdate("metadata.version", 26, SAFE)) == (
        start.format(26) + "Can't downgrade to a newer version."
    )
    assert refuse(lab, FeatureUpdate("metadata.version", 26, 0)) == (
        start.format(26) + "The controller does not support the given upgrade type."
    )
    assert refuse(lab, FeatureUpdate("metadata.version", -1)) == (
        start.format(-1) + "A feature version cannot be less than 0."
    )
    assert "from 0 to 32767" in refuse(lab, FeatureUpdate("metadata.version", 32768))


def test_the_same_level_again_is_written_again() -> None:
    lab = lab_of(25)
    decision = update_features(
        lab.cluster,
        [FeatureUpdate("metadata.version", 25), FeatureUpdate("group.version", 0)],
        LOCAL,
    )
    assert len(decision.records) == 2


@pytest.mark.parametrize("level", [6, 34, 35])
def test_a_level_unsupported_by_this_controller_is_rejected(level: int) -> None:
    # This check comes before that of the direction, as in Kafka.
    for way in (UpgradeType.UPGRADE, SAFE):
        assert refuse(lab_of(30), FeatureUpdate("metadata.version", level, way)) == (
            f"Invalid update version {level} for feature metadata.version. "
            "Local controller 3000 only supports versions 7-33"
        )


def test_an_unknown_feature_is_rejected() -> None:
    assert "does not support" in refuse(lab_of(30), FeatureUpdate("zeal.version", 1))
    assert "Feature zeal.version not found." in refuse(lab_of(30), FeatureUpdate("zeal.version", 0))


def test_every_broker_has_to_support_the_level() -> None:
    lab = lab_of(25, brokers=1)
    assert "Broker 0 does not support this feature." in refuse(
        lab, FeatureUpdate("share.version", 1)
    )
    new = registration(0, 2, features=FEATURES | ALL)
    lab.do(begin_controlled_shutdown(lab.cluster, 0))
    lab.do(fence_broker(lab.cluster, 0))
    lab.do(register_broker(lab.cluster, new, next_offset=lab.cluster.next_offset))
    update(lab, FeatureUpdate("share.version", 1))


def test_every_registered_controller_has_to_support_the_level() -> None:
    old = a_controller(3001, metadata_version=(7, 20))
    lab = lab_of(15)
    lab.write(old)
    assert "Controller 3001 only supports versions 7-20" in refuse(
        lab, FeatureUpdate("metadata.version", 21)
    )
    update(lab, FeatureUpdate("metadata.version", 20))
    lab = lab_of(14)
    lab.write(old)
    update(lab, FeatureUpdate("metadata.version", 21))


def test_every_controller_of_the_quorum_has_to_be_registered() -> None:
    lab = lab_of(15)
    local = LocalFeatures(3000, quorum_node_ids=(3000, 3001))
    change = FeatureUpdate("metadata.version", 16)
    assert "3001 has not registered" in refuse(lab, change, local=local)
    lab.write(a_controller(3001, metadata_version=(7, 30)))
    update(lab, change, local=local)
    update(lab_of(14), change, local=local)


def test_a_request_is_applied_as_a_whole_or_not_at_all() -> None:
    lab = lab_of(21)
    refuse(lab, FeatureUpdate("metadata.version", 30), FeatureUpdate("group.version", 2))
    updated = update(lab, FeatureUpdate("group.version", 1), FeatureUpdate("metadata.version", 30))
    assert updated == UpdatedFeatures({"group.version": 1, "metadata.version": 30})


def test_feature_dependencies_may_be_in_the_same_request() -> None:
    lab = lab_of(22)
    assert "depends on metadata.version level 23" in refuse(lab, FeatureUpdate(ELR, 1))
    update(lab, FeatureUpdate(ELR, 1), FeatureUpdate("metadata.version", 23))
    assert finalized_features(lab.cluster) == {"metadata.version": 23, ELR: 1}
    update(lab, FeatureUpdate(ELR, 0, SAFE))
    assert finalized_features(lab.cluster) == {"metadata.version": 23}


def test_a_feature_named_twice_is_rejected() -> None:
    with pytest.raises(InvalidRequestError):
        update(lab_of(30), FeatureUpdate(ELR, 1), FeatureUpdate(ELR, 1))


def test_validate_only_writes_no_record() -> None:
    lab = lab_of(25)
    decision = update_features(lab.cluster, [FeatureUpdate(ELR, 1)], LOCAL, validate_only=True)
    assert decision.response == UpdatedFeatures({ELR: 1})
    assert len(decision.records) == 0


def test_enabling_elr_sets_min_isr_of_the_cluster() -> None:
    lab = Lab(brokers=2)
    for broker in ("10", "9"):
        lab.write(
            records.Config(
                resource_type=BROKER, resource_name=broker, name="min.insync.replicas", value="2"
            )
        )
    decision = update_features(
        lab.cluster, [FeatureUpdate(ELR, 1)], LOCAL, DecisionSettings(min_insync_replicas=3)
    )
    assert list(decision.records) == [
        records.Config(
            resource_type=BROKER, resource_name=name, name="min.insync.replicas", value=value
        )
        for name, value in (("", "3"), ("9", None), ("10", None))
    ] + [records.FeatureLevel(name=ELR, feature_level=1)]
    lab.do(decision)
    again = update_features(lab.cluster, [FeatureUpdate(ELR, 1)], LOCAL)
    assert len(again.records) == 1


def test_kraft_version_is_raised_by_the_raft_layer() -> None:
    lab = lab_of(30)
    decision = update_features(lab.cluster, [FeatureUpdate("kraft.version", 1)], LOCAL)
    assert decision.response == UpdatedFeatures({}, kraft_version=1)
    assert list(decision.records) == [records.NoOp()]
    assert "only supports versions 0-1" in refuse(lab, FeatureUpdate("kraft.version", 2))


def test_kraft_version_cannot_be_lowered() -> None:
    lab = lab_of(30)
    lab.cluster.state.apply_control(
        records.KRaftVersion(kraft_version=1), lab.cluster.next_offset - 1, epoch=1
    )
    assert finalized_features(lab.cluster)["kraft.version"] == 1
    assert "Can't downgrade the version of this feature." in refuse(
        lab, FeatureUpdate("kraft.version", 0, UNSAFE)
    )
    same = update_features(lab.cluster, [FeatureUpdate("kraft.version", 1, SAFE)], LOCAL)
    assert same.response.kraft_version is None
    assert len(same.records) == 0
