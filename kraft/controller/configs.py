"""Dynamic configuration: which Config records a request writes.

Owns the operations on single values (set, delete, append, subtract), the replacing of a whole set,
that records are written for changed values only but always for brokers (KAFKA-14136), and what ELR
asks of min.insync.replicas (KIP-966). Whether names and values may be is asked of
``config_validation``. Source: Kafka's ``ConfigurationControlManager`` (4.3.1).

Invariant: a resource is changed as its request says or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from kraft import records
from kraft.configdef import BLANKS, COMMA
from kraft.controller.arguments import is_integer
from kraft.controller.config_schema import default_entries
from kraft.controller.config_validation import check_configs, check_value
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision, Records
from kraft.controller.state import DEFAULTS, ELR_FEATURE, MIN_ISR, UNCLEAN, Cluster, Settings
from kraft.errors import (
    BrokerIdNotRegisteredError,
    InvalidConfigError,
    InvalidRequestError,
    KraftError,
    PolicyViolationError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kraft.image.configs import BROKER, RESOURCE_TYPES, TOPIC, ConfigResource
from kraft.records import Record
from kraft.records.versions import MetadataVersion

_MAX_VALUE_LENGTH = 32767
# Pieces take a few milliseconds: what a resource costs beside each of its values, and how much of
# that is done at a time.
_COST_OF_RESOURCE = 4
_COST_OF_PIECE = 1_200
_CORDONED = "cordoned.log.dirs"
# Settings of brokers that the controller itself goes by. Kafka takes any text for them where no
# broker has looked at it before, and fails at every change of a partition from then on.
_READ_HERE = (MIN_ISR, UNCLEAN)

_Asked = TypeVar("_Asked", bound=Sized)
Answers = dict[ConfigResource, KraftError | None]
#: What a change is shown to before it is made: the resource and what it sets (None where it
#: deletes), without what a replaced set implicitly loses (KAFKA-14195). It raises
#: PolicyViolationError (``AlterConfigPolicy``).
AlterConfigPolicy = Callable[[ConfigResource, Mapping[str, str | None]], None]


class ConfigOperation(IntEnum):
    """Kafka's ``AlterConfigOp.OpType``."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One operation on one configuration; SET without a value deletes."""

    name: str
    value: str | None = None
    operation: int = ConfigOperation.SET


def incremental_alter_configs(
    cluster: Cluster,
    resources: Iterable[tuple[ConfigResource, Sequence[ConfigChange]]],
    settings: Settings = DEFAULTS,
    *,
    validate_only: bool = False,
    is_forwarded: bool = False,
    policy: AlterConfigPolicy | None = None,
) -> Decision[Answers]:
    """Changes single values; the response says for each resource why it was refused.

    A resource is ``(type, name)``; the cluster's default is ``(BROKER, "")``. ``is_forwarded`` says
    that a broker has looked at the request before, which knows its own directories. Raises
    PolicyViolationError for more than 10,000 records.
    """
    writer = _Writer(cluster, settings, is_forwarded, policy)
    for resource, changes in _each_once(resources, writer.response):
        writer.answer(resource, writer.changed, changes)
    return writer.decision(validate_only)


def alter_configs(
    cluster: Cluster,
    resources: Iterable[tuple[ConfigResource, Mapping[str, str | None]]],
    settings: Settings = DEFAULTS,
    *,
    validate_only: bool = False,
    is_forwarded: bool = False,
    policy: AlterConfigPolicy | None = None,
) -> Decision[Answers]:
    """Replaces all that a resource has (the AlterConfigs of old); otherwise as above."""
    writer = _Writer(cluster, settings, is_forwarded, policy)
    for resource, values in _each_once(resources, writer.response):
        writer.answer(resource, writer.replaced, values)
    return writer.decision(validate_only)


def incremental_alter_configs_in_pieces(
    cluster: Cluster,
    resources: Iterable[tuple[ConfigResource, Sequence[ConfigChange]]],
    settings: Settings = DEFAULTS,
    *,
    is_forwarded: bool = False,
    policy: AlterConfigPolicy | None = None,
) -> Generator[Records, None, Answers]:
    """As `incremental_alter_configs`, without a limit: for one metadata transaction (KIP-868).

    Gives a few records at a time, or none where nothing was to be written, and returns the
    response.
    """
    writer = _Writer(cluster, settings, is_forwarded, policy)
    return writer.pieces(resources, writer.changed)


def alter_configs_in_pieces(
    cluster: Cluster,
    resources: Iterable[tuple[ConfigResource, Mapping[str, str | None]]],
    settings: Settings = DEFAULTS,
    *,
    is_forwarded: bool = False,
    policy: AlterConfigPolicy | None = None,
) -> Generator[Records, None, Answers]:
    """As `alter_configs`, without a limit, otherwise as above."""
    writer = _Writer(cluster, settings, is_forwarded, policy)
    return writer.pieces(resources, writer.replaced)


