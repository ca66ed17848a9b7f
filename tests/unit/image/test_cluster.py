"""``ClusterState``: replay of each record type, journal, deltas and read-only access."""

from __future__ import annotations

import pytest

from kraft import records
from kraft.errors import OffsetOutOfRangeError, ReplayError, UnsupportedVersionError
from kraft.image import BrokerRegistration, ClusterState, VersionRange, quota_entity
from kraft.image.nodes import Brokers
from kraft.records import MetadataVersion, Record, Uuid, control

DIR_1, DIR_2, DIR_3 = (Uuid(bytes([first, *range(15)])) for first in (0x10, 0x20, 0xF0))


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def register(broker_id: int, epoch: int, **fields: object) -> records.RegisterBroker:
    return records.RegisterBroker(
        broker_id=broker_id,
        broker_epoch=epoch,
        incarnation_id=uuid(epoch),
        end_points=[
            records.EndpointData(name="PLAINTEXT", host="a", port=9092, security_protocol=0)
        ],
        features=[
            records.Feature(
                name="metadata.version", min_supported_version=7, max_supported_version=30
            )
        ],
        rack="r1",
        **fields,
    )


def change(broker_id: int, epoch: int, **fields: object) -> records.BrokerRegistrationChange:
    return records.BrokerRegistrationChange(broker_id=broker_id, broker_epoch=epoch, **fields)


def applied(*log: Record, journaling: bool = True) -> ClusterState:
    state = ClusterState(journaling=journaling)
    for offset, record in enumerate(log):
        state.apply(record, offset)
    return state


