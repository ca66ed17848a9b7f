"""Brokers join, are fenced, come back and leave."""

from __future__ import annotations

from typing import Any

import pytest

from kraft import controller, records
from kraft.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    UnsupportedVersionError,
)
from kraft.image import Endpoint, VersionRange
from kraft.records import Uuid
from tests.unit.controller.clusters import FEATURES, Lab, directory, registration


def names(decision: controller.Decision[Any]) -> list[str]:
    return [type(record).__name__ for record in decision.records]


def test_a_fenced_broker_hands_over_first_and_is_fenced_last() -> None:
    lab = Lab()
    lab.create("t", [0, 1, 2], [1, 0, 2])
    decision = controller.fence_broker(lab.cluster, 0)
    assert names(decision) == ["PartitionChange", "PartitionChange", "BrokerRegistrationChange"]
    assert len(decision.records) == 3
    assert not lab.cluster.state.brokers[0].fenced, "deciding changes nothing"
    lab.do(decision)
    assert lab.cluster.state.brokers[0].fenced
    assert (lab.partition("t")["leader"], lab.partition("t")["isr"]) == (1, [1, 2])


def test_an_unfenced_broker_is_unfenced_first_and_leads_what_waited_for_it() -> None:
    lab = Lab()
    lab.create("t", [3])
    lab.do(controller.fence_broker(lab.cluster, 3))
    assert lab.partition("t")["leader"] == -1
    decision = controller.unfence_broker(lab.cluster, 3)
    assert names(decision) == ["BrokerRegistrationChange", "PartitionChange"]
    lab.do(decision)
    assert lab.partition("t")["leader"] == 3


def test_a_controlled_shutdown_is_noted_once() -> None:
    lab = Lab()
    lab.create("t", [0, 1])
    decision = controller.begin_controlled_shutdown(lab.cluster, 0)
    assert names(decision) == ["BrokerRegistrationChange", "PartitionChange"]
    lab.do(decision)
    assert names(controller.begin_controlled_shutdown(lab.cluster, 0)) == []


def test_an_unregistered_broker_leaves_for_good() -> None:
    lab = Lab()
    lab.create("t", [0, 1])
    lab.do(controller.unregister_broker(lab.cluster, 0))
    assert 0 not in lab.cluster.state.brokers
    assert lab.partition("t")["isr"] == [1]
    with pytest.raises(BrokerIdNotRegisteredError):
        controller.fence_broker(lab.cluster, 0)


def test_a_failed_directory_takes_its_partitions_and_leaves_the_registration() -> None:
    lab = Lab(2)
    lab.do(
        controller.register_broker(
            lab.cluster,
            registration(2, log_dirs=[directory(2, 0), directory(2, 1)]),
            next_offset=lab.cluster.next_offset,
        )
    )
    lab.do(controller.unfence_broker(lab.cluster, 2))
    topic = lab.create("t", [2, 0], [2, 1])
    for partition, number in ((0, 0), (1, 1)):
        homes = [directory(2, number), directory(partition)]
        lab.write(
            records.PartitionChange(partition_id=partition, topic_id=topic, directories=homes)
        )
    decision = controller.take_directories_offline(
        lab.cluster, 2, [directory(2, 1), directory(9, 9)]
    )
    lab.do(decision)
    assert [lab.partition("t", id)["leader"] for id in (0, 1)] == [2, 1]
    assert lab.cluster.state.brokers[2].log_dirs == (directory(2, 0),)
    assert names(controller.take_directories_offline(lab.cluster, 2, [directory(2, 1)])) == []


def test_an_unclean_restart_leaves_the_elr_and_a_clean_one_does_not() -> None:
    for is_clean, elr in ((True, [0]), (False, [])):
        lab = Lab(elr=True)
        lab.create("t", [0, 1], min_insync_replicas="2")
        lab.do(controller.fence_broker(lab.cluster, 0))
        assert lab.partition("t")["elr"] == [0]
        epoch = lab.cluster.state.brokers[0].epoch
        lab.do(
            controller.register_broker(
                lab.cluster,
                registration(0, 2, previous_broker_epoch=epoch if is_clean else -1),
                next_offset=lab.cluster.next_offset,
            )
        )
        assert lab.partition("t")["elr"] == elr


def test_the_same_incarnation_keeps_its_epoch_and_another_gets_a_new_one() -> None:
    lab = Lab()
    before = lab.cluster.state.brokers[1]
    at = lab.cluster.next_offset
    again = controller.register_broker(lab.cluster, registration(1), next_offset=at)
    assert again.response == before.epoch
    lab.do(again)
    assert not lab.cluster.state.brokers[1].fenced
    at = lab.cluster.next_offset
    new = controller.register_broker(lab.cluster, registration(1, 2), next_offset=at)
    assert new.response == at
    lab.do(new)
    assert lab.cluster.state.brokers[1].fenced
    with pytest.raises(DuplicateBrokerRegistrationError):
        controller.register_broker(
            lab.cluster, registration(1, 3), next_offset=at, has_live_session=True
        )


