"""Run Kafka's tools and kraft's commands with the same words at one cluster, and compare.

A step runs Kafka's tool on one set of names and kraft's command on another, so that each changes
its own topics, users and ACLs. Compared are the exit codes and the lines, in any order, without
names, ids and times. A rejected command only has to say why.

kraft's commands talk to the controller. So do Kafka's tools where they take
``--bootstrap-controller`` for the request (4.3.1); else they talk to the cluster's broker.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from kraft.cli.exit_codes import FOUND
from tests.harness.command_line import Ran, run_command
from tests.harness.configurations import write_properties
from tests.harness.line_process import JsonRequests
from tests.interop.forwarding_quorum import SASL, ForwardingQuorum

_TOOLS = "org.apache.kafka.tools."
ACLS, CLUSTER = _TOOLS + "AclCommand", _TOOLS + "ClusterTool"
CONFIGS, ELECT = "kafka.admin.ConfigCommand", _TOOLS + "LeaderElectionCommand"
FEATURES, QUORUM = _TOOLS + "FeatureCommand", _TOOLS + "MetadataQuorumCommand"
REASSIGN = _TOOLS + "reassign.ReassignPartitionsCommand"
TOKENS, TOPICS = _TOOLS + "DelegationTokenCommand", _TOOLS + "TopicCommand"

#: Stands for the name of either in words and files.
NAME = "NAME"
THEIRS, OURS = "their-topic", "own-topic"
#: Tools without --bootstrap-controller; kafka-configs rejects it for users, clients and addresses.
_BROKER_ONLY = frozenset({ELECT, TOKENS, TOPICS})
_QUOTA_ENTITIES = frozenset({"--user", "--client", "--ip", "--client-defaults", "--user-defaults"})
_BROKER_ACTIONS = frozenset({"--execute", "--verify"})
#: Actions on ACLs that list them too, and actions that describe something.
_CHANGES = frozenset({"add", "remove"})
_READS = _CHANGES | {"describe", "list", "verify"}
Words = tuple[str, ...]

_HIDDEN = (
    (r"Epoch: \d+", "Epoch: N"),
    (r"\b(LeaderEpoch|HighWatermark|MaxFollowerLag\w*): *-?\d+", r"\1: N"),
    (r"\b\d{13}\b", "MS"),
    # The end and the lag of each node, which move on between the two commands.
    (r"^(\d+\s+\S{22})\s+\d+\s+\d+\s+(?=MS)", r"\1 N N "),
    # kraft knows the levels of 4.4 too.
    (r"(SupportedMaxVersion:) (UNKNOWN \d+|\S+) *", r"\1 MAX "),
    # Kafka's tool also asks for moves between directories, and takes controllers for brokers.
    (r"None of the specified partition moves are active\.", ""),
    (r"(Clearing broker-level throttles on brokers) .*", r"\1 IDS"),
    # On standard error where kraft says it.
    (r"^Warning: You must run --verify periodically.*", ""),
    (r"^(Could not \w+ \S+(?: to \d+)?\.).*", r"\1"),
    # The placeholders of two processes: addresses, directories.
    (r"127\.0\.0\.1:\d+|/\S*/(?:metadata|data-\d)", "PLACE"),
    # The path of a directory is known to its broker only.
    (r'"log_dirs":\["PLACE"\]', '"log_dirs":["any"]'),
    (r"TopicId: \S{22}", "TopicId: ID"),
    # Kafka's tool repeats its arguments, also the secret HMAC.
    (r"^Calling \w+ token operation .*", ""),
    # Tokens: HMAC (kraft's metadata has none), id, and times.
    (r"^\S{22} +(?:\S{88}|-) ", "ID HMAC "),
    (r"(tokenId :) \S{22}", r"\1 ID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d", "TIME"),
)
#: In base64, whose first character may be no letter: ``\b`` is not always before it.
_HMAC = re.compile(r"(?<!\S)\S{86}==")


class Step(NamedTuple):
    """A tool with its words, and kraft's."""

    tool: str
    kafka: Words
    kraft: Words
    #: Whether only the exit codes are compared: `kraft topics` reports its changes in other words.
    is_silent: bool = False


def same(tool: str, command: str, action: str, *words: str) -> Step:
    """Return a step whose words are the same but for the action: ``--list`` and ``list``."""
    return Step(tool, (f"--{action}", *words), (command, action, *words))


