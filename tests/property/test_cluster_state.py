"""For any log of records, ``ClusterState`` equals its slow twin at every offset of a revert."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft import records
from kraft.image import ClusterState, diff
from kraft.records import Record
from tests.harness.state_records import GROUPED, RECORDS, accepted
from tests.reference.cluster_state_twin import plain

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(st.lists(RECORDS, max_size=40))
def test_the_state_equals_the_twins_after_every_record(log: list[Record]) -> None:
    accepted(log)


@quick
@given(st.lists(RECORDS, max_size=40), st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_a_revert_equals_never_having_applied(log: list[Record], offsets: list[int]) -> None:
    state, kept = accepted(log)
    for offset in sorted(offsets, reverse=True):
        prefix = [(at, record) for at, record in kept if at < offset]
        before_it_was = ClusterState(journaling=False)
        for at, record in prefix:
            before_it_was.apply(record, at)

        seen = state.at(offset)
        assert seen == before_it_was
        state.revert(offset)

        assert state == before_it_was
        assert plain(state) == plain(seen) == plain(before_it_was)
        assert state.delta(offset) == {}
    # From there it continues like a fresh replay.
    for at, record in kept:
        if at >= min(offsets):
            state.apply(record, at)
    assert plain(state) == plain(accepted(log)[0])


@quick
@given(st.lists(RECORDS, max_size=40), st.integers(0, 40))
def test_a_delta_names_exactly_the_keys_that_differ(log: list[Record], offset: int) -> None:
    state, _ = accepted(log)
    before = state.at(offset)

    delta = state.delta(offset)

    changed = {
        (change.kind, (change.key, change.field) if change.kind in GROUPED else change.key)
        for change in diff(before, state)
    }
    named = {(kind, key) for kind, keys in delta.items() for key in keys}
    assert named == changed


@quick
@given(st.lists(RECORDS, max_size=40))
def test_a_snapshot_of_the_state_restores_it(log: list[Record]) -> None:
    newest = records.FeatureLevel(name="metadata.version", feature_level=30)
    state, _ = accepted(log)
    state.apply(newest, len(log))

    loaded = ClusterState(journaling=False)
    for record in state.snapshot_records_before_topics():
        loaded.apply(record, len(log))
    for record in state.snapshot_records_after_topics():
        loaded.apply(record, len(log))

    assert loaded == state
    assert diff(state, loaded) == []
