"""AlterConfigs and IncrementalAlterConfigs: decide the Config records of a request.

Implements set, delete, append and subtract on single values, and the replacement of all values.
Records are written only for changed values, but always for brokers (KAFKA-14136). A change of
min.insync.replicas clears the ELR (KIP-966). ``config_validation`` checks names and values. Source:
Kafka's ``ConfigurationControlManager`` (4.3.1).

Invariant: a resource is changed exactly as requested, or not at all.
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
from kraft.controller.configs.config_validation import check_configs, check_value
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    NO_RECORDS,
    ChunkedDecision,
    Decision,
    Records,
    in_chunks,
)
from kraft.controller.state import (
    DEFAULTS,
    ELR_FEATURE,
    MIN_ISR,
    UNCLEAN,
    ClusterMetadata,
    DecisionSettings,
)
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
# A chunk takes a few milliseconds: the fixed cost of a resource, in values, and the cost of one
# chunk.
_COST_OF_RESOURCE = 4
_COST_PER_CHUNK = 1_200
#: Names that are compared in one chunk.
_NAMES_PER_CHUNK = 10_000
_LAST_RESOURCE_TYPE = max(RESOURCE_TYPES)
_CORDONED = "cordoned.log.dirs"
# Broker settings that the controller itself reads. Kafka accepts any text for them unless a broker
# has checked it, and then fails at every partition change.
_READ_HERE = (MIN_ISR, UNCLEAN)

_Request = TypeVar("_Request", bound=Sized)
Results = dict[ConfigResource, KraftError | None]
#: Called with the resource and the values that a request sets (None: deletes), without the values
#: that a replacement removes (KAFKA-14195). Raises PolicyViolationError to reject
#: (``AlterConfigPolicy``).
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
    cluster: ClusterMetadata,
    resources: Sequence[tuple[ConfigResource, Sequence[ConfigChange]]],
    settings: DecisionSettings = DEFAULTS,
    *,
    validate_only: bool = False,
    is_forwarded: bool = False,
    policy: AlterConfigPolicy | None = None,
    at_once: int = MAX_RECORDS_PER_BATCH,
) -> ChunkedDecision[Results]:
    """Change single values; the response maps each resource to its error or None.

    A resource is ``(type, name)``; the cluster's default is ``(BROKER, "")``. ``is_forwarded``: a
    broker has checked the request, which knows its own directories. The records of more than
    ``at_once`` resources are written in chunks. Raises PolicyViolationError for more than 10,000
    records at once.
    """
    writer = _Writer(cluster, settings, is_forwarded, policy)
    return writer.decide(resources, writer.changed, len(resources) > at_once, validate_only)


def alter_configs(
    cluster: ClusterMetadata,
    resources: Sequence[tuple[ConfigResource, Mapping[str, str | None]]],
    settings: DecisionSettings = DEFAULTS,
    *,
    validate_only: bool = False,
    is_forwarded: bool = False,
    policy: AlterConfigPolicy | None = None,
    at_once: int = MAX_RECORDS_PER_BATCH,
) -> ChunkedDecision[Results]:
    """Replace all values of each resource (legacy AlterConfigs); otherwise as above."""
    writer = _Writer(cluster, settings, is_forwarded, policy)
    return writer.decide(resources, writer.replaced, len(resources) > at_once, validate_only)


def config_records(
    cluster: ClusterMetadata,
    resource: ConfigResource,
    values: Mapping[str, str | None],
    settings: DecisionSettings = DEFAULTS,
    policy: AlterConfigPolicy | None = None,
) -> list[Record]:
    """Return the records that set ``values`` on a new resource: Config before ClearElr.

    Raises the errors of `check_configs` and of the policy, and InvalidConfigError for a value that
    is too long.
    """
    if not values:
        return []
    writer = _Writer(cluster, settings, is_forwarded=True, policy=policy)
    made = writer.changed(
        resource, [ConfigChange(name, value) for name, value in values.items()], is_new=True
    )
    return [*made, *writer.clearing(made)]


def check_resource_exists(
    cluster: ClusterMetadata, resource: ConfigResource, settings: DecisionSettings = DEFAULTS
) -> None:
    """Raise UnknownTopicOrPartitionError, or BrokerIdNotRegisteredError (also for controllers)."""
    resource_type, name = resource
    if resource_type == TOPIC and cluster.table.topic_number(name) < 0:
        raise UnknownTopicOrPartitionError(f"The topic '{name:.249}' does not exist.")
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
    """Collects the records and the response of one request."""

    def __init__(
        self,
        cluster: ClusterMetadata,
        settings: DecisionSettings,
        is_forwarded: bool,
        policy: AlterConfigPolicy | None,
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self.is_forwarded = is_forwarded
        self.policy = policy
        self.is_elr_enabled = cluster.state.features.get(ELR_FEATURE, 0) >= 1
        self.response: Results = {}
        self.written: list[records.Config] = []

    def answer(
        self,
        resource: ConfigResource,
        make: Callable[[ConfigResource, _Request], list[records.Config]],
        asked: _Request,
    ) -> None:
        """Add the records that ``make`` returns, or respond with its error."""
        try:
            if not is_integer(resource[0], 0, _LAST_RESOURCE_TYPE) or (
                resource[0] not in RESOURCE_TYPES
            ):
                raise UnsupportedVersionError(f"unknown resource type {resource[0]!r:.80}")
            if not isinstance(resource[1], str):
                raise InvalidRequestError(f"{resource[1]!r:.80} is not a resource name")
            self.written += make(resource, asked)
        except KraftError as error:
            self.response[resource] = error.as_result()
        else:
            self.response[resource] = None

    def decide(
        self,
        resources: Sequence[tuple[ConfigResource, _Request]],
        make: Callable[[ConfigResource, _Request], list[records.Config]],
        is_large: bool,
        validate_only: bool,
    ) -> ChunkedDecision[Results]:
        """Decide the resources; other events run between the chunks.

        With ``is_large`` each chunk has its records, otherwise the last chunk has all of them.
        """
        is_split = is_large and not validate_only
        if is_split:
            yield NO_RECORDS
        repeated = yield from _repeated(resources)
        for resource in repeated:
            self.response[resource] = InvalidRequestError(
                f"resource {resource[1]!r:.80} is named twice in the request"
            )
        level = self.cluster.state.metadata_version
        cleared: list[Record] = []
        cost = 0
        for resource, asked in resources:
            if resource in repeated:
                continue
            self.answer(resource, make, asked)
            cost += len(asked) + _COST_OF_RESOURCE
            if cost > _COST_PER_CHUNK:
                cost = 0
                if is_split:
                    yield Records.of(self.written, level)
                    cleared += self.clearing(self.written)
                    self.written = []
                else:
                    if is_large:
                        self.written = []
                    yield NO_RECORDS
        # The records that clear ELRs follow all values of the request.
        written: list[Record] = [*self.written, *cleared, *self.clearing(self.written)]
        if is_split:
            last = yield from in_chunks(iter(written), _COST_PER_CHUNK, level)
        elif len(written) > MAX_RECORDS_PER_BATCH and not is_large:
            raise PolicyViolationError(
                f"an operation writes at most {MAX_RECORDS_PER_BATCH} records, not {len(written)}"
            )
        else:
            last = NO_RECORDS if validate_only else Records.of(written, level)
        return Decision(last, self.response, is_atomic=True)

    def changed(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, is_new: bool = False
    ) -> list[records.Config]:
        present = self._present(resource)
        if len({change.name for change in changes}) < len(changes):
            raise InvalidRequestError(
                f"the changes of {resource[1]!r:.80} name the same configuration twice"
            )
        altered = {
            change.name: value_after(resource, change, present.get(change.name))
            for change in changes
        }
        altered = _changed_values(resource, altered, present)
        self._check(resource, altered, (), is_new)
        return _config_records(resource, altered)

    def replaced(
        self, resource: ConfigResource, values: Mapping[str, str | None]
    ) -> list[records.Config]:
        present = self._present(resource)
        altered = _changed_values(resource, values, present)
        lost = sorted(name for name in present if name not in values)
        self._check(resource, altered, lost, is_new=False)
        return _config_records(resource, altered | dict.fromkeys(lost))

    def clearing(self, written: Iterable[records.Config]) -> list[records.ClearElr]:
        """Return the records that clear ELRs: a change of min.insync.replicas changes who is
        eligible.
        """
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
                raise InvalidConfigError(f"{name!r:.80} is not a configuration name")
            if value is not None and not isinstance(value, str):
                raise InvalidConfigError(f"the value of {name} is {value!r:.80}, and must be text")
            if resource[0] == BROKER:
                self._check_broker_value(resource[1], name, value, present)
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
        """Call a policy; an unexpected exception becomes the error of this resource alone, as in
        Kafka (ConfigurationControlManager.validateAlterConfig).
        """
        try:
            policy(resource, altered)
        except KraftError:
            raise
        except Exception as error:
            raise UnknownServerError(
                f"the policy for configurations failed on {resource[1]!r}: {error}"
            ) from error

    def _check_broker_value(
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
        # Only the broker knows its directories; any controller may cordon fewer of them.
        if value is None or not value.strip(BLANKS) or self.is_forwarded:
            return
        cordoned = COMMA.split(present[name].strip(BLANKS)) if name in present else []
        if not set(COMMA.split(value.strip(BLANKS))) <= set(cordoned):
            raise InvalidConfigError(
                f"a controller can only remove directories from {name}; ask a broker to add one"
            )


def _repeated(
    resources: Sequence[tuple[ConfigResource, _Request]],
) -> Generator[Records, None, dict[ConfigResource, None]]:
    """Return the resources that a request names more than once, in the order of their repetition;
    yield empty records meanwhile.
    """
    seen: set[ConfigResource] = set()
    repeated: dict[ConfigResource, None] = {}
    for start in range(0, len(resources), _NAMES_PER_CHUNK):
        if start:
            yield NO_RECORDS
        for resource, _ in resources[start : start + _NAMES_PER_CHUNK]:
            if resource in seen:
                repeated[resource] = None
            seen.add(resource)
    return repeated


def value_after(resource: ConfigResource, change: ConfigChange, value: str | None) -> str | None:
    """Return the value that an operation makes of ``value``; None: none is set.

    Raises InvalidConfigError for an operation on a list where the configuration is none,
    InvalidRequestError for an unknown operation.
    """
    if not is_integer(change.operation, min(ConfigOperation), max(ConfigOperation)):
        raise InvalidRequestError(f"unknown operation {change.operation!r:.80} on {change.name!r}")
    if change.operation == ConfigOperation.SET:
        return change.value
    if change.operation == ConfigOperation.DELETE:
        return None
    default = default_entries(resource[0], change.name)
    if default is None:
        operation = ConfigOperation(change.operation).name
        raise InvalidConfigError(
            f"Can't {operation} to key {change.name} because its type is not LIST."
        )
    if change.value is None:
        raise InvalidRequestError(
            f"there is no value to append to {change.name} or subtract from it"
        )
    entries = list(default) if value is None else [one for one in _split(value) if one]
    for entry in _split(change.value):
        if change.operation == ConfigOperation.SUBTRACT:
            if entry in entries:
                entries.remove(entry)
        elif entry not in entries:
            entries.append(entry)
    return ",".join(entries)


def _split(text: str) -> list[str]:
    """Split as Java's String.split: without empty strings at the end."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        del parts[-1]
    return parts if parts != [""] or not text else []


def _changed_values(
    resource: ConfigResource, values: Mapping[str, str | None], present: Mapping[str, str]
) -> dict[str, str | None]:
    """Drop unchanged values; keep those of brokers, which reload the files that values name."""
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