class TestBrokers:
    def test_a_broker_registers_and_is_unfenced_once_it_has_caught_up(self) -> None:
        state = applied(register(1, 0))
        assert state.brokers[1].fenced

        state.apply(change(1, 0, fenced=-1), 1)

        broker = state.brokers[1]
        assert not broker.fenced
        assert broker.rack == "r1"
        assert broker.endpoints["PLAINTEXT"].port == 9092
        assert broker.features == {"metadata.version": VersionRange(7, 30)}
        assert broker.registration_offset == 0

    def test_a_new_incarnation_replaces_the_old_one_and_old_epochs_are_rejected(self) -> None:
        state = applied(register(1, 0), change(1, 0, fenced=-1), register(1, 2))
        assert state.brokers[1].epoch == 2
        assert state.brokers[1].fenced
        assert state.brokers[1].registration_offset == 2

        with pytest.raises(
            ReplayError, match=r"epoch 0 of broker 1, which is .* epoch 2 \(offset 3\)"
        ):
            state.apply(change(1, 0, fenced=-1), 3)

        assert state.brokers[1].fenced

    @pytest.mark.parametrize(
        "record",
        [
            records.UnregisterBroker(broker_id=7, broker_epoch=0),
            records.FenceBroker(id=7, epoch=0),
            records.UnfenceBroker(id=7, epoch=0),
            change(7, 0, fenced=1),
        ],
    )
    def test_records_of_an_unregistered_broker_are_rejected(self, record: Record) -> None:
        with pytest.raises(ReplayError, match="broker 7, which is not registered"):
            applied(record)

    def test_controlled_shutdown_lasts_until_the_next_registration(self) -> None:
        state = applied(register(1, 0), change(1, 0, in_controlled_shutdown=1))
        assert state.brokers[1].in_controlled_shutdown

        # in_controlled_shutdown=0 means no change; only a registration ends a shutdown.
        state.apply(change(1, 0, fenced=1), 2)
        assert state.brokers[1].in_controlled_shutdown

        state.apply(register(1, 3), 3)
        assert not state.brokers[1].in_controlled_shutdown

    def test_directories_are_in_the_order_of_java_and_an_empty_list_is_no_change(self) -> None:
        state = applied(register(1, 0, log_dirs=[DIR_2, DIR_1]))
        assert state.brokers[1].log_dirs == (DIR_1, DIR_2)

        # Java's Uuid compares signed halves, so 0xF0… sorts before 0x10….
        state.apply(change(1, 0, log_dirs=[DIR_1, DIR_3]), 1)
        assert state.brokers[1].log_dirs == (DIR_3, DIR_1)

        state.apply(change(1, 0, fenced=-1), 2)
        assert state.brokers[1].log_dirs == (DIR_3, DIR_1)

    def test_cordoned_directories_are_unknown_then_known_then_none(self) -> None:
        state = applied(register(1, 0, log_dirs=[DIR_1]))
        assert state.brokers[1].cordoned_log_dirs is None

        state.apply(change(1, 0, cordoned_log_dirs=[DIR_1]), 1)
        assert state.brokers[1].cordoned_log_dirs == (DIR_1,)

        state.apply(change(1, 0, cordoned_log_dirs=[]), 2)
        assert state.brokers[1].cordoned_log_dirs == ()

    @pytest.mark.parametrize("fields", [{"fenced": 2}, {"in_controlled_shutdown": -1}])
    def test_a_change_with_unknown_values_is_rejected(self, fields: dict[str, int]) -> None:
        state = applied(register(1, 0))
        with pytest.raises(ReplayError, match="known are"):
            state.apply(change(1, 0, **fields), 1)

    def test_listeners_need_a_name_and_a_known_protocol(self) -> None:
        nameless, unknown = register(1, 0), register(1, 0)
        nameless.end_points[0].name = ""
        unknown.end_points[0].security_protocol = 4
        with pytest.raises(ReplayError, match="without a name"):
            applied(nameless)
        with pytest.raises(ReplayError, match="security protocol 4"):
            applied(unknown)

    def test_fence_and_unfence_records_of_3_2_are_applied(self) -> None:
        state = applied(
            register(1, 0), records.UnfenceBroker(id=1, epoch=0), register(2, 0, fenced=False)
        )
        assert not state.brokers[1].fenced

        state.apply(records.FenceBroker(id=2, epoch=0), 3)
        assert state.brokers[2].fenced

    def test_brokers_are_found_by_their_directories_now_and_as_of_an_image(self) -> None:
        def found(brokers: Brokers) -> list[list[int]]:
            return [sorted(brokers.ids_with_directory(each)) for each in (DIR_1, DIR_2, DIR_3)]

        # Broker 2 lists a directory twice and shares it, as no controller accepts it.
        state = applied(register(1, 0, log_dirs=[DIR_1]), register(2, 1, log_dirs=[DIR_1, DIR_1]))
        assert found(state.brokers) == [[1, 2], [], []]
        first = state.image(2)
        state.apply(change(1, 0, log_dirs=[DIR_2]), 2)
        state.apply(records.UnregisterBroker(broker_id=2, broker_epoch=1), 3)
        state.apply(register(3, 4, log_dirs=[DIR_3, DIR_2]), 4)
        assert found(state.brokers) == [[], [1, 3], [3]]
        assert found(first.brokers) == [[1, 2], [], []]
        assert found(state.at(3).brokers) == [[2], [1], []]
        del first
        state.revert(3)
        assert found(state.brokers) == [[2], [1], []]

    def test_an_unregistered_broker_is_gone(self) -> None:
        state = applied(register(1, 0), records.UnregisterBroker(broker_id=1, broker_epoch=0))
        assert 1 not in state.brokers


def test_controllers_register_replace_themselves_and_leave() -> None:
    first = records.RegisterController(controller_id=101, incarnation_id=uuid(1))
    again = records.RegisterController(controller_id=101, incarnation_id=uuid(2))
    state = applied(first, again)
    assert state.controllers[101].incarnation_id == uuid(2)

    state.apply(records.UnregisterController(controller_id=101), 2)
    assert 101 not in state.controllers
    with pytest.raises(ReplayError, match="controller 101, which is not registered"):
        state.apply(records.UnregisterController(controller_id=101), 3)


