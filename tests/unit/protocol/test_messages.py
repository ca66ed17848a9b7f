"""The bodies of every API in every version: round trips, and the rejection of damaged bytes."""

from __future__ import annotations

import importlib
import pkgutil
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kraft.protocol
from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.errors import (
    BudgetExceededError,
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedVersionError,
)
from kraft.protocol.alter_client_quotas import AlterClientQuotasRequestData
from kraft.protocol.apis import BROKER_RPCS, RPC_BY_KEY, RPCS
from kraft.protocol.create_topics import CreatedTopicData, CreateTopicsResponseData
from kraft.protocol.delete_topics import DeletedTopicData, DeleteTopicsResponseData
from kraft.protocol.headers import Api
from kraft.protocol.metadata import MetadataRequestData
from tests.reference.generated_structs import shapes, structs

ALL_RPCS = (*RPCS, *BROKER_RPCS)
BODIES = [
    pytest.param(kind, version, rpc.api.flexible_since, id=f"{kind.__name__}-{version}")
    for rpc in ALL_RPCS
    for kind in (rpc.request, rpc.response)
    if kind is not None
    for version in range(rpc.api.lowest, rpc.api.highest + 1)
]
MODULES = [
    importlib.import_module(f"kraft.protocol.{module.name}")
    for module in pkgutil.iter_modules(kraft.protocol.__path__)
]


def test_the_table_has_every_api_and_message_of_the_package() -> None:
    found = [value for module in MODULES for value in vars(module).values()]
    assert {rpc.api for rpc in ALL_RPCS} == {value for value in found if isinstance(value, Api)}
    messages = {value for value in found if isinstance(value, type) and issubclass(value, Message)}
    listed = {kind for rpc in ALL_RPCS for kind in (rpc.request, rpc.response) if kind is not None}
    parts = {"Message", "RejectedFetchSnapshotData"}
    assert {kind.__name__ for kind in messages - listed} == parts
    assert list(RPC_BY_KEY) == sorted(RPC_BY_KEY)
    assert len(RPC_BY_KEY) == len(RPCS)
    broker_keys = [rpc.api.key for rpc in BROKER_RPCS]
    assert broker_keys == sorted(set(broker_keys) - set(RPC_BY_KEY))


@pytest.mark.parametrize("rpc", ALL_RPCS, ids=lambda rpc: rpc.api.name)
def test_a_schema_has_the_versions_of_its_api(rpc: kraft.protocol.apis.Rpc) -> None:
    for kind in (rpc.request, rpc.response):
        if kind is not None:
            schema = kind.schema
            assert schema.lowest_version <= rpc.api.lowest
            assert schema.highest_version >= rpc.api.highest
            assert max(schema.flexible_since, rpc.api.lowest) == max(
                rpc.api.flexible_since, rpc.api.lowest
            )


@pytest.mark.parametrize(("kind", "version", "flexible_since"), BODIES)
def test_a_body_decodes_to_the_encoded_message(
    kind: type[Message], version: int, flexible_since: int
) -> None:
    for made in shapes(kind, version):
        assert kind.decode(made.encode(version), version) == made

    @settings(max_examples=10, deadline=None)
    @given(structs(kind, version, flexible_since=flexible_since))
    def check(made: Message) -> None:
        body = made.encode(version)
        assert kind.decode(b"before" + body, version, 6) == made
        assert kind.decode(memoryview(body), version).encode(version) == body
        parts, size = made.encode_segments(version)
        assert (b"".join(parts), size) == (body, len(body))

    check()


