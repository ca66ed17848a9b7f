"""Fetch Kafka's published test jars and compile the classes that precede them on the class path.

Maven resolves the jars from `pom.xml` into `.interop/kafka-suites-<release>`, again when the file
changes.
"""

from __future__ import annotations

from pathlib import Path

from tests.harness.kafka_jars import CACHE, KAFKA_4, Jars, compile_all, fetch_if_changed

_HERE = Path(__file__).parent
_NAME = f"kafka-suites-{KAFKA_4}"


def suites() -> Jars:
    """Return Kafka's test jars with their dependencies. Raises MissingToolError without Maven."""
    directory = CACHE / _NAME
    fetch_if_changed(_HERE / "pom.xml", directory)
    return Jars(KAFKA_4, directory)


def compiled(jars: Jars) -> Path:
    """Compile the classes of `java` if stale; return their directory."""
    output = CACHE / f"{_NAME}-classes"
    compile_all(sorted((_HERE / "java").rglob("*.java")), jars.classpath(), output)
    return output
