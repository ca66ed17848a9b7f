"""Addresses of ZooKeeper, and the errors where something that it needs is missing.

`tests/interop/test_zookeeper_server.py` starts servers.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from kraft.errors import (
    InvalidArgumentError,
    MissingJavaError,
    MissingPackageError,
    ZooKeeperError,
)
from kraft.zookeeper import server
from kraft.zookeeper.server import LocalZooKeeper, ZooKeeperAddress, open_client


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("localhost", "localhost:2181", ""),
        ("a:1,b:2,c/kafka/one/", "a:1,b:2,c:2181", "/kafka/one"),
        ("[::1]:2182/", "[::1]:2182", ""),
    ],
)
def test_an_address_is_read_as_zookeeper_connect(text: str, hosts: str, chroot: str) -> None:
    address = ZooKeeperAddress.parse(text)
    assert (address.hosts, address.chroot) == (hosts, chroot)
    assert ZooKeeperAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "/kafka", "a:0", "a:65536", "a:b", "a,,b", "a b", "a//b/c//d"]
)
def test_another_text_is_no_address(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"no address of ZooKeeper|has an empty name"):
        ZooKeeperAddress.parse(text)


def test_without_java_the_error_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(MissingJavaError, match=r"ZooKeeper needs Java 17 or newer.*apt-get"):
        LocalZooKeeper(tmp_path / "data").start()
    assert not (tmp_path / "data").exists()


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'kraft\[zookeeper\]'"):
        server.zookeeper_jars()


def test_a_wheel_without_the_jars_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "jars" / "zookeeper-3.9.5.jar").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(MissingPackageError, match=r"pyspark/jars has no slf4j-api-\*.jar and no "):
        server.zookeeper_jars()


def test_without_kazoo_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(MissingPackageError, match=r"kazoo: pip install 'kraft\[zookeeper\]'"):
        open_client(ZooKeeperAddress.parse("127.0.0.1"))


def test_where_no_server_listens_the_error_names_the_address() -> None:
    pytest.importorskip("kazoo", reason="needs kazoo: pip install 'kraft[zookeeper]'")
    with socket.socket() as bound:
        # Bound and not listening: every connection is refused.
        bound.bind(("127.0.0.1", 0))
        address = ZooKeeperAddress.parse(f"127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(ZooKeeperError, match=f"no ZooKeeper server answers at {address}"):
            open_client(address, connect_timeout_s=0.3)