def test_metadata_version_is_the_first_feature_and_level_0_removes_a_feature() -> None:
    state = applied(
        records.FeatureLevel("group.version", 1),
        records.FeatureLevel("metadata.version", 30),
        records.FeatureLevel("kraft.version", 1),
        records.FeatureLevel("a.feature", 2),
        records.FeatureLevel("group.version", 0),
        records.FeatureLevel("never.set", 0),
    )
    assert list(state.features.items()) == [("metadata.version", 30), ("a.feature", 2)]
    assert state.metadata_version == 30

    with pytest.raises(UnsupportedVersionError, match=r"metadata\.version 99"):
        state.apply(records.FeatureLevel("metadata.version", 99), 6)


def test_a_log_without_metadata_version_has_the_first_level() -> None:
    assert applied(records.NoOp()).metadata_version == 1


def test_configs_are_kept_by_resource_and_a_null_value_deletes() -> None:
    state = applied(
        records.Config(2, "orders", "retention.ms", "1000"),
        records.Config(2, "orders", "cleanup.policy", "compact"),
        records.Config(4, "", "min.insync.replicas", "2"),
        records.Config(4, "3", "log.cleaner.threads", "4"),
        records.Config(16, "all", "interval.ms", "60000"),
        records.Config(32, "readers", "consumer.session.timeout.ms", "45000"),
        records.Config(2, "orders", "retention.ms", None),
        records.Config(2, "never", "set", None),
    )
    assert state.configs.topic("orders") == {"cleanup.policy": "compact"}
    assert state.configs.cluster_default() == {"min.insync.replicas": "2"}
    assert state.configs.broker(3) == {"log.cleaner.threads": "4"}
    assert state.configs.client_metrics("all") == {"interval.ms": "60000"}
    assert state.configs.group("readers") == {"consumer.session.timeout.ms": "45000"}
    assert state.configs.topic("never") == {}
    assert (2, "never") not in state.configs

    state.apply(records.Config(2, "orders", "cleanup.policy", None), 8)
    assert (2, "orders") not in state.configs


def test_removing_a_topic_removes_its_configs_and_a_revert_restores_them() -> None:
    state = applied(
        records.Config(2, "orders", "retention.ms", "1"),
        records.Config(2, "orders", "cleanup.policy", "compact"),
        records.Config(4, "orders", "not", "a topic"),
    )
    state.remove_topic("orders", 3)
    assert list(state.configs) == [(4, "orders")]

    state.revert(3)
    assert state.configs.topic("orders") == {"retention.ms": "1", "cleanup.policy": "compact"}


def test_unsupported_configs_are_ignored() -> None:
    state = ClusterState(is_supported_config=lambda _, name: name != "gone.in.4.0")
    state.apply(records.Config(4, "", "gone.in.4.0", "x"), 0)
    state.apply(records.Config(4, "", "log.retention.ms", "1"), 1)
    assert state.configs.cluster_default() == {"log.retention.ms": "1"}


def quota(entity: dict[str, str | None], key: str, value: float, *, remove: bool = False) -> Record:
    return records.ClientQuota(
        entity=[records.EntityData(entity_type=t, entity_name=n) for t, n in entity.items()],
        key=key,
        value=value,
        remove=remove,
    )


def test_the_order_of_a_quota_entitys_parts_does_not_matter() -> None:
    state = applied(
        quota({"user": "alice", "client-id": "x"}, "producer_byte_rate", 1024.0),
        quota({"client-id": "x", "user": "alice"}, "producer_byte_rate", 2048.0),
        quota({"user": None}, "request_percentage", 50.0),
    )
    assert state.client_quotas.of({"user": "alice", "client-id": "x"}) == {
        "producer_byte_rate": 2048.0
    }
    assert state.client_quotas.of({"user": None}) == {"request_percentage": 50.0}
    assert state.client_quotas.of({"user": "alice"}) == {}

    state.apply(quota({"user": None}, "request_percentage", 0.0, remove=True), 3)
    assert quota_entity({"user": None}) not in state.client_quotas


