"""The commands of a running quorum that also read a directory: configs, acls, users, …"""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.cli.config_values import read_added
from kraft.cli.exit_codes import OK, REFUSED, USAGE
from kraft.configdef import double_text
from tests.unit.cli.conftest import CONTROLLER, MOMENTS, Run


def test_configs_of_a_directory(kraft: Run) -> None:
    ran = kraft("configs", "describe", "--topic", "clicks", "--from", CONTROLLER)
    assert ran.lines == [
        "Dynamic configs for topic clicks are:",
        "  compression.type=zstd sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:compression.type=zstd}",
    ]
    topics = kraft("configs", "describe", "--entity-type", "topics", "--from", CONTROLLER, "--json")
    assert [each["entityName"] for each in topics.json] == kraft(
        "topics", "list", "--from", CONTROLLER
    ).lines
    groups = kraft("configs", "describe", "--entity-type", "groups", "--from", CONTROLLER)
    assert groups.lines[0] == "Dynamic configs for group readers are:"
    metrics = kraft("configs", "describe", "--client-metrics", "telemetry", "--from", CONTROLLER)
    assert "  interval.ms=10000 sensitive=false" in metrics.out
    for words, message in (
        (("--topic", "clicks", "--all"), "the directory has only the dynamic settings"),
        (("--topic", "absent"), "there is no topic 'absent'"),
        (("--broker-logger", "1"), "a directory does not have them"),
    ):
        ran = kraft("configs", "describe", *words, "--from", CONTROLLER)
        assert (ran.code, message in ran.err) == (REFUSED, True)


def test_acls_of_a_directory(kraft: Run) -> None:
    ran = kraft("acls", "list", "--principal", "User:alice", "--from", CONTROLLER)
    assert ran.lines == [
        "ACLs for principal `User:alice`",
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, "
        "patternType=LITERAL)`: ",
        " \t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW) ",
        "",
    ]
    matching = kraft(
        *("acls", "list", "--topic", "payments", "--resource-pattern-type", "match", "--json"),
        *("--from", CONTROLLER),
    ).json
    assert {(each["resourceName"], each["principal"]) for each in matching} == {
        ("*", "User:mallory"),
        ("pay", "User:bob"),
    }


def test_users_quotas_features_and_brokers_of_a_directory(kraft: Run) -> None:
    ran = kraft("users", "describe", "--user", "bob", "--from", CONTROLLER)
    assert ran.lines == [
        "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=8192"
    ]
    ran = kraft("users", "describe", "--user", "nobody", "--from", CONTROLLER)
    assert (ran.code, ran.err) == (REFUSED, "error: no SCRAM credential: nobody\n")
    ran = kraft("quotas", "describe", "--ips", "--from", CONTROLLER)
    assert ran.lines == ["Quota configs for ip '10.0.0.7' are connection_creation_rate=10.0"]
    ran = kraft("features", "describe", "--from", CONTROLLER)
    assert ran.lines[2].split() == [
        *("Feature:", "metadata.version", "SupportedMinVersion:", "-", "SupportedMaxVersion:", "-"),
        *("FinalizedVersionLevel:", "4.3-IV0", "Epoch:", "2621"),
    ]
    ran = kraft("brokers", "describe", "--id", 3, "--from", CONTROLLER)
    assert any(line.split() == ["State", "fenced"] for line in ran.lines)
    ran = kraft("brokers", "describe", "--id", 9, "--from", CONTROLLER)
    assert ran.err == "error: broker 9 is not registered; registered are 1, 2, 3\n"


def test_reassignments_of_a_directory(kraft: Run, tmp_path: Path) -> None:
    ran = kraft("reassign", "list", "--from", CONTROLLER)
    assert ran.lines[:2] == [
        "Current partition reassignments:",
        "moves-0: replicas: 2,1. adding: 2. removing: 1.",
    ]
    before = min(MOMENTS.values())
    ran = kraft("reassign", "list", "--from", CONTROLLER, "--at", before, "--json")
    assert (ran.code, ran.json) == (OK, [])
    topics = tmp_path / "topics.json"
    topics.write_text('{"topics": [{"topic": "clicks"}, {"topic": "payments"}]}')
    plan = ("reassign", "generate", "--topics-to-move-json-file", topics, "--broker-list")
    proposed = kraft(*plan, "3,1,2", "--json", "--from", CONTROLLER).json["proposed"]["partitions"]
    assert {broker for each in proposed for broker in each["replicas"]} == {1, 2, 3}
    assert {each["topic"] for each in proposed} == {"clicks", "payments"}


@pytest.mark.parametrize(
    "words",
    [
        ("configs", "describe", "--topic", "a"),
        ("acls", "list", "--at", 3, "--bootstrap-controller", "a:1"),
        ("users", "describe", "--from", CONTROLLER, "--command-config", "x"),
        ("features", "describe", "--from", CONTROLLER, "--bootstrap-controller", "a:1"),
        ("reassign", "list", "--bootstrap-controller", "a"),
    ],
)
def test_a_wrong_source_is_a_usage_error(kraft: Run, words: tuple[object, ...]) -> None:
    assert kraft(*words).code == USAGE


def test_values_are_grouped_by_brackets(tmp_path: Path) -> None:
    assert read_added("a=1, b = [x,y=z] ,c=", None) == {"a": "1", "b": "x,y=z", "c": ""}
    path = tmp_path / "more.properties"
    path.write_text("a=2\nd=e,f\n")
    assert read_added("a=1", path) == {"a": "1", "d": "e,f"}
    assert read_added(None, None) == {}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (1000.0, "1000.0"),
        (12.5, "12.5"),
        (0.001, "0.001"),
        (9.999e-4, "9.999E-4"),
        (1e7, "1.0E7"),
        (10485760.0, "1.048576E7"),
        (123456789.125, "1.23456789125E8"),
        (float("inf"), "Infinity"),
    ],
)
def test_numbers_are_written_as_by_java(number: float, text: str) -> None:
    assert double_text(number) == text
