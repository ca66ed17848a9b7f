"""Kafka's JSON schemas and kraft's schema tables as comparable values.

The JSON schemas are those of Kafka's jars, kept in `tests/data/schemas-<release>.json.gz`.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

from kraft._core.codec.message_schema import FieldSpec
from kraft.records import Struct, Uuid
from tests.harness import kafka_jars

DATA = kafka_jars.PROJECT / "tests" / "data"
OPEN_END = 31  # the end of a range without one, in kraft's tables
ZEROS: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "float64": 0.0}


def kept_path(release: str) -> Path:
    return DATA / f"schemas-{release}.json.gz"


def kept(release: str) -> dict[str, Any]:
    """Return the kept output of the release's classes."""
    schemas: dict[str, Any] = json.loads(gzip.decompress(kept_path(release).read_bytes()))
    return schemas


def group_schemas_path(release: str) -> Path:
    return DATA / f"group-schemas-{release}.json.gz"


def kept_group_schemas(release: str) -> dict[str, Any]:
    """Return the kept schemas of the records of ``__consumer_offsets``."""
    text = gzip.decompress(group_schemas_path(release).read_bytes())
    schemas: dict[str, Any] = json.loads(text)
    return schemas


def versions_of(text: str | None) -> tuple[int, int] | None:
    """Return the first and last version of `2+`, `0-1` or `3`."""
    if text in (None, "none"):
        return None
    first, _, last = text.rstrip("+").partition("-")
    return int(first), OPEN_END if text.endswith("+") else int(last or first)


def snake_case(name: str) -> str:
    return re.sub("(?<!^)([A-Z])", r"_\1", name).lower()


def default_of(field: dict[str, Any]) -> Any:
    """Return the default of a field by the rules of Kafka's message generator."""
    given = field.get("default")
    if given == "null":
        return None
    if field["type"].startswith("[]"):
        return []
    if field["type"] == "uuid":
        return Uuid(bytes(16))
    if field["type"] == "bool" and given is not None:
        return given in (True, "true")
    if given is None or field["type"] in ("string", "bytes"):
        return given if given is not None else ZEROS.get(field["type"], 0)
    if field["type"] == "float64":
        return float(given)
    return given if isinstance(given, int) else int(given, 0)


def as_in_kafka(field: dict[str, Any]) -> dict[str, Any]:
    """Return one field of a JSON schema as plain values."""
    element = field["type"].removeprefix("[]")
    return {
        "name": snake_case(field["name"]),
        "kind": "struct" if "fields" in field else element,
        "is_array": field["type"].startswith("[]"),
        "versions": versions_of(field["versions"]),
        "tag": (field["tag"], versions_of(field["taggedVersions"])) if "tag" in field else None,
        "nullable": versions_of(field.get("nullableVersions")),
        "default": default_of(field),
        "fields": [as_in_kafka(inner) for inner in field.get("fields", [])],
    }


def as_here(name: str, spec: FieldSpec) -> dict[str, Any]:
    """Return the same values from kraft's table."""
    versions = (spec.since, spec.until)
    return {
        "name": name,
        "kind": spec.kind,
        "is_array": spec.is_array,
        "versions": versions,
        "tag": (spec.tag, versions) if spec.tag >= 0 else None,
        "nullable": versions if spec.nullable else None,
        "default": list(spec.default)
        if spec.is_array and spec.default is not None
        else spec.default,
        "fields": fields_of(spec.of) if spec.of is not None else [],
    }


def fields_of(type: type[Struct]) -> list[dict[str, Any]]:
    return [as_here(name, spec) for name, spec in type.schema.specs.items()]
