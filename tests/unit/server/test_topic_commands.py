"""``kraft topics`` on a running quorum: create, list, describe, extend and delete."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from kraft.cli.exit_codes import OK, REFUSED
from kraft.controller.runtime.security_requests import create_acls
from kraft.image.security import (
    AccessControl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kraft.server.config.settings import AUTHORIZERS
from tests.harness.command_line import Ran, run_command
from tests.harness.controller_nodes import Quorum, RunScenario, until
from tests.harness.plain_users import jaas_config
from tests.unit.server import served_quorum
from tests.unit.server.served_quorum import ServedQuorum

SECURED = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": jaas_config(["node", "creator"], "node"),
    "authorizer.class.name": AUTHORIZERS[0],
    "super.users": "User:node",
}
Ask = Callable[..., Awaitable["Ran"]]


def on_a_quorum(
    tmp_path: Path,
    run_scenario: RunScenario,
    scenario: Callable[[Ask, Quorum], Awaitable[None]],
) -> None:
    """Run a scenario; ``ask`` runs a command line of ``kraft topics``."""

    async def asking(served: ServedQuorum) -> None:
        await scenario(partial(served.ask, "topics"), served.quorum)

    served_quorum.on_a_quorum(tmp_path, run_scenario, asking)


def test_topics_are_created_described_extended_and_deleted(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(ask: Ask, quorum: Quorum) -> None:
        made = await ask(
            "create", "--topic", "a", "--partitions", 4, "--replication-factor", 3,
            "--config", "retention.ms=5000",
        )  # fmt: skip
        assert made.code == OK
        assert made.lines[0] == "a created: 4 partitions, replication factor 3"
        assert made.lines[1].startswith("1 topic: 1 created in ")

        checked = await ask("create", "--topic", "b", "--partitions", 2, "--validate-only")
        assert checked.lines[0] == "b would be created: 2 partitions, replication factor 1"
        assert (await ask("list")).lines == ["a"]

        again = await ask("create", "--topic", "a", "--topic", "b", "--partitions", 1, "--json")
        assert again.code == REFUSED
        first, second = again.json["topics"]
        assert (first["topic"], first["outcome"], first["error"]) == (
            "a", "failed", "TOPIC_ALREADY_EXISTS",
        )  # fmt: skip
        assert (second["outcome"], second["partitions"]) == ("created", 1)
        accepted = await ask("create", "--topic", "a", "--if-not-exists")
        assert accepted.code == OK
        assert accepted.lines == ["a exists", accepted.lines[1]]

        placed = "1001:1003,1002:1001"
        await ask("create", "--topic", "c", "--replica-assignment", placed)
        (described,) = (await ask("describe", "--topic", "c", "--json")).json
        assert [each["replicas"] for each in described["partitions"]] == [
            [1001, 1003],
            [1002, 1001],
        ]
        (described,) = (await ask("describe", "--topic", "a", "--json")).json
        assert described["configs"]["retention.ms"] == "5000"
        assert (described["partitionCount"], described["replicationFactor"]) == (4, 3)

        grown = await ask("alter", "--topic", "a", "--topic", "x", "--partitions", 6)
        assert grown.code == REFUSED
        assert grown.lines[0] == "a extended: 6 partitions"
        assert grown.err.startswith("error: x: UNKNOWN_TOPIC_OR_PARTITION")
        skipped = await ask("alter", "--topic", "x", "--partitions", 6, "--if-exists")
        assert (skipped.code, skipped.lines[0]) == (OK, "x does not exist")

        gone = await ask("delete", "--topic", "a", "--topic", "x", "--if-exists")
        assert gone.code == OK
        assert gone.lines[:2] == ["a deleted", "x does not exist"]
        assert (await ask("list")).lines == ["b", "c"]
        missing = await ask("describe", "--topic", "a")
        assert (missing.code, missing.err) == (
            REFUSED, "error: Topic 'a' does not exist as expected\n",
        )  # fmt: skip

        refused = await ask("create", "--topic", "wide", "--replication-factor", 4)
        assert refused.code == REFUSED
        assert refused.err.startswith("error: wide: INVALID_REPLICATION_FACTOR (")

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_many_topics_go_in_several_requests(run_scenario: RunScenario, tmp_path: Path) -> None:
    async def scenario(ask: Ask, quorum: Quorum) -> None:
        bulk = ("--count", 230, "--name-pattern", "t-{:03}")
        made = await ask("create", *bulk, "--partitions", 2)
        assert made.code == OK
        (line,) = made.lines
        assert line.startswith("230 topics: 230 created in ")
        assert len((await ask("list")).lines) == 230
        assert len((await ask("delete", *bulk, "--json")).json["topics"]) == 230
        assert (await ask("list", "--json")).json == []
        failed = await ask("delete", *bulk)
        assert failed.code == REFUSED
        assert len(failed.err.splitlines()) == 21
        assert failed.err.endswith("error: and 210 more topics\n")

    on_a_quorum(tmp_path, run_scenario, scenario)


class LossyProxy:
    """A proxy that drops one response for each API key in `losing`, and its connection."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        #: The API keys of the requests whose responses are lost, once each.
        self.losing: list[int] = []
        self.requests: list[int] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server:
            requests, responses = client.makefile("rb"), server.makefile("rb")
            while size := requests.read(4):
                frame = requests.read(int.from_bytes(size, "big"))
                key = int.from_bytes(frame[:2], "big")
                self.requests.append(key)
                server.sendall(size + frame)
                size = responses.read(4)
                response = responses.read(int.from_bytes(size, "big"))
                if key in self.losing:
                    self.losing.remove(key)
                    # Without shutdown, the makefile objects would keep the connection open.
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(size + response)

    def close(self) -> None:
        self._listener.close()


