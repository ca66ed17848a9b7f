"""A broker's node, on one event loop with its controllers: start, clients, stop, failures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraft._core.log.disk import OsDisk
from kraft.broker.controller_channel import ControllerChannel
from kraft.broker.log.checkpoint_files import read_clean_shutdown
from kraft.broker.node import BrokerNode
from kraft.errors import (
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    StorageError,
)
from kraft.network.authentication import ListenerSecurity
from kraft.network.tls_context import TlsSettings, tls_contexts
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.create_acls import CREATE_ACLS
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
)
from kraft.protocol.fetch import (
    FETCH,
)
from kraft.protocol.headers import Api
from kraft.protocol.init_producer_id import INIT_PRODUCER_ID
from kraft.protocol.metadata import (
    METADATA,
)
from kraft.protocol.produce import (
    PRODUCE,
)
from kraft.records import Uuid
from kraft.security.protocols import SecurityProtocol
from kraft.server.config.loading import ServerConfig
from kraft.server.local_quorum import LocalNode
from tests.harness.certificates import authority
from tests.harness.controller_nodes import until
from tests.unit.broker.broker_nodes import (
    Client,
    LocalNodes,
    controller_of,
    play,
)


def jaas(user: str) -> str:
    """Return the login module of a user, whose password is its name; there are admin and alice."""
    return (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{user}" password="{user}" user_admin="admin" user_alice="alice";'
    )


def clean_epoch(node: LocalNode) -> int | None:
    return read_clean_shutdown(OsDisk(), str(node.config_path.parent / "data"))


def test_a_combined_node_serves_and_keeps_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = LocalNodes(tmp_path, 1, 1, is_combined=True)

    async def scenario() -> None:
        await nodes.start()
        client = Client(nodes.node(1))
        assert await client.leader("t") == 1
        assert await client.produce("t", b"a", b"b") == (NONE, 0)
        assert await client.produce("t", b"c") == (NONE, 2)
        assert await client.fetch("t") == [b"a", b"b", b"c"]
        client.close()
        first = nodes.broker(1).broker
        assert first is not None
        assert first.lifecycle is not None
        epoch = first.lifecycle.epoch
        await nodes.stop(1)
        assert clean_epoch(nodes.node(1)) == epoch
        await nodes.start(1)
        again = Client(nodes.node(1))
        assert await again.leader("t") == 1
        assert await again.fetch("t") == [b"a", b"b", b"c"]
        assert await again.produce("t", b"d") == (NONE, 3)
        again.close()

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def test_a_stop_moves_the_leaders_and_the_followers_have_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = LocalNodes(tmp_path, 1, 2)

    async def scenario() -> None:
        await nodes.start()
        client = Client(nodes.node(1001))
        leader = await client.leader("t")
        other = 2003 - leader
        clients = {id: Client(nodes.node(id)) for id in (leader, other)}
        for number in range(20):
            said = await clients[leader].produce("t", b"%d" % number)
            assert said == (NONE, number)
        await nodes.stop(leader)
        assert await clients[other].leader("t") == other
        assert await clients[other].fetch("t") == [b"%d" % number for number in range(20)]
        assert await clients[other].produce("t", b"20") == (NONE, 20)
        await nodes.start(leader)
        follower = nodes.broker(leader).broker
        assert follower is not None
        partitions = follower.replicas.manager.partitions.values()
        await until(lambda: any(each.high_watermark == 21 for each in partitions))
        for each in (client, *clients.values()):
            each.close()

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def test_versions_that_the_controller_lacks_are_not_advertised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = LocalNodes(tmp_path, 1, 1, is_combined=True)
    older = CREATE_TOPICS._replace(highest=CREATE_TOPICS.highest - 1)
    told = PeerVersions(NONE, {older.key: (older.lowest, older.highest)}, {}, {})
    monkeypatch.setattr(ControllerChannel, "versions", property(lambda channel: told))

    async def scenario() -> None:
        await nodes.start()
        client = Client(nodes.node(1))
        served = await client.versions()
        assert served[older.key] == (older.lowest, older.highest)
        assert CREATE_ACLS.key not in served
        client.close()

    play(nodes, scenario, monkeypatch)


def test_old_segments_go_and_repeated_keys_are_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "log.retention.check.interval.ms": "100",
        "log.cleaner.backoff.ms": "100",
        "replica.high.watermark.checkpoint.interval.ms": "100",
        "log.cleaner.dedupe.buffer.size": "1048576",
    }
    nodes = LocalNodes(tmp_path, 1, 1, is_combined=True, settings=settings)
    segments = {"segment_bytes": "1048576", "file_delete_delay_ms": "0"}

    async def scenario() -> None:
        await nodes.start()
        client = Client(nodes.node(1))
        await client.create("short", retention_bytes="1000000", **segments)
        await client.create(
            "keyed", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", **segments
        )
        for number in range(25):
            assert await client.produce("short", bytes(200_000)) == (NONE, number)
            assert await client.produce("keyed", bytes(200_000), key=b"k") == (NONE, number)
        data = nodes.node(1).config_path.parent / "data"
        # A segment holds five batches. The last ones stay: retention keeps a megabyte, and
        # compaction leaves the segment that is written.
        await until(lambda: size_of_files(data / "short-0") < 2_500_000)
        await until(lambda: size_of_files(data / "keyed-0") < 2_500_000)
        assert len(await client.fetch("short", offset=24)) == 1
        client.close()

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def size_of_files(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def test_a_request_without_acknowledgement_has_no_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = LocalNodes(tmp_path, 1, 1, is_combined=True)

    async def scenario() -> None:
        await nodes.start()
        client = Client(nodes.node(1))
        await client.leader("t")
        assert await client.fetch("t") == []
        silent = asyncio.ensure_future(client.produce("t", b"a", acks=0))
        other = Client(nodes.node(1))
        while await other.fetch("t") != [b"a"]:
            await asyncio.sleep(0.01)
        assert not silent.done()
        client.close()
        with pytest.raises(ConnectionError):
            await silent
        other.close()

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def test_only_what_is_served_is_advertised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above all none of the quorum's own APIs, and none of transactions."""
    nodes = LocalNodes(tmp_path, 1, 1, is_combined=True)
    add_partitions_to_txn, consumer_group_heartbeat, vote = 24, 68, 52

    async def scenario() -> None:
        await nodes.start()
        client = Client(nodes.node(1))
        served = await client.versions()
        assert not {add_partitions_to_txn, consumer_group_heartbeat, vote} & served.keys()
        wanted: list[Api] = [PRODUCE, FETCH, METADATA, INIT_PRODUCER_ID]
        assert {api.key: (api.lowest, api.highest) for api in wanted}.items() <= served.items()
        client.close()

    play(nodes, scenario, monkeypatch)


