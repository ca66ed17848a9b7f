"""The codec that interprets record schemas: positions of rejected bytes, unknown tags, defaults."""

from __future__ import annotations

import copy
import pickle
import sys
import warnings

import numpy as np
import pytest

from kraft import records
from kraft._core.codec.message_schema import ZERO_UUID, Uuid, field
from kraft._core.codec.metadata_codec import Record, RecordCodec, Struct
from kraft.errors import (
    BudgetExceededError,
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedVersionError,
)
from kraft.records.values import encode_value


class Leaf(Struct):
    name: str = field("string")
    port: int = field("uint16", since=1)


class Tree(Record, api_key=300, versions=(0, 2)):
    id: int = field("int32")
    label: str | None = field("string", nullable=True)
    leaves: list[Leaf] = field("[]struct", of=Leaf)
    flag: bool = field("bool", True, tag=0)
    ids: list[Uuid] = field("[]uuid", tag=3)
    added: list[int] | None = field("[]int32", None, since=1, tag=5, nullable=True)
    blob: bytes = field("bytes", since=2)


CODEC = RecordCodec([Tree])
FRAME = "01" + "ac02"  # frame version 1, api key 300


def tree(body: str, version: int = 0) -> Record:
    return CODEC.decode(bytes.fromhex(f"{FRAME}{version:02x}{body}"))


def test_a_record_has_exactly_the_expected_bytes() -> None:
    made = Tree(7, None, [Leaf("ab")], flag=False, ids=[Uuid(range(16))])
    value = CODEC.encode(made, 0)
    assert value.hex() == (
        "01ac0200"  # frame
        "00000007"  # id
        "00"  # label is null
        "02" "03" "6162" "00"  # one leaf, its name, its empty tagged section
        "02"  # two tagged fields
        "00" "01" "00"  # tag 0: flag
        "03" "11" "02" "000102030405060708090a0b0c0d0e0f"  # tag 3: ids
    )  # fmt: skip
    assert CODEC.decode(value) == made


def test_a_tagged_field_at_its_default_is_not_written() -> None:
    assert CODEC.encode(Tree(flag=True, ids=[], added=None), 2).hex() == (
        "01ac0202" "00000000" "01" "01" "01" "00"
    )  # fmt: skip
    assert CODEC.encode(Tree(added=[]), 1).hex().endswith("01" "05" "01" "01")  # fmt: skip


def test_unknown_tags_are_written_back_in_ascending_order() -> None:
    body = "00000001" "01" "01" "03" "000100" "0102ffee" "8001" "00"  # fmt: skip
    made = tree(body)
    assert made.unknown_tagged_fields == {1: b"\xff\xee", 128: b""}
    assert CODEC.encode(made, 0).hex().endswith(body)
    nested = tree("00000001" "01" "02" "01" "01" "07" "01" "aa" "00")  # fmt: skip
    assert isinstance(nested, Tree)
    assert nested.leaves[0].unknown_tagged_fields == {7: b"\xaa"}


def test_a_long_tagged_field_has_a_size_of_two_bytes() -> None:
    made = Tree(added=list(range(1000)), unknown_tagged_fields={9: bytes(20_000)})
    assert CODEC.decode(CODEC.encode(made, 1)) == made


@pytest.mark.parametrize(
    ("body", "position", "reason"),
    [
        ("000000", 4, "Tree.id ends early"),
        ("00000001", 8, "Tree.label ends early"),
        ("00000001" "05" "6162", 8, "Tree.label claims 4 of 2 bytes"),
        ("00000001" "ffffffff0f" "6162", 8, "Tree.label claims 4294967294 of 2 bytes"),
        ("00000001" "ffffffffff01", 8, "Tree.label ends early"),
        ("00000001" "03" "61ff" "01" "00", 10, "Tree.label is not UTF-8"),
        ("00000001" "01" "00" "00", 9, "Tree.leaves is null"),
        ("00000001" "01" "ffffff7f" "0000", 9, "claims 268435454 elements in 2 bytes"),
        ("00000001" "01" "02" "00" "00" "00", 10, "Leaf.name is null"),
        ("00000001" "01" "01", 10, "tagged section of Tree"),
        ("00000001" "01" "01" "7f" "0000", 10, "claims 127 tagged fields in 2 bytes"),
        ("00000001" "01" "01" "02" "070107" "060106", 14, "tag 6 of Tree follows tag 7"),
        ("00000001" "01" "01" "02" "070107" "070107", 14, "tag 7 of Tree follows tag 7"),
        ("00000001" "01" "01" "01" "07" "05" "00", 11, "tag 7 of Tree claims 5 of 1 bytes"),
        ("00000001" "01" "01" "01" "00" "02" "0000", 14, "Tree.flag is shorter than its size, 2"),
        ("00000001" "01" "01" "01" "00" "00", 13, "Tree.flag ends early"),
        ("00000001" "01" "01" "01" "05" "01" "01", 11, "tag 5 is not part of Tree in version 0"),
        ("00000001" "01" "01" "00" "aabb", 11, "2 bytes are left over after a Tree"),
    ],
)  # fmt: skip
def test_malformed_bytes_are_rejected_with_their_position(
    body: str, position: int, reason: str
) -> None:
    with pytest.raises(CorruptRecordError, match=reason) as caught:
        tree(body)
    assert caught.value.position == position


