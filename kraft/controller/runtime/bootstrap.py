"""Activation records: the first records that a new active controller writes.

They are the bootstrap of an empty log (the features and credentials that formatting left in
``bootstrap.checkpoint``), and the end of a metadata transaction that a failed controller left open.
A log is empty until it has a FeatureLevel of metadata.version outside of an open transaction; its
other records are kept.

Invariant: the bootstrap is one metadata transaction (name "Bootstrap records"), or one batch if the
metadata.version has no transactions, so that it takes effect as a whole. Sources: Kafka's
``ActivationRecordsGenerator``, ``BootstrapMetadata``, ``BootstrapDirectory`` (4.3.1); KIP-868.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

from kraft import records
from kraft._core.bytes.batch_records import iterate
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Records
from kraft.controller.state import ELR_FEATURE, MIN_ISR, DecisionSettings
from kraft.errors import (
    CorruptRecordError,
    InvalidRequestError,
    PolicyViolationError,
    ReplayError,
    UnsupportedVersionError,
)
from kraft.image.configs import BROKER
from kraft.image.replay import MetadataState
from kraft.records import CONTROL_TYPES, Record, decode_control_key, decode_value
from kraft.records.versions import (
    LATEST_PRODUCTION,
    LATEST_SUPPORTED,
    METADATA_VERSION,
    MINIMUM_VERSION,
    MetadataVersion,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

TRANSACTION_NAME = "Bootstrap records"
ABORT_REASON = "Controller failover"


def default_bootstrap() -> tuple[Record, ...]:
    """Return the bootstrap of an unformatted node: metadata.version at latest production."""
    return (records.FeatureLevel(METADATA_VERSION, LATEST_PRODUCTION.value),)


def read_bootstrap(data: Buffer, *, path: str | PathLike[str] | None = None) -> tuple[Record, ...]:
    """Return the records of a ``bootstrap.checkpoint`` from its bytes; messages name ``path``.

    Raises CorruptRecordError unless the bytes are a whole snapshot, which ends with a
    SnapshotFooter, and InvalidRequestError if no record sets metadata.version.
    """
    found: list[Record] = []
    is_whole = False
    try:
        for batch in iterate(data):
            for raw in batch:
                if is_whole:
                    raise CorruptRecordError("records follow the footer", offset=raw.offset)
                if not raw.is_control:
                    if raw.value is None:
                        raise CorruptRecordError("a record without a value", offset=raw.offset)
                    found.append(decode_value(raw.value))
                elif raw.key is not None and raw.value is not None:
                    control_type = decode_control_key(raw.key)
                    is_whole = CONTROL_TYPES.get(control_type) is records.SnapshotFooter
    except CorruptRecordError as error:
        raise error.at(path=path) from None
    if not is_whole:
        raise CorruptRecordError("the bootstrap snapshot has no footer: it is cut short", path=path)
    bootstrap_version(found)
    return tuple(found)


def bootstrap_version(bootstrap: Sequence[Record]) -> int:
    """Return the level of metadata.version that these records set.

    Raises InvalidRequestError if none does.
    """
    level = _feature_level(bootstrap, METADATA_VERSION)
    if level is None:
        raise InvalidRequestError("no record of the bootstrap sets metadata.version")
    return level


def activation_records(
    cluster: MetadataState, bootstrap: Sequence[Record], settings: DecisionSettings
) -> Records:
    """Return the records that a controller writes when it becomes active, possibly none.

    ``cluster`` has replayed the whole log. Without a ``bootstrap``, `default_bootstrap` is used.
    All errors are fatal: ReplayError if a transaction is open that the metadata.version does not
    allow, UnsupportedVersionError if the bootstrap's metadata.version is not supported,
    InvalidRequestError if the bootstrap sets none, PolicyViolationError if it is too large for one
    batch and the metadata.version has no transactions.
    """
    if _is_empty(cluster):
        return _records_for_empty_log(cluster, bootstrap or default_bootstrap(), settings)
    level = cluster.state.metadata_version
    if cluster.transaction_start is None:
        return Records.of((), level)
    _check_transaction(cluster, level)
    return Records.of([records.AbortTransaction(reason=ABORT_REASON)], level)


def _records_for_empty_log(
    cluster: MetadataState, bootstrap: Sequence[Record], settings: DecisionSettings
) -> Records:
    level = bootstrap_version(bootstrap)
    if not MINIMUM_VERSION <= level <= LATEST_SUPPORTED:
        raise UnsupportedVersionError(
            f"the bootstrap sets metadata.version {level}: supported levels are "
            f"{MINIMUM_VERSION.value} to {LATEST_SUPPORTED.value}"
        )
    written = list(bootstrap)
    if _feature_level(bootstrap, ELR_FEATURE):
        # With ELR all brokers must use one min.insync.replicas: the cluster's value replaces the
        # value of each broker's properties file.
        value = str(settings.min_insync_replicas)
        written.append(records.Config(BROKER, "", MIN_ISR, value))
    if not MetadataVersion(level).is_metadata_transaction_supported:
        _check_transaction(cluster, level)
        if len(written) > MAX_RECORDS_PER_BATCH:
            raise PolicyViolationError(
                f"the bootstrap has {len(written)} records: below metadata.version "
                f"{MetadataVersion.IBP_3_6_IV1.text} it has to fit into one batch of at most "
                f"{MAX_RECORDS_PER_BATCH}"
            )
        return Records.of(written, level)
    opening: list[Record] = [records.BeginTransaction(name=TRANSACTION_NAME)]
    if cluster.transaction_start is not None:
        opening.insert(0, records.AbortTransaction(reason=ABORT_REASON))
    return Records.of([*opening, *written, records.EndTransaction()], level)


def _is_empty(cluster: MetadataState) -> bool:
    """Return whether no metadata.version is set, without counting an open transaction.

    Kafka counts an open transaction. If a controller failed within the bootstrap, Kafka would only
    abort the transaction and continue without a metadata.version.
    """
    if METADATA_VERSION not in cluster.state.features:
        return True
    if cluster.transaction_start is None:
        return False
    changed = cluster.state.delta(cluster.transaction_start).get("feature", {})
    return METADATA_VERSION in changed and changed[METADATA_VERSION].before is None


def _check_transaction(cluster: MetadataState, level: int) -> None:
    if cluster.transaction_start is not None and (
        not MetadataVersion.from_level(level).is_metadata_transaction_supported
    ):
        raise ReplayError(
            f"a metadata transaction is open since offset {cluster.transaction_start}, and "
            f"metadata.version {MetadataVersion.from_level(level).text} has none"
        )


def _feature_level(bootstrap: Sequence[Record], name: str) -> int | None:
    """Return the last level that these records set for a feature."""
    level = None
    for record in bootstrap:
        if isinstance(record, records.FeatureLevel) and record.name == name:
            level = record.feature_level
    return level
