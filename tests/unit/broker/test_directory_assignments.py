"""Reports of replicas' directories: batches, repetition, reports that are not needed any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft.broker import directory_assignments
from kraft.broker.directory_assignments import MAX_PARTITIONS, DirectoryAssignments
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.replication_output import ReplicaDirectory
from kraft.errors import INVALID_REQUEST, NONE, STALE_BROKER_EPOCH, RequestTimedOutError
from kraft.protocol.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequestData,
    AssignReplicasToDirsResponseData,
    DirectoryPartitionResult,
    DirectoryResult,
    DirectoryTopicResult,
)
from tests.harness.data_brokers import until

TOPIC, OTHER = b"t" * 16, b"o" * 16
FIRST, SECOND = b"1" * 16, b"2" * 16


class ScriptedController:
    """Answers AssignReplicasToDirs: by default it accepts every report."""

    def __init__(self) -> None:
        self.requests: list[dict[PartitionId, bytes]] = []
        self.epochs: list[int] = []
        #: Top-level errors of the next requests; None: no answer.
        self.errors: list[int | None] = []
        #: Errors of partitions in all requests.
        self.rejected: dict[PartitionId, int] = {}

    async def call(
        self, api: Any, request: Any, answer: Any, *, timeout_ms: float
    ) -> AssignReplicasToDirsResponseData:
        sent = AssignReplicasToDirsRequestData.decode(request.encode(0), 0)
        self.epochs.append(sent.broker_epoch)
        self.requests.append(
            {
                PartitionId(bytes(topic.topic_id), each.partition_index): bytes(directory.id)
                for directory in sent.directories
                for topic in directory.topics
                for each in topic.partitions
            }
        )
        error = self.errors.pop(0) if self.errors else NONE
        if error is None:
            raise RequestTimedOutError("no controller")
        response = AssignReplicasToDirsResponseData(error_code=error)
        if not error:
            response.directories = [
                DirectoryResult(
                    directory.id,
                    [
                        DirectoryTopicResult(
                            topic.topic_id,
                            [
                                DirectoryPartitionResult(
                                    each.partition_index,
                                    self.rejected.get(
                                        PartitionId(bytes(topic.topic_id), each.partition_index),
                                        NONE,
                                    ),
                                )
                                for each in topic.partitions
                            ],
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in sent.directories
            ]
        decoded: AssignReplicasToDirsResponseData = answer.decode(response.encode(0), 0)
        return decoded


class Reporting:
    """Reports to a scripted controller; ``needed`` are the reports that still say something new."""

    def __init__(self) -> None:
        self.controller = ScriptedController()
        self.needed: Callable[[PartitionId, bytes], bool] = lambda id, directory: True
        self.epoch = 5
        self.assignments = DirectoryAssignments(
            self.controller,  # type: ignore[arg-type]
            1,
            lambda: self.epoch,
            lambda id, directory: self.needed(id, directory),
            timeout_ms=1_000.0,
        )

    def report(self, *reports: tuple[PartitionId, bytes]) -> None:
        self.assignments.report(ReplicaDirectory(*each) for each in reports)

    async def done(self) -> None:
        await until(lambda: not len(self.assignments))


def run(scenario: Callable[[Reporting], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Reporting())

    asyncio.run(asyncio.wait_for(main(), 120))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "_FIRST_PAUSE_S", 0.005)


def test_reports_of_one_step_are_one_request() -> None:
    async def scenario(reporting: Reporting) -> None:
        reports = {
            PartitionId(TOPIC, 0): FIRST,
            PartitionId(TOPIC, 1): SECOND,
            PartitionId(OTHER, 0): FIRST,
        }
        reporting.report(*reports.items())
        await reporting.done()
        assert reporting.controller.requests == [reports]
        assert reporting.controller.epochs == [5]

    run(scenario)


def test_a_request_without_success_is_repeated() -> None:
    async def scenario(reporting: Reporting) -> None:
        controller = reporting.controller
        controller.errors = [None, STALE_BROKER_EPOCH]
        reporting.report((PartitionId(TOPIC, 0), FIRST))
        await until(lambda: len(controller.requests) == 2)
        reporting.epoch = 6
        await reporting.done()
        assert controller.epochs == [5, 5, 6]
        assert controller.requests == [{PartitionId(TOPIC, 0): FIRST}] * 3

    run(scenario)


def test_only_rejected_partitions_are_repeated() -> None:
    async def scenario(reporting: Reporting) -> None:
        first, second = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)
        reporting.controller.rejected = {second: INVALID_REQUEST}
        reporting.report((first, FIRST), (second, FIRST))
        await until(lambda: len(reporting.controller.requests) == 3)
        reporting.controller.rejected = {}
        await reporting.done()
        assert reporting.controller.requests == [
            {first: FIRST, second: FIRST},
            *([{second: FIRST}] * 3),
        ]

    run(scenario)


def test_a_later_report_replaces_an_earlier_one() -> None:
    async def scenario(reporting: Reporting) -> None:
        id = PartitionId(TOPIC, 0)
        reporting.controller.errors = [None]
        reporting.report((id, FIRST))
        await until(lambda: len(reporting.controller.requests) == 1)
        reporting.report((id, SECOND))
        await reporting.done()
        assert reporting.controller.requests == [{id: FIRST}, {id: SECOND}]

    run(scenario)


def test_what_the_metadata_show_is_not_reported() -> None:
    async def scenario(reporting: Reporting) -> None:
        first, second = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)
        reporting.needed = lambda id, directory: id == second
        reporting.report((first, FIRST), (second, FIRST))
        await reporting.done()
        assert reporting.controller.requests == [{second: FIRST}]

    run(scenario)


def test_requests_are_bounded() -> None:
    async def scenario(reporting: Reporting) -> None:
        count = 2 * MAX_PARTITIONS + 10
        reporting.report(*((PartitionId(TOPIC, each), FIRST) for each in range(count)))
        await reporting.done()
        sizes = [len(each) for each in reporting.controller.requests]
        assert sizes == [MAX_PARTITIONS, MAX_PARTITIONS, 10]

    run(scenario)


def test_nothing_is_sent_after_the_end() -> None:
    async def scenario(reporting: Reporting) -> None:
        reporting.controller.errors = [None] * 100
        reporting.report((PartitionId(TOPIC, 0), FIRST))
        await until(lambda: len(reporting.controller.requests) == 2)
        reporting.assignments.close()
        await asyncio.sleep(0.03)
        assert len(reporting.controller.requests) == 2

    run(scenario)