@pytest.mark.parametrize(("kind", "version", "flexible_since"), BODIES)
def test_every_truncation_and_every_byte_too_many_is_rejected(
    kind: type[Message], version: int, flexible_since: int
) -> None:
    for made in list(shapes(kind, version))[1:4]:
        body = made.encode(version)
        for size in range(0, len(body), 1 + len(body) // 2000):
            with pytest.raises(CorruptRecordError) as caught:
                kind.decode(memoryview(body)[:size], version)
            assert 0 <= caught.value.position <= size
        with pytest.raises(CorruptRecordError, match="left over"):
            kind.decode(body + b"\0", version)


@pytest.mark.parametrize(("kind", "version", "flexible_since"), BODIES)
def test_a_claimed_count_allocates_no_more_than_the_body_can_hold(
    kind: type[Message], version: int, flexible_since: int
) -> None:
    """Overwrite the bytes at every position, so that every count and length is inflated once."""
    made = list(shapes(kind, version))[1]
    body = made.encode(version) + bytes(1000)
    is_classic = version < flexible_since
    inflated = (b"\x7f\xff\xff\xff", b"\x7f\xff") if is_classic else (b"\xff\xff\xff\xff\x0f",)
    tracemalloc.start()
    try:
        for position in range(len(body) - 1000):
            for claim in inflated:
                damaged = body[:position] + claim + body[position + len(claim) :]
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                with pytest.raises(CorruptRecordError):
                    kind.decode(damaged, version)
                assert tracemalloc.get_traced_memory()[1] - before < 100_000
    finally:
        tracemalloc.stop()


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([param.values for param in BODIES]), st.data())
def test_damaged_bytes_are_rejected_or_are_another_message(
    body: tuple[type[Message], int, int], data: st.DataObject
) -> None:
    kind, version, flexible_since = body
    made = data.draw(structs(kind, version, flexible_since=flexible_since))
    damaged = bytearray(made.encode(version) or b"\0")
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = kind.decode(bytes(damaged), version)
    except CorruptRecordError:
        return
    # Compare the bytes, because NaN is not equal to itself.
    again = read.encode(version)
    assert kind.decode(again, version).encode(version) == again


class Leaf(Struct):
    number: int = field("int8", since=1)


class Old(Message, versions=(0, 2), flexible_since=2):
    name: str | None = field("string", None, nullable=True, nullable_since=1)
    data: bytes | None = field("bytes", None, nullable=True)
    leaves: list[Leaf] = field("[]struct", of=Leaf)
    words: list[str] | None = field("[]string", nullable=True)
    tagged: int = field("int32", since=2, tag=0)
    dropped: int = field("int32", 5, since=2, ignorable=True)


def test_a_classic_body_has_exactly_the_expected_bytes() -> None:
    made = Old("ab", None, [Leaf(7), Leaf(-1)], ["", "c"])
    body = bytes.fromhex("0002 6162 ffffffff 00000002 07 ff 00000002 0000 0001 63")
    assert made.encode(1) == body
    assert Old.decode(body, 1) == made
    assert Old(None, b"x", [], None).encode(1).hex() == "ffff000000017800000000ffffffff"
    flexible = bytes.fromhex("03 6162 00 03 0700 ff00 03 01 0263 00000005 00")
    assert made.encode(2) == flexible


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("6d fc 6c 6c", "m\ufffdll"),
        ("ff fe", "\ufffd\ufffd"),
        ("e2 82 41", "\ufffdA"),
        ("c3 bc", "ü"),
    ],
)
def test_text_that_is_not_utf_8_is_read_with_replacements(text: str, read: str) -> None:
    """As by Kafka: a client in C may send names and values in another encoding."""
    data = bytes.fromhex(text)
    classic = len(data).to_bytes(2, "big") + data + bytes.fromhex("ffffffff 00000000 00000000")
    assert Old.decode(classic, 1) == Old(read, None, [], [])
    flexible = bytes((len(data) + 1,)) + data + bytes.fromhex("00 01 01 00000000 00")
    assert Old.decode(flexible, 2).name == read


