"""Keep the metadata schemas of Kafka's releases: `python -m tests.interop.schemas`.

`java/Schemas.java` prints the record types, the JSON schema of each record and of each request and
response on a controller's or broker's listener, the requests by listener, the levels of
metadata.version and of the other features. The output for each release is in
`tests/data/schemas-<release>.json.gz`, so that `make test` compares without Java;
`test_schemas.py` compares it with the jars.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.harness import kafka_jars
from tests.harness.kafka_jars import Jars
from tests.reference.kafka_schemas import kept_path

RELEASES = (kafka_jars.KAFKA_4, kafka_jars.KAFKA_3, kafka_jars.SCHEMAS_ONLY)


def jars_of(release: str) -> Jars:
    if release == kafka_jars.SCHEMAS_ONLY:
        return kafka_jars.schemas(release)
    return kafka_jars.kafka(release)


def printed(release: str) -> dict[str, Any]:
    """Return the output of the release's classes."""
    jars = jars_of(release)
    said = jars.run("Schemas", classes=jars.compiled("Schemas")).stdout
    schemas: dict[str, Any] = json.loads(said)
    return schemas


def main() -> None:
    for release in RELEASES:
        text = json.dumps(printed(release), indent=1, sort_keys=True) + "\n"
        kept_path(release).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
