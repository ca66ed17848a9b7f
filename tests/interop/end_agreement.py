"""Compare the package with the tools' output at the end of a recording.

One check for each file of `text/end`, except those of kafka-topics; each raises AssertionError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from kraft.image.security import AccessControl
from kraft.metadata.facade import Metadata
from kraft.records import MetadataVersion

RESOURCE_TYPES = {"TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5}
PATTERN_TYPES = {"LITERAL": 3, "PREFIXED": 4}
OPERATIONS = {"ALL": 2, "READ": 3, "WRITE": 4, "DESCRIBE": 8, "ALTER_CONFIGS": 11}
PERMISSIONS = {"DENY": 2, "ALLOW": 3}
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

Read = Callable[[str], str]  # returns the text file of that name


def check_end(metadata: Metadata, read: Read, *, is_4: bool) -> None:
    check_quorum(metadata, read("quorum-status"))
    check_features(metadata, read("features"))
    check_acls(metadata, read("acls"))
    check_quotas(metadata, read)
    check_configs(metadata, read, is_4=is_4)
    check_tokens(metadata, read("tokens"))
    if is_4:
        check_brokers(metadata, read("brokers"))


def check_quorum(metadata: Metadata, text: str) -> None:
    """Check `kafka-metadata-quorum describe --status`."""
    said = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    quorum = metadata.quorum
    assert metadata.cluster_id == said["ClusterId"].strip()
    # A snapshot does not have the leader: only a LeaderChange after it does.
    assert quorum.leader_id in (-1, int(said["LeaderId"]))
    assert quorum.leader_epoch == int(said["LeaderEpoch"])
    voters = json.loads(said["CurrentVoters"])
    # Before 3.9 the tool prints ids only.
    ids = [voter if isinstance(voter, int) else voter["id"] for voter in voters]
    # A snapshot of kraft.version 0 does not have the voters either.
    assert sorted(quorum.voter_ids) == (ids if quorum.voter_ids or quorum.kraft_version else [])
    assert quorum.voter_ids or quorum.leader_id == -1
    if quorum.kraft_version == 1:  # before that the log has no directories and endpoints
        assert {
            voter.id: (str(voter.directory_id), list(map(str, voter.endpoints)))
            for voter in quorum.voters
        } == {voter["id"]: (voter["directoryId"], voter["endpoints"]) for voter in voters}


def check_features(metadata: Metadata, text: str) -> None:
    """Check the finalized levels of `kafka-features describe`."""
    levels = {
        line.split()[1]: re.sub(r".*FinalizedVersionLevel: (\S+).*", r"\1", line)
        for line in text.splitlines()
        if line.startswith("Feature:")
    }
    ours = {name: str(level) for name, level in metadata.features.items()}
    level = MetadataVersion.from_level(metadata.metadata_version)
    ours["metadata.version"] = level.text
    ours["kraft.version"] = str(metadata.quorum.kraft_version)
    if "kraft.version" not in levels:  # unknown before 3.9
        assert ours.pop("kraft.version") == "0"
    assert ours == {name: level for name, level in levels.items() if level != "0" or name in ours}


def check_acls(metadata: Metadata, text: str) -> None:
    """Check `kafka-acls --list`."""
    said: set[AccessControl] = set()
    resource: tuple[int, str, int] = (0, "", 0)
    for line in text.splitlines():
        if found := re.search(r"resourceType=(\w+), name=(.*), patternType=(\w+)\)`", line):
            resource = RESOURCE_TYPES[found[1]], found[2], PATTERN_TYPES[found[3]]
        elif found := re.search(
            r"\(principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)\)", line
        ):
            operation, permission = OPERATIONS[found[3]], PERMISSIONS[found[4]]
            said.add(AccessControl(*resource, found[1], found[2], operation, permission))
    assert set(metadata.acls.values()) == said


def check_quotas(metadata: Metadata, read: Read) -> None:
    """Check `kafka-configs --describe` of users, clients and addresses: quotas and credentials.

    The tool omits entities that consist of both a user and a client.
    """
    said: dict[str, dict[str, str]] = {}
    credentials: set[tuple[str, str, str]] = set()
    for line in "".join(map(read, ("quotas-users", "quotas-clients", "quotas-ips"))).splitlines():
        if found := re.match(r"Quota configs for (.*) are (.*)", line):
            said[found[1]] = dict(one.split("=") for one in found[2].split(", "))
        elif found := re.match(
            r"SCRAM .* for user-principal '(.*)' are (.*)=iterations=(.*)", line
        ):
            credentials.add((found[1], found[2], found[3]))
    names = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
    ours = {
        f"the default {names[kind]}" if name is None else f"{names[kind]} '{name}'": {
            key: str(value) for key, value in quotas.items()
        }
        for entity, quotas in metadata.client_quotas.items()
        if len(entity) == 1
        for kind, name in entity
    }
    assert ours == said
    assert {
        (user, MECHANISMS[mechanism], str(credential.iterations))
        for (mechanism, user), credential in metadata.scram_credentials.items()
    } == credentials


def check_configs(metadata: Metadata, read: Read, *, is_4: bool) -> None:
    """Check `kafka-configs --describe` of all other resources; it omits fenced brokers."""
    kinds = {"topic": 2, "broker": 4, "client-metric": 16, "group": 32}
    texts = ["topics", "brokers", "brokers-default", "client-metrics"]
    texts += ["groups"] if is_4 else []
    said: dict[tuple[int, str], dict[str, str]] = {}
    held: dict[str, str] = {}
    for line in "".join(read(f"configs-{one}") for one in texts).splitlines():
        if found := re.match(r"Dynamic configs for (\S+) (\S+) are:", line):
            held = said.setdefault((kinds[found[1]], found[2]), {})
        elif line.startswith("Default configs for brokers"):
            held = said.setdefault((4, ""), {})
        elif found := re.match(r"  ([\w.]+)=(.*) sensitive=", line):
            held[found[1]] = found[2]
    fenced = {(4, str(broker.id)) for broker in metadata.brokers.values() if broker.fenced}
    ours = {key: dict(held) for key, held in metadata.configs.items() if key not in fenced}
    assert ours == {key: configs for key, configs in said.items() if configs}


def check_tokens(metadata: Metadata, text: str) -> None:
    """Check `kafka-delegation-tokens --describe`."""
    said = {
        found[1]: (found[2], tuple(found[3].split(", ")))
        for found in re.finditer(r"^(\S{22}) <HMAC> (\S+) .*\[(.*)\]", text, re.MULTILINE)
    }
    ours = {key: (one.owner, one.renewers) for key, one in metadata.delegation_tokens.items()}
    assert ours == said


def check_brokers(metadata: Metadata, text: str) -> None:
    """Check `kafka-cluster list-endpoints --include-fenced-brokers`."""
    said = [line.split()[:5] for line in text.splitlines()[1:]]
    assert said == [
        [
            str(broker.id),
            broker.endpoints["PLAINTEXT"].host,
            str(broker.endpoints["PLAINTEXT"].port),
            broker.rack,
            "fenced" if broker.fenced else "unfenced",
        ]
        for _, broker in sorted(metadata.brokers.items())
    ]