def test_a_record_that_does_not_raise_the_next_producer_id_is_rejected() -> None:
    state = applied(records.ProducerIds(broker_id=1, broker_epoch=5, next_producer_id=1000))
    assert state.next_producer_id == 1000
    with pytest.raises(ReplayError, match="from 1000 to 1000"):
        state.apply(records.ProducerIds(broker_id=2, broker_epoch=6, next_producer_id=1000), 1)
    assert ClusterState().next_producer_id == -1


def test_an_acl_is_added_replaced_and_removed_by_its_id() -> None:
    def acl(operation: int) -> Record:
        return records.AccessControlEntry(
            id=uuid(1),
            resource_type=2,
            resource_name="orders",
            pattern_type=3,
            principal="User:alice",
            host="*",
            operation=operation,
            permission_type=3,
        )

    state = applied(acl(3), acl(4))
    assert state.acls[uuid(1)].operation == 4

    state.apply(records.RemoveAccessControlEntry(id=uuid(1)), 2)
    assert not state.acls
    with pytest.raises(ReplayError, match="an ACL that does not exist"):
        state.apply(records.RemoveAccessControlEntry(id=uuid(1)), 3)


def test_scram_credentials_are_kept_by_mechanism_and_no_repr_shows_a_key() -> None:
    def credential(mechanism: int, iterations: int) -> Record:
        return records.UserScramCredential(
            name="alice",
            mechanism=mechanism,
            salt=b"salt",
            stored_key=b"stored",
            server_key=b"server",
            iterations=iterations,
        )

    state = applied(credential(1, 4096), credential(2, 8192), credential(1, 5000))
    assert {m: c.iterations for m, c in state.scram_credentials.user("alice").items()} == {
        1: 5000,
        2: 8192,
    }
    assert "stored" not in repr(state.scram_credentials).replace("stored_key", "")

    state.apply(records.RemoveUserScramCredential(name="alice", mechanism=1), 3)
    assert list(state.scram_credentials.user("alice")) == [2]
    with pytest.raises(ReplayError, match="a credential that does not exist"):
        state.apply(records.RemoveUserScramCredential(name="alice", mechanism=1), 4)


def test_a_token_is_renewed_and_removing_it_twice_is_no_error() -> None:
    def token(expiration: int, owner: str = "User:alice") -> Record:
        return records.DelegationToken(
            owner=owner,
            requester="User:alice",
            renewers=["User:bob"],
            issue_timestamp=1,
            max_timestamp=9,
            expiration_timestamp=expiration,
            token_id="t",
        )

    state = applied(token(3), token(5))
    assert state.delegation_tokens["t"].expiration_timestamp_ms == 5
    assert state.delegation_tokens["t"].renewers == ("User:bob",)

    state.apply(records.RemoveDelegationToken(token_id="t"), 2)
    state.apply(records.RemoveDelegationToken(token_id="t"), 3)
    assert not state.delegation_tokens
    with pytest.raises(ReplayError, match="not Type:name"):
        state.apply(token(5, owner="alice"), 4)


