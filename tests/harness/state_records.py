"""Generated records of everything but topics and partitions, for hypothesis."""

from __future__ import annotations

import copy

import pytest
from hypothesis import strategies as st

from kraft import records
from kraft.errors import ReplayError, UnsupportedVersionError
from kraft.image import ClusterState
from kraft.records import Record, Uuid
from tests.reference.cluster_state_twin import RefusedError, plain, replayed, step

# Small ranges, so that records refer to entities of earlier records.
IDS = st.integers(1, 3)
EPOCHS = st.integers(0, 1)
NAMES = st.sampled_from(["", "a", "b"])
UUIDS = st.integers(0, 3).map(lambda n: Uuid(bytes([n * 80] * 16)))
DIRECTORIES = st.lists(UUIDS, max_size=3, unique=True)
_ENTITY_PARTS: list[list[tuple[str, str | None]]] = [
    [("user", "alice")],
    [("user", None)],
    [("user", "alice"), ("client-id", "x")],
    [("client-id", "x"), ("user", "alice")],
    [("ip", "10.0.0.1")],
]
ENTITIES = st.sampled_from(_ENTITY_PARTS).map(
    lambda parts: [records.EntityData(entity_type=t, entity_name=n) for t, n in parts]
)
ENDPOINTS = st.lists(
    st.builds(
        records.EndpointData,
        name=st.sampled_from(["PLAINTEXT", "SSL"]),
        host=st.just("host"),
        port=st.just(9092),
        security_protocol=st.integers(0, 3),
    ),
    max_size=2,
    unique_by=lambda point: point.name,
)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        records.RegisterBroker,
        broker_id=IDS,
        broker_epoch=EPOCHS,
        incarnation_id=UUIDS,
        end_points=ENDPOINTS,
        rack=st.sampled_from([None, "r1"]),
        fenced=st.booleans(),
        in_controlled_shutdown=st.booleans(),
        log_dirs=DIRECTORIES,
        cordoned_log_dirs=st.none() | DIRECTORIES,
    ),
    st.builds(records.UnregisterBroker, broker_id=IDS, broker_epoch=EPOCHS),
    st.builds(records.FenceBroker, id=IDS, epoch=EPOCHS),
    st.builds(records.UnfenceBroker, id=IDS, epoch=EPOCHS),
    st.builds(
        records.BrokerRegistrationChange,
        broker_id=IDS,
        broker_epoch=EPOCHS,
        fenced=st.integers(-2, 2),
        in_controlled_shutdown=st.integers(-1, 2),
        log_dirs=DIRECTORIES,
        cordoned_log_dirs=st.none() | DIRECTORIES,
    ),
    st.builds(records.RegisterController, controller_id=IDS, incarnation_id=UUIDS),
    st.builds(records.UnregisterController, controller_id=IDS),
    st.builds(
        records.FeatureLevel,
        name=st.sampled_from(["metadata.version", "kraft.version", "group.version"]),
        feature_level=st.integers(-1, 34),
    ),
    st.builds(
        records.Config,
        resource_type=st.sampled_from([2, 4]),
        resource_name=NAMES,
        name=NAMES,
        value=st.none() | st.sampled_from(["1", "2"]),
    ),
    st.builds(
        records.ClientQuota,
        entity=ENTITIES,
        key=NAMES,
        value=st.sampled_from([1.0, 2.5]),
        remove=st.booleans(),
    ),
    st.builds(records.ProducerIds, next_producer_id=st.integers(-1, 9)),
    st.builds(
        records.AccessControlEntry,
        id=UUIDS,
        resource_name=NAMES,
        principal=st.just("User:alice"),
        operation=st.integers(2, 4),
    ),
    st.builds(records.RemoveAccessControlEntry, id=UUIDS),
    st.builds(
        records.UserScramCredential,
        name=NAMES,
        mechanism=st.integers(1, 2),
        salt=st.sampled_from([b"s1", b"s2"]),
        iterations=st.just(4096),
    ),
    st.builds(records.RemoveUserScramCredential, name=NAMES, mechanism=st.integers(1, 2)),
    st.builds(
        records.DelegationToken,
        owner=st.just("User:alice"),
        requester=st.just("User:bob"),
        expiration_timestamp=st.integers(0, 2),
        token_id=NAMES,
    ),
    st.builds(records.RemoveDelegationToken, token_id=NAMES),
)
# For these kinds a delta identifies each setting, and a difference the group and the setting.
GROUPED = ("config", "client_quota")


def accepted(log: list[Record]) -> tuple[ClusterState, list[tuple[int, Record]]]:
    """Apply every record to the state and its twin, which must reject the same ones."""
    state = ClusterState()
    twin = replayed([])
    kept: list[tuple[int, Record]] = []
    for offset, record in enumerate(log):
        before = copy.deepcopy(twin)
        try:
            step(twin, record, offset)
        except RefusedError:
            twin = before
            with pytest.raises((ReplayError, UnsupportedVersionError)):
                state.apply(record, offset)
        else:
            state.apply(record, offset)
            kept.append((offset, record))
        assert plain(state) == twin
    return state, kept
