"""``kraft bench``: add results to a store and list its runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.result_documents import document, save
from tests.unit.cli.conftest import Run

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for hour in range(3):
        content = document(at=hour, commit=f"c{hour}", values={"test_a": [1.0], "test_b": [2.0]})
        save(tmp_path / "runs" / f"{hour}.json", content)
    return tmp_path / "runs"


def test_runs_are_added_once_and_listed(kraft: Run, runs: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ran = kraft("bench", "ingest", runs, "--store", store)
    assert ran.code == 0
    assert "runs added" in ran.out
    assert ran.err == ""

    again = kraft("bench", "ingest", runs, "--store", store, "--json")
    assert (again.json["runs_added"], again.json["duplicate_runs"]) == (0, 3)

    listed = kraft("bench", "runs", "--store", store)
    assert [line.split()[1] for line in listed.lines[2:]] == [
        f"2026-01-01T0{hour}:00:00+00:00" for hour in range(3)
    ]
    as_json = kraft("bench", "runs", "--store", store, "--json").json
    assert [run["commit"] for run in as_json] == ["c0", "c1", "c2"]
    assert as_json[0]["points"] == 2


def test_the_runs_of_an_earlier_version_are_listed(kraft: Run, runs: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for hour in range(3):
        kraft("bench", "ingest", runs / f"{hour}.json", "--store", store)
    listed = kraft("bench", "runs", "--store", store, "--as-of", "1", "--json").json
    assert [run["commit"] for run in listed] == ["c0", "c1"]
    refused = kraft("bench", "runs", "--store", store, "--as-of", "later")
    assert (refused.code, refused.err) == (
        1,
        "error: 'later' is neither a version (12) nor a date (2026-11-21, 2026-11-21T14:30)\n",
    )


def test_a_store_of_an_earlier_kraft_is_converted(kraft: Run, tmp_path: Path) -> None:
    earlier = Path(__file__).parents[2] / "data" / "results-store-1"
    refused = kraft("bench", "runs", "--store", earlier)
    assert refused.code == 1
    assert f"kraft bench convert {earlier} --store NEW" in refused.err
    ran = kraft("bench", "convert", earlier, "--store", tmp_path / "store")
    assert ran.lines[1].split() == ["runs", "added", "3"]
    again = kraft("bench", "convert", earlier, "--store", tmp_path / "store", "--json")
    assert (again.json["runs_added"], again.json["duplicate_runs"]) == (0, 3)
    assert len(kraft("bench", "runs", "--store", tmp_path / "store", "--json").json) == 3


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("", "error: the name of the store is empty: write its directory\n"),
        ("s3:/bucket/x", "error: s3:/bucket/x: an object store is s3://bucket/…\n"),
        ("ftp://host/x", "error: ftp://host/x: Unknown scheme: ftp. "),
        ("hdfs://host/x", "error: hdfs://host/x: Generic HdfsObjectStore error: "),
    ],
)
def test_a_wrong_place_for_a_store_is_an_error_of_one_line(
    kraft: Run,
    runs: Path,
    store: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = kraft("bench", "ingest", runs, "--store", store)
    assert ran.code == 1
    assert ran.err.startswith(says)
    assert ran.err.count("\n") == 1
    assert "\x1b" not in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.parametrize("command", ["bench runs", "regress"])
def test_a_missing_package_names_the_extra(command: str) -> None:
    program = (
        "import sys; sys.modules['deltalake'] = None\n"
        f"sys.argv = ['kraft', *{command.split()}, '--store', 'nowhere']\n"
        "from kraft.cli import main; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode in (1, 2)
    assert "pip install 'kraft[regress]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_bad_file_is_reported_with_its_path_and_code_3(
    kraft: Run, runs: Path, tmp_path: Path
) -> None:
    (runs / "bad.json").write_text('{"benchmarks"')
    ran = kraft("bench", "ingest", runs, "--store", tmp_path / "store", "--json")
    assert ran.code == 3
    assert ran.json["runs_added"] == 3
    (problem,) = ran.json["problems"]
    assert problem["path"] == str(runs / "bad.json")
    assert "truncated" in problem["reason"]


def test_strict_fails_and_creates_no_store(kraft: Run, runs: Path, tmp_path: Path) -> None:
    (runs / "bad.json").write_text("[]")
    ran = kraft("bench", "ingest", runs, "--store", tmp_path / "store", "--strict")
    assert ran.code == 1
    assert ran.err.startswith(f"error: {runs / 'bad.json'}: not a pytest-benchmark result")
    assert not (tmp_path / "store").exists()


def test_host_names_can_be_ignored(kraft: Run, tmp_path: Path) -> None:
    for at, node in enumerate(("runner-x1", "runner-k9")):
        save(tmp_path / f"{node}.json", document(at=at, node=node, values={"t": [1.0]}))
    pattern = tmp_path / "runner-*.json"
    for options, count in (((), 2), (("--ignore-node",), 1)):
        store = tmp_path / f"store-{count}"
        kraft("bench", "ingest", pattern, "--store", store, *options)
        listed = kraft("bench", "runs", "--store", store, "--json").json
        assert len({run["machine"] for run in listed}) == count