class TestQuorum:
    def test_a_new_epoch_has_no_leader_until_its_leader_change(self) -> None:
        state = ClusterState()
        voters = [control.Voter(voter_id=101), control.Voter(voter_id=102)]
        state.apply_control(control.LeaderChange(leader_id=101, voters=voters), 0, epoch=1)
        assert (state.quorum.leader_id, state.quorum.leader_epoch) == (101, 1)
        assert state.quorum.voter_ids == (101, 102)

        state.apply_control(control.LeaderChange(leader_id=102, voters=voters), 5, epoch=2)
        assert (state.quorum.leader_id, state.quorum.leader_epoch) == (102, 2)

        state.revert(5)
        assert (state.quorum.leader_id, state.quorum.leader_epoch) == (101, 1)
        state.apply(records.NoOp(), 5)
        with pytest.raises(ReplayError, match="has epoch 0, after epoch 1"):
            state.apply_control(control.LeaderChange(leader_id=102, voters=voters), 6, epoch=0)

    def test_with_kraft_version_1_the_voter_set_is_in_the_log(self) -> None:
        voter_set = control.KRaftVoters(
            voters=[
                control.KRaftVoter(
                    voter_id=voter_id,
                    voter_directory_id=uuid(voter_id),
                    endpoints=[control.VoterEndpoint(name="CONTROLLER", host="c", port=9093)],
                    kraft_version_feature=control.KRaftVersionFeature(
                        min_supported_version=0, max_supported_version=1
                    ),
                )
                for voter_id in (101, 102)
            ]
        )
        state = ClusterState()
        state.apply_control(control.SnapshotHeader(last_contained_log_timestamp=77), 9, epoch=4)
        state.apply_control(control.KRaftVersion(kraft_version=1), 9, epoch=4)
        state.apply_control(voter_set, 9, epoch=4)
        state.apply_control(control.SnapshotFooter(), 9, epoch=4)

        quorum = state.quorum
        assert quorum.kraft_version == 1
        assert quorum.voter_ids == (101, 102)
        assert quorum.voters[0].directory_id == uuid(101)
        assert quorum.leader_id == -1
        assert quorum.last_contained_log_timestamp_ms == 77
        assert list(quorum.snapshot_records()) == [
            control.KRaftVersion(kraft_version=1),
            voter_set,
        ]

    def test_an_empty_voter_set_and_an_unknown_kraft_version_are_rejected(self) -> None:
        state = ClusterState()
        with pytest.raises(ReplayError, match="is not a valid voter set"):
            state.apply_control(control.KRaftVoters(voters=[]), 0, epoch=1)
        with pytest.raises(UnsupportedVersionError, match=r"kraft\.version 9"):
            state.apply_control(control.KRaftVersion(kraft_version=9), 0, epoch=1)
        assert state.quorum.leader_epoch == 0


class TestJournal:
    def test_a_revert_undoes_uncommitted_records(self) -> None:
        state = applied(
            records.FeatureLevel("metadata.version", 30),
            register(1, 1),
            change(1, 1, fenced=-1),
            records.Config(2, "orders", "retention.ms", "1"),
            records.UnregisterBroker(broker_id=1, broker_epoch=1),
        )
        state.revert(2)

        assert state == applied(records.FeatureLevel("metadata.version", 30), register(1, 1))
        state.apply(change(1, 1, fenced=-1), 2)
        assert not state.brokers[1].fenced

    def test_a_delta_lists_changes_but_not_restored_values(self) -> None:
        state = applied(
            records.Config(2, "orders", "retention.ms", "1"),
            records.Config(2, "orders", "cleanup.policy", "delete"),
            register(1, 2),
            records.Config(2, "orders", "retention.ms", "2"),
            records.Config(2, "orders", "cleanup.policy", "compact"),
            records.Config(2, "orders", "cleanup.policy", "delete"),
            change(1, 2, fenced=-1),
            records.ProducerIds(next_producer_id=1000),
        )
        delta = state.delta(3)

        assert set(delta) == {"config", "broker", "producer_ids"}
        assert delta["config"] == {((2, "orders"), "retention.ms"): ("1", "2")}
        before, after = delta["broker"][1]
        assert isinstance(before, BrokerRegistration)
        assert (before.fenced, after.fenced) == (True, False)
        assert delta["producer_ids"] == {"next_producer_id": (None, 1000)}
        assert state.delta(8) == {}

    def test_a_revert_cannot_reach_forgotten_offsets(self) -> None:
        state = applied(*(records.Config(2, "t", "k", str(value)) for value in range(6)))
        state.forget(4)

        with pytest.raises(OffsetOutOfRangeError, match="the journal begins at offset 4"):
            state.revert(3)
        with pytest.raises(OffsetOutOfRangeError, match="the journal begins at offset 4"):
            state.delta(3)
        state.revert(4)
        assert state.configs.topic("t") == {"k": "3"}

    def test_a_cold_load_keeps_no_journal_until_it_is_started(self) -> None:
        state = applied(register(1, 0), journaling=False)
        with pytest.raises(OffsetOutOfRangeError, match="the journal is off"):
            state.revert(0)

        state.start_journal(1)
        state.apply(change(1, 0, fenced=-1), 1)
        state.revert(1)
        assert state.brokers[1].fenced
        with pytest.raises(OffsetOutOfRangeError, match="begins at offset 1"):
            state.revert(0)

    def test_a_copy_as_of_an_offset_does_not_change(self) -> None:
        state = applied(*(records.Config(2, "t", "k", str(value)) for value in range(4)))
        then = state.at(2)
        state.apply(records.Config(2, "t", "k", "now"), 4)

        assert then.configs.topic("t") == {"k": "1"}
        assert state.configs.topic("t") == {"k": "now"}

    def test_descending_offsets_are_rejected(self) -> None:
        state = applied(records.NoOp(), records.NoOp())
        with pytest.raises(ReplayError, match="offset 0 is applied after offset 1"):
            state.apply(register(1, 0), 0)
        assert not state.brokers

    def test_a_rejected_record_changes_nothing(self) -> None:
        state = applied(register(1, 0))
        with pytest.raises(ReplayError):
            state.apply(change(2, 0, fenced=-1), 5)
        state.apply(change(1, 0, fenced=-1), 1)
        assert set(state.delta(0)) == {"broker"}


