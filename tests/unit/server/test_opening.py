"""The store and the latest state of a node, opened in a thread while the process starts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kraft._core.snapshot.snapshot_file import snapshot_name
from kraft.errors import CorruptRecordError, InvalidConfigError, UnsupportedCompressionTypeError
from kraft.raft.rpc import OffsetAndEpoch
from kraft.server.config.loading import ServerConfig
from kraft.server.disk.store import MetadataStore
from kraft.server.local_quorum import LocalQuorum
from kraft.server.opening import StoreOpening
from kraft.server.process import QuorumNode
from tests.harness.configurations import BROKER, write_properties
from tests.harness.controller_nodes import (
    SMALL_SNAPSHOTS,
    Quorum,
    RunScenario,
    create,
    snapshot_ids,
    topics,
    until,
)
from tests.harness.metadata_store import append, begin_epoch, snapshot_bytes


def formatted(home: Path) -> ServerConfig:
    """Return the configuration of a formatted node that never ran."""
    return ServerConfig.load(LocalQuorum(home / "quorum", 1).nodes[0].config_path)


def test_a_listener_without_a_key_is_rejected_before_anything_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "broker.properties"
    secure = {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}
    write_properties(path, BROKER | secure | {"log.dirs": str(tmp_path / "data")})
    with pytest.raises(InvalidConfigError, match=r"ssl\.keystore\.location is missing"):
        StoreOpening(ServerConfig.load(path))
    assert not (tmp_path / "data").exists()


def test_a_store_that_is_being_opened_is_taken_over_by_the_node(tmp_path: Path) -> None:
    config = formatted(tmp_path)
    opening = StoreOpening(config)
    opened = opening.result()
    node = QuorumNode(config, opening=opening)
    assert node.store is opened.store
    assert node.controller is not None
    assert node.controller.controller.cluster is opened.cluster
    opened.store.close()


def test_a_node_without_a_controller_loads_no_state(tmp_path: Path) -> None:
    opened = StoreOpening(formatted(tmp_path), has_controller=False).result()
    assert opened.cluster is None
    opened.store.close()


def test_the_error_of_a_damaged_file_is_the_callers_and_the_directory_is_free_again(
    tmp_path: Path,
) -> None:
    config = formatted(tmp_path)
    StoreOpening(config).result().store.close()
    election = Path(config.metadata_log_dir) / "__cluster_metadata-0" / "quorum-state"
    election.write_text("no state")
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            StoreOpening(config).result()
    election.unlink()
    StoreOpening(config).result().store.close()


@pytest.mark.parametrize("id", [OffsetAndEpoch(11, 1), OffsetAndEpoch(50, 3)])
def test_a_snapshot_with_any_flipped_byte_stops_the_start_and_the_log_stays(
    tmp_path: Path, id: OffsetAndEpoch
) -> None:
    """Also one ahead of the log, for which a start with a sound snapshot empties the log."""
    config = formatted(tmp_path)
    store = StoreOpening(config).result().store
    begin_epoch(store, 1)
    append(store)
    store.sync()
    end = store.log.log_end_offset
    assert end == 11
    store.close()
    sound = snapshot_bytes(tmp_path / "other", id, None)
    path = Path(store.directory) / snapshot_name(*id)
    for position in range(0, len(sound), 3):
        path.write_bytes(sound[:position] + bytes([sound[position] ^ 16]) + sound[position + 1 :])
        with pytest.raises((CorruptRecordError, UnsupportedCompressionTypeError)) as caught:
            StoreOpening(config).result()
        if isinstance(caught.value, CorruptRecordError):
            assert path.name in str(caught.value)
            assert "this one can catch up from them" in str(caught.value)
        with pytest.raises((CorruptRecordError, UnsupportedCompressionTypeError)):
            MetadataStore.open(config.metadata_log_dir)
    path.unlink()
    store = StoreOpening(config).result().store
    assert store.log.log_end_offset == end
    store.close()


def test_a_start_loads_the_snapshot_ahead_of_the_log_and_empties_the_log(tmp_path: Path) -> None:
    config = formatted(tmp_path)
    StoreOpening(config).result().store.close()
    id = OffsetAndEpoch(50, 3)
    directory = Path(config.metadata_log_dir) / "__cluster_metadata-0"
    (directory / snapshot_name(*id)).write_bytes(snapshot_bytes(tmp_path / "other", id, None))
    opened = StoreOpening(config).result()
    assert opened.cluster is not None
    assert opened.cluster.next_offset == opened.store.log.log_start_offset == id.offset
    opened.store.close()


def test_a_restarted_node_reports_once_that_its_state_is_up_to_date(
    run_scenario: RunScenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not before the log after the snapshot is applied up to the quorum's high watermark."""
    quorum = Quorum(tmp_path, 3, settings=SMALL_SNAPSHOTS)
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(1)
        active = await quorum.active()
        follower = next(id for id in quorum.layout if id != active)
        await quorum.create("large", 200)
        await until(lambda: len(snapshot_ids(quorum, follower)) > 0)
        for number in range(5):
            await quorum.create(f"small-{number}")
        await quorum.agree()
        await quorum.stop(follower)
        committed = quorum.cluster(active).next_offset
        caplog.clear()
        await quorum.start(follower)
        await quorum.agree()
        said = "the state is up to date with the quorum: all {} committed records are applied"
        await until(lambda: said.format(committed) in caplog.messages)
        await quorum.ask(create("another"))
        await quorum.agree()
        assert len([each for each in caplog.messages if each.startswith(said[:30])]) == 1
        assert "another" in topics(quorum.cluster(follower))

    run_scenario(scenario, quorum)
