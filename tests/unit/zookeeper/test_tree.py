"""A tree of znodes: paths, parents and children."""

from __future__ import annotations

from kraft.zookeeper.tree import StoredZnode, ZnodeTree
from tests.harness.znode_trees import tree


def test_a_parent_exists_with_its_children() -> None:
    found = ZnodeTree({"/a/c/d": StoredZnode(b"1", 2, 3), "/a/b": StoredZnode(b"2")})
    assert found.children("/") == ["a"]
    assert found.children("/a") == ["b", "c"]
    assert "/a/c" in found
    assert found.get("/a/c") == StoredZnode(b"")
    assert found.get("/a/c/d") == StoredZnode(b"1", 2, 3)
    assert len(found) == 2


def test_a_missing_znode_is_empty() -> None:
    found = tree()
    assert "/none" not in found
    assert found.get("/none") is None
    assert found.data("/none") == b""
    assert found.children("/none") == []
