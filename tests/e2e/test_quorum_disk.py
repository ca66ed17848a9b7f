"""A disk that fails under a running node: the process ends with a reason, and retries nothing."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.harness.commands import PATIENCE_S, PLAIN, eventually
from tests.harness.nodes import LOAD_NODE, Controller, Controllers, load_command
from tests.harness.quorum_audit import Audit, Notes

pytestmark = pytest.mark.nodes

#: The limit of a file's size, as on a full disk.
LARGEST_FILE = 256 * 1024
#: Syncs of the log that succeed before the first failure.
GOOD_SYNCS = 100

Loaded = subprocess.Popen[str]


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))


def load(
    node: Controller,
    notes: Path,
    life: int,
    *,
    environment: Mapping[str, str] | None = None,
    is_limited: bool = False,
) -> Loaded:
    """Run a node that makes load until its standard input closes."""
    return Loaded(
        load_command(LOAD_NODE, node.file, notes, life),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**PLAIN, **(environment or {})},
        preexec_fn=limit_files if is_limited else None,
    )


@pytest.fixture
def failing_sync(tmp_path: Path) -> dict[str, str]:
    """Return the environment in which a sync fails."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and a linker that preloads")
    library = tmp_path / "failing_sync.so"
    source = Path(__file__).with_name("failing_sync.c")
    subprocess.run(
        [*compiler.split(), "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
    )
    return {"LD_PRELOAD": str(library), "FAIL_SYNC_AFTER": str(GOOD_SYNCS)}


@pytest.mark.parametrize("what", ["write", "sync"])
def test_a_disk_failure_ends_the_node_and_loses_nothing(
    what: str, failing_sync: dict[str, str], tmp_path: Path
) -> None:
    """The acknowledged records are in the log, and the next process continues it."""
    with Controllers(tmp_path, 1, {"controller.quorum.append.linger.ms": "0"}) as quorum:
        (node,) = quorum.all
        quorum.lay_out([node])
        notes_path = tmp_path / "notes"
        if what == "write":
            process, words = load(node, notes_path, 1, is_limited=True), "File too large"
        else:
            process, words = load(node, notes_path, 1, environment=failing_sync), "Input/output"
        with process:
            assert process.stderr is not None
            code, output = process.wait(PATIENCE_S), process.stderr.read()
        assert code == 1, output
        assert output.count("this node stops") == 1
        assert words in output
        assert str(node.metadata_log) in output
        assert "a sync was tried again" not in output

        audit = Audit({1: node.metadata_log}, {1: Notes(notes_path)})
        audit.check()
        acknowledged = audit.acknowledged
        assert acknowledged > 0

        with load(node, notes_path, 2) as process:
            notes = Notes(notes_path)

            def count() -> int:
                assert process.poll() is None, process.communicate()
                notes.read_on()
                return sum(one.count for one in notes.acknowledged)

            eventually(count, until=lambda many: many > acknowledged)
            process.kill()
        audit.check()
        assert audit.acknowledged > acknowledged
