"""Keep the schemas of Kafka's group records: `python -m tests.interop.group_schemas`.

The JSON schemas of the records of `__consumer_offsets` are files in the jar of the group
coordinator. Those of the records that kraft has are kept in `tests/data`, so that `make test`
compares without jars; `test_group_schemas.py` compares the kept ones with the jar.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import Any
from zipfile import ZipFile

from tests.harness import kafka_jars
from tests.harness.kafka_jars import Jars
from tests.reference.kafka_schemas import group_schemas_path

RECORDS = (
    "GroupMetadataKey",
    "GroupMetadataValue",
    "LegacyOffsetCommitKey",
    "LegacyOffsetCommitValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
)


def in_jar(jars: Jars) -> dict[str, Any]:
    """Return the schemas of these records by name, from the jar of a release."""
    jar = jars.directory / f"kafka-group-coordinator-{jars.version}.jar"
    with ZipFile(jar) as files:
        return {name: _parsed(files.read(f"common/message/{name}.json")) for name in RECORDS}


def _parsed(text: bytes) -> Any:
    # The files have comments on lines of their own.
    return json.loads(re.sub(r"^\s*//.*$", "", text.decode(), flags=re.MULTILINE))


def main() -> None:
    text = json.dumps(in_jar(kafka_jars.kafka()), indent=1, sort_keys=True) + "\n"
    group_schemas_path(kafka_jars.KAFKA_4).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