def test_a_lost_response_is_not_an_error_of_the_second_attempt(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(ask: Ask, quorum: Quorum) -> None:
        endpoint = quorum.running[1].transport.endpoints[0]
        proxy = LossyProxy((endpoint.host, endpoint.port))
        try:
            for key, words in (
                (19, ("create", "--topic", "a", "--partitions", 2)),
                (37, ("alter", "--topic", "a", "--partitions", 3)),
                (20, ("delete", "--topic", "a")),
            ):
                proxy.losing = [key]
                proxy.requests.clear()
                ran = await ask(*words, at=proxy.address)
                assert ran.code == OK, ran.err
                assert ran.lines[0].startswith("a done already: ")
                assert proxy.requests.count(key) == 2
            # Without a lost response, deleting the missing topic is an error.
            ran = await ask("delete", "--topic", "a", at=proxy.address)
            assert ran.code == REFUSED
        finally:
            proxy.close()

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_a_user_who_may_only_create_finds_the_leader(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """This user may ask nobody who leads: not DescribeQuorum, DescribeCluster or Fetch."""
    quorum = Quorum(tmp_path, 3, settings=SECURED)
    config = tmp_path / "creator.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nrequest.timeout.ms=8000\n"
        f"sasl.jaas.config={jaas_config([], 'creator')}\n"
    )
    allowed = AccessControl(
        *(ResourceType.TOPIC, "own-", PatternType.PREFIXED, "User:creator", "*"),
        *(AclOperation.CREATE, PermissionType.ALLOW),
    )

    async def scenario() -> None:
        await quorum.start()
        leader = await quorum.active()
        await quorum.brokers(1)
        assert await quorum.ask(create_acls([allowed])) == [None]
        for node in quorum.running.values():
            authorizer = node.authorizer
            assert authorizer is not None
            await until(lambda authorizer=authorizer: authorizer.acl_count)
        addresses = {id: f"127.0.0.1:{node.port}" for id, node in quorum.layout.items()}
        followers = [address for id, address in addresses.items() if id != leader]

        async def create(name: str, *servers: str) -> Ran:
            return await asyncio.to_thread(
                *(run_command, "topics", "create", "--topic", name, "--partitions", 1),
                *("--bootstrap-controller", ",".join(servers), "--command-config", str(config)),
            )

        made = await create("own-a", *followers, addresses[leader])
        assert made.code == OK, made.err
        again = await create("own-a", *followers, addresses[leader])
        assert again.code == REFUSED
        assert "TOPIC_ALREADY_EXISTS" in again.out + again.err
        other = await create("other", addresses[leader])
        assert other.code == REFUSED
        assert "TOPIC_AUTHORIZATION_FAILED" in other.out + other.err
        impatient = config.read_text().replace("8000", "1000")
        config.write_text(impatient)
        lost = await create("own-b", followers[0])
        assert lost.code != OK
        assert "give it the addresses of all controllers" in lost.err

    run_scenario(scenario, quorum)
