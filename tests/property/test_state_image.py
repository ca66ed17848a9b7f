"""For any log, an image of the state never changes, and the changes between two images are their
differences.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.errors import InvalidRequestError, OffsetOutOfRangeError
from kraft.image import ClusterState, diff
from kraft.image.view import StateImage, StateView
from kraft.records import Record
from tests.harness.state_records import GROUPED, RECORDS, accepted
from tests.reference.cluster_state_twin import plain

TURNS = st.lists(
    st.tuples(
        st.sampled_from(["apply", "apply", "image", "drop", "revert", "forget", "look"]),
        st.integers(0, 60),
    ),
    max_size=40,
)
quick = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def replayed(kept: list[tuple[int, Record]], end: int) -> ClusterState:
    state = ClusterState(journaling=False)
    for offset, record in kept:
        if offset < end:
            state.apply(record, offset)
    return state


def check_same(image: StateView, then: ClusterState) -> None:
    assert plain(image) == plain(then)
    assert image == then
    assert diff(then, image) == []
    for mine, other in zip(image._maps, then._maps, strict=True):
        assert len(mine) == len(other)
        assert all(key in mine and mine[key] == value for key, value in other.items())
        assert sorted(map(repr, mine)) == sorted(map(repr, other))
    for acl_id, entry in then.acls.items():
        assert sorted(image.acls.ids_of(entry)) == sorted(then.acls.ids_of(entry))
        assert acl_id in image.acls.ids_with_principal(entry.principal)
    for name in ("", "a", "b"):
        assert sorted(image.acls.ids_with_name(name)) == sorted(then.acls.ids_with_name(name))


@quick
@given(log=st.lists(RECORDS, max_size=50), turns=TURNS)
def test_an_image_never_changes(log: list[Record], turns: list[tuple[str, int]]) -> None:
    _, kept = accepted(log)
    state = ClusterState()
    reached = start = 0
    images: list[StateImage] = []
    for turn, number in turns:
        if turn == "apply":
            end = min(reached + number % 9, len(log))
            for offset, record in kept:
                if reached <= offset < end:
                    state.apply(record, offset)
            reached = end
        elif turn == "image":
            images.append(state.image(start + number % (reached + 1 - start)))
        elif turn == "drop" and images:
            del images[number % len(images)]
        elif turn == "forget":
            offset = min(number, reached)
            state.forget(offset)
            start = max(start, min([offset, *(image.offset for image in images)]))
        elif turn == "look" and images:
            at = number % len(images)
            check_same(images[at], replayed(kept, images[at].offset))
        elif turn == "revert" and number >= start:
            if any(image.offset > number for image in images):
                with pytest.raises(InvalidRequestError, match="in use"):
                    state.revert(number)
            else:
                state.revert(number)
                reached = min(reached, number)
    assert plain(state) == plain(replayed(kept, reached))
    for image in images:
        check_same(image, replayed(kept, image.offset))
    if start:
        with pytest.raises(OffsetOutOfRangeError):
            state.image(start - 1)


@quick
@given(st.lists(RECORDS, max_size=50), st.integers(0, 50), st.integers(0, 50))
def test_changes_between_two_images_are_their_differences(
    log: list[Record], first: int, second: int
) -> None:
    state, kept = accepted(log)
    since, end = sorted((first, second))
    before, after = state.image(since), state.image(end)

    changes = after.changes_since(before)

    was, is_now = replayed(kept, since), replayed(kept, end)
    differs = {
        (change.kind, (change.key, change.field) if change.kind in GROUPED else change.key)
        for change in diff(was, is_now)
    }
    assert {(kind, key) for kind, keys in changes.items() for key in keys} == differs
    everything = after.everything()
    assert sum(map(len, everything.values())) == sum(
        len(value) if each.kind in GROUPED else 1
        for each in is_now._maps
        for value in each.values()
    )
    for kind, keys in changes.items():
        for key, change in keys.items():
            assert everything.get(kind, {}).get(key, (None, None))[1] == change.after