@pytest.mark.parametrize(
    ("body", "version", "position", "reason"),
    [
        ("00", 1, 0, "Old.name ends early"),
        ("fffe" "ffffffff", 1, 0, "Old.name ends early or has a negative size"),
        ("ffff", 0, 0, "Old.name is null"),
        ("0003" "6162", 1, 0, "Old.name claims 3 of 2 bytes"),
        ("0000" "000000", 1, 2, "Old.data ends early"),
        ("0000" "fffffffe", 1, 2, "Old.data ends early or has a negative size"),
        ("0000" "7fffffff" "00", 1, 2, "Old.data claims 2147483647 of 1 bytes"),
        ("0000" "ffffffff" "ffffffff", 1, 6, "Old.leaves is null"),
        ("0000" "ffffffff" "fffffffe", 1, 6, "negative count"),
        ("0000" "ffffffff" "00000005" "00000000", 1, 6, "claims 5 elements in 4 bytes"),
        # Each element counts as at least one byte, even a struct without fields in this version.
        ("0000" "ffffffff" "7fffffff" "00000000", 0, 6, "claims 2147483647 elements in 4 bytes"),
        ("0000" "ffffffff" "00000000" "00000003" "00000000", 1, 10, "claims 3 elements in 4 bytes"),
        ("0000" "ffffffff" "00000000" "00000001" "ffff", 1, 14, "Old.words is null"),
        ("0000" "ffffffff" "00000000" "00000000" "00", 1, 14, "1 bytes are left over"),
    ],
)  # fmt: skip
def test_malformed_classic_bytes_are_rejected_with_their_position(
    body: str, version: int, position: int, reason: str
) -> None:
    with pytest.raises(CorruptRecordError, match=reason) as caught:
        Old.decode(bytes.fromhex(body), version)
    assert caught.value.position == position
    assert isinstance(caught.value, BudgetExceededError) == ("claims" in reason)


def test_a_classic_version_carries_neither_tags_nor_null_where_it_has_none() -> None:
    assert Old("", dropped=7).encode(1) == Old("").encode(1)
    with pytest.raises(UnsupportedVersionError, match="tagged is not part of version 1"):
        Old("", tagged=7).encode(1)
    with pytest.raises(UnsupportedVersionError, match="version 1 of Old has no tagged fields"):
        Old("", unknown_tagged_fields={9: b""}).encode(1)
    with pytest.raises(InvalidRecordError, match="name cannot be None"):
        Old(None).encode(0)
    with pytest.raises(InvalidRecordError, match="over 32767"):
        Old("x" * 32768).encode(1)
    longest = Old("x" * 32767, b"y" * 70_000)
    assert Old.decode(longest.encode(1), 1) == longest


def test_a_response_is_encoded_without_the_fields_that_its_version_lacks() -> None:
    topic = CreatedTopicData("a", topic_id=b"\1" * 16, num_partitions=3, replication_factor=2)
    body = CreateTopicsResponseData(topics=[topic]).encode(2)
    assert body == struct.pack(">iih1shh", 0, 1, 1, b"a", 0, -1)
    assert CreateTopicsResponseData.decode(body, 2).topics == [CreatedTopicData("a")]
    deleted = DeleteTopicsResponseData(responses=[DeletedTopicData(None, b"\2" * 16)])
    assert DeleteTopicsResponseData.decode(deleted.encode(6), 6) == deleted
    with pytest.raises(InvalidRecordError):
        deleted.encode(5)


def test_every_bit_of_a_nan_is_kept() -> None:
    bits = bytes.fromhex("7ff8000000000001")
    body = bytes.fromhex("00000001 00000000 00000001 0001 61") + bits + b"\0\0"
    assert AlterClientQuotasRequestData.decode(body, 0).encode(0) == body


def test_librdkafkas_question_for_all_topics_is_read_as_kafka_reads_it() -> None:
    """Metadata 13 of librdkafka 2.16: the count of topics has four bytes instead of one."""
    body = bytes.fromhex("00000000010000")
    asked = MetadataRequestData.decode_prefix(body, 13)
    assert asked == MetadataRequestData(None, allow_auto_topic_creation=False)
    with pytest.raises(CorruptRecordError, match="3 bytes are left over"):
        MetadataRequestData.decode(body, 13)
    with pytest.raises(CorruptRecordError):
        MetadataRequestData.decode_prefix(body[:3], 13)