def test_mappings_and_registrations_are_read_only() -> None:
    state = applied(records.Config(2, "t", "k", "v"), register(1, 1))
    with pytest.raises(TypeError):
        state.configs.topic("t")["k"] = "w"  # type: ignore[index]
    with pytest.raises(TypeError):
        state.brokers[2] = state.brokers[1]  # type: ignore[index]
    with pytest.raises(AttributeError):
        state.brokers[1].fenced = False  # type: ignore[misc]


def test_the_state_of_a_migration_from_zookeeper_is_kept_and_written_back() -> None:
    level = MetadataVersion.IBP_3_4_IV0
    state = applied(
        records.FeatureLevel("metadata.version", level),
        records.ZkMigrationState(zk_migration_state=2),
    )
    state.start_journal(2)
    state.apply(records.ZkMigrationState(zk_migration_state=3), 2)
    written = list(state.snapshot_records_before_topics())
    # Kafka 3.9's FeaturesImage writes this record after the feature levels, before the brokers.
    assert written[1] == records.ZkMigrationState(zk_migration_state=3, version=0)
    assert applied(*written) == state
    assert state.delta(2) == {"zk_migration": {"state": (2, 3)}}
    state.revert(2)
    assert state.zk_migration == {"state": 2}
    state.apply(records.ZkMigrationState(zk_migration_state=0), 2)
    assert state.zk_migration == {}
    assert len(list(state.snapshot_records_before_topics())) == 1


def test_a_metadata_version_before_the_migration_cannot_express_its_state() -> None:
    state = applied(
        records.FeatureLevel("metadata.version", MetadataVersion.IBP_3_3_IV3),
        records.ZkMigrationState(zk_migration_state=1),
    )
    with pytest.raises(UnsupportedVersionError, match="ZkMigrationState"):
        list(state.snapshot_records_before_topics())


def test_records_of_topics_and_transactions_are_ignored_but_unknown_types_rejected() -> None:
    state = applied(
        records.BeginTransaction(),
        records.Topic("orders", uuid(1)),
        records.EndTransaction(),
    )
    assert state == ClusterState()

    class FromTheFuture(Record, api_key=99, versions=(0, 0)):
        """A record that no release knows."""

    with pytest.raises(UnsupportedVersionError, match="unknown type of record: FromTheFuture"):
        state.apply(FromTheFuture(), 4)


def test_the_repr_shows_the_counts() -> None:
    assert repr(applied(register(1, 0))).startswith(
        "ClusterState(metadata_version=1, last_offset=0, brokers=1, controllers=0"
    )