def test_a_position_counts_from_the_begin_of_the_buffer() -> None:
    value = CODEC.encode(Tree(3, "x"), 0)
    buffer = b"before" + value + b"behind"
    assert CODEC.decode(memoryview(buffer), 6, 6 + len(value)) == Tree(3, "x")
    with pytest.raises(CorruptRecordError) as caught:
        CODEC.decode(buffer, 6, 6 + len(value) - 1)
    assert caught.value.position == 6 + len(value) - 1
    for begin, end in ((-1, 3), (4, 3), (0, len(buffer) + 1)):
        with pytest.raises(ValueError, match="of a buffer of"):
            CODEC.decode(buffer, begin, end)


def test_a_claimed_count_allocates_nothing() -> None:
    with pytest.raises(BudgetExceededError):
        tree("00000001" "01" "feffffff0f" + "00" * 100)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("00ac0200", "frame version 0"),
        ("02ac0200", "frame version 2"),
        ("010500", "no metadata record has api key 5"),
        ("01ad0200", "no metadata record has api key 301"),
        ("01ffffffff0f00", "no metadata record has api key 4294967295"),
        ("01ac0203", "Tree has versions 0-2, not 3"),
        ("01ac02ffffffff0f", "Tree has versions 0-2"),
    ],
)
def test_an_unknown_newer_version_is_named_in_the_error(value: str, reason: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=reason):
        CODEC.decode(bytes.fromhex(value))


def test_a_frame_that_ends_early_is_corrupt() -> None:
    for value in ("", "01", "01ac", "01ac02", "ffffffffff"):
        with pytest.raises(CorruptRecordError):
            CODEC.decode(bytes.fromhex(value))


@pytest.mark.parametrize(
    "fields",
    [
        {"id": 1 << 31},
        {"id": -(1 << 31) - 1},
        {"id": 1.5},
        {"id": None},
        {"id": "1"},
        {"label": b"x"},
        {"label": "\ud800"},
        {"label": "x" * 32768},
        {"leaves": None},
        {"leaves": "ab"},
        {"leaves": 3},
        {"leaves": [None]},
        {"leaves": [Tree()]},
        {"leaves": [Leaf("a", 65536)]},
        {"leaves": [Leaf("a", -1)]},
        {"flag": "no"},
        {"flag": 2},
        {"ids": [bytes(15)]},
        {"ids": ["AAAAAAAAAAAAAAAAAAAAAA"]},
        {"ids": None},
        {"added": [1, None]},
        {"blob": "text"},
        {"blob": 5},
        {"unknown_tagged_fields": {3: b""}},
        {"unknown_tagged_fields": {-1: b""}},
        {"unknown_tagged_fields": {7: "text"}},
    ],
)
def test_a_value_that_does_not_fit_its_field_is_rejected(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRecordError):
        CODEC.encode(Tree(**fields), 2)  # type: ignore[arg-type]


def test_a_value_that_a_version_cannot_express_is_rejected() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"Tree.added is not part of version 0"):
        CODEC.encode(Tree(added=[]), 0)
    with pytest.raises(UnsupportedVersionError, match=r"Leaf.port"):
        CODEC.encode(Tree(leaves=[Leaf("a", 1)]), 0)
    with pytest.raises(UnsupportedVersionError, match="versions 0-2"):
        CODEC.encode(Tree(), 3)
    with pytest.raises(InvalidRecordError, match="not a metadata record"):
        CODEC.encode(Leaf("a"), 0)  # type: ignore[arg-type]


def test_arrays_take_any_sequence_and_uuids_any_16_bytes() -> None:
    numpy = pytest.importorskip("numpy")
    made = Tree(numpy.int32(4), ids=[bytes(range(16))], added=numpy.array([1, 2], ">i4"))  # type: ignore[arg-type]
    read = CODEC.decode(CODEC.encode(made, 1))
    assert read == Tree(4, ids=[Uuid(range(16))], added=[1, 2])


def test_records_are_compared_copied_and_pickled_by_value() -> None:
    made = Tree(1, leaves=[Leaf("a")], version=2, unknown_tagged_fields={})
    assert made == Tree(1, leaves=[Leaf("a")])
    assert made != Tree(2, leaves=[Leaf("a")])
    assert made != Tree(1, leaves=[Leaf("b")])
    assert made != Tree(1, leaves=[Leaf("a")], unknown_tagged_fields={9: b""})
    assert repr(made) == "Tree(id=1, label='', leaves=[Leaf(name='a', port=0)], blob=b'')"
    assert repr(Tree(flag=False)).endswith("flag=False, blob=b'')")
    for twin in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), made.replace()):
        assert twin == made
        assert twin.version == 2
    assert made.replace(id=5) == Tree(5, leaves=[Leaf("a")])
    assert made.to_dict()["leaves"] == [{"name": "a", "port": 0}]
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)
    match made:
        case Tree(id, _, [Leaf(name)]):
            assert (id, name) == (1, "a")
        case _:
            pytest.fail("no match")


