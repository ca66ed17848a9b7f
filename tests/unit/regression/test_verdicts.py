"""The ledger of verdicts, and the change to which a verdict stays attached."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")

from deltalake import DeltaTable, write_deltalake

from kraft.errors import StorageError
from kraft.regression import series_analysis
from kraft.regression.analysis import NO_RULES
from kraft.regression.change_position import MARGIN_RUNS, position_interval
from kraft.regression.findings import ChangePoint, is_alarm
from kraft.regression.ingest import ingest
from kraft.regression.points import Series, SeriesKey
from kraft.regression.settings import AnalysisSettings
from kraft.regression.store import list_runs
from kraft.regression.verdict_choice import JudgedChange, Judgement, verdicts_on_changes
from kraft.regression.verdict_matching import with_verdicts
from kraft.regression.verdict_store import FOLDER, add_verdicts, load_verdicts
from kraft.regression.verdicts import Verdict, VerdictKind, VerdictLedger, in_force
from tests.harness.result_documents import document, save

KEY = SeriesKey("bench.py", "test_a", "{}", "machine", "project", "main")
ANA = Judgement("ana", "why")


def verdict(number: int, **given: object) -> Verdict:
    made = Verdict(
        id=f"{number:032x}",
        kind=VerdictKind.ACCEPT,
        time_us=0,
        author="ana",
        reason="why",
        key=KEY,
        statistic="median",
        is_worse=True,
    )
    return replace(made, **given)  # type: ignore[arg-type]


# The ledger


def test_verdicts_are_read_back_unchanged_in_their_order(tmp_path: Path) -> None:
    assert load_verdicts(tmp_path, now_us=7) == VerdictLedger((), 7)
    full = verdict(
        2,
        size_param="size",
        replaces="a" * 32,
        run_before="r1",
        run_after="r2",
        commit_before="c1",
        commit_after="c2",
        surely_old_run="r0",
        surely_new_run="r4",
        ratio=1.2,
        ratio_low=1.1,
        ratio_high=1.3,
        limit=1.3,
        within=5,
        within_commits=True,
        until_us=1_800_000_000_000_001,
    )
    first = add_verdicts(tmp_path, [verdict(9), full])
    second = add_verdicts(tmp_path, [verdict(1)])
    found = load_verdicts(tmp_path, now_us=7)
    assert found == VerdictLedger(tuple(sorted(first, key=lambda each: each.id)) + tuple(second), 7)
    assert [replace(each, time_us=0) for each in first] == [verdict(9), full]


def test_a_later_verdict_is_newer_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = add_verdicts(tmp_path, [verdict(1)])
    monkeypatch.setattr("kraft.regression.verdict_store.time.time_ns", lambda: 5_000)
    (second,) = add_verdicts(tmp_path, [verdict(2)])
    assert second.time_us == first.time_us + 1
    assert in_force(load_verdicts(tmp_path).verdicts)[0].id == second.id


def add_some(store: str, writer: int) -> None:
    for number in range(10):
        ids = (100 * writer + 2 * number, 100 * writer + 2 * number + 1)
        add_verdicts(store, [verdict(each) for each in ids])


def test_concurrent_writers_lose_and_double_nothing(tmp_path: Path) -> None:
    """They also create the ledger at the same time, and merge its files."""
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=add_some, args=(str(tmp_path), writer)) for writer in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert [worker.exitcode for worker in workers] == [0] * 4
    found = [each.id for each in load_verdicts(tmp_path).verdicts]
    assert len(found) == 80
    assert set(found) == {
        verdict(100 * writer + number).id for writer in range(4) for number in range(20)
    }
    assert len(DeltaTable(str(tmp_path / FOLDER)).file_uris()) < 40


def test_a_killed_writer_leaves_all_or_nothing(tmp_path: Path) -> None:
    """A file that no version names is not read."""
    add_verdicts(tmp_path, [verdict(1)])
    (file,) = (tmp_path / FOLDER).glob("*.parquet")
    (tmp_path / FOLDER / "verdicts-killed.parquet").write_bytes(file.read_bytes())
    assert len(load_verdicts(tmp_path).verdicts) == 1


def test_cleaning_the_store_leaves_the_ledger(tmp_path: Path) -> None:
    store = tmp_path / "store"
    paths = [
        save(tmp_path / "runs" / f"{hour}.json", document(at=hour, values={"test_a": [1.0]}))
        for hour in range(33)
    ]
    ingest([paths[0]], store)
    add_verdicts(store, [verdict(1)])
    (store / "part-old.parquet").write_bytes(b"not whole")
    for folder, _, names in os.walk(store):
        for name in names:
            aged = (Path(folder) / name).stat().st_mtime - 31 * 86_400
            os.utime(Path(folder) / name, (aged, aged))
    for path in paths[1:]:
        ingest([path], store)
    assert not (store / "part-old.parquet").exists()  # a merge cleaned the store
    assert len(load_verdicts(store).verdicts) == 1
    assert len(list_runs(store)) == 33


def test_a_ledger_of_a_later_kraft_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    add_verdicts(tmp_path, [verdict(1)])
    table = DeltaTable(str(tmp_path / FOLDER)).to_pyarrow_table()
    wider = table.append_column("mood", [["calm"]])
    write_deltalake(str(tmp_path / "later" / FOLDER), wider)
    add_verdicts(tmp_path / "later", [verdict(2)])
    assert [each.id[-1] for each in load_verdicts(tmp_path / "later").verdicts] == ["1", "2"]
    write_deltalake(str(tmp_path / "other" / FOLDER), table.select(["id", "kind"]))
    with pytest.raises(StorageError, match="not a ledger of verdicts: no column 'time'"):
        load_verdicts(tmp_path / "other")
    log = tmp_path / FOLDER / "_delta_log" / f"{0:020}.json"
    log.write_bytes(log.read_bytes()[:50])
    with pytest.raises(StorageError, match="cannot be read"):
        load_verdicts(tmp_path)


# The change to which a verdict belongs


def series(values: list[float]) -> Series:
    count = len(values)
    return Series(
        key=KEY,
        run_id=np.array([f"r{number}" for number in range(count)], dtype=object),
        time_us=np.arange(count, dtype=np.int64),
        commit=np.array([f"c{number}" for number in range(count)], dtype=object),
        value=np.array(values),
    )


def points_of(values: list[float]) -> tuple[ChangePoint, ...]:
    return series_analysis.analyse(series(values), AnalysisSettings()).change_points


def judged(values: list[float], verdicts: list[Verdict]) -> list[ChangePoint]:
    """Return the change points of an analysis with the verdicts."""
    given = series(values)
    finding = series_analysis.analyse(given, AnalysisSettings())
    found = with_verdicts(
        [finding],
        [],
        VerdictLedger(tuple(verdicts), 0),
        [str(run) for run in given.run_id],
        lambda keys: {KEY: given},
        NO_RULES,
        "median",
    )
    return list(found.findings[0].change_points)


def accepted(point: ChangePoint) -> list[Verdict]:
    return verdicts_on_changes(VerdictKind.ACCEPT, [JudgedChange(point)], ANA)


def test_a_verdict_stays_attached_when_later_runs_move_the_estimate() -> None:
    """A change of 3 to 5 % at 2 % noise is accepted when it is found; 40 runs raise no alarm."""
    source = np.random.default_rng(19)
    found = moved = 0
    for size in (1.03, 1.04, 1.05) * 14:
        values = source.normal(1, 0.02, 30).tolist() + (size * source.normal(1, 0.02, 72)).tolist()
        for runs in range(34, 62, 3):
            points = points_of(values[:runs])
            if points:
                break
        if not points:
            continue
        found += 1
        later = judged(values[: runs + 40], accepted(points[-1]))
        moved += points[-1].index not in [each.index for each in later]
        assert not any(map(is_alarm, later)), (size, runs, points, later)
    assert found >= 30
    assert moved >= 3  # otherwise nothing is tested


def test_the_position_of_an_unclear_change_is_wider_than_of_a_clear_one() -> None:
    source = np.random.default_rng(3)
    noise = source.normal(1, 0.02, 80)
    widths = []
    for size in (1.03, 1.3):
        values = noise * np.where(np.arange(80) >= 40, size, 1.0)
        first, last = position_interval(values, 0, 40, 80)
        assert first <= 40 - MARGIN_RUNS
        assert last >= 40 + MARGIN_RUNS
        widths.append(last - first)
    assert widths[0] > widths[1] == 2 * MARGIN_RUNS
    # Neither level becomes empty, and values without a logarithm have the margin only.
    assert position_interval(noise, 39, 40, 42) == (40, 41)
    assert position_interval(noise - 1, 0, 40, 80) == (38, 42)


def test_of_two_changes_beside_each_other_one_is_accepted() -> None:
    """The second worsening, two runs later, is inside of the interval of the first one."""
    steady = [1 + 0.001 * (number % 3) for number in range(60)]
    values = [
        each * (1.0 if at < 20 else 1.2 if at < 22 else 1.45) for at, each in enumerate(steady)
    ]
    (known,) = points_of(values[:22])
    assert known.index == 20
    later = judged(values, accepted(known))
    quiet = [each for each in later if each.verdict is not None and each.verdict.is_quiet]
    assert later
    assert len(quiet) < len(later)
    # A change back is no regression, and has no verdict.
    back = [each if at < 30 else 1.0 for at, each in enumerate(values[:22] + [1.2] * 18)]
    found = judged(back, accepted(known))
    assert [each.verdict is not None for each in found] == [True, False]


def test_the_newest_verdict_of_a_change_decides() -> None:
    values = [1.0 + 0.001 * (at % 3) + 0.2 * (at >= 20) for at in range(40)]
    (point,) = points_of(values)
    (first,) = accepted(point)
    second = replace(first, id="2" * 32, time_us=1, limit=1.1)
    (now,) = judged(values, [first, second])
    assert now.verdict is not None
    assert now.verdict.verdict.id == second.id
    assert not now.verdict.is_quiet
    (now,) = judged(values, [first, second, replace(first, id="3" * 32, replaces=second.id)])
    assert now.verdict is not None
    assert now.verdict.is_quiet


@pytest.mark.parametrize(
    "other",
    [
        {"statistic": "min"},
        {"size_param": "size"},
        {"is_worse": False},
        {"key": KEY._replace(machine="other")},
        {"key": KEY._replace(branch="other")},
        {"surely_old_run": "r30"},
        {"surely_new_run": "unknown"},
    ],
)
def test_a_verdict_on_something_else_does_not_count(other: dict[str, object]) -> None:
    values = [1.0 + 0.001 * (at % 3) + 0.2 * (at >= 20) for at in range(40)]
    (point,) = points_of(values)
    (verdict,) = accepted(point)
    (now,) = judged(values, [verdict])
    assert now.verdict is not None
    (now,) = judged(values, [replace(verdict, **other)])  # type: ignore[arg-type]
    assert now.verdict is None
