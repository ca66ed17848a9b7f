"""The bodies of every API compared with Kafka's classes, in every version and both directions.

For each value, three encodings are the same bytes: kraft's, Kafka's of the message that it decoded
from kraft's bytes, and Kafka's of the same value given as JSON. Kafka's JSON of the decoded message
is compared field by field, and kraft decodes the bytes to the value. What 4.3.1 lacks is compared
with 4.4.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kraft._core.codec.metadata_codec import Message
from kraft.protocol.apis import BROKER_RPCS, RPCS
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
)
from kraft.records import Struct
from kraft.security.principals import DefaultPrincipalData
from tests.harness.kafka_jars import KAFKA_4, SCHEMAS_ONLY
from tests.harness.line_process import LineProcess
from tests.harness.message_json import as_json
from tests.interop.schemas import jars_of
from tests.reference.generated_structs import shapes, structs
from tests.reference.kafka_schemas import kept

pytestmark = pytest.mark.interop

RELEASES = (KAFKA_4, SCHEMAS_ONLY)
SOME = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def bodies() -> Iterator[tuple[str, str, int, type[Message], int, int]]:
    """Return release, kind, API key, class, version and first flexible version of each body."""
    listed = kept(KAFKA_4)["apis"]
    pinned = {(api["key"], at) for api in listed for at in range(api["lowest"], api["highest"] + 1)}
    for rpc in (*RPCS, *BROKER_RPCS):
        for kind, type in (("request", rpc.request), ("response", rpc.response)):
            for version in range(rpc.api.lowest, rpc.api.highest + 1):
                if type is not None:
                    release = KAFKA_4 if (rpc.api.key, version) in pinned else SCHEMAS_ONLY
                    yield release, kind, rpc.api.key, type, version, rpc.api.flexible_since
    yield KAFKA_4, "principal", -1, DefaultPrincipalData, 0, 0


class BodyOracle:
    """Kafka's classes of one release in a process."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    def read(self, kind: str, key: int, version: int, body: bytes, value: Any) -> tuple[str, Any]:
        """Return Kafka's bytes of the JSON ``value`` in hex, and its JSON of the body.

        Kafka decodes the body and encodes it to the same bytes.
        """
        asked = f"{kind} {key} {version} {body.hex()} {json.dumps(value)}"
        answer = self._process.ask(asked)
        assert not answer.startswith("refused"), answer
        again, converted, text = answer.split(" ", 2)
        assert again == body.hex()
        return converted, json.loads(text)

    def written_again(self, key: int, version: int, body: bytes, value: Any) -> bytes:
        """Return what Kafka writes after it has decoded a request."""
        answer = self._process.ask(f"request {key} {version} {body.hex()} {json.dumps(value)}")
        return bytes.fromhex(answer.split(" ", 1)[0])


@pytest.fixture(scope="module")
def oracles() -> Iterator[dict[str, BodyOracle]]:
    with ExitStack() as stack:
        yield {
            release: BodyOracle(
                stack.enter_context(LineProcess(jars_of(release).oracle("BodyOracle")))
            )
            for release in RELEASES
        }


@pytest.mark.parametrize(
    "body",
    [pytest.param(body, id=f"{body[3].__name__}-{body[2]}-{body[4]}") for body in bodies()],
)
def test_kafka_and_kraft_write_and_read_the_same_bytes(
    oracles: dict[str, BodyOracle], body: tuple[str, str, int, type[Message], int, int]
) -> None:
    release, kind, key, type, version, flexible_since = body

    def compare(made: Message) -> None:
        written = made.encode(version)
        assert type.decode(written, version) == made
        known = without_unknown(made)
        value = as_json(known, version)
        converted, read = oracles[release].read(kind, key, version, written, value)
        assert converted == known.encode(version).hex()
        assert read == as_kafka_prints(value)

    for made in shapes(type, version):
        compare(made)
    SOME(given(structs(type, version, flexible_since=flexible_since))(compare))()


@pytest.mark.parametrize("version", [4, 7])
@pytest.mark.parametrize("text", [b"m\xfcll", b"\xff\xfeA\x80", b"\xc3(ab", b"\xf0\x90\x80A"])
def test_kafka_and_kraft_read_the_same_of_text_that_is_not_utf_8(
    oracles: dict[str, BodyOracle], text: bytes, version: int
) -> None:
    request = CreateTopicsRequestData([CreatableTopic("text", 1, 1)])
    body = request.encode(version).replace(b"text", text)
    read = CreateTopicsRequestData.decode(body, version)
    assert "\ufffd" in read.topics[0].name
    value = as_json(read, version)
    again = oracles[KAFKA_4].written_again(CREATE_TOPICS.key, version, body, value)
    assert again == read.encode(version)


def without_unknown(made: Any) -> Any:
    """Return a copy of the struct without unknown tagged fields, which Kafka's JSON omits."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        return without_unknown(value) if isinstance(value, Struct) else value

    return type(made)(*[plain(getattr(made, name)) for name in made.__match_args__])


def as_kafka_prints(value: Any) -> Any:
    """Return the JSON with what Kafka's converters change: infinities are strings, records empty.

    The bytes of records are compared in the bodies.
    """

    def emptied(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"records": ""} if fields.get("records") else fields

    return json.loads(json.dumps(value), parse_constant=str, object_hook=emptied)