class ToolComparison:
    """Kafka's tools beside kraft's commands, at one cluster.

    A word ``@name`` stands for a file, ``files[name]`` with the names put in; ``@hmac`` for the
    HMAC of the last token that the tool, or the command, created.
    """

    def __init__(
        self, quorum: ForwardingQuorum, tools: JsonRequests, directory: Path, files: dict[str, str]
    ) -> None:
        """``tools`` runs the tools (`java/RunTools.java`); the files are written to a directory."""
        self._quorum = quorum
        self._tools = tools
        self._directory = directory
        for own in (THEIRS, OURS):
            (directory / own).mkdir()
            for name, text in files.items():
                (directory / own / name).write_text(text.replace(NAME, own))
        self._client = directory / "client.properties"
        write_properties(self._client, SASL)
        self._hmacs: dict[str, str] = {}
        #: Steps that both accepted, and that both rejected.
        self.accepted = self.rejected = 0

    def check(self, step: Step) -> None:
        """Run both; check that they print the same."""
        if "@hmac" in step.kraft:
            self._quorum.await_tokens()
        if step.tool == ACLS and _CHANGES & set(step.kraft):
            # They list the ACLs after the change, which Kafka's controller may not know yet. A
            # repeated change has no effect, and the same output.
            self._run_tool(step)
            self._run_command(step)
        if _READS & set(step.kraft):
            self._quorum.await_controller()
        code, out = self._run_tool(step)
        ran = self._run_command(step)
        lines, own_lines = plain_lines(out), plain_lines(ran.out)
        text = f"{step.kraft}\nKafka: {code} {lines}\nkraft: {ran.code} {own_lines} {ran.err}"
        # Code 3: it did what it should, and found something.
        assert (ran.code not in (0, FOUND)) == (code != 0), text
        if code != 0:
            # The reason is in the tools' own words.
            self.rejected += 1
            assert ran.err, text
            return
        self.accepted += 1
        assert step.is_silent or own_lines == lines, text

    def _run_command(self, step: Step) -> Ran:
        ran = run_command(
            *self._words(step.kraft, OURS),
            *("--bootstrap-controller", self._quorum.address, "--command-config", self._client),
        )
        self._note_hmac(step, OURS, ran.out)
        return ran

    def _run_tool(self, step: Step) -> tuple[int, str]:
        words = self._words(step.kafka, THEIRS)
        given = set(step.kafka)
        at = ["--bootstrap-controller", self._quorum.address]
        if (
            step.tool in _BROKER_ONLY
            or (step.tool == CONFIGS and given & _QUOTA_ENTITIES)
            or (step.tool == REASSIGN and given & _BROKER_ACTIONS)
        ):
            self._quorum.await_brokers()
            at = ["--bootstrap-server", self._quorum.broker_address]
        at += ["--command-config", str(self._client)]
        # ClusterTool takes its options after the command, the others in any order or before it.
        said = self._tools(
            step.tool, words=[*words, *at] if step.tool == CLUSTER else [*at, *words]
        )
        self._note_hmac(step, THEIRS, said["out"])
        return int(said["code"]), said["out"]

    def _words(self, words: Words, own: str) -> list[str]:
        return [self._word(word, own) for word in words]

    def _word(self, word: str, own: str) -> str:
        if word == "@hmac":
            return self._hmacs[own]
        if word.startswith("@"):
            return str(self._directory / own / word[1:])
        return word.replace(NAME, own)

    def _note_hmac(self, step: Step, own: str, out: str) -> None:
        # A description lists the tokens of both sides, in any order.
        if "create" in step.kraft and (found := _HMAC.search(out)):
            self._hmacs[own] = found[0]


def plain_lines(text: str) -> list[str]:
    """Return the lines without names, ids and times, and without Java's own; in any order."""
    lines = []
    for line in text.replace(THEIRS, NAME).replace(OURS, NAME).splitlines():
        line = line.strip()
        if line.startswith(("at ", "Caused by:", "... ", "java.", "org.apache.")):
            continue
        for pattern, shown in _HIDDEN:
            line = re.sub(pattern, shown, line)
        # The order of a Java HashMap.
        line = re.sub(r"(?<= are )\S+=.*|(?<=Configs: )\S+", _sorted, line)
        # Columns are padded to the width of ids, or by tabs.
        if line := " ".join(line.split()):
            lines.append(line)
    return sorted(lines)


def _sorted(values: re.Match[str]) -> str:
    """Return comma-separated values in order; none of the steps has a value with commas."""
    return ", ".join(sorted(re.split(", ?", values[0])))