def test_defaults_are_not_shared_between_records() -> None:
    Tree().ids.append(ZERO_UUID)
    assert Tree().ids == []
    first, second = (tree("00000001" "01" "01" "00") for _ in range(2))  # fmt: skip
    assert isinstance(first, Tree)
    first.ids.append(ZERO_UUID)
    assert first != second


def test_a_field_that_does_not_exist_is_rejected() -> None:
    for arguments, reason in (
        ({"bogus": 1}, "no field 'bogus'"),
        ({"args": 8 * (0,)}, "7 fields, 8 were given"),
    ):
        with pytest.raises(TypeError, match=reason):
            Tree(*arguments.pop("args", ()), **arguments)
    with pytest.raises(TypeError, match="given twice"):
        Tree(1, id=2)  # type: ignore[misc]
    with pytest.raises(TypeError, match="no field 'version'"):
        Leaf("a", version=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Tree().bogus = 1  # type: ignore[attr-defined]


def test_a_uuid_is_16_bytes_that_read_as_kafka_prints_them() -> None:
    topic = Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ")
    assert topic == bytes(15) + b"\1"
    assert str(topic) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert repr(topic) == "Uuid('AAAAAAAAAAAAAAAAAAAAAQ')"
    assert Uuid.parse("__-_________________8w") == b"\xff\xff\xbf" + b"\xff" * 12 + b"\xf3"
    assert len({topic, Uuid(bytes(topic)), bytes(topic)}) == 1
    assert pickle.loads(pickle.dumps(topic)) == topic
    for text in ("", "AAAA", "AAAAAAAAAAAAAAAAAAAAAQ==", "!AAAAAAAAAAAAAAAAAAAAQ", "é" * 22):
        with pytest.raises(ValueError, match="not a uuid"):
            Uuid.parse(text)
    with pytest.raises(ValueError, match="16 bytes"):
        Uuid(b"short")


def test_reading_and_writing_leave_no_references_behind() -> None:
    shared = "a label that is not interned, é"
    made = Tree(1, shared, [Leaf("x")] * 3, ids=[Uuid(range(16))])
    value = CODEC.encode(made, 0)
    before = sys.getrefcount(shared)
    for _ in range(100):
        CODEC.encode(made, 0)
        CODEC.decode(value)
        with pytest.raises(CorruptRecordError):
            CODEC.decode(value[:-1])
        made.replace(id=2)
    assert sys.getrefcount(shared) == before


def test_a_boolean_of_numpy_is_no_integer() -> None:
    """numpy deprecates its booleans as integers, with a warning at the caller's line."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidRecordError, match=r"partition_id cannot be .*True_?: its type"):
            encode_value(records.Partition(partition_id=np.bool_(True)))
        quota = records.ClientQuota(key="a", remove=np.bool_(True))
        assert encode_value(quota) == encode_value(records.ClientQuota(key="a", remove=True))
        assert encode_value(records.Partition(partition_id=np.int32(3)))


class Fork(Struct):
    left: Leaf | None = field("struct", None, nullable=True, nullable_since=1, of=Leaf)
    right: Leaf | None = field("struct", nullable=True, of=Leaf)


def test_a_struct_that_may_be_null_begins_with_an_int8() -> None:
    assert Fork() == Fork(None, Leaf())
    made = Fork(None, Leaf("ab", 7))
    written = Fork.schema.encode(made, 1)
    assert written.hex() == "ff" "01" "03" "6162" "0007" "00" "00"  # fmt: skip
    assert Fork.schema.decode(written, 1) == made
    # Kafka takes every number from 0 on for a struct.
    assert Fork.schema.decode(b"\x00\x01\x00\x00\x00" + b"\xfe\x00", 1) == Fork(Leaf(), None)


def test_a_struct_may_be_null_only_from_a_version_on() -> None:
    with pytest.raises(InvalidRecordError, match=r"Fork\.left cannot be None"):
        Fork.schema.encode(Fork(None, Leaf()), 0)
    written = Fork.schema.encode(Fork(Leaf("x"), None), 0)
    assert written.hex() == "02" "78" "00" "ff" "00"  # fmt: skip
    assert Fork.schema.decode(written, 0) == Fork(Leaf("x"), None)


def test_bytes_that_end_before_a_struct_are_rejected() -> None:
    with pytest.raises(CorruptRecordError, match=r"Fork\.right ends early"):
        Fork.schema.decode(b"\xff", 1)


def test_a_tagged_struct_may_not_be_null() -> None:
    with pytest.raises(ValueError, match="with a tag"):
        field("struct", None, tag=0, nullable=True, of=Leaf)
