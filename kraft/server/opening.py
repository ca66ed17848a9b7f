"""Open a node's store and load the latest snapshot, in a thread, while the process starts.

Recovery and loading run in the core, mostly without the interpreter lock. A starting process
imports its other modules meanwhile, on another core. Called by ``kraft server start`` and by
`process`, which waits for the result.
"""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from kraft._core.snapshot.column_checkpoint import ColumnsRejected, columns_path
from kraft._core.snapshot.snapshot_file import SnapshotReader, snapshot_name
from kraft.errors import CorruptRecordError, UnsupportedVersionError
from kraft.raft.rpc import OffsetAndEpoch
from kraft.server.config.loading import ServerConfig
from kraft.server.disk.recovery import CATCH_UP
from kraft.server.disk.store import MetadataStore
from kraft.server.newer_versions import check_finalized, newer_version_error
from kraft.server.storage.meta_properties import NodeIdentity, load_identity

if TYPE_CHECKING:
    from kraft.image.replay import MetadataState

logger = logging.getLogger(__name__)

#: A short switch interval lets a thread that returns from the core take the interpreter lock soon:
#: the opening thread during imports, later the event loop beside the writer.
SWITCH_INTERVAL_S = 0.0005


class OpenedStore(NamedTuple):
    """The store after recovery, and the state of its latest snapshot, with a journal.

    ``cluster`` is None for a node without a controller. ``unread`` is the latest snapshot where its
    columns were loaded and its file was not read.
    """

    store: MetadataStore
    cluster: MetadataState | None
    unread: OffsetAndEpoch | None = None


class StoreOpening:
    """The store of one node, being opened in a thread from the creation of an instance on.

    Raises what `check_served` and `load_identity` raise, before anything is changed.
    """

    def __init__(self, config: ServerConfig, *, has_controller: bool = True) -> None:
        check_served(config)
        self.identity: NodeIdentity = load_identity(config)
        self._config = config
        self._has_controller = has_controller
        self._opened: Future[OpenedStore] = Future()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        Thread(target=self._open, name="kraft-opening").start()

    def result(self) -> OpenedStore:
        """Wait for the store. Raises the errors of `MetadataStore.open` and of a bad snapshot."""
        return self._opened.result()

    def _open(self) -> None:
        config, settings = self._config, self._config.settings
        try:
            store = MetadataStore.open(
                config.metadata_log_dir,
                static_voters=config.voters,
                segment_bytes=settings.internal_metadata_log_segment_bytes
                or settings.metadata_log_segment_bytes,
                segment_ms=settings.metadata_log_segment_ms,
                loads_latest_snapshot=self._has_controller,
            )
            try:
                opened = OpenedStore(store, None)
                if self._has_controller:
                    opened = load_latest_columns(store) or OpenedStore(
                        store, load_latest_snapshot(store, is_checked=False)
                    )
            except BaseException:
                store.close()
                raise
        except UnsupportedVersionError as error:
            self._opened.set_exception(newer_version_error(error))
        except BaseException as error:
            self._opened.set_exception(error)
        else:
            self._opened.set_result(opened)


def check_served(config: ServerConfig) -> None:
    """Raise InvalidConfigError for listeners whose security settings kraft cannot use."""
    if config.security_problem is not None:
        raise config.security_problem


def load_latest_columns(store: MetadataStore) -> OpenedStore | None:
    """Return the store, and the state of its latest snapshot's column checkpoint.

    None where there is none, or where it cannot be used: the log says why. Raises
    UnsupportedVersionError for one of a newer version.
    """
    snapshot = store.latest_snapshot()
    if snapshot is None:
        return None
    path = f"{store.directory}/{snapshot_name(*snapshot.id)}"
    if not os.path.exists(columns_path(path)):
        return None
    from kraft.controller.config_schema import is_supported_config
    from kraft.metadata.snapshots import load_column_state

    cluster = load_column_state(
        path, snapshot.id.offset, to_grow=True, is_supported_config=is_supported_config
    )
    if isinstance(cluster, ColumnsRejected):
        logger.warning("%s is not used: %s", columns_path(path), cluster.reason)
        return None
    check_finalized(cluster.state.features)
    cluster.start_journal()
    return OpenedStore(store, cluster, snapshot.id)


def load_latest_snapshot(store: MetadataStore, *, is_checked: bool = True) -> MetadataState:
    """Return the state of the latest snapshot, with a journal; empty without a snapshot.

    ``is_checked``: its CRCs were checked when it was mapped. Configurations that Kafka does not
    know are skipped, as in Kafka. Raises UnsupportedVersionError for a snapshot of a newer version,
    CorruptRecordError for a damaged one.
    """
    # Imported here: recovery begins without them.
    from kraft.controller.config_schema import is_supported_config
    from kraft.image.replay import MetadataState

    cluster = MetadataState(is_supported_config=is_supported_config)
    snapshot = store.latest_snapshot()
    if snapshot is not None:
        reader = SnapshotReader(snapshot.data)
        try:
            with cluster.loading_snapshot(snapshot.id.offset) as callbacks:
                reader.read(cluster.table, **callbacks, verify_crc=not is_checked)
        except CorruptRecordError as error:
            path = f"{store.directory}/{snapshot_name(*snapshot.id)}"
            raise error.at(path=path).add_advice(CATCH_UP) from None
        check_finalized(cluster.state.features)
    cluster.start_journal()
    return cluster
