"""Registration, fencing, unfencing and shutdown of brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraft import records
from kraft._core.decide.election import ElectionContext
from kraft.controller import state
from kraft.controller.brokers.broker_lifecycle import (
    begin_controlled_shutdown,
    fence_broker,
    register_broker,
    unfence_broker,
    unregister_broker,
)
from kraft.controller.brokers.directories import take_directories_offline
from kraft.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    UnsupportedVersionError,
)
from kraft.image import NodeEndpoint, VersionRange
from kraft.image.nodes import Brokers
from kraft.records import Uuid
from tests.harness.decisions import FEATURES, Lab, directory, names, registration


def test_fencing_writes_partition_changes_before_the_registration() -> None:
    lab = Lab()
    lab.create("t", [0, 1, 2], [1, 0, 2])
    decision = fence_broker(lab.cluster, 0)
    assert names(decision) == ["PartitionChange", "PartitionChange", "BrokerRegistrationChange"]
    assert len(decision.records) == 3
    assert not lab.cluster.state.brokers[0].fenced, "deciding changes nothing"
    lab.do(decision)
    assert lab.cluster.state.brokers[0].fenced
    assert (lab.partition("t")["leader"], lab.partition("t")["isr"]) == (1, [1, 2])


def test_unfencing_writes_the_registration_before_elections() -> None:
    lab = Lab()
    lab.create("t", [3])
    lab.do(fence_broker(lab.cluster, 3))
    assert lab.partition("t")["leader"] == -1
    decision = unfence_broker(lab.cluster, 3)
    assert names(decision) == ["BrokerRegistrationChange", "PartitionChange"]
    lab.do(decision)
    assert lab.partition("t")["leader"] == 3


def test_a_controlled_shutdown_changes_the_registration_once() -> None:
    lab = Lab()
    lab.create("t", [0, 1])
    decision = begin_controlled_shutdown(lab.cluster, 0)
    assert names(decision) == ["BrokerRegistrationChange", "PartitionChange"]
    lab.do(decision)
    assert names(begin_controlled_shutdown(lab.cluster, 0)) == []


def test_an_unregistered_broker_leaves_all_partitions() -> None:
    lab = Lab()
    lab.create("t", [0, 1])
    lab.do(unregister_broker(lab.cluster, 0))
    assert 0 not in lab.cluster.state.brokers
    assert lab.partition("t")["isr"] == [1]
    with pytest.raises(BrokerIdNotRegisteredError):
        fence_broker(lab.cluster, 0)


def test_a_failed_directory_leaves_the_isrs_and_the_registration() -> None:
    lab = Lab(2)
    lab.do(
        register_broker(
            lab.cluster,
            registration(2, log_dirs=[directory(2, 0), directory(2, 1)]),
            next_offset=lab.cluster.next_offset,
        )
    )
    lab.do(unfence_broker(lab.cluster, 2))
    topic = lab.create("t", [2, 0], [2, 1])
    for partition, number in ((0, 0), (1, 1)):
        homes = [directory(2, number), directory(partition)]
        lab.write(
            records.PartitionChange(partition_id=partition, topic_id=topic, directories=homes)
        )
    decision = take_directories_offline(lab.cluster, 2, [directory(2, 1), directory(9, 9)])
    lab.do(decision)
    assert [lab.partition("t", id)["leader"] for id in (0, 1)] == [2, 1]
    assert lab.cluster.state.brokers[2].log_dirs == (directory(2, 0),)
    assert names(take_directories_offline(lab.cluster, 2, [directory(2, 1)])) == []


def test_an_unclean_restart_leaves_the_elr_and_a_clean_one_does_not() -> None:
    for is_clean, elr in ((True, [0]), (False, [])):
        lab = Lab(elr=True)
        lab.create("t", [0, 1], min_insync_replicas="2")
        lab.do(fence_broker(lab.cluster, 0))
        assert lab.partition("t")["elr"] == [0]
        epoch = lab.cluster.state.brokers[0].epoch
        lab.do(
            register_broker(
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
    again = register_broker(lab.cluster, registration(1), next_offset=at)
    assert again.response == before.epoch
    lab.do(again)
    assert not lab.cluster.state.brokers[1].fenced
    at = lab.cluster.next_offset
    new = register_broker(lab.cluster, registration(1, 2), next_offset=at)
    assert new.response == at
    lab.do(new)
    assert lab.cluster.state.brokers[1].fenced
    with pytest.raises(DuplicateBrokerRegistrationError):
        register_broker(lab.cluster, registration(1, 3), next_offset=at, has_live_session=True)


@pytest.mark.parametrize(
    "directories",
    [[], [directory(7), directory(7)], [directory(0)], [Uuid((1).to_bytes(16, "big"))]],
    ids=["none", "twice", "another broker's", "reserved"],
)
def test_invalid_directories_are_rejected(directories: list[Uuid]) -> None:
    with pytest.raises(InvalidRegistrationError):
        register_broker(Lab().cluster, registration(7, log_dirs=directories), next_offset=0)


def test_a_broker_must_support_the_finalized_features() -> None:
    features = {"metadata.version": VersionRange(7, 29)}
    with pytest.raises(UnsupportedVersionError):
        register_broker(Lab().cluster, registration(7, features=features), next_offset=0)
    with pytest.raises(InvalidRegistrationError):
        register_broker(Lab().cluster, registration(7, features={}), next_offset=0)


def test_a_broker_of_another_cluster_is_rejected_first() -> None:
    lab = Lab()
    with pytest.raises(InconsistentClusterIdError, match="theirs"):
        register_broker(
            lab.cluster,
            registration(7, cluster_id="theirs", log_dirs=[]),
            next_offset=0,
            cluster_id="ours",
        )
    at = lab.cluster.next_offset
    request = registration(7, cluster_id="ours")
    joined = register_broker(lab.cluster, request, next_offset=at, cluster_id="ours")
    assert joined.response == at


def test_a_registration_does_not_read_the_other_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the registrations of N brokers cost N * N."""
    lab = Lab(2)
    rebuilt: list[object] = []

    class Context(ElectionContext):
        def take_brokers(self, brokers: Any) -> None:
            rebuilt.append(self)
            super().take_brokers(brokers)

    monkeypatch.setattr(state, "ElectionContext", Context)
    lab.cluster.state.derived = None
    lab.create("t", [0, 1])
    state.election_context(lab.cluster)
    rebuilt.clear()

    def read(brokers: Brokers) -> Iterator[int]:
        raise AssertionError("all registrations were read")

    monkeypatch.setattr(Brokers, "__iter__", read)
    for broker in range(2, 9):
        at = lab.cluster.next_offset
        lab.do(register_broker(lab.cluster, registration(broker), next_offset=at))
        lab.do(unfence_broker(lab.cluster, broker))
    assert not rebuilt
    monkeypatch.undo()
    lab.create("u", [8, 2])
    lab.do(fence_broker(lab.cluster, 8))
    assert lab.partition("u")["leader"] == 2, "the added brokers may lead"


