"""``kraft fleet`` against controllers with TLS and SASL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.certificates import authority
from tests.harness.commands import eventually, kraft, printed
from tests.harness.configurations import write_properties
from tests.harness.nodes import Controllers
from tests.harness.secured_pages import BLOCKS, settings_of

pytestmark = pytest.mark.nodes

SCENARIO = {
    "name": "secured",
    "steps": [
        {"do": "start"},
        {"do": "create_topics"},
        {"do": "steady", "seconds": 1.0, "markers": 2},
        {"do": "reassign", "partitions": 5},
        {"do": "rolling_restart", "brokers": 1},
    ],
}


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_light_brokers_authenticate_as_a_client_does(tmp_path: Path, protocol: str) -> None:
    trust = tmp_path / "authority.pem"
    trust.write_text(authority().pem)
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)}
    settings = settings_of(*(BLOCKS[:1] if protocol == "SSL" else BLOCKS[:2])) | trusted
    client = tmp_path / "client.properties"
    if protocol == "SSL":
        own = tmp_path / "client.pem"
        own.write_text(authority().issue("controller-1").pem)
        keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)}
        write_properties(client, {"security.protocol": "SSL"} | keys | trusted)
    else:
        found = settings_of(BLOCKS[2])
        module = found["sasl.jaas.config"].replace("admin-secret", "broker-secret")
        found["sasl.jaas.config"] = module.replace("admin", "broker")
        write_properties(client, found | trusted)
    scenario = tmp_path / "secured.json"
    scenario.write_text(json.dumps(SCENARIO))
    nodes = Controllers(tmp_path, 1, settings)
    with nodes:
        (node,) = nodes.all
        key = tmp_path / "key.pem"
        key.write_text(authority().issue("controller-1").pem)
        node.settings = settings | {"ssl.keystore.location": str(key)}
        node.write()
        nodes.lay_out(nodes.all)
        node.launch()
        node.await_port()
        secured = ("--command-config", client)
        quorum = ("--bootstrap-controller", nodes.bootstrap, *secured)
        eventually(lambda: kraft("quorum", "describe", "--status", *quorum).returncode == 0)
        asked = ("--bootstrap-controllers", nodes.bootstrap, *secured, "--scenario", scenario)
        report = json.loads(printed("fleet", *asked, "--brokers", 4, "--partitions", 40, "--json"))
        assert report["check"] == {
            "offset": report["check"]["offset"],
            "brokers": 4,
            "partitions": 41,
            "problems": [],
        }
        assert report["quorum"] == "kraft"
