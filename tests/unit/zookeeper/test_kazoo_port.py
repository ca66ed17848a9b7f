"""A session that is closed in one thread while another replaces it. Real servers: interop."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from kraft.zookeeper import kazoo_port
from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.port import ZkSessionExpiredError
from kraft.zookeeper.server import ZooKeeperAddress

PATIENCE_S = 60.0


def test_a_port_is_closed_while_it_opens_a_new_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo refuses to close a client that another thread is closing; a new one must not stay."""
    opened: list[SimpleNamespace] = []
    closed: list[SimpleNamespace] = []
    is_closing, may_close = threading.Event(), threading.Event()

    def open_client(*address: object, **options: object) -> SimpleNamespace:
        number = len(opened) + 1
        opened.append(SimpleNamespace(client_id=(number, b""), add_listener=lambda listen: None))
        return opened[-1]

    def close_client(client: SimpleNamespace) -> None:
        closed.append(client)
        is_closing.set()
        assert may_close.wait(PATIENCE_S)

    monkeypatch.setattr(kazoo_port, "open_client", open_client)
    monkeypatch.setattr(kazoo_port, "close_client", close_client)
    port = KazooPort(ZooKeeperAddress.parse("127.0.0.1:1"))
    renewing = threading.Thread(target=port.renew)
    renewing.start()
    assert is_closing.wait(PATIENCE_S)
    closing = threading.Thread(target=port.close)
    closing.start()
    # Without the lock it closes the same client now.
    closing.join(0.1)
    may_close.set()
    for thread in (renewing, closing):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert [one.client_id[0] for one in closed] == [1, 2]
    assert port.session_id == 2
    with pytest.raises(ZkSessionExpiredError, match="the connection to ZooKeeper was closed"):
        port.renew()
