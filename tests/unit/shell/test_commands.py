"""The shell's paths, commands and nodes on metadata that Kafka 4.3 wrote.

``tests/interop/test_shell.py`` compares the output with kafka-metadata-shell.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kraft
from kraft.records import ClientQuota, Config, EntityData, Topic, Uuid
from kraft.shell.commands import COMMANDS, MetadataShell, ShellUsageError
from kraft.shell.nodes import ShellDirectory, ShellFile, ShellNode, root_of
from kraft.shell.paths import glob_pattern, parts_of

DIRECTORY = Path(__file__).parents[2] / "data" / "kafka-4.3" / "controller-101"


class Typed:
    """A shell whose lines are kept."""

    def __init__(self, metadata: kraft.Metadata, *, show_secrets: bool = False) -> None:
        self.lines: list[str] = []
        self.failures: list[str] = []
        root = root_of(metadata, show_secrets=show_secrets)
        self.shell = MetadataShell(root, self.lines.append, self.failures.append)

    def says(self, line: str) -> list[str]:
        del self.lines[:], self.failures[:]
        assert self.shell.run_line(line)
        return self.lines + self.failures


@pytest.fixture(scope="module")
def metadata() -> kraft.Metadata:
    return kraft.open_metadata(DIRECTORY)


@pytest.fixture
def typed(metadata: kraft.Metadata) -> Typed:
    return Typed(metadata)


def test_directories_are_listed_and_entered(typed: Typed) -> None:
    assert typed.says("ls") == ["image", "local"]
    assert typed.says("cd image/cluster") == []
    assert typed.says("pwd") == ["/image/cluster"]
    assert typed.says("ls") == ["brokers", "controllers"]
    assert typed.says("ls brokers ../producerIds") == [
        *("brokers:", "1", "2", "3", ""),
        *("producerIds:", "nextProducerId"),
    ]
    assert typed.says("cd ../../..") == []
    assert typed.says("pwd") == ["/"]
    assert typed.says("cd local") == typed.says("cd") == []
    assert typed.says("pwd") == ["/"]


def test_files_are_read(typed: Typed) -> None:
    assert typed.says("cat /image/features/metadataVersion /image/producerIds/*") == [
        "Optional[4.3-IV0]",
        "3000",
    ]
    assert typed.says("tree /image/topics/byName/payments/id /image/features/finalized_g*") == [
        "oqW8fmcJQkiX7-gWxoSzHw",
        "1",
    ]
    assert typed.says("find image/producerIds") == [
        "image/producerIds",
        "image/producerIds/nextProducerId",
    ]
    (partition,) = typed.says("cat /image/topics/byId/oqW8fmcJQkiX7-gWxoSzHw/0")
    assert partition.startswith("PartitionRegistration(replicas=[3, 1, 2], directories=[")


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        ("cat nope", "cat: nope: No such file or directory."),
        ("cat image", "cat: image: Is a directory"),
        ("cd nope", "cd: nope: no such directory."),
        ("cd local/version", "cd: local/version: not a directory."),
        ("ls no*pe", "ls: no*pe: no such file or directory."),
        ("find nope", "find: nope: no such file or directory."),
        ("tree nope", "tree: nope: No such file or directory."),
        ("cat local/version/x", "cat: local/version/x: No such file or directory."),
        ("cat image/cluster/brokers/01",
         "cat: image/cluster/brokers/01: No such file or directory."),
        ("cat image/topics/byName/wide/9999",
         "cat: image/topics/byName/wide/9999: No such file or directory."),
        ("ls image/topics/byId/x", "ls: image/topics/byId/x: no such file or directory."),
        ("ls image/configs/TOPIC:x", "ls: image/configs/TOPIC:x: no such file or directory."),
    ],
)  # fmt: skip
def test_a_missing_path_is_named(typed: Typed, line: str, failure: str) -> None:
    typed.says(line)
    assert (typed.lines, typed.failures) == ([], [failure])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bogus", "invalid choice: 'bogus' (choose from 'cat', 'cd', 'exit', 'find', 'help', "
                  "'history', 'ls', 'man', 'pwd', 'tree')"),
        ("ls -x", "unrecognized arguments: '-x'"),
        ("cd a b", "unrecognized arguments: 'b'"),
        ("cat", "too few arguments"),
        ("history x", "history: NUMBER is not a number: x"),
        ("man bogus", "man: there is no command bogus"),
        ("cat 'a", "No closing quotation: cat 'a"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_explained(typed: Typed, line: str, message: str) -> None:
    with pytest.raises(ShellUsageError) as raised:
        typed.shell.run_line(line)
    assert str(raised.value).startswith(message)


def test_history_help_and_exit(typed: Typed) -> None:
    for line in ("pwd", "pwd", "  ", "ls image"):
        typed.says(line)
    assert typed.says("history") == ["    0  pwd", "    1  ls image", "    2  history"]
    assert typed.says("history 1") == ["    3  history 1"]
    assert all(any(name in line for line in typed.says("help")) for name in COMMANDS)
    assert typed.says("man cd")[-1] == "usage: cd [PATH]"
    assert typed.shell.run_line("exit") is False


def test_secrets_are_hidden(metadata: kraft.Metadata) -> None:
    path = "/image/scram/SCRAM-SHA-256/alice"
    (hidden,) = Typed(metadata).says(f"cat {path}")
    assert hidden == (
        "ScramCredentialData(salt=[hidden], storedKey=[hidden], serverKey=[hidden], "
        "iterations=4096)"
    )
    (shown,) = Typed(metadata, show_secrets=True).says(f"cat {path}")
    assert "storedKey=ba369d33d604a47a" in shown
    changed = kraft.open_metadata(DIRECTORY)
    changed.apply(
        Config(resource_type=4, resource_name="1", name="ssl.key.password", value="secret")
    )
    assert Typed(changed).says("cat /image/configs/BROKER:1/ssl.key.password") == ["[hidden]"]
    path = "/image/configs/BROKER:1/ssl.key.password"
    assert Typed(changed, show_secrets=True).says(f"cat {path}") == ["secret"]


def test_names_are_in_the_order_of_java_and_quotas_as_in_kafka() -> None:
    """Names are sorted by UTF-16 units; a default entity has no name of its own."""
    state = kraft.Metadata()
    users: list[str | None] = ["a(b)\\", "\uffee", "\U0001f600", None]
    for user in users:
        entity = [EntityData(entity_type="user", entity_name=user)]
        state.apply(ClientQuota(entity=entity, key="producer_byte_rate", value=2e7, remove=False))
    both = [
        EntityData(entity_type="user", entity_name="ann"),
        EntityData(entity_type="client-id", entity_name="web"),
    ]
    state.apply(ClientQuota(entity=both, key="request_percentage", value=12, remove=False))
    typed = Typed(state)
    names = ["", "clientId(web)_user(ann)", r"user(a\(b\)\\)", "user(\U0001f600)", "user(\uffee)"]
    assert typed.says("ls /image/clientQuotas") == names
    assert typed.says("tree '/image/clientQuotas/clientId(web)_user(ann)'") == [
        "request_percentage:",
        "  12.0",
    ]
    root = root_of(state)
    quotas = at(root, "image", "clientQuotas")
    assert isinstance(quotas, ShellDirectory)
    special = quotas.child(r"user(a\(b\)\\)")
    assert isinstance(special, ShellDirectory)
    rate = special.child("producer_byte_rate")
    assert isinstance(rate, ShellFile)
    assert rate.text() == "2.0E7"
    for wrong in ("", "user(a", "user(a)_", "nobody(a)", "user(a)x"):
        assert quotas.child(wrong) is None


def at(node: ShellNode, *names: str) -> ShellNode | None:
    for name in names:
        assert isinstance(node, ShellDirectory)
        child = node.child(name)
        assert child is not None
        node = child
    return node


def test_nodes_follow_the_state() -> None:
    state = kraft.Metadata()
    typed = Typed(state)
    assert typed.says("ls /image/topics/byName") == []
    state.apply(Topic(name="later", topic_id=Uuid(bytes([7] * 16))))
    assert typed.says("ls /image/topics/byName") == ["later"]
    assert typed.says("cat /image/topics/byName/later/name") == ["later"]


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        ("a*", ["a", "ab", "a\n"], ["ba"]),
        ("a?c", ["abc"], ["ac", "abbc"]),
        ("{x,y*}.z", ["x.z", "yy.z"], ["z.z", "x_z"]),
        (r"\**", ["*a"], ["a"]),
        ("(a)*", ["(a)b"], ["a"]),
    ],
)
def test_globs_match_whole_names(glob: str, matching: list[str], other: list[str]) -> None:
    pattern = glob_pattern(glob)
    assert pattern is not None
    assert [name for name in matching if not pattern.fullmatch(name)] == []
    assert [name for name in other if pattern.fullmatch(name)] == []


@pytest.mark.parametrize("literal", ["a.b", "{a", "{a{b}}*", "a,b}"])
def test_a_name_without_a_whole_glob_stands_for_itself(literal: str) -> None:
    assert glob_pattern(literal) is None


def test_paths_are_resolved() -> None:
    assert parts_of("/a//b/./c/", "/x") == ["a", "b", "c"]
    assert parts_of("../b", "/x/y") == ["x", "b"]
    assert parts_of("../../../b", "/x") == ["b"]


def test_words_are_completed(typed: Typed) -> None:
    complete = typed.shell.completions
    assert complete("c", "c") == ["cat ", "cd "]
    assert complete("man l", "l") == ["ls"]
    assert complete("ls im", "im") == ["image/"]
    assert complete("cat /image/pro", "/image/pro") == ["/image/producerIds/", "/image/provenance "]
    assert complete("ls nope/x", "nope/x") == []
    typed.says("cd /image/topics/byName")
    assert complete("cat payments/", "payments/")[:2] == ["payments/0 ", "payments/1 "]
    assert complete("cat payments/i", "payments/i") == ["payments/id "]


def test_a_terminal_gets_columns(metadata: kraft.Metadata) -> None:
    lines: list[str] = []
    shell = MetadataShell(root_of(metadata), lines.append, lines.append, lambda: 40)
    shell.run(["ls", "/image"])
    assert lines == [
        "acls             features",
        "clientQuotas     producerIds",
        "cluster          provenance",
        "configs          scram",
        "delegationToken  topics",
    ]
