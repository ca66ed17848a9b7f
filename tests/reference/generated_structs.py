"""Generated values of the schemas of records and RPCs: strategies, and values of a given shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from kraft._core.codec.message_schema import FieldSpec
from kraft.records import Struct, Uuid

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(1 << 7), (1 << 7) - 1),
    "int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-2, 5),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16).map(Uuid),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}
UNKNOWN = st.dictionaries(st.integers(9, (1 << 31) - 2), st.binary(max_size=150), max_size=3)

LOWEST: dict[str, Any] = {
    "bool": False,
    "int8": -(1 << 7),
    "int16": -(1 << 15),
    "uint16": 0,
    "int32": -(1 << 31),
    "int64": -(1 << 63),
    "float64": -1.5e300,
    "uuid": Uuid(),
    "string": "",
    "bytes": b"",
    "records": b"",
}
HIGHEST: dict[str, Any] = {
    "bool": True,
    "int8": (1 << 7) - 1,
    "int16": (1 << 15) - 1,
    "uint16": (1 << 16) - 1,
    "int32": (1 << 31) - 1,
    "int64": (1 << 63) - 1,
    "float64": 5e-324,
    "uuid": Uuid(b"\xff" * 16),
    "string": "\u20ac\U0001f600x" * 50,
    "bytes": bytes(range(256)),
    "records": bytes(range(256)),
}


def is_null_allowed(spec: FieldSpec, version: int) -> bool:
    return spec.nullable and version >= spec.nullable_since


def structs(type: type[Struct], version: int, *, flexible_since: int = 0) -> st.SearchStrategy[Any]:
    """Return a strategy for ``type`` with any value in every field of ``version``."""
    fields = {}
    for name, spec in type.schema.specs.items():
        if not spec.since <= version <= spec.until:
            continue
        made = (
            structs(spec.of, version, flexible_since=flexible_since)
            if spec.of
            else SCALARS[spec.kind]
        )
        made = st.lists(made, max_size=4) if spec.is_array else made
        made = made | st.none() if is_null_allowed(spec, version) else made
        fields[name] = made | st.just(spec.default) if spec.tag >= 0 else made
    if version >= flexible_since:
        fields["unknown_tagged_fields"] = st.none() | UNKNOWN.filter(bool)
    return st.builds(type, **fields)


def shapes(type: type[Struct], version: int) -> Iterator[Any]:
    """Return the defaults, the lowest values, nulls, the highest values, and long arrays."""
    yield type()
    yield _shaped(type, version, LOWEST, 0, is_null=False)
    yield _shaped(type, version, LOWEST, 1, is_null=True)
    yield _shaped(type, version, HIGHEST, 3, is_null=False)
    yield _shaped(type, version, HIGHEST, 130, is_null=False, deep=2)


def _shaped(
    type: type[Struct],
    version: int,
    scalars: dict[str, Any],
    count: int,
    *,
    is_null: bool,
    deep: int | None = None,
) -> Any:
    """Return a value with ``count`` elements in each array, ``deep`` in the arrays of elements."""
    fields: dict[str, Any] = {}
    for name, spec in type.schema.specs.items():
        if not spec.since <= version <= spec.until:
            continue
        if is_null and is_null_allowed(spec, version):
            fields[name] = None
        elif spec.of is not None:
            inner = count if deep is None else deep
            one = _shaped(spec.of, version, scalars, inner, is_null=is_null, deep=deep)
            fields[name] = [one] * count if spec.is_array else one
        else:
            fields[name] = [scalars[spec.kind]] * count if spec.is_array else scalars[spec.kind]
    return type(**fields)
