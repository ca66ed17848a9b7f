"""Any value may be passed to any function of the library: it works, or raises a ``KraftError``.

A rejected call changes nothing: offsets, columns, every mapping and pending records stay.
"""

from __future__ import annotations

import inspect
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kraft
from kraft import Metadata, errors
from kraft.metadata.health import Health
from kraft.metadata.partitions import Partitions, Topics
from kraft.records import RECORD_TYPES, ZERO_UUID, Config, PartitionChange, Topic, Uuid

CONTROLLER = Path(__file__).parents[1] / "data" / "kafka-4.3" / "controller-101"
METADATA = kraft.open_metadata(CONTROLLER)
METADATA.apply(Config(2, "payments", "pending", "1"))
BEFORE = METADATA.at(1300)
PAYMENTS = METADATA.topics["payments"].id

_NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-2, 8),
    st.sampled_from([2**15, 2**31, 2**31 - 1, 2**40, 2**63, 2**70, -(2**31) - 1, -(2**70)]),
    st.floats(),
    st.just(1j),
    st.sampled_from([np.int32(1), np.float64(1), np.bool_(True), np.uint64(2**63)]),
)
_TEXTS = st.sampled_from(
    ["", "x", "payments", "orders", "preferred", "PREFERRED", "a\0b", "\ud800", "x" * 300, "isr",
     "retention.ms", "1", "Topic", "topic", "by_id", str(ZERO_UUID), str(PAYMENTS)]
)  # fmt: skip
_BYTES = st.sampled_from([b"", b"abc", b"\0" * 16, b"\x07" * 16, bytes(PAYMENTS), b"\0" * 80])
_OBJECTS = st.sampled_from(
    [None, object(), int, Metadata, METADATA.partitions, len, Uuid(b"\0" * 16), iter([1]),
     range(3), Topic("x", Uuid(b"\1" * 16)), PartitionChange(0, PAYMENTS, leader=9), {1, 2},
     bytearray(b"ab"), memoryview(b"\0" * 70), np.zeros(3), np.array(1), np.zeros((2, 2), int),
     Path("/"), METADATA.topics, ("payments", 0), (2, "payments"), (2.0, "payments"),
     ("topic", "payments"), (True, "payments")]
)  # fmt: skip
_SCALARS = st.one_of(_NUMBERS, _TEXTS, _BYTES, _OBJECTS)
_KEYS = st.one_of(_TEXTS, st.integers(-1, 3), st.booleans(), st.just(2.0), st.none()) | st.tuples(
    st.one_of(_TEXTS, st.integers(0, 9)), st.one_of(_TEXTS, st.integers(-1, 9))
)
JUNK = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(_KEYS, inner, max_size=3),
    ),
    max_leaves=5,
)