def config_records(
    cluster: Cluster,
    resource: ConfigResource,
    values: Mapping[str, str | None],
    settings: Settings = DEFAULTS,
    policy: AlterConfigPolicy | None = None,
) -> list[Record]:
    """The records that set ``values`` on a resource that is about to be: Config before ClearElr.

    Raises what `check_configs` and the policy do, and InvalidConfigError for a value that is too
    long.
    """
    if not values:
        return []
    writer = _Writer(cluster, settings, is_forwarded=True, policy=policy)
    made = writer.changed(
        resource, [ConfigChange(name, value) for name, value in values.items()], is_new=True
    )
    return [*made, *writer.clearing(made)]


def check_resource_exists(
    cluster: Cluster, resource: ConfigResource, settings: Settings = DEFAULTS
) -> None:
    """Raises UnknownTopicOrPartitionError or BrokerIdNotRegisteredError (for controllers too)."""
    resource_type, name = resource
    if resource_type == TOPIC and cluster.table.topic_number(name) < 0:
        raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
    if resource_type == BROKER and name:
        state = cluster.state
        node_id = int(name)
        if (
            node_id not in state.brokers
            and node_id not in state.controllers
            and node_id not in state.quorum.voter_ids
            and node_id != settings.node_id
        ):
            raise BrokerIdNotRegisteredError(f"there is no node {name}")