@pytest.mark.parametrize("number", [0, 1])
def test_a_directory_of_another_broker_is_rejected(number: int) -> None:
    lab = Lab(3)
    taken = [directory(7), directory(7, 1)]
    taken[number] = directory(2)
    with pytest.raises(InvalidRegistrationError, match="of the registered broker 2"):
        register_broker(lab.cluster, registration(7, log_dirs=taken), next_offset=0)
    own = registration(2, 2, log_dirs=[directory(2), directory(2, 1)])
    lab.do(register_broker(lab.cluster, own, next_offset=lab.cluster.next_offset))
    assert set(lab.cluster.state.brokers[2].log_dirs) == set(own.log_dirs)


def test_a_broker_of_zookeeper_is_rejected() -> None:
    with pytest.raises(BrokerIdNotRegisteredError):
        register_broker(Lab().cluster, registration(7, is_migrating_zk_broker=True), next_offset=0)


def test_directories_are_ignored_below_3_7() -> None:
    lab = Lab()
    lab.write(records.FeatureLevel(name="metadata.version", feature_level=16))
    at = lab.cluster.next_offset
    lab.do(register_broker(lab.cluster, registration(7, log_dirs=[]), next_offset=at))
    assert lab.cluster.state.brokers[7].log_dirs == ()


def test_the_lower_half_of_a_reserved_directory_is_a_signed_number() -> None:
    reserved = Uuid(bytes(8) + b"\xff" + bytes(7))
    with pytest.raises(InvalidRegistrationError, match="reserved"):
        register_broker(Lab().cluster, registration(7, log_dirs=[reserved]), next_offset=0)


def test_a_broker_without_a_valid_listener_is_rejected() -> None:
    nowhere = [NodeEndpoint("PLAINTEXT", "localhost", 0, 0)]
    with pytest.raises(InvalidRegistrationError, match="port"):
        register_broker(Lab().cluster, registration(7, endpoints=nowhere), next_offset=0)


def test_a_disabled_feature_must_be_optional_for_the_broker() -> None:
    features = FEATURES | {"group.version": VersionRange(1, 1)}
    with pytest.raises(UnsupportedVersionError, match="finalized level is 0"):
        register_broker(Lab().cluster, registration(7, features=features), next_offset=0)


def test_an_enabled_feature_must_be_supported_by_the_broker() -> None:
    lab = Lab(elr=True)
    features = {"metadata.version": VersionRange(7, 30)}
    with pytest.raises(UnsupportedVersionError, match="eligible"):
        register_broker(lab.cluster, registration(7, features=features), next_offset=0)


def test_an_amended_registration_keeps_the_state_of_the_controller() -> None:
    lab = Lab()
    lab.create("t", [1, 2])
    lab.do(begin_controlled_shutdown(lab.cluster, 1))
    before = lab.cluster.state.brokers[1]
    at = lab.cluster.next_offset
    both = [directory(1, 0), directory(1, 1)]
    again = register_broker(
        lab.cluster, registration(1, log_dirs=both), next_offset=at, has_live_session=True
    )
    assert names(again) == ["RegisterBroker"], "no partition changes"
    lab.do(again)
    after = lab.cluster.state.brokers[1]
    assert (after.epoch, after.fenced) == (before.epoch, False)
    assert after.in_controlled_shutdown
    assert set(after.log_dirs) == set(both)
    assert after.registration_offset == at, "the broker has to apply it again"


def test_a_reverted_registration_leaves_no_trace() -> None:
    lab = Lab()
    before = lab.cluster.state.brokers[1]
    at = lab.cluster.next_offset
    lab.do(register_broker(lab.cluster, registration(1, 2), next_offset=at))
    assert lab.cluster.state.brokers[1].registration_offset >= at
    lab.cluster.revert(at)
    assert lab.cluster.state.brokers[1] == before
    assert lab.cluster.state.brokers[1].registration_offset == before.registration_offset
