"""Records as the JSON of Kafka's own tools, with secrets hidden.

Defines the names (Kafka's camelCase, ``PARTITION_CHANGE_RECORD``), the fields that a record version
shows (a tagged field only where it is not at its default, as in Kafka's generated
``*JsonConverter`` classes), and which values are secrets: the salt and keys of SCRAM credentials,
and settings of type PASSWORD. Output contains a secret only where the caller asks for it.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from kraft._core.codec.message_schema import FieldSpec
from kraft.image.diff import HIDDEN
from kraft.records import CONTROL_TYPES, Config, Record, Struct, UserScramCredential, Uuid

_Convert = Callable[[Any, int], Any]

# A default that equals no value: the field is always shown.
_NEVER = object()

# JSON has these types; most values have one of them.
_PLAIN = frozenset((bool, int, str))

_SCRAM_SECRETS = ("salt", "storedKey", "serverKey")
_CONTROL = frozenset(CONTROL_TYPES.values())

# Settings of type PASSWORD in Kafka's SslConfigs, SaslConfigs and broker configs, with or without
# a listener's or mechanism's prefix, and any other setting with such a name.
_SECRET_SETTING = re.compile(
    r"(password|secret|credential|private\.key"
    r"|sasl\.jaas\.config|ssl\.(keystore\.(key|certificate\.chain)|truststore\.certificates))",
    re.IGNORECASE,
)
_NO_SECRET = frozenset({"password.encoder.iterations", "password.encoder.key.length"})


@cache
def type_name(record_type: type[Record]) -> str:
    """Return ``PARTITION_CHANGE_RECORD``; for a control record its class name: ``LeaderChange``."""
    name = record_type.__name__
    if record_type in _CONTROL:
        return name
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper() + "_RECORD"


def data_of(record: Record, *, show_secrets: bool = False) -> dict[str, Any]:
    """Return the fields of a record in its version, as Kafka's tools print them."""
    data = _struct(record, record.version)
    if show_secrets:
        return data
    if isinstance(record, UserScramCredential):
        data.update(dict.fromkeys(_SCRAM_SECRETS, HIDDEN))
    elif isinstance(record, Config) and record.value is not None and is_secret_setting(record.name):
        data["value"] = HIDDEN
    return data


def is_secret_setting(name: str) -> bool:
    """Return whether the value of this setting must be hidden."""
    return name not in _NO_SECRET and _SECRET_SETTING.search(name) is not None


def settings_of(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings ordered by name, secrets hidden."""
    return {
        name: HIDDEN if is_secret_setting(name) else value
        for name, value in sorted(settings.items())
    }


@cache
def camel_case(name: str) -> str:
    """Return ``endPoints`` for ``end_points``; Kafka writes KRaft with two capitals."""
    first, *rest = name.replace("kraft", "k_raft").split("_")
    return first + "".join(word.capitalize() for word in rest)


def json_value(value: Any) -> Any:
    """Return a library value as JSON: uuids as Kafka's text, bytes in base64, tuples as lists."""
    if value is None or type(value) in _PLAIN:
        return value
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
        # Fields excluded from the repr are secrets.
        return {
            camel_case(each.name): json_value(getattr(value, each.name))
            for each in fields(value)
            if each.repr
        }
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no NaN or infinity; Kafka's tools print them as text too.
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
    """Return for each field of this version: attribute, Kafka's name, hidden default,
    conversion.
    """
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
