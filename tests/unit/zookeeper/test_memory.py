"""The stand-in for ZooKeeper; `tests/interop/test_zookeeper_histories.py` compares it with one."""

from __future__ import annotations

import pytest

from kraft.zookeeper.memory import MemorySession, MemoryZooKeeper
from kraft.zookeeper.port import (
    CheckZnode,
    CreateZnode,
    DeleteZnode,
    FindZnode,
    GetZnode,
    ListZnodes,
    SetZnode,
    ZkChange,
    ZkCode,
    ZkEvent,
    ZkResult,
    ZkSessionExpiredError,
)


def connected(server: MemoryZooKeeper) -> tuple[MemorySession, list[ZkEvent]]:
    session, events = server.connect(), list[ZkEvent]()
    session.on_event = events.append
    return session, events


def test_a_write_with_another_version_is_refused() -> None:
    session, _ = connected(MemoryZooKeeper())
    codes = [
        result.code
        for result in session.run(
            [
                CreateZnode("/a", b"0"),
                CreateZnode("/a"),
                CreateZnode("/b/c"),
                SetZnode("/a", b"1", version=0),
                SetZnode("/a", b"2", version=0),
                DeleteZnode("/a", version=0),
                SetZnode("/none", b""),
            ]
        )
    ]
    assert codes == [
        ZkCode.OK,
        ZkCode.NODE_EXISTS,
        ZkCode.NO_NODE,
        ZkCode.OK,
        ZkCode.BAD_VERSION,
        ZkCode.BAD_VERSION,
        ZkCode.NO_NODE,
    ]
    (read,) = session.run([GetZnode("/a")])
    assert (read.data, read.version, read.owner) == (b"1", 1, 0)


def test_sequential_znodes_are_numbered_by_all_that_were_ever_created() -> None:
    session, _ = connected(MemoryZooKeeper())
    session.run([CreateZnode("/q"), CreateZnode("/q/x"), DeleteZnode("/q/x")])
    (created,) = session.run([CreateZnode("/q/n_", is_sequential=True)])
    assert created.path == "/q/n_0000000001"


def test_a_watch_reports_once() -> None:
    server = MemoryZooKeeper()
    (session, events), (other, _) = connected(server), connected(server)
    session.run([FindZnode("/a", watch=True), GetZnode("/a", watch=True)])
    session.run([ListZnodes("/", watch=True)])
    other.run([CreateZnode("/a"), CreateZnode("/b"), SetZnode("/a", b"1")])
    assert events == [ZkEvent(ZkChange.CREATED, "/a"), ZkEvent(ZkChange.CHILDREN, "/")]
    # A read of a znode that is missing leaves no watch.
    session.run([GetZnode("/c", watch=True)])
    other.run([CreateZnode("/c")])
    assert len(events) == 2


def test_an_expired_session_loses_its_ephemerals_and_may_do_nothing() -> None:
    server = MemoryZooKeeper()
    (session, _), (other, events) = connected(server), connected(server)
    expired: list[bool] = []
    session.on_expired = lambda: expired.append(True)
    session.run([CreateZnode("/a", is_ephemeral=True)])
    (found,) = other.run([FindZnode("/a", watch=True)])
    assert found.owner == session.session_id
    assert other.run([CreateZnode("/a/b")])[0].code == ZkCode.NO_CHILDREN_FOR_EPHEMERALS
    server.expire(session.session_id)
    assert expired == [True]
    assert events == [ZkEvent(ZkChange.DELETED, "/a")]
    with pytest.raises(ZkSessionExpiredError, match="session 1 has expired"):
        session.run([GetZnode("/a")])
    session.renew()
    assert session.run([GetZnode("/a")])[0].code == ZkCode.NO_NODE


def test_a_multi_is_carried_out_whole_or_not_at_all() -> None:
    server = MemoryZooKeeper()
    session, events = connected(server)
    session.run([CreateZnode("/a"), CreateZnode("/old"), ListZnodes("/", watch=True)])
    failed = session.multi(
        [
            SetZnode("/a", b"1"),
            CreateZnode("/b"),
            DeleteZnode("/old"),
            CheckZnode("/a", version=7),
            CreateZnode("/c"),
        ]
    )
    rolled_back = ZkResult(ZkCode.ROLLED_BACK)
    assert failed == [rolled_back] * 3 + [ZkResult(ZkCode.BAD_VERSION), rolled_back]
    assert server.paths() == ["/a", "/old"]
    assert session.run([GetZnode("/a")])[0].version == 0
    assert events == []
    done = session.multi([CheckZnode("/a", version=0), CreateZnode("/b"), CreateZnode("/b/c")])
    assert [one.code for one in done] == [ZkCode.OK] * 3
    assert events == [ZkEvent(ZkChange.CHILDREN, "/")]
