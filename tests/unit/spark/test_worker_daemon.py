"""Workers of a local session leave imported modules out of garbage collections."""

from __future__ import annotations

import gc
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from kraft.spark.worker_daemon import freezing_imports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_objects_are_frozen_after_tasks_that_import(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[list[int]] = []

    def task(module: str | None) -> int:
        kept.append([])
        if module is not None:
            monkeypatch.setitem(sys.modules, module, ModuleType(module))
        return len(kept)

    run = freezing_imports(task)
    assert run("kraft_test_first") == 1
    frozen = gc.get_freeze_count()
    assert not any(each is kept[0] for each in gc.get_objects())

    assert run(None) == 2
    assert any(each is kept[1] for each in gc.get_objects())
    assert gc.get_freeze_count() == frozen

    assert run("kraft_test_second") == 3
    assert not any(each is kept[1] for each in gc.get_objects())


def test_garbage_is_collected_and_not_frozen() -> None:
    class Cycle:
        ended = 0

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            Cycle.ended += 1

    def task() -> int:
        Cycle()
        return 0

    freezing_imports(task)()
    assert Cycle.ended == 1


def test_a_local_session_starts_its_workers_this_way(spark: SparkSession) -> None:
    def frozen() -> list[int]:
        one = spark.sparkContext.parallelize([0], 1)
        return one.map(lambda _: gc.get_freeze_count()).collect()

    frozen()
    assert frozen()[0] > 10_000
