"""Kafka's Admin, Kafka's tools and `kraft.admin` leave the same state for generated operations.

Three quorums of one kraft controller each get the same operations, one by Kafka's Admin, one by
`kraft.admin`, and the first of them one by Kafka's tools that take ``--bootstrap-controller``. The
error code and message of every rejected operation are compared, and all records of the states.

``GENERATED_OPERATIONS=5000`` runs that many, ``GENERATED_OPERATIONS_SEED`` another stream.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pytest

from kraft import records
from kraft.metadata.facade import Metadata
from kraft.records import ZERO_UUID, Record
from kraft.security.sasl.scram import SCRAM_MECHANISMS_BY_NUMBER, scram_keys
from tests.harness.configurations import write_properties
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests
from tests.interop.forwarding_quorum import FORWARDING_BROKER, SASL, ForwardingQuorum
from tests.interop.generated_operations import BROKERS, Generator, Operation
from tests.interop.operating_clients import DONE, JavaClient, KraftClient, ToolClient

pytestmark = pytest.mark.interop

COUNT = int(os.environ.get("GENERATED_OPERATIONS", "400"))
SEED = int(os.environ.get("GENERATED_OPERATIONS_SEED", "14"))
#: The states are compared after so many operations.
STEP = 200
#: The first operations, which the tools apply too; less than a third of them is a tool's.
BY_TOOLS = min(COUNT // 2, 1000)

_HOUR_MS = 3_600_000


@dataclass
class Passwords:
    """The password of each credential, by the accepted operations."""

    _set: dict[tuple[str, str], str] = field(default_factory=dict)

    def note(self, operation: Operation) -> None:
        if operation.verb == "upsert_scram":
            fields = operation.fields
            self._set[fields["user"], fields["mechanism"]] = fields["password"]

    def check(self, credential: records.UserScramCredential) -> None:
        """Check that the credential is of the user's password."""
        mechanism = SCRAM_MECHANISMS_BY_NUMBER[credential.mechanism]
        password = self._set[credential.name, mechanism.name]
        salted = hashlib.pbkdf2_hmac(
            mechanism.hash_name, password.encode(), credential.salt, credential.iterations
        )
        assert scram_keys(mechanism, salted) == (credential.stored_key, credential.server_key)


def state_of(metadata: Metadata, passwords: Passwords) -> list[str]:
    """Return all records of a state as texts, without ids, addresses, times and salts."""
    state = metadata.state
    kept = [*state.snapshot_records_before_topics(), *state.snapshot_records_after_topics()]
    texts = [repr(_plain(record, passwords)) for record in kept]
    return sorted(texts + [repr(partition) for partition in metadata.partitions])


def _plain(record: Record, passwords: Passwords) -> Record:
    if isinstance(record, records.AccessControlEntry):
        return record.replace(id=ZERO_UUID)
    if isinstance(record, records.UserScramCredential):
        passwords.check(record)
        return record.replace(salt=b"", stored_key=b"", server_key=b"")
    if isinstance(record, records.DelegationToken):
        # The end of a token is the end of a period after its creation or the last renewal.
        hours = round((record.expiration_timestamp - record.issue_timestamp) / _HOUR_MS)
        return record.replace(
            token_id="",
            issue_timestamp=0,
            max_timestamp=record.max_timestamp - record.issue_timestamp,
            expiration_timestamp=hours,
        )
    if isinstance(record, records.RegisterBroker):
        dirs = record.log_dirs if record.broker_id != FORWARDING_BROKER else []
        return record.replace(
            broker_epoch=0,
            incarnation_id=ZERO_UUID,
            end_points=[],
            log_dirs=dirs,
            # A broker without a process has sent neither.
            cordoned_log_dirs=None,
            features=sorted(record.features, key=lambda each: each.name),
        )
    if isinstance(record, records.RegisterController):
        return record.replace(incarnation_id=ZERO_UUID, end_points=[])
    return record


@pytest.fixture
def quorums(jars: Jars, tmp_path: Path) -> Iterator[list[ForwardingQuorum]]:
    started: list[ForwardingQuorum] = []
    try:
        for name in ("java", "kraft", "tools"):
            started.append(ForwardingQuorum(jars, tmp_path / name))
            started[-1].start()
        yield started
    finally:
        for each in started:
            each.cluster.kill()


def test_three_clients_leave_the_same_state(
    quorums: list[ForwardingQuorum], tools: JsonRequests, tmp_path: Path
) -> None:
    of_java, of_kraft, of_tools = quorums
    of_java.start_broker()
    passwords = Passwords()
    outcomes: Counter[tuple[str, int]] = Counter()
    properties = tmp_path / "client.properties"
    write_properties(properties, SASL)
    with ExitStack() as open:
        admins = [open.enter_context(quorum.admin()) for quorum in quorums]
        features = of_java.broker_features()
        of_java.register(BROKERS, features)
        for quorum in (of_kraft, of_tools):
            quorum.register((*BROKERS, FORWARDING_BROKER), features)
        java, kraft = JavaClient(of_java.driver()), KraftClient(admins[1])
        other = KraftClient(admins[2])
        by_tools = ToolClient(tools, of_tools.address, properties, tmp_path, other)

        def compare(number: int) -> None:
            compared = admins if number <= BY_TOOLS else admins[:2]
            states = [state_of(admin.read_metadata(), passwords) for admin in compared]
            for other in states[1:]:
                assert other == states[0], f"after {number} operations"

        compare(0)
        for number, operation in enumerate(islice(Generator(SEED), COUNT), 1):
            outcome = java.apply(operation)
            ours = kraft.apply(operation)
            assert ours.agrees(outcome), f"{number}: {operation}\n{ours}\n{outcome}"
            if number <= BY_TOOLS:
                by_tools.check(operation, outcome)
            if outcome == DONE:
                passwords.note(operation)
            outcomes[operation.verb, outcome.code] += 1
            if number % STEP == 0 or number in (BY_TOOLS, COUNT):
                compare(number)
    check_variety(outcomes, by_tools.count)


def check_variety(outcomes: Counter[tuple[str, int]], by_tools: int) -> None:
    """Check that the stream had accepted and rejected operations of each kind."""
    print(f"{by_tools} by tools;", *(f"{key} {n}" for key, n in sorted(outcomes.items())), sep="\n")
    verbs = {verb for verb, _ in outcomes}
    accepted = {verb for verb, code in outcomes if code == DONE.code}
    rejected = {verb for verb, code in outcomes if code != DONE.code}
    assert len(verbs) == 16
    assert len(accepted) >= 14
    assert len(rejected) >= 14
    assert by_tools >= BY_TOOLS // 6