class _Writer:
    """Collects what the resources of one request write, and what is answered to each."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        is_forwarded: bool,
        policy: AlterConfigPolicy | None,
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self.is_forwarded = is_forwarded
        self.policy = policy
        self.is_elr_enabled = cluster.state.features.get(ELR_FEATURE, 0) >= 1
        self.response: Answers = {}
        self.written: list[records.Config] = []

    def answer(
        self,
        resource: ConfigResource,
        make: Callable[[ConfigResource, _Asked], list[records.Config]],
        asked: _Asked,
    ) -> None:
        """What ``make`` gives is written, or its error is the answer."""
        try:
            if not is_integer(resource[0], 0, max(RESOURCE_TYPES)) or (
                resource[0] not in RESOURCE_TYPES
            ):
                raise UnsupportedVersionError(f"unknown type {resource[0]!r:.80} of a resource")
            if not isinstance(resource[1], str):
                raise InvalidRequestError(f"{resource[1]!r:.80} is no name of a resource")
            self.written += make(resource, asked)
        except KraftError as error:
            self.response[resource] = error
        else:
            self.response[resource] = None

    def decision(self, validate_only: bool) -> Decision[Answers]:
        # What empties ELRs stands behind every value of the request.
        written: list[Record] = [*self.written, *self.clearing(self.written)]
        if len(written) > MAX_RECORDS_PER_BATCH:
            raise PolicyViolationError(
                f"an operation writes at most {MAX_RECORDS_PER_BATCH} records, not {len(written)}"
            )
        made = Records.of(() if validate_only else written, self.cluster.state.metadata_version)
        return Decision(made, self.response, is_atomic=True)

    def pieces(
        self,
        resources: Iterable[tuple[ConfigResource, _Asked]],
        make: Callable[[ConfigResource, _Asked], list[records.Config]],
    ) -> Generator[Records, None, Answers]:
        level = self.cluster.state.metadata_version
        cleared: list[Record] = []
        cost = 0
        for resource, asked in _each_once(resources, self.response):
            self.answer(resource, make, asked)
            cost += len(asked) + _COST_OF_RESOURCE
            if cost > _COST_OF_PIECE:
                yield Records.of(self.written, level)
                cleared += self.clearing(self.written)
                self.written, cost = [], 0
        last: list[Record] = [*self.written, *cleared, *self.clearing(self.written)]
        for start in range(0, len(last), _COST_OF_PIECE):
            yield Records.of(last[start : start + _COST_OF_PIECE], level)
        return self.response

    def changed(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, is_new: bool = False
    ) -> list[records.Config]:
        present = self._present(resource)
        if len({change.name for change in changes}) < len(changes):
            raise InvalidRequestError("a configuration is named twice for the same resource")
        altered = {
            change.name: _value_after(resource, change, present.get(change.name))
            for change in changes
        }
        altered = _only_changed(resource, altered, present)
        self._check(resource, altered, (), is_new)
        return _config_records(resource, altered)

    def replaced(
        self, resource: ConfigResource, values: Mapping[str, str | None]
    ) -> list[records.Config]:
        present = self._present(resource)
        altered = _only_changed(resource, values, present)
        lost = sorted(name for name in present if name not in values)
        self._check(resource, altered, lost, is_new=False)
        return _config_records(resource, altered | dict.fromkeys(lost))

    def clearing(self, written: Iterable[records.Config]) -> list[records.ClearElr]:
        """With another min.insync.replicas it has to be found out anew who is eligible."""
        if not self.is_elr_enabled:
            return []
        return [
            records.ClearElr(
                topic_name=record.resource_name if record.resource_type == TOPIC else ""
            )
            for record in written
            if record.name == MIN_ISR
        ]

    def _present(self, resource: ConfigResource) -> Mapping[str, str]:
        present: Mapping[str, str] = self.cluster.state.configs.get(resource, {})
        return present

    def _check(
        self,
        resource: ConfigResource,
        altered: Mapping[str, str | None],
        lost: Sequence[str],
        is_new: bool,
    ) -> None:
        present = self._present(resource)
        after = dict(present)
        for name, value in (*altered.items(), *((name, None) for name in lost)):
            if not isinstance(name, str):
                raise InvalidConfigError(f"{name!r:.80} is no name of a configuration")
            if value is not None and not isinstance(value, str):
                raise InvalidConfigError(f"the value of {name} is {value!r:.80}, and must be text")
            if resource[0] == BROKER:
                self._check_of_broker(resource[1], name, value, present)
            if value is None:
                after.pop(name, None)
            elif _java_length(value) > _MAX_VALUE_LENGTH:
                raise InvalidConfigError(
                    f"the value of {name} is longer than {_MAX_VALUE_LENGTH} characters"
                )
            else:
                after[name] = value
        check_configs(self.settings.config_rules, resource, after, present)
        if not is_new:
            check_resource_exists(self.cluster, resource, self.settings)
        if self.policy is not None:
            self._ask_policy(self.policy, resource, altered)

    @staticmethod
    def _ask_policy(
        policy: AlterConfigPolicy, resource: ConfigResource, altered: Mapping[str, str | None]
    ) -> None:
        """Turn whatever else a policy raises into the error of this resource alone, as Kafka does
        (ConfigurationControlManager.validateAlterConfig).
        """
        try:
            policy(resource, altered)
        except KraftError:
            raise
        except Exception as error:
            raise UnknownServerError(
                f"the policy for configurations failed on {resource[1]!r}: {error}"
            ) from error

    def _check_of_broker(
        self, broker: str, name: str, value: str | None, present: Mapping[str, str]
    ) -> None:
        if name == MIN_ISR and self.is_elr_enabled:
            if broker:
                raise InvalidConfigError(f"{name} of a single broker cannot be set while ELR is on")
            if value is None:
                raise InvalidConfigError(f"{name} of the cluster cannot be deleted while ELR is on")
        if name in _READ_HERE and value is not None:
            check_value(TOPIC, name, value)
        if name != _CORDONED:
            return
        level = MetadataVersion.from_level(self.cluster.state.metadata_version)
        if not level.is_cordoned_log_dirs_supported:
            raise InvalidConfigError(
                f"{name} needs metadata.version {MetadataVersion.IBP_4_3_IV0.text}, "
                f"not {level.text}"
            )
        # Which directories there are only the broker knows; anybody may cordon fewer of them.
        if value is None or not value.strip(BLANKS) or self.is_forwarded:
            return
        cordoned = COMMA.split(present[name].strip(BLANKS)) if name in present else []
        if not set(COMMA.split(value.strip(BLANKS))) <= set(cordoned):
            raise InvalidConfigError(
                f"{name} can only lose directories by way of a controller; ask a broker to add any"
            )


def _each_once(
    resources: Iterable[tuple[ConfigResource, _Asked]], response: Answers
) -> Iterable[tuple[ConfigResource, _Asked]]:
    """Those that are named once; the others are answered."""
    asked = list(resources)
    seen: set[ConfigResource] = set()
    for resource, _ in asked:
        if resource in seen:
            response[resource] = InvalidRequestError("a resource is named twice in the request")
        seen.add(resource)
    return [one for one in asked if one[0] not in response]


def _value_after(resource: ConfigResource, change: ConfigChange, value: str | None) -> str | None:
    if not is_integer(change.operation, min(ConfigOperation), max(ConfigOperation)):
        raise InvalidRequestError(f"unknown operation {change.operation!r:.80} on {change.name!r}")
    if change.operation == ConfigOperation.SET:
        return change.value
    if change.operation == ConfigOperation.DELETE:
        return None
    default = default_entries(resource[0], change.name)
    if default is None:
        raise InvalidConfigError(f"{change.name} is no list, that something could be added to")
    if change.value is None:
        raise InvalidRequestError(f"there is nothing to add to {change.name} or take from it")
    entries = list(default) if value is None else [one for one in _parts(value) if one]
    for entry in _parts(change.value):
        if change.operation == ConfigOperation.SUBTRACT:
            if entry in entries:
                entries.remove(entry)
        elif entry not in entries:
            entries.append(entry)
    return ",".join(entries)


def _parts(text: str) -> list[str]:
    """As Java's String.split parts it: without what is empty at the end."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        del parts[-1]
    return parts if parts != [""] or not text else []


def _only_changed(
    resource: ConfigResource, values: Mapping[str, str | None], present: Mapping[str, str]
) -> dict[str, str | None]:
    """Brokers are told of every value, as it makes them load anew what it points to."""
    return {
        name: value
        for name, value in values.items()
        if resource[0] == BROKER or present.get(name) != value
    }


def _config_records(
    resource: ConfigResource, values: Mapping[str, str | None]
) -> list[records.Config]:
    resource_type, resource_name = resource
    return [
        records.Config(
            resource_type=resource_type, resource_name=resource_name, name=name, value=value
        )
        for name, value in values.items()
    ]


def _java_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
