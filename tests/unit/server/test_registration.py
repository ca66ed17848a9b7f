"""A controller registers itself, and again after each start or lost registration (KIP-919)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kraft import records
from kraft.controller.features import FeatureUpdate, LocalFeatures
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.errors import (
    ControllerIdNotRegisteredError,
    InvalidRequestError,
    InvalidUpdateVersionError,
)
from kraft.image.nodes import ControllerRegistration
from kraft.records import Uuid
from kraft.records.versions import SUPPORTED_FEATURES
from kraft.server.process import QuorumNode
from kraft.server.registration import ControllerRegistrar, RegistrationState
from tests.harness.controller_nodes import PATIENCE_S, Quorum, RunScenario, until
from tests.harness.publishing import PublishedCluster

OURS, OTHER = Uuid(b"\1" * 16), Uuid(b"\2" * 16)
NEVER = float("inf")
LATEST = 33


class Watched:
    """The state of controller 5, which follows the images of a cluster."""

    def __init__(self, level: int = 15) -> None:
        self.published = PublishedCluster()
        self.state = RegistrationState(5, OURS, lambda: 0.5)
        self.state.leader_changed(1)
        self.log(records.FeatureLevel("metadata.version", level))

    def log(self, *log: records.Record) -> None:
        self.published.append(*log)
        self.state.image_published(self.published.publish().image)

    def register(self, incarnation_id: Uuid = OURS, id: int = 5) -> None:
        self.log(records.RegisterController(controller_id=id, incarnation_id=incarnation_id))


def test_a_registration_is_due_until_the_image_has_it() -> None:
    watched = Watched()
    state = watched.state
    assert state.due_ms == 0
    state.sent()
    assert state.due_ms == NEVER
    state.acknowledged()
    assert state.due_ms == NEVER, "the node waits for the image with its registration"
    watched.register()
    assert state.is_registered
    assert state.due_ms == NEVER
    watched.register(OTHER, id=6)
    assert state.due_ms == NEVER
    watched.log(records.UnregisterController(controller_id=5))
    assert (state.is_registered, state.due_ms) == (False, 0)


def test_the_registration_of_an_earlier_start_does_not_count() -> None:
    watched = Watched()
    watched.register(OTHER)
    assert (watched.state.is_registered, watched.state.due_ms) == (False, 0)
    watched.register()
    assert watched.state.is_registered
    # Two processes with one node id register in turn, as in Kafka.
    watched.register(OTHER)
    assert (watched.state.is_registered, watched.state.due_ms) == (False, 0)


def test_nothing_is_due_without_a_leader_or_below_3_7() -> None:
    state = RegistrationState(5, OURS, lambda: 0.5)
    state.leader_changed(1)
    assert state.due_ms == NEVER, "without an image nothing is due"
    watched = Watched(14)
    assert watched.state.due_ms == NEVER
    watched.log(records.FeatureLevel("metadata.version", 15))
    assert watched.state.due_ms == 0
    watched.state.leader_changed(-1)
    assert watched.state.due_ms == NEVER
    watched.state.leader_changed(2)
    assert watched.state.due_ms == 0


def test_failures_are_followed_by_growing_waits() -> None:
    state, waits = Watched().state, []
    for _ in range(1100):
        state.sent()
        state.failed(1000)
        waits.append(state.due_ms - 1000)
    assert waits[:4] == [100, 200, 400, 800]
    assert waits[9:12] == [51_200, 102_400, 120_000]
    assert waits[-1] == 120_000
    state.sent()
    state.acknowledged()
    state.failed(1000)
    assert state.due_ms == 1100, "a success resets the wait"
    state = Watched().state
    state._random = lambda: 0.0
    state.sent()
    state.failed(0)
    assert state.due_ms == pytest.approx(98)


def test_an_event_during_a_request_ends_the_wait_after_it() -> None:
    state = Watched().state
    state.sent()
    state.leader_changed(2)
    state.failed(1000)
    assert state.due_ms == 0
    watched = Watched()
    watched.state.sent()
    watched.register()
    watched.log(records.UnregisterController(controller_id=5))
    watched.state.acknowledged()
    assert watched.state.due_ms == 0, "the response must not hide a later removal"


def set_quorum(config: Path, line: str) -> None:
    """Replace controller.quorum.voters in a configuration by another line."""
    lines = config.read_text().splitlines()
    others = [one for one in lines if not one.startswith("controller.quorum.voters")]
    assert len(others) == len(lines) - 1
    config.write_text("\n".join((*others, line)))


def registrations(quorum: Quorum, id: int) -> dict[int, ControllerRegistration]:
    return dict(quorum.cluster(id).state.controllers)


async def all_registered(quorum: Quorum) -> dict[int, ControllerRegistration]:
    """Wait until the running nodes are registered at each of them."""

    def seen() -> dict[int, ControllerRegistration] | None:
        of_all = [registrations(quorum, id) for id in quorum.running]
        is_complete = quorum.running.keys() <= of_all[0].keys()
        return of_all[0] if is_complete and all(one == of_all[0] for one in of_all) else None

    found: dict[int, ControllerRegistration] = await until(seen)
    return found


def test_leader_and_followers_register_with_their_listeners_and_features(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3)

    async def scenario() -> None:
        await quorum.start()
        registered = await all_registered(quorum)
        for id, node in quorum.running.items():
            (endpoint,) = registered[id].endpoints.values()
            (bound,) = node.transport.endpoints
            assert endpoint == (bound.name, "127.0.0.1", bound.port, 0)
            assert dict(registered[id].features) == SUPPORTED_FEATURES
        stopped = await quorum.active()
        before = registered[stopped].incarnation_id
        await quorum.stop(stopped)
        other = await quorum.active()
        await quorum.start(stopped)
        await until(lambda: registrations(quorum, other)[stopped].incarnation_id != before)
        after = await all_registered(quorum)
        assert len({each.incarnation_id for each in (*registered.values(), *after.values())}) == 4

    run_scenario(scenario, quorum)


def test_a_controller_that_is_no_voter_registers_and_can_be_unregistered(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 2, is_static=True)
    voter = quorum.layout[1].endpoint
    set_quorum(quorum.layout[1].config_path, f"controller.quorum.voters=1@{voter}")
    set_quorum(quorum.layout[2].config_path, f"controller.quorum.bootstrap.servers={voter}")

    async def scenario() -> None:
        await quorum.start(1)
        await quorum.active()
        await quorum.start(2)
        await all_registered(quorum)
        local = LocalFeatures(1, (1,))

        def update(name: str, level: int, kind: int = 1) -> Operation:
            return requests.update_features([FeatureUpdate(name, level, kind)], local)

        if quorum.cluster(1).state.metadata_version < LATEST:
            await quorum.ask(update("metadata.version", LATEST))
        with pytest.raises(InvalidRequestError, match="active"):
            await quorum.ask(requests.unregister_controller(1, local))
        with pytest.raises(ControllerIdNotRegisteredError):
            await quorum.ask(requests.unregister_controller(3, local))
        first = registrations(quorum, 1)[2].incarnation_id
        await quorum.ask(requests.unregister_controller(2, local))
        # Controller 2 still runs: it registers again, with the same incarnation id.
        await until(lambda: 2 in registrations(quorum, 1))
        assert registrations(quorum, 1)[2].incarnation_id == first
        await quorum.stop(2)
        await quorum.ask(requests.unregister_controller(2, local))
        assert 2 not in registrations(quorum, 1)

    run_scenario(scenario, quorum)


def test_a_voter_without_a_registration_blocks_upgrades(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3)

    async def scenario() -> None:
        await quorum.start(1, 2)
        await all_registered(quorum)
        active = await quorum.active()
        level = quorum.cluster(active).state.metadata_version
        update = requests.update_features(
            [FeatureUpdate("metadata.version", level)], LocalFeatures(active)
        )
        with pytest.raises(InvalidUpdateVersionError, match="controller 3 has not registered"):
            await quorum.ask(update)
        await quorum.start(3)
        await all_registered(quorum)
        active = await quorum.active()
        await quorum.ask(
            requests.update_features(
                [FeatureUpdate("metadata.version", level)], LocalFeatures(active)
            )
        )

    run_scenario(scenario, quorum)


def test_readyz_says_why_a_controller_is_not_registered(
    run_scenario: RunScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum(tmp_path, settings={"kraft.http.listener": ":0"})

    async def fails(registrar: ControllerRegistrar) -> None:
        raise ConnectionError("the leader is away")

    async def ready(node: QuorumNode) -> tuple[bytes, dict[str, Any]]:
        assert node._http is not None
        assert node._http._server is not None
        port = node._http._server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return head.split()[1], json.loads(body)

    async def scenario() -> None:
        with monkeypatch.context() as broken:
            broken.setattr(ControllerRegistrar, "_register", fails)
            await quorum.start()
            node = quorum.running[await quorum.active()]
            wanted = "controller 1 is not registered: the leader is away"
            async with asyncio.timeout(PATIENCE_S):
                while (await ready(node))[1]["reasons"] != [wanted]:
                    await asyncio.sleep(0.01)
            assert (await ready(node))[0] == b"503"
        async with asyncio.timeout(PATIENCE_S):
            while (await ready(node))[0] != b"200":
                await asyncio.sleep(0.01)

    run_scenario(scenario, quorum)
