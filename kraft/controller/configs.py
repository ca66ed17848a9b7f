"""Dynamic configuration: which Config records a change writes.

Owns that records are written for changed values only, but always for brokers, and what ELR asks of
min.insync.replicas (KIP-966). Whether a name or a value means anything to Kafka is not checked
here. Source: Kafka's ``ConfigurationControlManager``.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft import records
from kraft._core.batch import BatchBuilder
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision, Records, append_records
from kraft.controller.state import ELR_FEATURE, MIN_ISR, Cluster
from kraft.errors import (
    BrokerIdNotRegisteredError,
    InvalidConfigError,
    KraftError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from kraft.image.configs import BROKER, TOPIC, ConfigResource
from kraft.records import Record

_MAX_VALUE_LENGTH = 32767


def alter_configs(
    cluster: Cluster, changes: Mapping[ConfigResource, Mapping[str, str | None]]
) -> Decision[dict[ConfigResource, KraftError | None]]:
    """Sets values, or with None deletes them; the response says for each resource why it failed.

    A resource is ``(type, name)``; the cluster's default is ``(BROKER, "")``. Raises
    PolicyViolationError for more than 10,000 records.
    """
    response: dict[ConfigResource, KraftError | None] = {}
    written: list[Record] = []
    cleared: list[Record] = []
    for resource, values in changes.items():
        try:
            _check_exists(cluster, resource)
            made = config_records(cluster, resource, values)
        except KraftError as error:
            response[resource] = error
            continue
        response[resource] = None
        written += [record for record in made if isinstance(record, records.Config)]
        cleared += [record for record in made if isinstance(record, records.ClearElr)]
    # What empties ELRs stands behind every value of the request.
    written += cleared
    if len(written) > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"an operation writes at most {MAX_RECORDS_PER_BATCH} records, not {len(written)}"
        )
    builder = BatchBuilder()
    append_records(builder, written, cluster.state.metadata_version)
    return Decision(Records.finished(builder), response, is_atomic=True)


def config_records(
    cluster: Cluster, resource: ConfigResource, values: Mapping[str, str | None]
) -> list[Record]:
    """The records for one resource, Config before ClearElr. Raises InvalidConfigError."""
    resource_type, resource_name = resource
    present = cluster.state.configs.get(resource, {})
    is_elr_enabled = cluster.state.features.get(ELR_FEATURE, 0) >= 1
    written: list[Record] = []
    cleared: list[Record] = []
    for name, value in values.items():
        if value is not None and len(value) > _MAX_VALUE_LENGTH:
            raise InvalidConfigError(f"the value of {name} is longer than {_MAX_VALUE_LENGTH}")
        if name == MIN_ISR and is_elr_enabled and resource_type == BROKER:
            if resource_name:
                raise InvalidConfigError(f"{name} of a single broker cannot be set while ELR is on")
            if value is None:
                raise InvalidConfigError(f"{name} of the cluster cannot be deleted while ELR is on")
        if present.get(name) == value and resource_type != BROKER:
            continue
        written.append(
            records.Config(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
        )
        if name == MIN_ISR and is_elr_enabled:
            cleared.append(
                records.ClearElr(topic_name=resource_name if resource_type == TOPIC else "")
            )
    return written + cleared


def _check_exists(cluster: Cluster, resource: ConfigResource) -> None:
    resource_type, name = resource
    if resource_type == TOPIC and cluster.table.topic_number(name) < 0:
        raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
    if resource_type == BROKER and name:
        if not name.isdecimal():
            raise InvalidConfigError(f"a broker is named by its id, not {name!r}")
        if int(name) not in cluster.state.brokers and int(name) not in cluster.state.controllers:
            raise BrokerIdNotRegisteredError(f"there is no node {name}")
