"""Every raft message in every version is decoded as encoded, and `kio` has the same bytes.

`kio` is an independent codec generated from Kafka's schemas. Damaged bytes are rejected.
"""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kraft import errors
from kraft.errors import CorruptRecordError, InvalidRequestError, UnsupportedVersionError
from kraft.protocol.api_versions import API_VERSIONS
from kraft.protocol.common import Rejected
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import Api
from kraft.protocol.raft_rpcs import (
    API_OF_REQUEST,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kraft.raft import rpc as m
from tests.reference.raft_messages import (
    LISTENER,
    REQUESTS,
    RESPONSES,
    can_express,
    request_as_seen,
    response_as_seen,
)

CASES = [
    pytest.param(made, api, version, id=f"{api.name}-{version}")
    for made, api in API_OF_REQUEST.items()
    if api is not API_VERSIONS
    for version in range(13 if api is FETCH else api.lowest, api.highest + 1)
]
FEW = settings(max_examples=40, deadline=None)


def unresolved(slice: m.LogSlice | m.SnapshotSlice) -> memoryview:
    raise AssertionError("these responses hold bytes, not slices")


def through_kio(schema: type, body: bytes) -> bytes:
    """Decode the bytes with kio, and encode them again."""
    entity, size = entity_reader(schema)(body, 0)
    assert size == len(body)
    with io.BytesIO() as buffer:
        entity_writer(schema)(buffer, entity)
        return buffer.getvalue()


@pytest.mark.parametrize(("made", "api", "version"), CASES)
def test_a_request_arrives_as_it_was_sent(made: type, api: Api, version: int) -> None:
    @FEW
    @given(REQUESTS[made])
    def check(request: m.Request) -> None:
        if not can_express(request, version):
            with pytest.raises(UnsupportedVersionError):
                encode_request(request, version)
            return
        body = encode_request(request, version)
        assert decode_request(api, version, body) == request_as_seen(request, version)
        assert decode_request(api, version, b"front" + body, 5) == request_as_seen(request, version)
        assert through_kio(load_request_schema(api.key, version), body) == body

    check()


@pytest.mark.parametrize(("made", "api", "version"), CASES)
def test_a_response_arrives_as_it_was_sent(made: type, api: Api, version: int) -> None:
    @FEW
    @given(RESPONSES[made])
    def check(response: m.Response) -> None:
        body = b"".join(encode_response(response, version, LISTENER, unresolved))
        seen = decode_response(api, version, body, 0, LISTENER)
        assert seen == response_as_seen(response, version)
        assert through_kio(load_response_schema(api.key, version), body) == body

    check()


@pytest.mark.parametrize(("made", "api", "version"), CASES)
@pytest.mark.parametrize("error", sorted(m.TOP_LEVEL_ERRORS))
def test_an_error_of_the_whole_request_stands_at_the_top(
    made: type, api: Api, version: int, error: int
) -> None:
    response = _refusal(made, error)
    body = b"".join(encode_response(response, version, LISTENER, unresolved))
    entity, _ = entity_reader(load_response_schema(api.key, version))(body, 0)
    assert entity.error_code == error
    assert not getattr(entity, "topics", ())
    assert not getattr(entity, "responses", ())
    assert decode_response(api, version, body, 0, LISTENER).error == error


def _refusal(made: type, error: int) -> m.Response:
    name = made.__name__.replace("Request", "Response")
    response: m.Response = getattr(m, name)(error)
    return response


@pytest.mark.parametrize(("made", "api", "version"), CASES)
def test_damaged_requests_are_rejected_and_nothing_else_happens(
    made: type, api: Api, version: int
) -> None:
    @FEW
    @given(REQUESTS[made], st.data())
    def check(request: m.Request, data: st.DataObject) -> None:
        if not can_express(request, version):
            return
        body = _damaged(encode_request(request, version), data)
        try:
            read: object = decode_request(api, version, body)
        except CorruptRecordError as error:
            read = error
        assert isinstance(read, made | Rejected | CorruptRecordError)
        assert not isinstance(read, CorruptRecordError) or 0 <= read.position <= len(body)

    check()


@pytest.mark.parametrize(("made", "api", "version"), CASES)
def test_damaged_responses_are_rejected_and_nothing_else_happens(
    made: type, api: Api, version: int
) -> None:
    @FEW
    @given(RESPONSES[made], st.data())
    def check(response: m.Response, data: st.DataObject) -> None:
        body = b"".join(encode_response(response, version, LISTENER, unresolved))
        body = _damaged(body, data)
        try:
            read: object = decode_response(api, version, body, 0, LISTENER)
        except (CorruptRecordError, InvalidRequestError) as error:
            read = error
        assert isinstance(read, type(response) | CorruptRecordError | InvalidRequestError)
        assert not isinstance(read, CorruptRecordError) or 0 <= read.position <= len(body)

    check()


def _damaged(body: bytes, data: st.DataObject) -> bytes:
    """Return the body cut short, lengthened, or with some bytes changed to large claims."""
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            place = data.draw(st.integers(0, len(changed) - 1))
            changed[place] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.integers(0, len(changed)))
    if data.draw(st.booleans()):
        return bytes(changed[:cut])
    return bytes(changed) + data.draw(st.binary(max_size=3))


@FEW
@given(REQUESTS[m.FetchRequest], st.sampled_from(range(13, 19)), st.data())
def test_a_fetch_of_anything_but_the_metadata_log_is_invalid(
    request: m.FetchRequest, version: int, data: st.DataObject
) -> None:
    """A request of any shape is decoded like kio does, and answered with a top-level error."""
    schema = load_request_schema(1, version)
    entity, _ = entity_reader(schema)(encode_request(request, version), 0)
    topic = entity.topics[0]
    partition = topic.partitions[0]
    topics = data.draw(
        st.sampled_from(
            [
                (),
                (topic, topic),
                (replace(topic, partitions=()),),
                (replace(topic, partitions=(partition, partition)),),
                (replace(topic, partitions=(replace(partition, partition=1),)),),
                (replace(topic, topic_id=None),),
            ]
        )
    )
    with io.BytesIO() as buffer:
        entity_writer(schema)(buffer, replace(entity, topics=topics))
        body = buffer.getvalue()
    refused = decode_request(FETCH, version, body)
    assert isinstance(refused, Rejected)
    answer, _ = entity_reader(load_response_schema(1, version))(refused.body, 0)
    assert answer.error_code == errors.INVALID_REQUEST
    assert answer.responses == ()
