"""Keep the files of a stopped cluster, and the output of Kafka's tools for them.

<set>/controller-101/   a node's metadata directory, its index files cut to their entries
<set>/text/             what Kafka's tools print; the larger ones with gzip
"""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.interop.cluster import Node

METADATA_LOG = "__cluster_metadata-0"
INDEX_ENTRY_SIZE = {".index": 8, ".timeindex": 12}
COMPRESSED_FROM_SIZE = 4096


def keep_node(node: Node, target: Path) -> None:
    """Copy the metadata directory of a stopped node."""
    source = node.metadata_directory
    shutil.rmtree(target, ignore_errors=True)
    (target / METADATA_LOG).mkdir(parents=True)
    for name in ("meta.properties", "bootstrap.checkpoint"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    for one in sorted((source / METADATA_LOG).iterdir()):
        if one.name.endswith((".log.deleted", ".index.deleted", ".timeindex.deleted")):
            continue  # to be deleted by Kafka; one such checkpoint is kept as a small example
        shutil.copyfile(one, target / METADATA_LOG / one.name)
        if one.suffix in INDEX_ENTRY_SIZE:
            _trim_index(target / METADATA_LOG / one.name, INDEX_ENTRY_SIZE[one.suffix])


def _trim_index(path: Path, entry_size: int) -> None:
    """Remove the preallocated zeros of an index that was not closed: up to 10 MiB."""
    held = path.read_bytes()
    used = len(held.rstrip(b"\0"))
    path.write_bytes(held[: -(-used // entry_size) * entry_size])


def write_text(path: Path, text: str) -> None:
    """Write the text, with gzip where it is large; the bytes depend only on the text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    if len(data) < COMPRESSED_FROM_SIZE:
        path.write_bytes(data)
    else:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(data, 9, mtime=0))


def dumpable(directory: Path, names: Iterable[str]) -> list[Path]:
    """Every log and checkpoint of the kept nodes, relative to `directory`."""
    return [
        path.relative_to(directory)
        for name in names
        for path in sorted((directory / name).rglob("*"))
        if path.suffix in (".log", ".checkpoint")
    ]


def shell_readable(node: Path) -> list[Path]:
    """Return files with a complete state for the shell: a snapshot, or a log of one segment.

    The shell waits forever for a state in the checkpoint of offset 0, which has only voters, and in
    a log that ends within a transaction or with a control record.
    """
    log = node / METADATA_LOG
    checkpoints = [one for one in sorted(log.glob("*.checkpoint")) if int(one.stem[:20]) > 0]
    segments = sorted(log.glob("*.log"))
    whole = segments if [int(one.stem) for one in segments] == [0] else []
    return [*checkpoints[-1:], *whole]


def record_types(dumped: str, begin: int, end: int) -> set[str]:
    """Return the types of the records with begin <= offset < end in kafka-dump-log's output."""
    records = re.finditer(r'^\| offset: (\d+) .*? payload: {"type":"(\w+)"', dumped, re.MULTILINE)
    return {one[2] for one in records if begin <= int(one[1]) < end}