# Valid arguments of each function; a test replaces one at a time by an invalid value.
_GOOD: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "open_metadata": (kraft.open_metadata, {"path": CONTROLLER, "at": 1300}),
    "salvage": (
        kraft.salvage, {"path": CONTROLLER, "to": None, "cluster_id": None, "node_id": None}
    ),
    "verify": (kraft.verify, {"paths": CONTROLLER}),
    "diff": (kraft.diff, {"before": BEFORE, "after": METADATA, "log": None}),
    "Metadata": (Metadata, {"cluster": None, "source": None, "first_offset": 0}),
    "at": (METADATA.at, {"offset": 1300}),
    "revert": (METADATA.revert, {"offset": METADATA.next_offset}),
    "records": (METADATA.records, {"type": None, "since": 2600}),
    "apply": (METADATA.apply, {"records": Config(2, "a", "b", "c"), "timestamp_ms": 0}),
    "append": (METADATA.append, {"log": None}),
    "write_snapshot": (METADATA.write_snapshot, {"directory": None, "timestamp_ms": 0}),
    "fence_broker": (METADATA.fence_broker, {"broker_id": 1}),
    "unfence_broker": (METADATA.unfence_broker, {"broker_id": 1}),
    "unregister_broker": (METADATA.unregister_broker, {"broker_id": 1}),
    "create_topic": (
        METADATA.create_topic,
        {"name": "new", "partitions": 2, "replication_factor": 2, "assignments": None,
         "configs": None, "topic_id": None, "placer": None},
    ),
    "create_topic by hand": (
        METADATA.create_topic, {"name": "new", "assignments": {0: [1]}, "configs": {"a": "b"}}
    ),
    "create_partitions": (
        METADATA.create_partitions,
        {"name": "payments", "count": 6, "assignments": None, "placer": None},
    ),
    "delete_topic": (METADATA.delete_topic, {"name": "payments"}),
    "elect_leaders": (METADATA.elect_leaders, {"election": "preferred"}),
    "alter_partition_reassignments": (METADATA.alter_partition_reassignments, {"targets": {}}),
    "incremental_alter_configs": (METADATA.incremental_alter_configs, {"changes": {}}),
    "members": (METADATA.partitions.members, {"column": "isr"}),
    "directory_id": (METADATA.partitions.directory_id, {"number": 0}),
    "row": (METADATA.partitions.row, {"row": 0}),
    "rows": (METADATA.partitions.rows, {"rows": [0]}),
    "find": (METADATA.partitions.find, {"topic": "payments", "partition": 0}),
    "by_id": (METADATA.topics.by_id, {"topic_id": PAYMENTS}),
    "topics": (METADATA.topics.__getitem__, {"name": "payments"}),
    "config of topic": (METADATA.configs.topic, {"name": "payments"}),
    "config of broker": (METADATA.configs.broker, {"broker_id": 1}),
    "config of group": (METADATA.configs.group, {"group_id": "a"}),
    "config of metrics": (METADATA.configs.client_metrics, {"subscription": "a"}),
    "Health": (Health, {"metadata": METADATA}),
    **{
        f"{name}[]": (getattr(METADATA, name).__getitem__, {"key": 1})
        for name in (
            "brokers", "controllers", "configs", "features", "acls", "scram_credentials",
            "client_quotas", "delegation_tokens",
        )
    },
}  # fmt: skip
_WITHOUT_ARGUMENTS = {"expand_isrs", "to_arrow", "isr_size", "replica_count", "replica_matrix"}
# Arguments whose truth value is used, and a callback, whose errors are the caller's.
_SWITCHES = {"salvage", "use_column_cache", "columns", "advance"}


def whole_state(metadata: Metadata) -> tuple[Any, ...]:
    partitions = metadata.partitions
    return (
        metadata.next_offset,
        metadata.pending,
        # Copies each group too, because the mappings show the groups' present content.
        [
            {
                key: dict(value) if isinstance(value, Mapping) else value
                for key, value in each.items()
            }
            for each in metadata.state.journaled_maps()
        ],
        metadata.quorum,
        [np.array(getattr(partitions, name)).tolist() for name in ("leader", "isr", "replicas")],
        list(metadata.topics),
    )


STATE = whole_state(METADATA)


