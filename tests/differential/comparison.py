"""Compare two outcomes byte by byte, after sorting values whose order has no meaning.

``docs/differential.md`` lists each normalisation with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from kraft import records
from kraft.records import decode_value
from tests.differential.operation import Operation, Outcome

_PARTITION_CHANGE = 5
_CONFIG = 4
_FEATURE_LEVEL = 12
_CLIENT_QUOTA = 14
_CLEAR_ELR = 28
_SCRAM = 11
_REMOVE_ACL = 19
_REMOVE_SCRAM = 22
_REMOVE_TOKEN = 26


def difference(operation: Operation, ours: Outcome, kafkas: dict[str, Any]) -> str | None:
    """Return which part differs, in one word; None if nothing does."""
    if ours.error != kafkas["error"]:
        return "error"
    if ours.error:
        return None
    theirs = [bytes.fromhex(value) for value in kafkas["records"]]
    if ours.records != theirs and normalised(ours.records) != normalised(theirs):
        return "records"
    if theirs and ours.is_atomic != kafkas["atomic"]:
        return "atomic"
    if ours.answer != operation.understood(kafkas["response"]):
        return "answer"
    if kafkas["random_left"]:
        return "random bytes"
    return None


def normalised(values: Iterable[bytes]) -> list[bytes]:
    """Sort runs of records whose order comes from a Java hash table."""
    made: list[bytes] = []
    for type, run in groupby(values, key=_type_of):
        key = _ORDERS.get(type)
        values_of_run = list(run)
        made += values_of_run if key is None else sorted(values_of_run, key=key)
    return made


def _type_of(value: bytes) -> int:
    # A frame version, then the type; both are small varints.
    return value[1]


def _partition(value: bytes) -> tuple[bytes, int]:
    record = decode_value(value)
    assert isinstance(record, records.PartitionChange)
    return record.topic_id, record.partition_id


def _setting(value: bytes) -> tuple[int, str, str]:
    record = decode_value(value)
    assert isinstance(record, records.Config)
    return record.resource_type, record.resource_name, record.name


# Sorting is stable: two records of one partition or setting keep their order.
_ORDERS: dict[int, Callable[[bytes], Any]] = {
    _PARTITION_CHANGE: _partition,
    _CONFIG: _setting,
    _FEATURE_LEVEL: lambda value: value,
    _CLIENT_QUOTA: lambda value: value,
    _CLEAR_ELR: lambda value: value,
    _SCRAM: lambda value: value,
    _REMOVE_ACL: lambda value: value,
    _REMOVE_SCRAM: lambda value: value,
    _REMOVE_TOKEN: lambda value: value,
}


def described(operation: Operation, ours: Outcome, kafkas: dict[str, Any]) -> str:
    """Return a text of both sides, records decoded."""
    lines = ["  here:"]
    lines += _side(ours.error, ours.message, ours.records, ours.is_atomic, ours.answer)
    lines.append("  Kafka:")
    theirs = [bytes.fromhex(value) for value in kafkas.get("records", ())]
    answer = operation.understood(kafkas["response"]) if "response" in kafkas else None
    message = " at ".join(kafkas[key] for key in ("message", "where") if key in kafkas)
    lines += _side(kafkas["error"], message, theirs, kafkas.get("atomic", False), answer)
    return "\n".join(lines)


def _side(error: int, message: str, values: list[bytes], is_atomic: bool, answer: Any) -> list[str]:
    if error:
        return [f"    error {error}: {message}"]
    lines = [f"    {decode_value(value)} [{value.hex()}]" for value in normalised(values)]
    return [*lines, f"    atomic {is_atomic}, answer {answer}"]