def test_brokers_authenticate_and_authorize(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": jaas("admin"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    nodes = LocalNodes(tmp_path, 1, 2, settings=settings)

    async def scenario() -> None:
        await nodes.start()
        admin = Client(nodes.node(1001), "admin")
        leader = await admin.leader("t")
        own, alice = (Client(nodes.node(leader), user) for user in ("admin", "alice"))
        # The follower has authenticated too, or the batch would not be acknowledged.
        assert await own.produce("t", b"a") == (NONE, 0)
        assert await alice.produce("t", b"b") == (TOPIC_AUTHORIZATION_FAILED, -1)
        (hidden,) = (await alice.topic("t")).topics
        assert hidden.error_code == TOPIC_AUTHORIZATION_FAILED
        stranger = Client(nodes.node(leader))
        with pytest.raises(ConnectionError):
            await stranger.topic("t")
        for each in (admin, own, alice, stranger):
            each.close()

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def test_brokers_replicate_over_mutual_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS has no data loop: records of files are read and encrypted."""
    own = authority().issue("broker")
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": own.certificate_pem,
        "ssl.keystore.key": own.key_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority().pem,
    }
    nodes = LocalNodes(tmp_path, 1, 2, settings=settings)
    keys = TlsSettings(own.certificate_pem, own.key_pem, trusted=authority().pem)
    security = ListenerSecurity(SecurityProtocol.SSL, tls_contexts(keys))

    async def scenario() -> None:
        await nodes.start()
        clients = {id: Client(nodes.node(id), security=security) for id in (1001, 1002)}
        leader = await clients[1001].leader("t")
        values = [b"%d" % number for number in range(10)]
        for number, value in enumerate(values):
            assert await clients[leader].produce("t", value) == (NONE, number)
        assert await clients[leader].fetch("t") == values
        await nodes.stop(leader)
        assert await clients[2003 - leader].leader("t") == 2003 - leader
        assert await clients[2003 - leader].fetch("t") == values
        for each in clients.values():
            each.close()

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def test_a_failed_directory_is_told_and_the_last_one_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = LocalNodes(tmp_path, 1, 1, is_combined=True)
    second = tmp_path / "second"
    config_path = nodes.node(1).config_path
    config_path.write_text(config_path.read_text() + f"log.dirs={tmp_path / 'x'},{second}\n")

    async def scenario() -> None:
        from kraft.server.storage.format import FormatRequest, format_storage
        from kraft.server.storage.meta_properties import LogDirectories

        data = str(config_path.parent / "data")
        text = config_path.read_text().replace(str(tmp_path / "x"), data)
        config_path.write_text(text)
        known = LogDirectories.load_all([data]).formatted[data]
        assert known.cluster_id is not None
        request = FormatRequest(
            cluster_id=known.cluster_id, has_no_initial_controllers=True, ignore_formatted=True
        )
        format_storage(ServerConfig.load(config_path), request, timestamp_ms=0)
        await nodes.start()
        broker = nodes.broker(1).broker
        assert broker is not None
        by_path = {one.path: one for one in broker.logs.directories}
        lost = by_path[str(second)]
        lost.fail(StorageError("the disk is gone"))
        runner = nodes.broker(1).quorum.controller
        assert runner is not None
        state = runner.controller.cluster.state
        await until(lambda: Uuid(lost.id) not in state.brokers[1].log_dirs)
        assert nodes.ended == []
        by_path[data].fail(StorageError("the disk is gone"))
        await until(lambda: nodes.ended)

    play(nodes, scenario, monkeypatch)
    assert nodes.ended[0][0] == "the directory of the metadata failed"


def test_a_broker_without_cordoned_directories_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Apache Kafka's brokers, so that the metadata logs of both have the same records."""
    nodes = LocalNodes(tmp_path, 1, 1, is_combined=True)

    async def scenario() -> None:
        await nodes.start()
        brokers = controller_of(nodes, 1).controller.cluster.state.brokers
        await until(lambda: brokers[1].cordoned_log_dirs is not None)
        assert brokers[1].cordoned_log_dirs == ()

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def test_a_broker_that_cannot_register_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = LocalNodes(tmp_path, 1, 1, settings={"initial.broker.registration.timeout.ms": "300"})

    async def scenario() -> None:
        config = ServerConfig.load(nodes.node(1001).config_path)
        alone = nodes.running[1001] = BrokerNode(config)
        await alone.start()
        await until(lambda: nodes.ended)

    play(nodes, scenario, monkeypatch)
    ((what, why),) = nodes.ended
    assert what == "the broker cannot enter the cluster"
    assert "could not register within 300 ms" in why
    assert "the quorum has no leader" in why
