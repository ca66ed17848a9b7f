"""Reading a tree: which znodes, in which order, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.errors import ZooKeeperError
from kraft.zookeeper import reading
from kraft.zookeeper.reading import read_znodes
from kraft.zookeeper.tree import StoredZnode, ZnodeTree
from tests.harness.znode_trees import broker, document, settings, state, topic, tree

exceptions = pytest.importorskip("kazoo.exceptions")

ZNODES: dict[str, bytes | StoredZnode] = {
    "/brokers/ids/1": broker(1, czxid=70),
    "/brokers/topics/a": topic((1, 2), (2, 1)),
    "/brokers/topics/a/partitions/0/state": state(1, (1,), version=8),
    "/config/topics/a": settings(retention__ms="1"),
    "/config/brokers/<default>": settings(a="1"),
    "/config/users/u": b"",
    "/config/users/u/clients/c": settings(a="1"),
    "/config/clients/c": settings(a="1"),
    "/config/ips/1.2.3.4": settings(a="1"),
    "/admin/delete_topics/b": b"",
    "/kafka-acl/Topic/a": document(version=1, acls=[]),
    "/kafka-acl-extended/prefixed/Group/g": document(version=1, acls=[]),
    "/delegation_token/tokens/t": document(version=3),
    "/controller": document(brokerid=1),
    "/controller_epoch": b"3",
    "/migration": document(version=0),
}


@dataclass
class FakeClient:
    """The part of a kazoo client that reads, over a tree in memory.

    It answers when it is asked for the result, and counts the requests that wait for that.
    """

    tree: ZnodeTree
    #: Transactions that changed a znode or, with a slash after its path, the list of its children;
    #: others are of transaction 1.
    changes: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, Exception] = field(default_factory=dict)
    last_zxid: int = 5
    waiting: int = 0
    most_waiting: int = 0

    def sync(self, path: str) -> None:
        assert path == "/"

    def get_async(self, path: str) -> Any:
        return self._later(path, lambda znode: (znode.data, self._stat(path, znode)))

    def get_children_async(self, path: str, *, include_data: bool) -> Any:
        assert include_data
        return self._later(path, lambda znode: (self.tree.children(path), self._stat(path, znode)))

    def _stat(self, path: str, znode: StoredZnode) -> Any:
        return SimpleNamespace(
            version=znode.version,
            czxid=znode.czxid,
            mzxid=self.changes.get(path, 1),
            pzxid=self.changes.get(f"{path}/", 1),
        )

    def _later(self, path: str, result: Callable[[StoredZnode], Any]) -> Any:
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)

        def get() -> Any:
            self.waiting -= 1
            if path in self.failures:
                raise self.failures[path]
            znode = self.tree.get(path)
            if znode is None:
                raise exceptions.NoNodeError
            return result(znode)

        return SimpleNamespace(get=get)


def read(client: FakeClient, **options: Any) -> ZnodeTree:
    found: ZnodeTree = read_znodes(client, **options)  # type: ignore[arg-type]
    return found


def test_every_znode_of_a_migration_is_read() -> None:
    cluster = tree(ZNODES)
    found = read(FakeClient(cluster))
    for path in ("/cluster/id", "/latest_producer_id_block", *ZNODES):
        assert found.get(path) == cluster.get(path), path
    assert found.changed == ()


def test_many_requests_wait_but_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_WINDOW", 8)
    topics: dict[str, bytes | StoredZnode] = {
        f"/brokers/topics/t{number}": topic((1,), (1,), (1,)) for number in range(20)
    }
    seen: list[tuple[int, int]] = []
    client = FakeClient(tree(topics))
    found = read(client, on_progress=lambda done, known: seen.append((done, known)))
    assert client.most_waiting == 8
    assert client.waiting == 0
    assert len(found.children("/brokers/topics")) == 20
    assert seen == sorted(seen)
    assert all(done <= known for done, known in seen)
    assert seen[-1][0] == seen[-1][1] > 20 * 5


def test_a_corrupt_topic_is_left_to_the_migration() -> None:
    found = read(FakeClient(tree({"/brokers/topics/a": b"{"})))
    assert found.data("/brokers/topics/a") == b"{"


def test_znodes_that_change_meanwhile_are_named() -> None:
    changes = {"/brokers/topics/": 6, "/brokers/topics/a": 7, "/config/topics/a": 5}
    found = read(FakeClient(tree(ZNODES), changes))
    assert set(found.changed) == {"/brokers/topics", "/brokers/topics/a"}


def test_errors_name_the_path() -> None:
    hidden = {"/config/users/u": exceptions.NoAuthError()}
    with pytest.raises(ZooKeeperError, match=r"allow to read /config/users/u: .*acl=true"):
        read(FakeClient(tree(ZNODES), failures=hidden))
    lost = {"/config/ips/1.2.3.4": exceptions.ConnectionLoss("gone")}
    with pytest.raises(
        ZooKeeperError, match=r"not answer for /config/ips/1.2.3.4: ConnectionLoss gone"
    ):
        read(FakeClient(tree(ZNODES), failures=lost))