@pytest.mark.parametrize(
    "directories",
    [[], [directory(7), directory(7)], [directory(0)], [Uuid((1).to_bytes(16, "big"))]],
    ids=["none", "twice", "another broker's", "reserved"],
)
def test_directories_that_cannot_be_are_refused(directories: list[Uuid]) -> None:
    with pytest.raises(InvalidRegistrationError):
        controller.register_broker(
            Lab().cluster, registration(7, log_dirs=directories), next_offset=0
        )


def test_a_broker_must_support_what_is_finalized() -> None:
    features = {"metadata.version": VersionRange(7, 29)}
    with pytest.raises(UnsupportedVersionError):
        controller.register_broker(Lab().cluster, registration(7, features=features), next_offset=0)
    with pytest.raises(InvalidRegistrationError):
        controller.register_broker(Lab().cluster, registration(7, features={}), next_offset=0)


def test_a_broker_of_another_cluster_is_refused_before_anything_else() -> None:
    lab = Lab()
    with pytest.raises(InconsistentClusterIdError, match="theirs"):
        controller.register_broker(
            lab.cluster,
            registration(7, cluster_id="theirs", log_dirs=[]),
            next_offset=0,
            cluster_id="ours",
        )
    at = lab.cluster.next_offset
    request = registration(7, cluster_id="ours")
    joined = controller.register_broker(lab.cluster, request, next_offset=at, cluster_id="ours")
    assert joined.response == at


def test_a_broker_of_zookeeper_is_refused() -> None:
    with pytest.raises(BrokerIdNotRegisteredError):
        controller.register_broker(
            Lab().cluster, registration(7, is_migrating_zk_broker=True), next_offset=0
        )


def test_directories_do_not_matter_where_the_metadata_version_does_not_know_them() -> None:
    lab = Lab()
    lab.write(records.FeatureLevel(name="metadata.version", feature_level=16))
    at = lab.cluster.next_offset
    lab.do(controller.register_broker(lab.cluster, registration(7, log_dirs=[]), next_offset=at))
    assert lab.cluster.state.brokers[7].log_dirs == ()


def test_the_lower_half_of_a_reserved_directory_is_a_signed_number() -> None:
    reserved = Uuid(bytes(8) + b"\xff" + bytes(7))
    with pytest.raises(InvalidRegistrationError, match="reserved"):
        controller.register_broker(
            Lab().cluster, registration(7, log_dirs=[reserved]), next_offset=0
        )


def test_a_broker_without_a_usable_listener_is_refused() -> None:
    nowhere = [Endpoint("PLAINTEXT", "localhost", 0, 0)]
    with pytest.raises(InvalidRegistrationError, match="port"):
        controller.register_broker(Lab().cluster, registration(7, endpoints=nowhere), next_offset=0)


def test_a_feature_that_is_off_must_be_one_that_the_broker_can_do_without() -> None:
    features = FEATURES | {"group.version": VersionRange(1, 1)}
    with pytest.raises(UnsupportedVersionError, match="finalized is 0"):
        controller.register_broker(Lab().cluster, registration(7, features=features), next_offset=0)


def test_a_feature_that_is_on_must_be_known_to_the_broker() -> None:
    lab = Lab(elr=True)
    features = {"metadata.version": VersionRange(7, 30)}
    with pytest.raises(UnsupportedVersionError, match="eligible"):
        controller.register_broker(lab.cluster, registration(7, features=features), next_offset=0)


def test_an_amended_registration_says_what_is_new_and_keeps_what_the_controller_knows() -> None:
    lab = Lab()
    lab.create("t", [1, 2])
    lab.do(controller.begin_controlled_shutdown(lab.cluster, 1))
    before = lab.cluster.state.brokers[1]
    at = lab.cluster.next_offset
    both = [directory(1, 0), directory(1, 1)]
    again = controller.register_broker(
        lab.cluster, registration(1, log_dirs=both), next_offset=at, has_live_session=True
    )
    assert names(again) == ["RegisterBroker"], "nothing is cleaned up"
    lab.do(again)
    after = lab.cluster.state.brokers[1]
    assert (after.epoch, after.fenced) == (before.epoch, False)
    assert after.in_controlled_shutdown
    assert set(after.log_dirs) == set(both)
    assert after.registration_offset == at, "it has to be taken up once more"


def test_a_registration_that_is_taken_back_was_never_there() -> None:
    lab = Lab()
    before = lab.cluster.state.brokers[1]
    at = lab.cluster.next_offset
    lab.do(controller.register_broker(lab.cluster, registration(1, 2), next_offset=at))
    assert lab.cluster.state.brokers[1].registration_offset >= at
    lab.cluster.revert(at)
    assert lab.cluster.state.brokers[1] == before
    assert lab.cluster.state.brokers[1].registration_offset == before.registration_offset
