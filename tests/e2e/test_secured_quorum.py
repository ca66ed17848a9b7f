"""The configurations of the page "Secure the controller listener" on real nodes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.harness.certificates import authority
from tests.harness.commands import eventually, kraft, printed
from tests.harness.configurations import write_properties
from tests.harness.nodes import Controllers
from tests.harness.secured_pages import BLOCKS, settings_of

pytestmark = pytest.mark.nodes


def describe(nodes: Controllers, client: Path) -> str:
    asked = ("--bootstrap-controller", nodes.bootstrap, "--command-config", client)
    said = kraft("quorum", "describe", "--status", *asked)
    return said.stdout if said.returncode == 0 else said.stderr


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_three_controllers_authenticate_each_other_and_a_client(
    tmp_path: Path, protocol: str
) -> None:
    trust = tmp_path / "authority.pem"
    trust.write_text(authority().pem)
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)}
    blocks = BLOCKS[:1] if protocol == "SSL" else BLOCKS[:2]
    settings = settings_of(*blocks) | trusted
    nodes = Controllers(tmp_path, 3, settings)
    with nodes:
        for node in nodes.all:
            key = tmp_path / f"key-{node.id}.pem"
            key.write_text(authority().issue(f"controller-{node.id}").pem)
            node.settings = settings | {"ssl.keystore.location": str(key)}
            node.write()
        nodes.lay_out(nodes.all)
        for node in nodes.all:
            node.launch()
        for node in nodes.all:
            node.await_port()
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
        eventually(lambda: "CurrentVoters" in describe(nodes, client))
        asked = ("--bootstrap-controller", nodes.bootstrap, "--command-config", client)
        printed("backup", *asked, "--to", tmp_path / "backup")
        assert "ClusterId" in printed("restore", tmp_path / "backup")
        # A client without a certificate or password learns nothing.
        stranger = tmp_path / "stranger.properties"
        write_properties(
            stranger, {"security.protocol": "SSL", "request.timeout.ms": 3000} | trusted
        )
        assert "CurrentVoters" not in describe(nodes, stranger)
        for node in nodes.all:
            assert node.stop(signal.SIGTERM) == 0
