"""``kraft preflight`` on a running quorum, and the commands that its findings name, as typed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from kraft.metadata.identifiers import random_uuid
from kraft.network.controller_connection import Address
from kraft.network.quorum_client import QuorumClient
from kraft.protocol.broker_registration import (
    BROKER_REGISTRATION,
    BrokerRegistrationRequestData,
    BrokerRegistrationResponseData,
)
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.protocol.controller_registration import (
    CONTROLLER_REGISTRATION,
    ControllerRegistrationRequestData,
    ControllerRegistrationResponseData,
)
from kraft.records.versions import METADATA_VERSION, SUPPORTED_FEATURES
from kraft.server.local_quorum import free_ports
from tests.harness.commands import eventually, kraft, printed
from tests.harness.nodes import Controller

Document = dict[str, Any]


def preflight(*words: object) -> tuple[int, Document]:
    """Return the exit code and the document of ``kraft preflight WORDS --json``."""
    ran = kraft("preflight", *words, "--json")
    assert ran.returncode in (0, 3, 4), ran.stderr
    document: Document = json.loads(ran.stdout)
    assert document["willWork"] is (ran.returncode != 4)
    assert ("error:" in ran.stderr) is (ran.returncode == 4)
    return ran.returncode, document


def finding(document: Document, rule: str, subject: str | None = None) -> Document:
    """Return the one finding of a rule, about ``subject`` if given."""
    (one,) = [
        each
        for each in document["findings"]
        if each["rule"] == rule and subject in (None, each["subject"])
    ]
    result: Document = one
    return result


def rules(document: Document, *severities: str) -> set[tuple[str, str]]:
    """Return rule and subject of the findings; by default of all but notes."""
    wanted = severities or ("blocks", "warning")
    return {
        (each["rule"], each["subject"])
        for each in document["findings"]
        if each["severity"] in wanted
    }


def until(words: tuple[object, ...], rule: str, *, is_there: bool) -> tuple[int, Document]:
    """Repeat a check until it has a finding of this rule, or has it no more."""

    def has(checked: tuple[int, Document]) -> bool:
        return any(each["rule"] == rule for each in checked[1]["findings"])

    return eventually(lambda: preflight(*words), until=lambda checked: has(checked) is is_there)


def await_rules(
    words: tuple[object, ...], wanted: set[tuple[str, str]], *severities: str
) -> tuple[int, Document]:
    """Repeat a check until its findings are these, by default all but notes.

    Others come and go while a node starts: a voter that has not fetched yet, or is not registered.
    """
    return eventually(
        lambda: preflight(*words), until=lambda checked: rules(checked[1], *severities) == wanted
    )


def type_kraft(*steps: Document) -> None:
    """Run the kraft command of each step that has one, as printed; it must succeed."""
    for step in steps:
        if step["kraft"]:
            program, *words = shlex.split(step["kraft"])
            assert program == "kraft"
            printed(*words)


def addresses(bootstrap: str) -> list[Address]:
    pairs = (at.rpartition(":") for at in bootstrap.split(","))
    return [(host, int(port)) for host, _, port in pairs]


def own_controller(directory: Path, id: int, bootstrap: str) -> Controller:
    """Return a controller that is neither formatted nor started."""
    (port,) = free_ports(1)
    return Controller(id, port, directory, bootstrap).write()


def _levels(metadata_version_max: int) -> list[SupportedFeatureRange]:
    """Return the feature ranges of a release."""
    levels = SUPPORTED_FEATURES | {METADATA_VERSION: (7, metadata_version_max)}
    return [SupportedFeatureRange(name, *given) for name, given in levels.items()]


def register_broker(
    client: QuorumClient,
    cluster_id: str,
    id: int,
    metadata_version_max: int = SUPPORTED_FEATURES[METADATA_VERSION][1],
) -> int:
    """Register a broker, by default of the newest release; return its epoch."""
    request = BrokerRegistrationRequestData(
        id,
        cluster_id,
        random_uuid(),
        [AdvertisedListener("PLAINTEXT", "127.0.0.1", 9, 0)],
        _levels(metadata_version_max),
        log_dirs=[random_uuid()],
    )
    registered = client.call(
        BROKER_REGISTRATION,
        request,
        BrokerRegistrationResponseData,
        lambda each: each.error_code,
    ).response
    assert registered.error_code == 0, registered
    epoch: int = registered.broker_epoch
    return epoch


def register_old_broker(
    controllers: list[Address], cluster_id: str, id: int, metadata_version_max: int
) -> None:
    """Register a broker of an older release, which is then gone: it never sends a heartbeat."""
    with QuorumClient(controllers) as client:
        register_broker(client, cluster_id, id, metadata_version_max)


def register_old_controller(controllers: list[Address], id: int, metadata_version_max: int) -> None:
    """Register a controller of an older release that is gone: nothing listens at its address."""
    request = ControllerRegistrationRequestData(
        id,
        random_uuid(),
        False,
        [AdvertisedListener("CONTROLLER", "127.0.0.1", 9, 0)],
        _levels(metadata_version_max),
    )
    with QuorumClient(controllers) as client:
        answered = client.call(
            CONTROLLER_REGISTRATION,
            request,
            ControllerRegistrationResponseData,
            lambda each: each.error_code,
        )
    assert answered.response.error_code == 0, answered.response
