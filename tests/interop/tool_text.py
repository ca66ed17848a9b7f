"""Parse the output of Kafka's tools: kafka-topics, kafka-metadata-shell, kafka-dump-log.

Each function converts a text to plain Python values for comparisons; the module imports nothing
from the package.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

Key = tuple[str, int]


class Described(NamedTuple):
    """One partition as `kafka-topics --describe` prints it; -1 for no leader."""

    leader: int
    replicas: list[int]
    isr: list[int]
    adding: list[int]
    removing: list[int]
    elr: list[int] | None
    last_known_elr: list[int] | None


class DescribedTopic(NamedTuple):
    topic_id: str
    partition_count: int
    configs: dict[str, str]


def described(text: str) -> tuple[dict[str, DescribedTopic], dict[Key, Described]]:
    """Parse topics and partitions of `kafka-topics --describe`, with or without a filter."""
    topics: dict[str, DescribedTopic] = {}
    partitions: dict[Key, Described] = {}
    for line in text.splitlines():
        fields = dict(part.split(": ", 1) for part in line.strip().split("\t") if ": " in part)
        if "Partition" in fields:
            key = fields["Topic"], int(fields["Partition"])
            partitions[key] = _partition(fields)
        elif "TopicId" in fields:
            configs = _configs(fields.get("Configs", ""))
            count = int(fields["PartitionCount"])
            topics[fields["Topic"]] = DescribedTopic(fields["TopicId"], count, configs)
    return topics, partitions


def _partition(fields: dict[str, str]) -> Described:
    leader = fields["Leader"]
    return Described(
        leader=-1 if leader == "none" else int(leader),
        replicas=_ids(fields["Replicas"]),
        isr=_ids(fields["Isr"]),
        adding=_ids(fields.get("Adding Replicas", "")),
        removing=_ids(fields.get("Removing Replicas", "")),
        elr=_ids(fields["Elr"]) if fields.get("Elr", "N/A") != "N/A" else None,
        last_known_elr=(
            _ids(fields["LastKnownElr"]) if fields.get("LastKnownElr", "N/A") != "N/A" else None
        ),
    )


def _ids(text: str) -> list[int]:
    return [int(one) for one in text.split(",") if one.strip()]


def _configs(text: str) -> dict[str, str]:
    """Parse `a=1,b=x,y,c=2`: a comma is part of a value unless a name and `=` follow it."""
    parts = re.split(r",(?=[a-z][a-z.]*=)", text)
    return dict(part.split("=", 1) for part in parts if part)


def tree(text: str) -> dict[str, Any]:
    """Return the output of `kafka-metadata-shell … tree` as nested dicts; leaves are texts."""
    root: dict[str, Any] = {}
    open_nodes: list[tuple[int, dict[str, Any], str]] = []
    inner: dict[str, Any] = root
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        while open_nodes and open_nodes[-1][0] >= indent:
            open_nodes.pop()
        inner = root
        for _, parent, name in open_nodes[-1:]:
            inner = parent[name]
        said = line[indent:]
        if said.endswith(":"):
            inner[said[:-1]] = {}
            open_nodes.append((indent, inner, said[:-1]))
        elif open_nodes:
            _, parent, name = open_nodes[-1]
            parent[name] = said if parent[name] == {} else f"{parent[name]}\n{said}"
    return root


def fields_of(printed: str) -> dict[str, str]:
    """Return the fields of `Name(a=1, b=[x, y], c={k: v}, d='e')` or `Name[a=1, …]`."""
    inside = printed[min(printed.find(one) for one in "([" if one in printed) + 1 : -1]
    fields, depth, start = [], 0, 0
    for place, one in enumerate(inside):
        depth += one in "([{"
        depth -= one in ")]}"
        if one == "," and depth == 0:
            fields.append(inside[start:place])
            start = place + 1
    fields.append(inside[start:])
    return dict(one.strip().split("=", 1) for one in fields)


def items(printed: str) -> list[str]:
    """Return `[a, b]` as a list."""
    inside = printed.strip("[]")
    return inside.split(", ") if inside else []


class Dumped(NamedTuple):
    """One record of `kafka-dump-log --cluster-metadata-decoder`; `type` is Kafka's class name."""

    offset: int
    timestamp_ms: int
    type: str
    version: int
    data: dict[str, Any]


_DATA_LINE = re.compile(r"^\| offset: (\d+) CreateTime: (\d+) .*? payload: (\{.*\})$", re.MULTILINE)


def dumped_records(text: str) -> list[Dumped]:
    """Return the data records, without control records, in file order."""
    found = []
    for line in _DATA_LINE.finditer(text):
        payload = json.loads(line[3])
        words = payload["type"].removesuffix("_RECORD").split("_")
        name = "".join(word.capitalize() for word in words)
        found.append(Dumped(int(line[1]), int(line[2]), name, payload["version"], payload["data"]))
    return found


_BATCH_LINE = re.compile(
    r"^baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>\d+) "
    r".*?partitionLeaderEpoch: (?P<epoch>\d+) .*?isControl: (?P<is_control>\w+) .*?"
    r"position: (?P<position>\d+) .*?size: (?P<size>\d+) .*?crc: (?P<crc>\d+) "
    r"isvalid: (?P<is_valid>\w+)$",
    re.MULTILINE,
)


def dumped_batches(text: str) -> list[dict[str, int]]:
    """Return the batches: offsets, count, epoch, position, size, crc; booleans as 0 and 1."""
    return [
        {
            name: (value == "true") if value in ("true", "false") else int(value)
            for name, value in one.groupdict().items()
        }
        for one in _BATCH_LINE.finditer(text)
    ]