def test_every_public_function_is_called_with_random_arguments() -> None:
    public = {
        name
        for made in (Metadata, Partitions, Topics)
        for name, each in inspect.getmembers(made, inspect.isfunction)
        if not name.startswith("_") and name not in {"get", "items", "keys", "values"}
    }
    assert public - _GOOD.keys() - _WITHOUT_ARGUMENTS == set()
    functions = {name for name in kraft.__all__ if inspect.isfunction(getattr(kraft, name))}
    # Those that need a running quorum or ZooKeeper: tests/unit/live and tests/unit/zookeeper have
    # their arguments.
    assert functions - {"follow", "follow_async", "open_zookeeper"} <= _GOOD.keys()
    for function, good in _GOOD.values():
        named = set(inspect.signature(function).parameters)
        if not good.keys() >= named - _SWITCHES and function != METADATA.create_topic:
            assert named == {"key"}


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_nothing_but_a_kraft_error_comes_out_and_nothing_changes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(_GOOD)))
    function, good = _GOOD[name]
    arguments = dict(good)
    with tempfile.TemporaryDirectory() as directory:
        target = {"write_snapshot": "directory", "salvage": "to"}.get(name, "")
        if target:
            arguments[target] = f"{directory}/new"
        place = data.draw(st.sampled_from(sorted(good)))
        junk = data.draw(JUNK)
        if place == target and isinstance(junk, (str, bytes, Path)):
            # Any directory except the metadata's own.
            junk = f"{directory}/{junk!s}"
        arguments[place] = junk
        refusal = "none"
        try:
            if name.endswith("[]") or name == "topics":
                function(junk)
            elif name in {"records", "rows"}:
                list(function(**arguments))
            else:
                function(**arguments)
        except errors.KraftError as error:
            refusal = str(error)
    assert refusal
    if name == "apply" and METADATA.next_offset > STATE[0]:
        METADATA.revert(STATE[0])
    assert whole_state(METADATA) == STATE


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_record_of_junk_is_rejected_or_applied(data: st.DataObject) -> None:
    made = RECORD_TYPES[data.draw(st.sampled_from(sorted(RECORD_TYPES)))]
    names = made.__match_args__  # type: ignore[attr-defined]
    fields = data.draw(st.lists(st.sampled_from(names), max_size=2)) if names else []
    record = made(**{each: data.draw(JUNK) for each in fields})
    refusal = "none"
    try:
        METADATA.apply([record])
    except errors.KraftError as error:
        refusal = str(error)
    assert refusal
    if METADATA.next_offset > STATE[0]:
        METADATA.revert(STATE[0])
    assert whole_state(METADATA) == STATE


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(junk=JUNK)
def test_a_mapping_takes_any_key(junk: Any) -> None:
    for each in (METADATA.topics, METADATA.brokers, METADATA.configs, METADATA.acls):
        if junk in each:
            assert each.get(junk) == each[junk]  # type: ignore[call-overload]
        else:
            assert each.get(junk) is None  # type: ignore[call-overload]
            with pytest.raises(KeyError):
                each[junk]  # type: ignore[index]


NUMBER_REFUSALS = [True, 2.0, math.nan, "1", None, 2**40]


@pytest.mark.parametrize("broker_id", NUMBER_REFUSALS)
def test_a_broker_id_is_a_whole_number(broker_id: Any) -> None:
    with pytest.raises(errors.InvalidRequestError, match="broker_id must be"):
        METADATA.fence_broker(broker_id)


def test_a_numpy_integer_is_a_whole_number() -> None:
    assert len(METADATA.fence_broker(METADATA.partitions.replicas[0, 0])) > 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "expected", "says"),
    [
        (lambda m: kraft.open_metadata("/no/such"), FileNotFoundError, "no such file"),
        (lambda m: m.revert(m.next_offset + 1), errors.OffsetOutOfRangeError, "cannot revert"),
        (lambda m: m.create_topic("new", topic_id=b"abc"), ValueError, "topic_id must be 16"),
        (lambda m: m.create_topic("new", topic_id=bytes(16)), ValueError, "is reserved"),
        (
            lambda m: m.create_topic("new", topic_id=PAYMENTS),
            errors.TopicAlreadyExistsError,
            "topic 'payments'",
        ),
        (lambda m: m.create_topic("new", configs={"a": 5}), TypeError, "value of 'a' must be text"),
        (lambda m: m.create_topic("new", assignments=[[1]]), TypeError, "assignments must be a"),
        (lambda m: m.create_topic("new", 2**40), ValueError, "partitions must be -1 to"),
        (
            lambda m: m.incremental_alter_configs({("topic", "payments"): {"a": "1"}}),
            TypeError,
            r"must be one of 2 \(topic\), 4 \(broker\)",
        ),
        (lambda m: m.elect_leaders("PREFERRED"), ValueError, "'preferred' or 'unclean'"),
        (lambda m: m.topics["none"], KeyError, "there is no topic 'none'"),
        (lambda m: m.brokers[99], KeyError, "there is no broker 99"),
        (lambda m: m.write_snapshot("/dev/null/x"), errors.StorageError, "/dev/null/x"),
        (lambda m: m.records("NoSuch"), errors.InvalidRequestError, "unknown record type"),
    ],
)
def test_an_error_says_what_is_expected(
    call: Callable[[Metadata], Any], expected: type[Exception], says: str
) -> None:
    with pytest.raises(expected, match=says) as raised:
        call(METADATA)
    assert isinstance(raised.value, errors.KraftError)
