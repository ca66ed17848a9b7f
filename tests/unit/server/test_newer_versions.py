"""What a node does with files and records of a newer version of kraft: it ends and says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import kraft
from kraft._core.bytes.batch import BatchBuilder, assign_offsets
from kraft._core.bytes.checksum import crc32c
from kraft.errors import KraftError, UnsupportedVersionError
from kraft.raft.interface import AppendBatches
from kraft.records import FeatureLevel, Topic, Uuid, encode_value
from kraft.server.config.loading import ServerConfig
from kraft.server.disk.files import SYNCED_OFFSET_FILE
from kraft.server.newer_versions import check_finalized
from kraft.server.opening import StoreOpening
from tests.harness.controller_nodes import Quorum, RunScenario, create, topics, until

NEWER = re.compile("a newer version of kraft or Kafka wrote this. Start that version")


def stopped_quorum(run_scenario: RunScenario, home: Path) -> Quorum:
    """Return a quorum of one node that has created a topic and stopped."""
    quorum = Quorum(home)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(1)
        await quorum.create("kept", 3)
        await quorum.stop()

    run_scenario(scenario, quorum)
    return quorum


def start_again(run_scenario: RunScenario, quorum: Quorum) -> None:
    async def scenario() -> None:
        await quorum.start()
        assert topics(quorum.cluster(await quorum.active())) == {"kept": 3}
        await quorum.ask(create("another"))

    run_scenario(scenario, quorum)


def config_of(quorum: Quorum) -> ServerConfig:
    return ServerConfig.load(quorum.layout[1].config_path)


def append_value(quorum: Quorum, value: bytes) -> None:
    """Append a record to the log of the stopped node."""
    store = StoreOpening(config_of(quorum), has_controller=False).result().store
    builder = BatchBuilder()
    builder.append(value)
    batch = builder.finish()
    base = store.log.log_end_offset
    assign_offsets(batch, base, store.log.last_epoch)
    store.perform(AppendBatches(base, base + 1, bytes(batch)))
    store.close()


def newer_version_of(value: bytes) -> bytes:
    """Return a record value with version 9 in its frame: api key, then version."""
    return value[:2] + b"\x09" + value[3:]


A_TOPIC = encode_value(Topic("new", Uuid(b"n" * 16)))
SHARE_9 = encode_value(FeatureLevel("share.version", 9))
METADATA_99 = encode_value(FeatureLevel("metadata.version", 99))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (newer_version_of(A_TOPIC), "version is newer"),
        (newer_version_of(SHARE_9), "FeatureLevel has versions 0-0, not 9"),
        (A_TOPIC[:1] + b"\x63" + A_TOPIC[2:], "no metadata record has api key 99"),
        (b"\x02" + A_TOPIC[1:], "frame version 2"),
        (SHARE_9, r"share\.version 9 \(supported: 0 to 2\)"),
        (METADATA_99, "metadata.version 99"),
    ],
    ids=("topic", "feature level", "record type", "frame", "feature", "metadata.version"),
)
def test_a_node_ends_at_a_record_in_the_log_that_it_does_not_know(
    run_scenario: RunScenario, tmp_path: Path, value: bytes, message: str
) -> None:
    quorum = stopped_quorum(run_scenario, tmp_path)
    append_value(quorum, value)

    async def scenario() -> None:
        await quorum.start()
        await until(lambda: quorum.ended)

    run_scenario(scenario, quorum)
    what, error = quorum.ended[0]
    assert what == "the controller cannot continue"
    assert isinstance(error, UnsupportedVersionError)
    assert re.search(message, str(error))
    assert NEWER.search(str(error))


def test_a_node_does_not_start_from_a_snapshot_with_unsupported_features(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = stopped_quorum(run_scenario, tmp_path)
    append_value(quorum, SHARE_9)
    kraft.open_metadata(quorum.metadata_dir(1)).write_snapshot(quorum.metadata_dir(1))
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match=r"share\.version 9") as caught:
            StoreOpening(config_of(quorum)).result()
        assert NEWER.search(str(caught.value))


def test_a_quorum_state_of_a_newer_version_is_not_called_damaged(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """The advice for a damaged one is to empty the directory, which would lose the vote."""
    quorum = stopped_quorum(run_scenario, tmp_path)
    path = quorum.metadata_dir(1) / "quorum-state"
    kept = path.read_bytes()
    plain = b'{"leaderId":-1,"leaderEpoch":9,"data_version":2}'
    path.write_bytes(plain[:-1] + b',"crc32c":"%08x"}' % crc32c(plain))
    with pytest.raises(KraftError, match="data_version 2, supported are 0 and 1") as caught:
        StoreOpening(config_of(quorum)).result()
    assert isinstance(caught.value, UnsupportedVersionError)
    assert NEWER.search(str(caught.value))
    assert "format an empty directory" not in str(caught.value)
    path.write_bytes(kept)
    start_again(run_scenario, quorum)


@pytest.mark.parametrize("slots", [(0,), (1,), (0, 1)])
def test_a_synced_offset_of_a_newer_version_is_ignored_and_written_again(
    run_scenario: RunScenario,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    slots: tuple[int, ...],
) -> None:
    quorum = stopped_quorum(run_scenario, tmp_path)
    path = quorum.metadata_dir(1) / SYNCED_OFFSET_FILE
    content = bytearray(path.read_bytes())
    for slot in slots:
        content[512 * slot : 512 * slot + 60] = b"1 later fields".ljust(60)
    path.write_bytes(content)
    start_again(run_scenario, quorum)
    said = [each for each in caplog.messages if "has version 1, and this version" in each]
    # One slot of version 0 is a lower bound still.
    assert len(said) == (len(slots) == 2)
    assert path.read_bytes()[:2] == path.read_bytes()[512:514] == b"0 "


def supported_with(name: str, levels: tuple[int, int]) -> Callable[[dict[str, int]], None]:
    return lambda features: check_finalized(features, {"metadata.version": (7, 33), name: levels})


def test_only_levels_that_a_node_does_not_support_are_rejected() -> None:
    check = supported_with("share.version", (0, 1))
    check({"metadata.version": 33, "share.version": 1})
    check({"share.version": 0})
    # kraft reads logs of 3.x.
    check({"metadata.version": 1})
    for features in ({"metadata.version": 34}, {"share.version": 2}, {"new.version": 1}):
        with pytest.raises(UnsupportedVersionError, match=next(iter(features))):
            check(features)
