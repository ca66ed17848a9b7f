"""The settings of an admin client, from addresses and the properties of Kafka's clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.admin.settings import read_admin_settings
from kraft.errors import InvalidArgumentError, InvalidConfigError


def test_the_defaults_are_those_of_kafkas_admin() -> None:
    settings = read_admin_settings("a:9093, [::1]:9094")
    assert settings.bootstrap_controllers == (("a", 9093), ("::1", 9094))
    assert (settings.request_timeout_ms, settings.default_api_timeout_ms) == (30_000, 60_000)
    assert settings.leader_wait_ms is None
    assert settings.client_id == "kraft-admin"
    assert settings.security.tls is None
    assert settings.security.credentials is None


def test_addresses_may_be_a_list() -> None:
    assert read_admin_settings(["a:1", "b:2"]).bootstrap_controllers == (("a", 1), ("b", 2))


@pytest.mark.parametrize("given", ["", " , ", [], "localhost", "a:1,b", "a:99999", "a:-1"])
def test_a_malformed_address_is_an_argument_error(given: str | list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="controller"):
        read_admin_settings(given)


def test_properties_are_read_from_a_mapping_and_from_a_file(tmp_path: Path) -> None:
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="secret";'
    )
    properties = {
        "client.id": "me",
        "request.timeout.ms": "500",
        "default.api.timeout.ms": "900",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
        "a.setting.of.another.client": "x",
    }
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    for given in (properties, path, str(path)):
        settings = read_admin_settings("a:1", given, leader_wait_ms=5)
        assert (settings.request_timeout_ms, settings.default_api_timeout_ms) == (500, 900)
        assert settings.leader_wait_ms == 900
        assert settings.client_id == "me"
        assert settings.security.credentials is not None
        assert settings.security.credentials.user == "alice"


def test_a_client_that_sets_the_request_timeout_waits_for_a_leader_that_long() -> None:
    settings = read_admin_settings("a:1", {"request.timeout.ms": "90000"}, leader_wait_ms=5000)
    assert settings.leader_wait_ms == 90_000
    # A call takes at least one request.
    assert settings.default_api_timeout_ms == 90_000
    assert read_admin_settings("a:1", {}, leader_wait_ms=5000).leader_wait_ms == 5000


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"request.timeout.ms": "soon"}, "request.timeout.ms is 'soon'; expected an integer"),
        ({"request.timeout.ms": "0"}, "request.timeout.ms is '0'; expected at least 1"),
        ({"default.api.timeout.ms": "1000"}, "below request.timeout.ms, 30000"),
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS'"),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI"),
    ],
)
def test_an_invalid_property_is_named(properties: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        read_admin_settings("a:1", properties)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"cannot read .*absent.properties: No such file"):
        read_admin_settings("a:1", tmp_path / "absent.properties")
