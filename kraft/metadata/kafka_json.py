"""Records as the JSON of Kafka's own tools, without what nobody should read.

Owns the names (Kafka's camelCase, ``PARTITION_CHANGE_RECORD``), which fields a record of a
version shows (a tagged field only where it is not at its default, as Kafka's generated
``*JsonConverter`` classes have it), and which values are secrets: the salt and keys of SCRAM
credentials, and settings that Kafka keeps as passwords. A secret never reaches the output unless
it was asked for.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from kraft._core.message_schema import FieldSpec
from kraft.image.diff import HIDDEN
from kraft.records import CONTROL_TYPES, Config, Record, Struct, UserScramCredential, Uuid

_Convert = Callable[[Any, int], Any]

# Equal to no value of a field.
_NEVER = object()

_SCRAM_SECRETS = ("salt", "storedKey", "serverKey")
_CONTROL = frozenset(CONTROL_TYPES.values())

# The settings of Kafka's SslConfigs, SaslConfigs and broker configs whose type is PASSWORD, with
# or without the prefix of a listener or mechanism, and any other whose name says that it is one.
_SECRET_SETTING = re.compile(
    r"(password|secret|credential|private\.key"
    r"|sasl\.jaas\.config|ssl\.(keystore\.(key|certificate\.chain)|truststore\.certificates))",
    re.IGNORECASE,
)
_NO_SECRET = frozenset({"password.encoder.iterations", "password.encoder.key.length"})


@cache
def type_name(record_type: type[Record]) -> str:
    """``PARTITION_CHANGE_RECORD``; control records go by their class: ``LeaderChange``."""
    name = record_type.__name__
    if record_type in _CONTROL:
        return name
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper() + "_RECORD"


def data_of(record: Record, *, show_secrets: bool = False) -> dict[str, Any]:
    """The fields of a record in its version, as Kafka's tools print them."""
    data = _struct(record, record.version)
    if show_secrets:
        return data
    if isinstance(record, UserScramCredential):
        data.update(dict.fromkeys(_SCRAM_SECRETS, HIDDEN))
    elif isinstance(record, Config) and record.value is not None and is_secret_setting(record.name):
        data["value"] = HIDDEN
    return data


def is_secret_setting(name: str) -> bool:
    """Whether the value of this setting must not be shown."""
    return name not in _NO_SECRET and _SECRET_SETTING.search(name) is not None


def settings_of(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings by name in order, secrets hidden."""
    return {
        name: HIDDEN if is_secret_setting(name) else value
        for name, value in sorted(settings.items())
    }


@cache
def camel_case(name: str) -> str:
    """``end_points`` -> ``endPoints``; Kafka writes KRaft with two capitals."""
    first, *rest = name.replace("kraft", "k_raft").split("_")
    return first + "".join(word.capitalize() for word in rest)


def json_value(value: Any) -> Any:
    """A value of the library in JSON: uuids as Kafka's text, bytes in base64, tuples as lists."""
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Struct):
        return _struct(value, _newest(value))
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return {camel_case(name): json_value(item) for name, item in value._asdict().items()}
    if is_dataclass(value):
        # What is left out of a repr is a secret.
        return {
            camel_case(each.name): json_value(getattr(value, each.name))
            for each in fields(value)
            if each.repr
        }
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no such numbers; Kafka's tools print them as text too.
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    return value


def _struct(struct: Struct, version: int) -> dict[str, Any]:
    data = {}
    for name, shown_as, default, convert in _fields(type(struct), version):
        value = getattr(struct, name)
        if value == default:
            continue
        if convert is not None and value is not None:
            value = convert(value, version)
        data[shown_as] = value
    return data


@cache
def _fields(
    struct_type: type[Struct], version: int
) -> tuple[tuple[str, str, Any, _Convert | None], ...]:
    """Of each field in this version: its name, Kafka's, the value that is not shown, how it is."""
    at_default = struct_type()
    return tuple(
        (
            name,
            camel_case(name),
            getattr(at_default, name) if spec.tag >= 0 else _NEVER,
            _conversion(spec),
        )
        for name, spec in struct_type.schema.specs.items()
        if spec.since <= version <= spec.until
    )


def _conversion(spec: FieldSpec) -> _Convert | None:
    if spec.kind == "struct":
        if spec.is_array:
            return lambda value, version: [_struct(item, version) for item in value]
        return _struct
    if spec.kind == "uuid":
        return _uuids if spec.is_array else lambda value, version: str(value)
    if spec.kind in ("bytes", "float64"):
        return lambda value, version: json_value(value)
    return None


def _uuids(value: list[Uuid], version: int) -> list[str]:
    return [str(item) for item in value]


def _newest(struct: Struct) -> int:
    return type(struct).schema.highest_version
