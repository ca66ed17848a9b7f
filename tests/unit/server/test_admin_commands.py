"""The commands on top of `kraft.admin`, on a running quorum.

`tests/interop/test_admin_commands.py` compares their output with that of Kafka's tools.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from kraft.cli.exit_codes import FOUND, OK, REFUSED, USAGE
from kraft.server.config.settings import AUTHORIZERS
from tests.harness.command_line import Ran, run_command
from tests.harness.controller_nodes import Quorum, RunScenario
from tests.harness.plain_users import jaas_config
from tests.unit.server.served_quorum import ServedQuorum, on_a_quorum

AUTHORIZED = {"authorizer.class.name": AUTHORIZERS[0], "super.users": "User:ANONYMOUS"}


def test_configs(tmp_path: Path, run_scenario: RunScenario) -> None:
    file = tmp_path / "more.properties"
    file.write_text("flush.ms=9\nretention.ms=1\n")

    async def scenario(served: ServedQuorum) -> None:
        ask = served.ask
        await ask("topics", "create", "--topic", "a", "--topic", "b", "--partitions", 1)
        added = ("--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
        ran = await ask("configs", "alter", "--topic", "a", *added, "--add-config-file", file)
        assert (ran.code, ran.lines) == (OK, ["Completed updating config for topic a."])
        ran = await ask("configs", "describe", "--entity-type", "topics", "--entity-name", "a")
        assert ran.lines[0] == "Dynamic configs for topic a are:"
        assert ran.lines[1] == (
            "  cleanup.policy=compact,delete sensitive=false synonyms={"
            "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
            "DEFAULT_CONFIG:log.cleanup.policy=delete}"
        )
        assert [line.split()[0] for line in ran.lines[2:]] == ["flush.ms=9", "retention.ms=5000"]
        every = (await ask("configs", "describe", "--topic", "a", "--all", "--json")).json
        sources = {each["name"]: each["source"] for each in every[0]["configs"]}
        assert sources["retention.ms"] == "DYNAMIC_TOPIC_CONFIG"
        assert sources["segment.bytes"] == "DEFAULT_CONFIG"

        checked = await ask(
            *("configs", "alter", "--topic", "a", "--add-config", "flush.ms=8", "--validate-only")
        )
        assert checked.lines == ["Would complete updating config for topic a."]
        gone = await ask("configs", "alter", "--topic", "a", "--delete-config", "flush.ms")
        assert gone.code == OK
        # As with Kafka's tool, a value that is not set may be deleted.
        twice = await ask("configs", "alter", "--topic", "a", "--delete-config", "flush.ms")
        assert twice.code == OK
        wrong = await ask("configs", "alter", "--topic", "a", "--add-config", "retention.ms=much")
        assert wrong.code == REFUSED
        assert "altering the configs of topic 'a': INVALID_CONFIG" in wrong.err
        absent = await ask("configs", "describe", "--topic", "absent")
        assert absent.code == REFUSED
        assert "UNKNOWN_TOPIC_OR_PARTITION" in absent.err

        await ask("configs", "alter", "--broker-defaults", "--add-config", "log.retention.ms=60000")
        ran = await ask("configs", "describe", "--entity-type", "brokers", "--entity-default")
        assert ran.lines[0] == "Default configs for brokers in the cluster are:"
        assert ran.lines[1].startswith("  log.retention.ms=60000 sensitive=false synonyms={")
        # Broker 1001 is no controller: its own settings come from the metadata.
        password = ("--add-config", "max.connections=5,ssl.key.password=secret")
        await ask("configs", "alter", "--broker", 1001, *password)
        ran = await ask("configs", "describe", "--broker", 1001)
        assert ran.lines == [
            "Dynamic configs for broker 1001 are:",
            "  max.connections=5 sensitive=false "
            "synonyms={DYNAMIC_BROKER_CONFIG:max.connections=5}",
            "  ssl.key.password=null sensitive=true "
            "synonyms={DYNAMIC_BROKER_CONFIG:ssl.key.password=null}",
        ]
        effective = await ask("configs", "describe", "--broker", 1001, "--all")
        assert effective.code == REFUSED
        assert "the properties file of a node" in effective.err
        await ask("configs", "alter", "--broker", 1001, "--delete-config", "max.connections")
        both = await ask("configs", "describe", "--entity-type", "topics")
        assert [line for line in both.lines if line.endswith("are:")] == [
            "Dynamic configs for topic a are:",
            "Dynamic configs for topic b are:",
        ]
        nodes = await ask("configs", "describe", "--entity-type", "brokers")
        assert [line for line in nodes.lines if line.endswith("are:")] == [
            *(f"Dynamic configs for broker {id} are:" for id in (1, 1001, 1002, 1003)),
            "Default configs for brokers in the cluster are:",
        ]
        own = await ask("configs", "describe", "--broker", 1, "--all")
        assert "  node.id=1 sensitive=false" in own.out
        levels = await ask("configs", "describe", "--broker-logger", 1)
        assert levels.code == OK
        unknown = await ask(
            "configs", "alter", "--broker-logger", 1, "--add-config", "no.such=INFO"
        )
        assert unknown.code == REFUSED
        assert "Invalid broker logger(s): no.such" in unknown.err
        foreign = await ask("configs", "describe", "--broker-logger", 1001)
        assert foreign.code == REFUSED
        assert "only a node itself knows its loggers: node 1001 is no registered" in foreign.err
        for words in (
            ("describe",),
            ("describe", "--topic", "a", "--broker", 1),
            ("describe", "--entity-type", "groups", "--entity-default"),
            ("describe", "--broker", "x"),
            ("alter", "--topic", "a"),
            ("alter", "--topic", "a", "--add-config", "k=a,b"),
            ("alter", "--entity-type", "topics", "--add-config", "k=a"),
        ):
            assert (await ask("configs", *words)).code == USAGE, words

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_acls(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario(served: ServedQuorum) -> None:
        ask = served.ask
        ann = ("--allow-principal", "User:ann")
        ran = await ask("acls", "add", *ann, "--operation", "Read", "--topic", "a")
        assert ran.code == OK
        assert ran.lines[:2] == [
            "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=a, "
            "patternType=LITERAL)`: ",
            " \t(principal=User:ann, host=*, operation=READ, permissionType=ALLOW) ",
        ]
        await ask(
            *("acls", "add", *ann, "--consumer", "--producer", "--topic", "t-", "--group", "g"),
            *("--resource-pattern-type", "prefixed"),
        )
        await ask(
            *("acls", "add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1"),
            *("--cluster", "--operation", "AlterConfigs", "--operation", "DESCRIBE_CONFIGS"),
        )
        listed = (await ask("acls", "list", "--json")).json
        assert {(each["resourceName"], each["operation"]) for each in listed} == {
            ("a", "READ"),
            *(("t-", operation) for operation in ("READ", "WRITE", "CREATE", "DESCRIBE")),
            ("g", "READ"),
            *(("kafka-cluster", operation) for operation in ("ALTER_CONFIGS", "DESCRIBE_CONFIGS")),
        }
        ran = await ask("acls", "list", "--topic", "t-1", "--resource-pattern-type", "match")
        assert ran.lines[0] == (
            "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t-, "
            "patternType=PREFIXED)`: "
        )
        ran = await ask("acls", "list", "--principal", "User:bob")
        assert ran.lines[0] == "ACLs for principal `User:bob`"
        assert len(ran.lines) == 5

        ran = await ask("acls", "remove", *ann, "--operation", "Read", "--topic", "a", "--force")
        assert (ran.code, ran.out, ran.err) == (OK, "", "note: removed 1 ACL\n")
        # There is no answer on the standard input.
        asked = await ask("acls", "remove", "--cluster")
        assert "Are you sure you want to delete all ACLs for resource filter" in asked.out
        assert len((await ask("acls", "list", "--cluster", "--json")).json) == 2
        gone = await ask("acls", "remove", "--cluster", "--force", "--json")
        assert len(gone.json["removed"]) == 2
        for words in (
            ("add", *ann),
            ("add", "--topic", "a"),
            ("add", *ann, "--topic", "a", "--resource-pattern-type", "match"),
            ("add", *ann, "--topic", "a", "--operation", "CreateTokens"),
            ("add", *ann, "--topic", "a", "--operation", "Fly"),
            ("add", *ann, "--producer", "--group", "g"),
            ("add", *ann, "--consumer", "--topic", "a"),
            ("add", *ann, "--topic", "a", "--idempotent"),
            ("add", "--allow-principal", "ann", "--topic", "a"),
            ("list", "--principal", "ann"),
        ):
            assert (await ask("acls", *words)).code == USAGE, words

    on_a_quorum(tmp_path, run_scenario, scenario, settings=AUTHORIZED)


def test_elect(tmp_path: Path, run_scenario: RunScenario) -> None:
    file = tmp_path / "partitions.json"

    async def scenario(served: ServedQuorum) -> None:
        ask = served.ask
        await ask("topics", "create", "--topic", "a", "--replica-assignment", "1001:1002,1002:1001")
        preferred = ("elect", "--election-type", "preferred")
        ran = await ask(*preferred, "--topic", "a", "--partition", 0)
        assert (ran.code, ran.lines) == (
            *(OK, ["Valid replica already elected for partitions a-0"]),
        )
        file.write_text(
            '{"partitions": [{"topic": "a", "partition": 1}, {"topic": "x", "partition": 0}]}'
        )
        ran = await ask(*preferred, "--path-to-json-file", file)
        assert ran.code == REFUSED
        assert ran.lines == ["Valid replica already elected for partitions a-1"]
        assert ran.err.startswith(
            "error: completing leader election (PREFERRED) for partition x-0: "
            "UNKNOWN_TOPIC_OR_PARTITION"
        )
        ran = await ask(*preferred, "--path-to-json-file", file, "--json")
        assert ran.json["notNeeded"] == [{"topic": "a", "partition": 1}]
        assert ran.json["failed"][0]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        everything = await ask(*preferred, "--all-topic-partitions")
        assert (everything.code, everything.out) == (OK, "")
        # A new leader is elected once the preferred one is back in sync.
        moved = {
            "version": 1,
            "partitions": [{"topic": "a", "partition": 0, "replicas": [1002, 1001]}],
        }
        file.write_text(json.dumps(moved))
        ran = await ask("reassign", "execute", "--reassignment-json-file", file)
        assert ran.code == OK, ran.err
        ran = await ask(*preferred, "--topic", "a", "--partition", 0)
        assert ran.lines == [
            "Successfully completed leader election (PREFERRED) for partitions a-0"
        ]
        for text, message in (
            ("[]", "must be a JSON object"),
            ("{", "is not JSON"),
            ('{"partitions": []}', "the list of partitions is empty"),
            ('{"partitions": [{"topic": "a"}]}', "partitions[0].partition must be a number"),
        ):
            file.write_text(text)
            ran = await ask(*preferred, "--path-to-json-file", file)
            assert (ran.code, message in ran.err) == (REFUSED, True), ran.err
        for words in ((), ("--topic", "a"), ("--all-topic-partitions", "--topic", "a")):
            assert (await ask(*preferred, *words)).code == USAGE, words

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_reassign(tmp_path: Path, run_scenario: RunScenario) -> None:
    topics, move = tmp_path / "topics.json", tmp_path / "move.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "a"}]}')
    target = {"topic": "a", "partition": 0, "replicas": [1003, 1002], "log_dirs": ["any", "any"]}
    move.write_text(json.dumps({"version": 1, "partitions": [target]}))
    file = ("--reassignment-json-file", move)

    async def scenario(served: ServedQuorum) -> None:
        ask = served.ask
        placed = "1001:1002,1002:1003"
        await ask("topics", "create", "--topic", "a", "--replica-assignment", placed)
        listed = await ask("reassign", "list")
        assert listed.lines == ["No partition reassignments found."]
        plan = ("reassign", "generate", "--topics-to-move-json-file", topics, "--broker-list")
        ran = await ask(*plan, "1001,1003")
        assert ran.lines[0] == "Current partition replica assignment"
        present = json.loads(ran.lines[1])["partitions"]
        assert [each["replicas"] for each in present] == [[1001, 1002], [1002, 1003]]
        proposed = json.loads(ran.lines[4])["partitions"]
        assert ran.lines[3] == "Proposed partition reassignment configuration"
        assert [set(each["replicas"]) for each in proposed] == [{1001, 1003}] * 2
        assert (await ask(*plan, "7")).code == REFUSED
        assert (await ask(*plan, "1001,1001")).code == USAGE

        waiting = await ask("reassign", "verify", *file)
        assert waiting.code == FOUND
        assert waiting.lines[1] == (
            "There is no active reassignment of partition a-0, but replica set is 1001,1002 "
            "rather than 1003,1002."
        )
        ran = await ask("reassign", "execute", *file, "--throttle", 5000)
        assert ran.code == OK, ran.err
        assert ran.lines[0] == "Current partition replica assignment"
        assert ran.lines[-2:] == [
            "The inter-broker throttle limit was set to 5000 B/s",
            "Successfully started partition reassignment for a-0",
        ]
        configs = (await ask("configs", "describe", "--topic", "a", "--json")).json[0]["configs"]
        assert {each["name"]: each["value"] for each in configs} == {
            "follower.replication.throttled.replicas": "0:1003",
            "leader.replication.throttled.replicas": "0:1001,0:1002",
        }
        for broker in (1001, 1002, 1003):
            rates = (await ask("configs", "describe", "--broker", broker, "--json")).json[0]
            assert [each["value"] for each in rates["configs"]] == ["5000", "5000"]
        listed = await ask("reassign", "list")
        assert listed.lines == [
            "Current partition reassignments:",
            "a-0: replicas: 1003,1002,1001. adding: 1003. removing: 1001.",
        ]
        again = await ask("reassign", "execute", *file)
        assert again.code == REFUSED
        assert "give --additional" in again.err
        ran = await ask("reassign", "execute", *file, "--additional", "--throttle", 7000, "--json")
        assert ran.json["started"] == [{"topic": "a", "partition": 0}]
        moving = await ask("reassign", "verify", *file)
        assert (moving.code, moving.lines) == (
            FOUND,
            [
                "Status of partition reassignment:",
                "Reassignment of partition a-0 is still in progress.",
                "",
            ],
        )
        ran = await ask("reassign", "cancel", *file)
        assert ran.code == OK, ran.err
        assert ran.lines == [
            "Successfully cancelled partition reassignment for: a-0",
            "Clearing broker-level throttles on brokers 1001,1002,1003",
            "Clearing topic-level throttles on topic a",
        ]
        assert (await ask("configs", "describe", "--topic", "a", "--json")).json[0]["configs"] == []
        ran = await ask("reassign", "cancel", *file, "--preserve-throttles")
        assert ran.lines == ["None of the specified partition reassignments are active."]
        # Only the order changes: nothing has to be copied, so it is complete at once.
        target["replicas"] = [1002, 1001]
        move.write_text(json.dumps({"partitions": [target]}))
        await ask("reassign", "execute", *file)
        ran = await ask("reassign", "verify", *file, "--json")
        assert (ran.code, ran.json["partitions"][0]["state"]) == (OK, "completed")
        assert ran.json["throttlesCleared"]
        for change, message in (
            ({"replicas": []}, "not empty"),
            ({"replicas": [1, 1]}, "names a broker twice"),
            ({"log_dirs": ["any"]}, "one entry for each replica"),
            ({"log_dirs": ["/a", "any"]}, "a controller cannot move replicas between"),
            ({"partition": -1}, "at least 0"),
            ({"topic": 3}, "must be a name"),
            ({"replicas": [7, 1001]}, "broker 7 is not registered"),
            ({"topic": "x"}, "no partition x-0"),
        ):
            move.write_text(json.dumps({"version": 1, "partitions": [target | change]}))
            ran = await ask("reassign", "execute", *file)
            assert (ran.code, message in ran.err) == (REFUSED, True), ran.err
        move.write_text(json.dumps({"version": 2, "partitions": []}))
        assert "version is 2; expected 1" in (await ask("reassign", "cancel", *file)).err

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_features(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario(served: ServedQuorum) -> None:
        ask = served.ask
        elr = "eligible.leader.replicas.version"
        ran = await ask("features", "describe")
        assert ran.lines[0].startswith(f"Feature: {elr}         ")
        shown = {line.split()[1]: line.split()[3::2] for line in ran.lines}
        assert shown[elr][:3] == ["0", "1", "1"]
        assert shown["metadata.version"][:3] == ["3.3-IV3", "4.4-IV2", "4.3-IV0"]
        off = ("--feature", f"{elr}=0")
        ran = await ask("features", "downgrade", *off, "--dry-run")
        assert ran.lines == [f"{elr} can be downgraded to 0."]
        ran = await ask("features", "downgrade", *off)
        assert ran.lines == [f"{elr} was downgraded to 0."]
        levels = {
            each["feature"]: each["finalizedVersionLevel"]
            for each in (await ask("features", "describe", "--json")).json
        }
        assert levels[elr] == 0
        ran = await ask("features", "upgrade", "--feature", f"{elr}=1")
        assert ran.lines == [f"{elr} was upgraded to 1."]
        ran = await ask("features", "disable", "--feature", elr)
        assert ran.lines == [f"{elr} was disabled."]
        ran = await ask("features", "upgrade", "--feature", "group.version=9")
        assert ran.code == REFUSED
        assert ran.lines[0].startswith("Could not upgrade group.version to 9. ")
        assert ran.err == "error: 1 out of 1 operation(s) failed.\n"
        ran = await ask("features", "upgrade", "--release-version", "4.3", "--dry-run", "--json")
        assert {each["feature"] for each in ran.json["features"]} >= {"metadata.version", elr}
        ran = await ask("features", "upgrade", "--release-version", "9.9")
        assert "unknown metadata.version '9.9'" in ran.err
        for words in (
            ("upgrade",),
            ("upgrade", "--release-version", "4.3", "--feature", "a=1"),
            ("downgrade", "--feature", "a=1", "--feature", "a=2"),
            ("disable",),
        ):
            assert (await ask("features", *words)).code == USAGE, words

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_users(tmp_path: Path, run_scenario: RunScenario) -> None:
    file = tmp_path / "password.properties"
    file.write_text("SCRAM-SHA-512=iterations=8192,password=other\n")

    async def scenario(served: ServedQuorum) -> None:
        ask = served.ask
        assert (await ask("users", "describe")).out == ""
        alter = ("users", "alter", "--user", "ann")
        ran = await ask(*alter, "--add-config", "SCRAM-SHA-256=[password=secret]")
        assert (ran.code, ran.lines) == (OK, ["Completed updating config for user ann."])
        ran = await ask(*alter, "--add-config-file", file)
        assert ran.code == OK
        ran = await ask("users", "describe", "--user", "ann")
        assert ran.lines == [
            "SCRAM credential configs for user-principal 'ann' are "
            "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=8192"
        ]
        ran = await ask(*alter, "--delete-config", "SCRAM-SHA-512")
        assert ran.code == OK
        assert (await ask("users", "describe", "--json")).json == [
            {"user": "ann", "credentials": [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}]}
        ]
        ran = await ask("users", "describe", "--user", "ann", "--user", "bob")
        assert (ran.code, ran.err) == (REFUSED, "error: no SCRAM credential: bob\n")
        ran = await ask(*alter, "--delete-config", "SCRAM-SHA-512")
        assert ran.code == REFUSED
        assert "RESOURCE_NOT_FOUND" in ran.err
        for value in ("SCRAM-SHA-256=[secret]", "SCRAM-SHA-256=[iterations=7,password=secret]",
                      "SCRAM-MD5=[password=secret]", "secret"):  # fmt: skip
            ran = await ask(*alter, "--add-config", value)
            assert ran.code == USAGE, value
        assert "secret" not in (await ask(*alter, "--add-config", "a=secret=secret")).err

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_quotas(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario(served: ServedQuorum) -> None:
        ask = served.ask
        ann = ("--user", "ann")
        ran = await ask(
            *("quotas", "alter", *ann, "--add-config"),
            "producer_byte_rate=10485760,request_percentage=12.5",
        )
        assert (ran.code, ran.lines) == (OK, ["Completed updating config for user ann."])
        rate = ("--add-config", "consumer_byte_rate=1000")
        await ask("quotas", "alter", *ann, "--client-defaults", *rate)
        await ask("quotas", "alter", "--user-defaults", *rate)
        await ask(
            "quotas", "alter", "--ip", "10.0.0.1", "--add-config", "connection_creation_rate=5"
        )
        ran = await ask("quotas", "describe")
        assert ran.lines == [
            "Quota configs for ip '10.0.0.1' are connection_creation_rate=5.0",
            "Quota configs for the default user-principal are consumer_byte_rate=1000.0",
            "Quota configs for user-principal 'ann' are producer_byte_rate=1.048576E7, "
            "request_percentage=12.5",
            "Quota configs for user-principal 'ann', the default client-id are "
            "consumer_byte_rate=1000.0",
        ]
        assert len((await ask("quotas", "describe", "--users")).lines) == 2
        assert len((await ask("quotas", "describe", *ann, "--clients")).lines) == 1
        found = (await ask("quotas", "describe", *ann, "--json")).json
        assert found[0]["entity"] == {"user": "ann"}
        ran = await ask("quotas", "alter", *ann, "--delete-config", "request_percentage")
        assert ran.code == OK
        ran = await ask("quotas", "alter", *ann, "--delete-config", "request_percentage")
        assert ran.code == REFUSED
        assert "Invalid config(s): request_percentage" in ran.err
        ran = await ask("quotas", "alter", *ann, "--add-config", "no_such=1")
        assert ran.code == REFUSED
        assert "altering the quotas of user 'ann': INVALID_REQUEST" in ran.err
        checked = await ask("quotas", "alter", "--user-defaults", *rate, "--validate-only")
        assert checked.lines == ["Would complete updating default config for users in the cluster."]
        for words in (
            ("alter", *rate),
            ("alter", *ann, "--user-defaults", *rate),
            ("alter", *ann, "--ip", "10.0.0.1", *rate),
            ("alter", *ann, "--add-config", "a=b"),
            ("describe", *ann, "--users"),
        ):
            assert (await ask("quotas", *words)).code == USAGE, words

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_brokers_and_controllers(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario(served: ServedQuorum) -> None:
        ask = served.ask
        await ask("configs", "alter", "--broker", 1002, "--add-config", "max.connections=5")
        ran = await ask("brokers", "describe", "--id", 1002)
        fields = dict(line.split(maxsplit=1) for line in ran.lines[1:])
        assert (ran.lines[0], fields["State"], fields["Configs"]) == (
            *("Broker 1002", "unfenced", "max.connections=5"),
        )
        served.brokers.stop()
        assert (await ask("brokers", "describe", "--id", 7)).code == REFUSED
        ran = await ask("brokers", "unregister", "--id", 1002)
        assert (ran.code, ran.lines) == (OK, ["Broker 1002 is no longer registered."])
        ran = await ask("brokers", "unregister", "--id", 77)
        assert ran.code == REFUSED
        assert "unregistering broker 77: BROKER_ID_NOT_REGISTERED" in ran.err
        ran = await ask("quorum", "unregister-controller", "--controller-id", 77)
        assert ran.code == REFUSED
        assert "unregistering controller 77: " in ran.err

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_tokens(tmp_path: Path, run_scenario: RunScenario) -> None:
    quorum = Quorum(
        tmp_path,
        settings={
            "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": jaas_config(["node"], "node"),
            "delegation.token.secret.key": "secret-of-a-throwaway-cluster",
        },
    )
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={jaas_config([], 'node')}\n"
    )

    async def scenario() -> None:
        await quorum.start()
        at = quorum.running[await quorum.active()].transport.endpoints[0]
        there = ("--bootstrap-controller", f"{at.host}:{at.port}", "--command-config", config)

        async def ask(*words: object) -> Ran:
            return await asyncio.to_thread(run_command, "tokens", *words, *there)

        ran = await ask("create", "--renewer-principal", "User:bob")
        assert ran.code == OK, ran.err
        token_id = ran.lines[0].removeprefix("Created delegation token with tokenId : ")
        header, row = ran.lines[2].split(), ran.lines[4].split()
        assert header[:5] == ["TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS"]
        assert (row[0], *row[2:5]) == (token_id, "User:node", "User:node", "[User:bob]")
        ran = await ask("describe", "--owner-principal", "User:node")
        assert ran.lines[0] == "Total number of tokens : 1"
        assert ran.lines[3].split()[:3] == [token_id, "-", "User:node"]
        (found,) = (await ask("describe", "--json")).json
        assert (found["tokenId"], found["hmac"]) == (token_id, None)
        ran = await ask("renew", "--hmac", row[1], "--renew-time-period", 60000)
        assert ran.lines[0].startswith("Completed renew operation. New expiry date : 20")
        ran = await ask("expire", "--hmac", row[1])
        assert ran.lines[0].startswith("Completed expire operation. New expiry date : 20")
        ran = await ask("renew", "--hmac", row[1])
        assert ran.code == REFUSED
        assert "renewing a delegation token: DELEGATION_TOKEN_NOT_FOUND" in ran.err
        assert (await ask("renew", "--hmac", "%")).code == USAGE

    run_scenario(scenario, quorum)
