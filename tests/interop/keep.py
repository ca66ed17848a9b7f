"""Takes what a stopped cluster left on disk, and what Kafka's own tools print of it, into a directory.

    <set>/controller-101/   a node's metadata directory, its index files cut to their entries
    <set>/text/             what Kafka's tools print; the larger ones with gzip
"""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

from tests.interop.cluster import Node
from tests.interop.kafka_jars import Jars

METADATA_LOG = "__cluster_metadata-0"
INDEX_ENTRY_SIZE = {".index": 8, ".timeindex": 12}
COMPRESSED_FROM_SIZE = 4096
DUMPED = (".log", ".checkpoint", ".snapshot", ".index", ".timeindex")
# The tool says this of every segment that does not begin at offset 0, Kafka's own included.
_COMPLAINS_OF_FIRST = re.compile(r"^Non-consecutive offsets in .*\n  -1 is followed by \d+\n", re.M)


class ComplaintError(RuntimeError):
    """One of Kafka's tools is not content with a file."""


def keep_node(node: Node, target: Path) -> None:
    """Copies the metadata directory of a node that is not running."""
    source = node.metadata_directory
    shutil.rmtree(target, ignore_errors=True)
    (target / METADATA_LOG).mkdir(parents=True)
    for name in ("meta.properties", "bootstrap.checkpoint"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    for one in sorted((source / METADATA_LOG).iterdir()):
        shutil.copyfile(one, target / METADATA_LOG / one.name)
        if one.suffix in INDEX_ENTRY_SIZE:
            _trim_index(target / METADATA_LOG / one.name, INDEX_ENTRY_SIZE[one.suffix])


def _trim_index(path: Path, entry_size: int) -> None:
    """An index that was not closed is 10 MiB of preallocated zeros behind its entries."""
    held = path.read_bytes()
    used = len(held.rstrip(b"\0"))
    path.write_bytes(held[: -(-used // entry_size) * entry_size])


def write_text(path: Path, text: str) -> None:
    """Writes the text, with gzip where it is large; the same text gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    if len(data) < COMPRESSED_FROM_SIZE:
        path.write_bytes(data)
    else:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(data, 9, mtime=0))


def dump(jars: Jars, directory: Path, files: list[Path]) -> dict[Path, str]:
    """kafka-dump-log of each file, which are named relative to `directory`."""
    wanted = ",".join(str(one) for one in files)
    said = jars.run(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--cluster-metadata-decoder", "--files", wanted),
        cwd=directory,
    )
    if complaints := _COMPLAINS_OF_FIRST.sub("", said.stderr).strip():
        raise ComplaintError(f"kafka-dump-log: {complaints}")
    parts = re.split(r"^Dumping (\S+)\n", said.stdout, flags=re.MULTILINE)[1:]
    return {
        Path(name): f"Dumping {name}\n{text}"
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def shell(jars: Jars, directory: Path, snapshot: Path, *command: str) -> str:
    """What kafka-metadata-shell prints for `command` on the snapshot (or a log from offset 0)."""
    said = jars.run(
        "org.apache.kafka.shell.MetadataShell", "--snapshot", str(snapshot), *command, cwd=directory
    )
    return said.stdout
