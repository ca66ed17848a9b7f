"""Loading of Kafka's configuration files: values, rejections and their messages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.errors import CorruptRecordError, InvalidConfigError
from kraft.metadata.properties import property_line
from kraft.network.creation_rates import RateLimits
from kraft.network.listener import Limits
from kraft.raft.voters import Endpoint
from kraft.records import Uuid
from kraft.security.authorizer import AuthorizerSettings
from kraft.server.config import settings as settings_module
from kraft.server.config.loading import ServerConfig
from kraft.server.config.settings import SETTINGS
from tests.harness.configurations import (
    CONTROLLER,
    REFUSALS,
    changed,
    write_configuration,
)

DIRECTORY_ID = Uuid(range(16))


def load(directory: Path, base: dict[str, str], **changes: str | None) -> ServerConfig:
    named = {name.replace("_", "."): value for name, value in changes.items()}
    return ServerConfig.load(write_configuration(directory, changed(base, named)))


def test_a_file_is_read_in_javas_syntax(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "# a controller\n"
        "! of three\n"
        "process.roles = controller\n"
        "node.id:3\n"
        "listeners CONTROLLER://127.0.0.1:9093\n"
        "  controller.listener.names=\\u0043ONTROLLER\n"
        "controller.quorum.voters=1@a:9093,\\\n"
        "    2@b:9093,\\\n"
        "    3@127.0.0.1:9093\n"
        "log.dirs=/a , /b\n"
        "controller.quorum.fetch.timeout.ms=1\n"
        "controller.quorum.fetch.timeout.ms= 700 \n"
    )
    config = ServerConfig.load(path)
    assert config.is_controller
    assert not config.is_broker
    assert config.node_id == 3
    assert config.log_dirs == ("/a", "/b")
    assert config.metadata_log_dir == "/a"
    assert sorted(config.voters.ids) == [1, 2, 3]
    assert config.settings.controller_quorum_fetch_timeout_ms == 700
    assert config.settings.controller_quorum_election_timeout_ms == 1000
    assert config.not_understood == config.no_effect == ()


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    path = write_configuration(tmp_path, CONTROLLER)
    config = ServerConfig.load(path, {"controller.quorum.append.linger.ms": "0"})
    assert config.settings.controller_quorum_append_linger_ms == 0
    with pytest.raises(InvalidConfigError, match=r"^the command line: node\.id is 'x'; expected"):
        ServerConfig.load(path, {"node.id": "x"})


def test_unknown_settings_are_reported(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        CONTROLLER,
        controller_quorum_fetch_timout_ms="1",
        zookeeper_connect="localhost:2181",
        log_cleaner_threads="3",
        listener_name_controller_ssl_keystore_location="/k",
        super_users="User:admin",
    )
    unknown = {each.name: each for each in config.not_understood}
    assert sorted(unknown) == ["controller.quorum.fetch.timout.ms", "zookeeper.connect"]
    misspelt = unknown["controller.quorum.fetch.timout.ms"]
    assert misspelt.similar == "controller.quorum.fetch.timeout.ms"
    assert misspelt.where == f"{config.path}, line 7"
    assert unknown["zookeeper.connect"].similar is None
    assert [each.name for each in config.no_effect] == [
        "log.cleaner.threads",
        "listener.name.controller.ssl.keystore.location",
    ]


def test_the_authorizer_has_kafkas_class_and_settings(tmp_path: Path) -> None:
    assert load(tmp_path, CONTROLLER).authorizer() is None
    standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    given = {"authorizer_class_name": standard, "super_users": "User:admin; User:b:c"}
    config = load(tmp_path, CONTROLLER, **given, allow_everyone_if_no_acl_found="TRUE")
    assert config.authorizer() == AuthorizerSettings(frozenset({"User:admin", "User:b:c"}), True)
    assert config.no_effect == ()
    with pytest.raises(InvalidConfigError, match=r"kraft has no Java classes: set org\.apache"):
        load(tmp_path, CONTROLLER, authorizer_class_name="com.example.Mine")
    with pytest.raises(InvalidConfigError, match=r"super\.users .*'admin' is not a principal"):
        load(tmp_path, CONTROLLER, authorizer_class_name=standard, super_users="admin")


def test_settings_without_effect_are_checked_and_reported(tmp_path: Path) -> None:
    given = {
        "internal_metadata_delete_delay_millis": "1",
    }
    config = load(tmp_path, CONTROLLER, **given)
    assert [each.name.replace(".", "_") for each in config.no_effect] == list(given)
    assert config.no_effect[0].where == f"{config.path}, line 7"
    assert config.not_understood == ()
    assert load(tmp_path, CONTROLLER).no_effect == (), "defaults are not reported"
    with pytest.raises(InvalidConfigError, match=r"interval\.ms is '-1'; expected at least 0"):
        load(tmp_path, CONTROLLER, metadata_log_max_snapshot_interval_ms="-1")


def test_the_controllers_settings_are_read(tmp_path: Path) -> None:
    plain = load(tmp_path, CONTROLLER).controller()
    assert (plain.session_timeout_ms, plain.max_transaction_ms) == (9_000, 3_000)
    assert plain.max_idle_interval_ms == 500
    made = load(
        tmp_path,
        CONTROLLER,
        broker_session_timeout_ms="6000",
        metadata_max_idle_interval_ms="0",
        auto_leader_rebalance_enable="false",
        min_insync_replicas="2",
        default_replication_factor="3",
    )
    settings = made.controller(max_transaction_ms=5_999)
    assert settings.max_idle_interval_ms is None
    assert settings.leader_imbalance_check_interval_ms is None
    assert settings.decisions.min_insync_replicas == 2
    assert settings.decisions.default_replication_factor == 3
    assert settings.delegation_token_expiry_check_interval_ms is None
    issuing = load(tmp_path, CONTROLLER, delegation_token_secret_key="hush")
    assert issuing.controller().delegation_token_expiry_check_interval_ms == 3_600_000
    assert issuing.no_effect == ()
    assert "hush" not in repr(issuing)
    with pytest.raises(InvalidConfigError, match="brokers would be fenced"):
        made.controller(max_transaction_ms=6_000)


def test_every_setting_with_an_effect_is_used() -> None:
    package = Path(settings_module.__file__).parents[2]
    read = {
        node.attr
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    # connections.py reads settings by name, because they may also be dynamic.
    dynamic = ast.parse((package / "server" / "config" / "connections.py").read_text("utf-8"))
    read |= {
        node.value.replace(".", "_")
        for node in ast.walk(dynamic)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for name, rule in SETTINGS.items():
        assert (name.replace(".", "_") in read) == rule.has_effect, name


def test_the_raft_layers_settings_are_read(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        CONTROLLER,
        listeners="CONTROLLER://0.0.0.0:0",
        advertised_listeners="CONTROLLER://node-1:0",
        controller_quorum_election_timeout_ms="50",
        controller_quorum_fetch_timeout_ms="100",
        controller_quorum_fetch_max_bytes="4096",
        controller_quorum_fetch_snapshot_max_bytes="8192",
        controller_quorum_auto_join_enable="TRUE",
    )
    raft = config.raft(DIRECTORY_ID, "cluster", bound_ports={"CONTROLLER": 4711})
    assert (raft.node_id, raft.directory_id, raft.cluster_id) == (1, DIRECTORY_ID, "cluster")
    assert raft.endpoints == (Endpoint("CONTROLLER", "node-1", 4711),)
    assert raft.bootstrap_servers == (Endpoint("CONTROLLER", "127.0.0.1", 9093),)
    assert not raft.static_voters
    assert raft.can_vote
    assert raft.auto_join
    assert (raft.election_timeout_ms, raft.fetch_timeout_ms) == (50, 100)
    assert (raft.fetch_max_bytes, raft.fetch_snapshot_max_bytes) == (4096, 8192)


def test_the_limits_of_a_listener_are_read(tmp_path: Path) -> None:
    bears = load(tmp_path, CONTROLLER, max_connections="7", connections_max_idle_ms="1000").limits()
    assert (bears.max_connections, bears.max_idle_ms) == (7, 1000)
    assert bears.max_request_size == 104_857_600
    # Kafka's default is unlimited; kraft's default is bounded.
    assert bears.max_connections_per_ip == Limits().max_connections_per_ip


def test_the_limits_of_addresses_and_listeners_are_read(tmp_path: Path) -> None:
    config = ServerConfig.load(
        write_configuration(tmp_path, CONTROLLER),
        {
            "max.connections.per.ip": "0",
            "max.connections.per.ip.overrides": "10.1:7,[::1]:8,localhost:9",
            "max.connection.creation.rate": "5",
            "listener.name.controller.max.connections": "3",
            "listener.name.controller.max.connection.creation.rate": "2",
            "listener.name.controller.ssl.keystore.type": "PEM",
            "quota.window.num": "4",
        },
    )
    limits = config.limits()
    assert limits.max_connections_per_ip == 0
    assert limits.max_connections_of_ips["10.0.0.1"] == 7
    # localhost may resolve to [::1], which then has the limit 8 or 9.
    assert set(limits.max_connections_of_ips.values()) <= {7, 8, 9}
    assert limits.max_connections_of_listeners == {"CONTROLLER": 3}
    assert limits.creation_rates == RateLimits(5, {"CONTROLLER": 2}, 4, 1)
    assert [one.name for one in config.no_effect] == ["listener.name.controller.ssl.keystore.type"]


def test_dynamic_limits_replace_those_of_the_file(tmp_path: Path) -> None:
    config = load(tmp_path, CONTROLLER, max_connections="7")
    assert config.limits({"max.connections": "9"}).max_connections == 9
    assert config.limits({}).max_connections == Limits().max_connections
    for name, value in (
        ("max.connections", "-1"),
        ("max.connections.per.ip", "0"),
        ("max.connections.per.ip.overrides", "localhost:1"),
        ("max.connections.per.ip.overrides", "10.0.0.1:x"),
        ("max.connection.creation.rate", "fast"),
    ):
        with pytest.raises(InvalidConfigError, match=name):
            config.limits({name: value})


def test_static_voters_use_the_first_controller_listener(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        CONTROLLER,
        listeners="A://127.0.0.1:1,B://127.0.0.1:2",
        controller_listener_names="B,A",
        controller_quorum_bootstrap_servers=None,
        controller_quorum_voters="1@[::1]:2,2@b:2",
    )
    raft = config.raft(DIRECTORY_ID, "cluster")
    assert raft.listener == "B"
    voter = raft.static_voters.get(1)
    assert voter is not None
    assert voter.endpoint("B") == Endpoint("B", "::1", 2)
    assert [endpoint.name for endpoint in raft.endpoints] == ["B", "A"]


def test_a_node_bound_to_all_addresses_advertises_its_host_name(tmp_path: Path) -> None:
    config = load(tmp_path, CONTROLLER, listeners="CONTROLLER://0.0.0.0:9093")
    assert config.controller_listeners[0].host == "0.0.0.0"
    host = config.raft(DIRECTORY_ID, "cluster").endpoints[0].host
    assert host not in ("", "0.0.0.0")


def test_the_wildcard_address_of_another_controller_is_rejected(tmp_path: Path) -> None:
    config = load(tmp_path, CONTROLLER, controller_quorum_bootstrap_servers="0.0.0.0:9093")
    with pytest.raises(InvalidConfigError, match="not an address that a node can connect to"):
        config.raft(DIRECTORY_ID, "cluster")


@pytest.mark.parametrize(("base", "changes", "words"), REFUSALS)
def test_configurations_that_cannot_work_are_rejected(
    tmp_path: Path, base: dict[str, str], changes: dict[str, str | None], words: str
) -> None:
    path = write_configuration(tmp_path, changed(base, changes))
    with pytest.raises(InvalidConfigError, match=words) as refused:
        ServerConfig.load(path)
    assert str(path) in str(refused.value)


def test_one_port_may_serve_both_address_families(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        CONTROLLER,
        listeners="CONTROLLER://127.0.0.1:1,SIX://[::1]:1",
        controller_listener_names="CONTROLLER,SIX",
    )
    assert [str(one) for one in config.listeners] == [
        "CONTROLLER://127.0.0.1:1",
        "SIX://[::1]:1",
    ]


def test_a_broken_escape_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=\\u12\n")
    with pytest.raises(CorruptRecordError, match=str(path)):
        ServerConfig.load(path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"cannot read .*: No such file"):
        ServerConfig.load(tmp_path / "none")


_WORDS = st.sampled_from(
    ("CONTROLLER", "PLAINTEXT", "SSL", "://", ":", ",", "@", "[::1]", "%", "1", "65536", "-", ".")
)
_VALUES = st.lists(_WORDS, max_size=9).map("".join) | st.text(max_size=12)


@given(st.dictionaries(st.sampled_from(sorted(SETTINGS)) | st.text(max_size=9), _VALUES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_file_is_accepted_or_rejected_with_an_invalid_config_error(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    path = tmp_path / "server.properties"
    lines = [property_line(name, value) for name, value in (CONTROLLER | changes).items()]
    path.write_text("".join(lines), encoding="ascii")
    reason = ""
    try:
        config = ServerConfig.load(path)
        config.raft(DIRECTORY_ID, "cluster")
    except InvalidConfigError as refused:
        reason = str(refused)
    if reason:
        assert str(path) in reason
        return
    heeded = {name for name in changes if name in SETTINGS and SETTINGS[name].has_effect}
    reported = {each.name for each in (*config.not_understood, *config.no_effect)}
    assert reported == set(changes) - heeded, "every setting must be used or reported"
